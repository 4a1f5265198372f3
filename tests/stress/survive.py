"""survive, upgrade: the process of a pool is killed, or hands it over to another one, again and again under programs that must
not notice.

Each program knows what is in its files. What it finds must be that, or it is told: a file that lost changes with the
process fails its next fsync(2) with EIO, once, and may then be as it was at some moment since the fsync before. So whoever
finds something else, or misses a name, asks by fsync; if that is successful, something was lost in silence. ENOTCONN is
never right.
"""

import errno
import fcntl
import io
import mmap
import multiprocessing
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import tarfile
import time
import traceback

from fsx import Fsx
from pool import BYTES, CENOTE, MEMORY_LOG, POOL, SEED, Pool, Wrong, read, say

# With so much room the kernel keeps what is written; with 512, writes meet the limit below which it does not.
MIB = int(os.environ.get("MIB", 4096))


class Told(Exception):
    """A loss that the program was told of."""


class Program:
    """One program with a folder of its own. `round` is repeated; `restart` follows a loss that was told."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.rounds = self.told = 0

    def work(self, stop, report):
        try:
            action = self.restart
            while not stop.is_set():
                try:
                    action()
                    self.rounds += action == self.round
                    action = self.round
                except (Told, OSError) as e:
                    # a file that was lost as a whole is stale for programs that have it open; close(2) may tell a loss, too
                    if isinstance(e, OSError) and e.errno not in (errno.ESTALE, errno.EIO):
                        raise
                    self.told += 1
                    action = self.restart
            report.put((type(self).__name__, self.rounds, self.told, None))
        except BaseException:    # whatever it is, it is the finding
            report.put((type(self).__name__, self.rounds, self.told, traceback.format_exc()))

    def restart(self):
        """Begins anew with what is there."""

    def path(self, name):
        return f"{self.folder}/{name}"

    def sync(self, descriptor):
        """fsync(2). Raises Told if something was lost."""
        try:
            os.fsync(descriptor)
        except OSError as e:
            if e.errno in (errno.EIO, errno.ESTALE):
                raise Told() from e
            raise

    def sync_names(self):
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            self.sync(folder)
        finally:
            os.close(folder)

    def missed(self, what, *descriptors):
        """Something is not as it was left: that must be told."""
        for descriptor in descriptors:
            self.sync(descriptor)
        self.sync_names()
        raise Wrong(f"lost in silence: {what}")


class WithFile(Program):
    """One that keeps a file open all the time."""

    FLAGS = os.O_RDWR | os.O_CREAT

    def restart(self):
        if hasattr(self, "file"):
            os.close(self.file)
        self.file = os.open(self.path("file"), self.FLAGS, 0o644)
        self.sync(self.file)
        self.sync_names()
        self.opened()

    def opened(self):
        """The file was opened, and all that is there is on disk."""


class Append(WithFile):
    """Appends lines; after a loss, what was not synced may be missing, also before what was appended later."""

    FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND

    def opened(self):
        there = read(self.path("file"))
        def may_be(byte, was):
            return byte in (0, was)

        if hasattr(self, "text") and not (
            self.synced <= len(there) <= len(self.text)
            and there[: self.synced] == self.text[: self.synced]
            and all(map(may_be, there, self.text))
        ):
            raise Wrong(f"appended: {len(there)} bytes are there, {self.synced} were synced, of {len(self.text)}")
        self.text, self.synced = there, len(there)

    def round(self):
        if len(self.text) > 1 << 20:
            # a sync may tell of an earlier loss, and the file be cut all the same
            self.synced = 0
            os.ftruncate(self.file, 0)
            self.sync(self.file)
            self.text, self.synced = b"", 0
        for _ in range(20):
            line = b"%d: %s\n" % (len(self.text), BYTES[: self.random.randrange(300)].hex().encode())
            # before: it may be there although its caller was told of an error
            self.text += line
            if os.write(self.file, line) != len(line):
                raise Wrong("a line was not written as a whole")
        self.sync(self.file)
        there = read(self.path("file"))
        if there != self.text:
            self.missed(f"{len(self.text)} bytes were appended and synced, {len(there)} are there", self.file)
        self.synced = len(self.text)


class Overwrite(WithFile):
    """Reads, writes, cuts at random places, beside a copy in memory. After a loss, what was not touched since the last fsync
    is as it was then."""

    SIZE, BLOCK = 300_000, 512

    def opened(self):
        there = read(self.path("file"))
        if hasattr(self, "synced"):
            for at in range(0, min(self.cut, len(self.synced)), self.BLOCK):
                end = min(at + self.BLOCK, self.cut, len(self.synced))
                if at // self.BLOCK not in self.touched and there[at:end] != self.synced[at:end]:
                    raise Wrong(f"bytes at {at} were synced, and not touched since")
        self.begin(there)

    def begin(self, contents):
        """All of it is on disk. Behind `cut` everything was touched."""
        self.model, self.synced = bytearray(contents), bytes(contents)
        self.touched, self.cut = set(), len(contents)

    def round(self):
        for _ in range(self.random.randrange(1, 25)):
            at = self.random.randrange(self.SIZE)
            data = BYTES[at : at + self.random.randrange(1, 9000)]
            kind = self.random.random()
            if kind < 0.1:
                del self.model[at:]
                self.model.extend(bytes(at - len(self.model)))
                self.cut = min(self.cut, at)
                os.ftruncate(self.file, at)
            elif kind < 0.6:
                self.model.extend(bytes(max(0, at - len(self.model))))
                self.model[at : at + len(data)] = data
                self.touched.update(range(at // self.BLOCK, (at + len(data)) // self.BLOCK + 1))
                os.pwrite(self.file, data, at)
            elif os.pread(self.file, len(data), at) != self.model[at : at + len(data)]:
                self.missed(f"bytes at {at}", self.file)
        self.sync(self.file)
        if read(self.path("file")) != self.model:
            self.missed("what was synced", self.file)
        self.begin(self.model)


class Mapped(WithFile):
    """Stores into a mapping, and looks by read(2)."""

    SIZE = 64 << 10

    def opened(self):
        os.ftruncate(self.file, self.SIZE)
        self.sync(self.file)
        self.map = mmap.mmap(self.file, self.SIZE)

    def round(self):
        for _ in range(30):
            at = self.random.randrange(self.SIZE - 8)
            self.map[at : at + 8] = self.random.randbytes(8)
        stored = self.map[:]
        try:
            self.map.flush()
        except OSError as e:
            if e.errno not in (errno.EIO, errno.ESTALE):
                raise
            raise Told() from e
        if os.pread(self.file, self.SIZE, 0) != stored or self.map[:] != stored:
            self.missed("what was stored and synced", self.file)


class Locked(WithFile):
    """Holds locks that nobody else may get."""

    def opened(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        fcntl.lockf(self.file, fcntl.LOCK_EX)

    def round(self):
        other = os.open(self.path("file"), os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise Wrong("another one got the lock by flock(2)")
        except BlockingIOError:
            pass
        finally:
            # not closed here: that would give up the lock of fcntl(2)
            child = os.fork()
            if child == 0:
                try:
                    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os._exit(1)
                except BlockingIOError:
                    os._exit(0)
                except OSError:
                    os._exit(2)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.close(other)
            fcntl.lockf(self.file, fcntl.LOCK_EX)
        if status:
            raise Wrong(f"another process asked for the lock by fcntl(2): {status}")
        time.sleep(0.002)


class Renames(Program):
    """Replaces a file as editors do, and moves names about."""

    def restart(self):
        for name in os.listdir(self.folder):
            if name != "document":
                os.unlink(self.path(name))
        self.sync_names()
        there = read(self.path("document")) if os.path.exists(self.path("document")) else b""
        if there[-9:] != b"whole end"[: len(there)] or self.number(there) < getattr(self, "synced", 0):
            raise Wrong(f"the document is {there[:20]!r} ... {there[-20:]!r}, {getattr(self, 'synced', 0)} was synced")
        self.version = self.synced = self.number(there)

    @staticmethod
    def number(document):
        return int(document[:12] or b"0")

    def round(self):
        self.version += 1
        text = b"%012d" % self.version + BYTES[: self.random.randrange(20000)] + b"whole end"
        descriptor = os.open(self.path("new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(descriptor, text)
            self.sync(descriptor)
            self.move("new", "document", descriptor)
        finally:
            os.close(descriptor)
        one, two, three, spare = "abcd"
        for name in (one, two, three):
            os.close(os.open(self.path(name), os.O_WRONLY | os.O_CREAT))
        for _ in range(10):
            for old, new in ((one, spare), (two, one), (three, two), (spare, three)):
                self.move(old, new)
        self.sync_names()
        if read(self.path("document")) != text:
            self.missed("the document that was put in place")
        if sorted(os.listdir(self.folder)) != [one, two, three, "document"]:
            self.missed(f"names: {sorted(os.listdir(self.folder))}")
        self.synced = self.version

    def move(self, old, new, *descriptors):
        try:
            os.rename(self.path(old), self.path(new))
        except FileNotFoundError:
            self.missed(f"name {old}", *descriptors)


class Untar(Program):
    """Unpacks a tree, syncs each file of it, and compares."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.files = {f"dir{i % 5}/file{i}": BYTES[i * 1000 : i * 1000 + self.random.randrange(30000)] for i in range(60)}
        self.archive = io.BytesIO()
        with tarfile.open(fileobj=self.archive, mode="w") as tar:
            for name, data in self.files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))

    def restart(self):
        shutil.rmtree(self.path("tree"), ignore_errors=True)
        self.sync_names()

    def round(self):
        done = subprocess.run(["tar", "-x", "-C", self.folder, "--one-top-level=tree"], input=self.archive.getvalue(),
                              stderr=subprocess.PIPE, check=False)
        if b"Transport endpoint" in done.stderr:
            raise Wrong(done.stderr.decode())
        try:
            for folder, _, names in os.walk(self.path("tree")):
                for name in (".", *names):
                    descriptor = os.open(f"{folder}/{name}", os.O_RDONLY)
                    try:
                        self.sync(descriptor)
                    finally:
                        os.close(descriptor)
        except FileNotFoundError as e:
            raise Told() from e
        self.sync_names()
        if done.returncode:
            # the folder that it had open is not there any more
            raise Told()
        for name, data in self.files.items():
            if not os.path.exists(self.path(f"tree/{name}")) or read(self.path(f"tree/{name}")) != data:
                self.missed(name)
        shutil.rmtree(self.path("tree"), ignore_errors=True)


