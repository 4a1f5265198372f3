"""apps: programs that people run on file systems."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

from pool import Pool, Wrong, say


def program(*words, cwd, **more):
    done = subprocess.run(words, cwd=cwd, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode:
        raise Wrong(f"{' '.join(words)}: status {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def app_fio(pool):
    os.mkdir(f"{pool.mnt}/fio")
    for engine, direct in (("psync", 0), ("libaio", 1), ("mmap", 0)):
        program("fio", "--name=v", "--numjobs=3", "--rw=randrw", "--bsrange=4k-1m", "--size=32m", f"--ioengine={engine}",
                f"--direct={direct}", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--fsync=50",
                "--group_reporting", "--loops=2", "--fallocate=none", cwd=f"{pool.mnt}/fio")


def app_sqlite(pool):
    """Programs that write to databases are killed in the middle; what they had committed is there."""
    for mode in ("delete", "wal", "truncate"):
        path, there, code = f"{pool.mnt}/db-{mode}", -1, (
            "import sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1])\n"
            "db.execute('pragma journal_mode = ' + sys.argv[2])\n"
            "db.execute('create table if not exists t (n integer primary key, data blob)')\n"
            "n = (db.execute('select max(n) from t').fetchone()[0] or 0) + 1\n"
            "while True:\n"
            "    with db: db.execute('insert into t values (?, randomblob(? % 9000))', (n, n * 7919))\n"
            "    print(n, flush=True)\n"
            "    n += 1\n")
        for _ in range(4):
            with subprocess.Popen([sys.executable, "-c", code, path, mode], stdout=subprocess.PIPE, text=True) as writer:
                for line in writer.stdout:
                    there = int(line)
                    if there % 20 == 0:
                        writer.kill()
                        break
                there = max([there, *map(int, writer.stdout.read().split())])
            db = sqlite3.connect(path)
            if db.execute("pragma integrity_check").fetchone() != ("ok",):
                raise Wrong(f"{path} is broken")
            if db.execute("select max(n) from t").fetchone()[0] < there:
                raise Wrong(f"{path} lost row {there}")
            db.close()


def app_make(pool):
    """Builds a library of C, twice, and the second time there is nothing to do."""
    sources = f"{os.path.expanduser('~')}/.cargo/registry/src"
    found = [f"{sources}/{index}/{crate}/liblz4" for index in os.listdir(sources)
             for crate in os.listdir(f"{sources}/{index}") if crate.startswith("lz4-sys")]
    shutil.copytree(f"{found[0]}/lib", f"{pool.mnt}/lz4")
    with open(f"{pool.mnt}/lz4/Makefile", "w") as file:
        file.write("liblz4.a: lz4.o lz4hc.o lz4frame.o xxhash.o\n\tar rcs $@ $^\n\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n")
    program("make", "-j3", cwd=f"{pool.mnt}/lz4")
    if "up to date" not in program("make", cwd=f"{pool.mnt}/lz4"):
        raise Wrong("make makes it again: times of files are wrong")


def app_bonnie(pool):
    program("bonnie++", "-d", pool.mnt, "-s", "192", "-r", "96", "-n", "4:20000:10:4", "-u", "root", "-q", cwd=pool.mnt)


def app_dbench(pool):
    program("dbench", "-t", "15", "-c", "/usr/share/dbench/client.txt", "4", cwd=pool.mnt)


APPS = {"fio": app_fio, "sqlite": app_sqlite, "make": app_make, "bonnie": app_bonnie, "dbench": app_dbench}


def apps(*names):
    with Pool("mirror", mib=2048) as pool:
        pool.create()
        for name in names or APPS:
            if name != "sqlite" and not shutil.which({"bonnie": "bonnie++"}.get(name, name)):
                print(f"\nSKIPPED: {name} is not installed\n")
                continue
            began = time.monotonic()
            APPS[name](pool)
            took = time.monotonic() - began
            pool.export()
            pool.zdb()
            pool.load()
            say(f"ok {name}, {took:.0f} s")
        pool.export()
