"""database: PostgreSQL works on a pool whose process is killed, again and again.

pgbench moves money: after each kill the sums of accounts, tellers, branches and of the history are equal, or
something of a transaction was lost or is there without the rest. No transaction that pgbench was told of as
committed is missing from the history. And pg_amcheck finds no table or index damaged.
"""

import glob
import os
import random
import re
import shutil
import signal
import subprocess
import time

from pool import POOL, SEED, Pool, Wrong, say

SCALE, CLIENTS = 3, 8
SUMS = ("select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches),"
        " (select sum(tbalance) from pgbench_tellers), (select coalesce(sum(delta), 0) from pgbench_history),"
        " (select count(*) from pgbench_history)")


class Postgres:
    """A server whose data are on the pool, and whose sockets and messages are not."""

    def __init__(self, pool):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        self.bin, self.pool, self.data, self.own = found[-1], pool, f"{pool.mnt}/pg/data", f"{pool.dir}/pg"
        os.mkdir(self.own)
        shutil.chown(self.own, "postgres")
        os.chmod(pool.dir, 0o755)

    def words(self, name, *words):
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", f"{self.bin}/{name}", *words]

    def run(self, name, *words):
        done = subprocess.run(self.words(name, *words), cwd=self.own, text=True, check=False, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise Wrong(f"{name} {' '.join(words)}: status {done.returncode}\n{done.stdout[-3000:]}\n{self.messages()}{self.pool.log()}")
        return done.stdout

    def messages(self):
        try:
            with open(f"{self.own}/messages") as file:
                return file.read()[-3000:]
        except OSError:
            return ""

    def create(self):
        self.pool.run("zfs", "create", f"{POOL}/pg")
        self.make(SCALE, "shared_buffers = 32MB", "checkpoint_timeout = 30s", "max_wal_size = 64MB", "min_wal_size = 32MB")
        self.run("psql", "-h", self.own, "-c", "create extension amcheck", "postgres")

    def make(self, scale, *settings):
        """A database in an empty folder pg, started, with the tables of pgbench."""
        shutil.chown(f"{self.pool.mnt}/pg", "postgres")
        self.run("initdb", "-D", self.data, "-A", "trust", "--no-locale")
        with open(f"{self.data}/postgresql.conf", "a") as file:
            file.write("\n".join(["listen_addresses = ''", f"unix_socket_directories = '{self.own}'", *settings, ""]))
        self.start()
        self.run("pgbench", "-h", self.own, "-i", "-q", "-s", str(scale), "postgres")

    def stop(self):
        self.run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")

    def transactions(self, clients, seconds, *words):
        """How many pgbench gets a second, and what one takes in ms."""
        out = self.run("pgbench", "-h", self.own, "-n", "-c", str(clients), "-T", str(seconds), *words, "postgres")
        return float(re.search(r"tps = ([\d.]+)", out)[1]), float(re.search(r"latency average = ([\d.]+)", out)[1])

    def start(self):
        if os.path.exists(f"{self.data}/postmaster.pid"):    # of a dead one, which nobody may have waited for
            os.unlink(f"{self.data}/postmaster.pid")
        open(f"{self.own}/messages", "w").close()
        shutil.chown(f"{self.own}/messages", "postgres")
        self.run("pg_ctl", "-D", self.data, "-l", f"{self.own}/messages", "-w", "-t", "120", "start")

    def load(self, log):
        return subprocess.Popen(self.words("pgbench", "-h", self.own, "-n", "-c", str(CLIENTS), "-T", "600", "-l", f"--log-prefix={log}", "postgres"),
                                cwd=self.own, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        """Ends whatever process has its files here."""
        until = time.monotonic() + 60
        while pids := [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self.is_ours(pid, self.data)]:
            if time.monotonic() > until:
                raise Wrong(f"PostgreSQL does not die: {pids}{self.pool.log()}")
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        for path in glob.glob(f"{self.own}/.s.PGSQL*"):
            os.unlink(path)

    @staticmethod
    def is_ours(pid, folder):
        """All of its processes stand in its folder."""
        try:
            return os.readlink(f"/proc/{pid}/cwd").startswith(folder)
        except OSError:
            return False

    def sums(self):
        return [int(word) for word in self.run("psql", "-h", self.own, "-At", "-F", " ", "-c", SUMS, "postgres").split()]


def survive_database(kills=100, layout="log"):
    """Kills the process of the pool so often under PostgreSQL, which goes on, as does pgbench: neither may be told of anything."""
    if not glob.glob("/usr/lib/postgresql/*/bin/pgbench"):
        print("\nSKIPPED: PostgreSQL is not installed\n")
        return
    rand = random.Random(SEED)
    with Pool(layout, mib=1024, deaths_max=1 << 40) as pool:
        pool.create()
        server = Postgres(pool)
        try:
            server.create()
            there, log = server.sums()[-1], f"{server.own}/log"
            with server.load(log) as bench:
                for number in range(1, kills + 1):
                    time.sleep(rand.random())
                    pool.kill()
                    os.statvfs(pool.mnt)
                    if bench.poll() is not None:
                        raise Wrong(f"kill {number}: pgbench ended with {bench.returncode}\n{server.messages()}{pool.log()}")
                # before it is told that its clients are gone
                messages = server.messages()
                bench.send_signal(signal.SIGINT)
                bench.wait(120)
            *sums, count = server.sums()
            told = sum(len(open(path).readlines()) for path in glob.glob(f"{log}.*"))
            server.run("pg_amcheck", "-h", server.own, "--heapallindexed", "-d", "postgres")
            if len(set(sums)) != 1 or count < there + told or re.search("PANIC|FATAL|ERROR:  could not", messages):
                raise Wrong(f"sums {sums}, {told} transactions committed, {count - there} there\n{messages}")
            say(f"{kills} kills, {told} transactions, no error")
            server.stop()
        finally:
            server.kill()
        pool.export()
        pool.zdb()


def database(rounds=200, layout="log"):
    if not glob.glob("/usr/lib/postgresql/*/bin/pgbench"):
        print("\nSKIPPED: PostgreSQL is not installed\n")
        return
    rand, began, total = random.Random(SEED), time.monotonic(), 0
    with Pool(layout, mib=1024) as pool:
        pool.create()
        server = Postgres(pool)
        try:
            server.create()
            there = server.sums()[-1]
            for number in range(1, rounds + 1):
                log = f"{server.own}/log{number}"
                with server.load(log) as bench:
                    time.sleep(rand.uniform(0.5, 3))
                    if pool.kill() != 1:
                        raise Wrong(f"round {number}: the pool's process was gone already{pool.log()}")
                    server.kill()
                    bench.wait(120)
                pool.unmount()
                if number % 10 == 1:
                    pool.zdb()
                pool.load()
                server.start()
                *sums, count = server.sums()
                told = sum(len(open(path).readlines()) for path in glob.glob(f"{log}.*"))
                if len(set(sums)) != 1:
                    raise Wrong(f"round {number}: the sums differ: {sums}")
                if count < there + told:
                    raise Wrong(f"round {number}: {told} transactions were committed, {count - there} are there")
                server.run("pg_amcheck", "-h", server.own, "--heapallindexed", "-d", "postgres")
                there, total = count, total + told
                for path in glob.glob(f"{log}.*"):
                    os.unlink(path)
                if number % 10 == 0 or number == rounds:
                    say(f"{number} kills, {total} transactions, {time.monotonic() - began:.0f} s")
            server.run("pg_ctl", "-D", server.data, "-m", "fast", "stop")
        finally:
            server.kill()
        pool.export()
        pool.zdb()