class Database(Program):
    """SQLite: what was committed is there, and the file is whole, whatever it had to be told."""

    MODE = "delete"

    def restart(self):
        self.ask(self.begin)

    def begin(self):
        self.acked = getattr(self, "acked", 0)
        # the one before is closed without a word
        self.base = None
        self.base = sqlite3.connect(self.path("base"), isolation_level=None)
        self.base.execute(f"pragma journal_mode={self.MODE}")
        # with less, a journal that was removed may come back, and takes the last transaction with it
        self.base.execute("pragma synchronous=extra")
        self.base.execute("create table if not exists lines (number integer primary key, text blob)")
        if self.base.execute("pragma integrity_check").fetchall() != [("ok",)]:
            raise Wrong("the base is corrupt")
        last, count = self.base.execute("select coalesce(max(number), 0), count(*) from lines").fetchone()
        if last != count or last < self.acked:
            raise Wrong(f"{count} lines up to {last} are there, {self.acked} were committed")
        self.acked = last

    def ask(self, what):
        try:
            what()
        except sqlite3.DatabaseError as e:
            if "malformed" in str(e) or "not a database" in str(e):
                raise Wrong(f"the base is corrupt: {e}") from e
            raise Told() from e

    def round(self):
        self.ask(self.insert)

    def insert(self):
        self.base.execute("begin immediate")
        count = self.random.randrange(1, 6)
        for number in range(self.acked + 1, self.acked + count + 1):
            self.base.execute("insert into lines values (?, ?)", (number, BYTES[: self.random.randrange(2000)]))
        self.base.execute("commit")
        self.acked += count
        there = self.base.execute("select max(number) from lines").fetchone()[0]
        if there != self.acked:
            raise Wrong(f"{self.acked} lines were committed, {there} are there")


class DatabaseWithLog(Database):
    """The same with SQLite's write-ahead log, whose index is mapped by all."""

    MODE = "wal"


class RandomAccess(Program):
    """fsx: all that can be done to a file, beside a model of its bytes."""

    def restart(self):
        # after a loss that was told the model is what is there
        try:
            with open(self.path("fsx"), "rb") as file:
                model = file.read()
        except FileNotFoundError:
            model = b""
        self.fsx = Fsx(self.path("fsx"), model, self.random.random())
        self.fsx.open()
        self.sync(self.fsx.descriptor)

    def round(self):
        try:
            self.fsx.step()
        except Wrong as e:
            self.missed(f"{e}\n  " + "\n  ".join(self.fsx.last), self.fsx.descriptor)


PROGRAMS = [RandomAccess, Append, Overwrite, Mapped, Locked, Renames, Untar, Database, DatabaseWithLog]


def survive(kills=200, layout="mirror"):
    """Kills the process of the pool so often while all programs run. With a log in memory, or `sync=always`, nothing is lost."""
    chance = random.Random(SEED + 1)

    def kill(pool):
        killed = pool.kill()
        if chance.random() < 0.3:
            # while the next one takes over
            time.sleep(chance.random() / 2)
            killed += pool.kill()
        return killed, timed(pool)

    disturb("kills", kills, layout, kill, MEMORY_LOG < 64 << 20 and "sync=always" not in os.environ.get("OPTIONS", ""))


def upgrade(upgrades=100, layout="mirror"):
    """Has another process serve the pool so often while all programs run: none of them may be told of anything."""
    def hand_over(pool):
        before = pool.servers()
        handing_over = subprocess.Popen([CENOTE, "upgrade", POOL], env=pool.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        stalls = [0]
        while handing_over.poll() is None:
            stalls.append(timed(pool))
            time.sleep(0.001)
        if handing_over.returncode or pool.servers() == before:
            raise Wrong(f"upgrade: exit code {handing_over.returncode}, {handing_over.stdout.read().decode()}{pool.log()}")
        return 1, max(stalls)

    disturb("upgrades", upgrades, layout, hand_over, False)


def timed(pool):
    """How many seconds a request takes."""
    began = time.monotonic()
    os.statvfs(pool.mnt)
    return time.monotonic() - began


def disturb(what, times, layout, action, may_lose):
    """Does `action` so often while all programs run. It returns how often it did something, and for how long requests waited."""
    pauses = random.Random(SEED)
    with Pool(layout, mib=MIB, deaths_max=1 << 40) as pool:
        pool.create()
        stop, report = multiprocessing.Event(), multiprocessing.Queue()
        # fsx stores into mappings, which gives SIGBUS where a file has lost its end
        kinds = [program for program in PROGRAMS if not (may_lose and program is RandomAccess)]
        programs = [program(f"{pool.mnt}/{program.__name__}", SEED + i) for i, program in enumerate(kinds)]
        workers = [multiprocessing.Process(target=program.work, args=(stop, report)) for program in programs]
        for program in programs:
            os.mkdir(program.folder)
        pool.run("zpool", "sync")
        for worker in workers:
            worker.start()
        stalls, done = [], 0
        while done < times and report.empty():
            time.sleep(pauses.random())
            try:
                count, stall = action(pool)
            except (OSError, Wrong) as e:
                stop.set()
                raise Wrong(f"after {done} {what}: {e}{pool.log()}") from e
            done += count
            stalls.append(stall)
            if done % 100 == 0:
                say(f"{done} {what}")
        stop.set()
        wrong = []
        for _ in workers:
            try:
                name, rounds, told, error = report.get(timeout=120)
            except Exception as e:
                raise Wrong(f"a program hangs after {done} {what}: {e!r}{pool.log()}") from e
            say(f"{name}: {rounds} rounds, {told} losses told")
            wrong += [f"{name}: {error}"] if error else []
            if not error and not rounds:
                wrong.append(f"{name} did nothing")
            if told and not may_lose:
                wrong.append(f"{name} was told of losses")
        for worker in workers:
            worker.join()
        if wrong:
            raise Wrong("\n".join(wrong) + pool.log())
        say(f"{done} {what}, stalls: median {statistics.median(stalls):.3f} s, longest {max(stalls):.3f} s")
        pool.export()
        pool.zdb()
