"""kill: the process of a pool under load is killed, and what is there must be a state that was promised.

Each writer keeps a journal of its operations, and a state of its folder after each. What is there after the
kill must be one of these states, none older than the last `zpool sync`, or one in the middle of an operation:
what one thread does reaches the disk in its order, as requests are applied to transaction groups in the order
they come in, and a group is there wholly or not at all.

Nobody calls fsync here: that brings one file's data to the log, and all names, and no state of the whole folder.
See `database`, and the tests of the engine (`crash::promises`).
"""

import errno
import hashlib
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import time

from pool import BYTES, CENOTE, POOL, SEED, Pool, Wrong, read, say


class Writer:
    """One process that works in its own folder, and knows which states that folder may be in."""

    def __init__(self, env, folder, files, seed):
        self.env, self.folder, self.files, self.random = env, folder, dict(files), random.Random(seed)
        self.acked, self.journal, self.acks = dict(files), [], 0

    def content(self, most):
        length = self.random.randrange(self.random.choice((200, 5000, 40000, most)))
        at = self.random.randrange(len(BYTES) - length)
        return BYTES[at : at + length]

    def begin(self, *operation):
        """Into the journal before it is done: it may be done when the error comes."""
        self.journal.append(operation)

    def step(self):
        pick, names = self.random.random(), sorted(self.files)
        name = f"f{self.random.randrange(40)}"
        path = f"{self.folder}/{name}"
        if pick < 0.45 or not names:
            data = self.content(300_000)
            self.begin("new", name, data)
            with open(path, "wb", buffering=0) as file:
                at = 0
                while at < len(data):
                    at += file.write(data[at : at + 65536])
            if self.random.random() < 0.05:
                self.apply()
                return self.sync()
        elif pick < 0.65:
            name = self.random.choice(names)
            old, data = self.files[name], self.content(60_000)
            self.begin("over", name, self.random.randrange(len(old) + 1), data)
            descriptor = os.open(f"{self.folder}/{name}", os.O_WRONLY)
            try:
                os.pwrite(descriptor, data, self.journal[-1][2])
            finally:
                os.close(descriptor)
        elif pick < 0.80:
            name = self.random.choice(names)
            other = f"f{self.random.randrange(40)}"
            if name == other:
                return None
            self.begin("move", name, other)
            os.rename(f"{self.folder}/{name}", f"{self.folder}/{other}")
        elif pick < 0.9:
            name = self.random.choice(names)
            self.begin("drop", name)
            os.unlink(f"{self.folder}/{name}")
        elif pick < 0.97:
            name = self.random.choice(names)
            self.begin("cut", name, self.random.randrange(2 * len(self.files[name]) + 1))
            os.truncate(f"{self.folder}/{name}", self.journal[-1][2])
        else:
            return self.sync()
        return self.apply()

    def sync(self):
        done = subprocess.run([CENOTE, "zpool", "sync", POOL], env=self.env, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode:
            raise OSError(errno.EIO, "the pool's process is gone")
        self.ack()

    def apply(self):
        change(self.files, self.journal[-1])

    def ack(self):
        self.acked, self.journal = dict(self.files), []
        self.acks += 1

    def work(self, report):
        error, steps = None, 0
        try:
            os.makedirs(self.folder, exist_ok=True)
            while True:
                self.step()
                steps += 1
        except OSError as e:
            error = e
        with open(report, "wb") as file:
            pickle.dump((self.acked, self.journal, self.acks, steps, error), file)


def change(files, operation):
    """What an operation makes of a folder."""
    kind, name, *rest = operation
    if kind == "new":
        files[name] = rest[0]
    elif kind == "over":
        at, data = rest
        old = files[name]
        files[name] = old[:at] + data + old[at + len(data) :]
    elif kind == "move":
        files[rest[0]] = files.pop(name)
    elif kind == "drop":
        del files[name]
    elif kind == "cut":
        files[name] = files[name][: rest[0]].ljust(rest[0], b"\0")


def in_the_middle(files, operation, found):
    """Is `found` what is there while the operation is done to `files`?"""
    kind, name, *rest = operation
    if kind not in ("new", "over"):
        return False
    others = {other: data for other, data in files.items() if other != name}
    if name not in found or {other: data for other, data in found.items() if other != name} != others:
        return False
    if kind == "new":
        return rest[0].startswith(found[name])
    at, data = rest
    old = files[name]
    # a request ends at a page, unless it is the last; a transaction at a block
    ends = [0, *range(-at % 512, len(data), 512), len(data)]
    return any(found[name] == old[:at] + data[:n] + old[at + n :] for n in ends)


def judge(folder, acked, journal):
    """What the folder holds, if it may; how many operations after the last sync it knows of."""
    found = {name: read(f"{folder}/{name}") for name in os.listdir(folder)} if os.path.isdir(folder) else {}
    files = dict(acked)
    if found == files:
        return found, 0
    for i, operation in enumerate(journal):
        if in_the_middle(files, operation, found):
            return found, i
        change(files, operation)
        if found == files:
            return found, i + 1
    raise Wrong(f"{folder}: in no state it was in since its last sync\n{differences(acked, journal, found)}")


def differences(acked, journal, found):
    def text(data):
        return "none" if data is None else f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:8]}"
    lines = []
    for name in sorted(set(acked) | set(found)):
        if acked.get(name) != found.get(name):
            lines.append(f"  {name}: at sync {text(acked.get(name))}, now {text(found.get(name))}")
    for operation in journal:
        lines.append("  then " + " ".join(text(word) if isinstance(word, bytes) else str(word) for word in operation))
    return "\n".join(lines)


def kill(rounds=200, layout="mirror", writers=4):
    rand, began = random.Random(SEED), time.monotonic()
    acks = steps = beyond = during_import = 0
    with Pool(layout) as pool:
        pool.create()
        pool.run("zfs", "create", "-p", f"{POOL}/fs/in/deep")    # mounted inside one another
        folders = [f"{pool.mnt}/{'fs/' if i % 2 else ''}w{i}" for i in range(writers)]
        states = [{} for _ in folders]
        for number in range(1, rounds + 1):
            reports = [f"{pool.dir}/report{i}" for i in range(writers)]
            running = [
                multiprocessing.Process(target=Writer(pool.env, folder, state, rand.random()).work, args=(report,))
                for folder, state, report in zip(folders, states, reports)
            ]
            for process in running:
                process.daemon = True
                process.start()
            time.sleep(rand.choice((0.05, 0.4, 1.2)) * (1 + rand.random()))
            if pool.kill() != 1:
                raise Wrong(f"round {number}: the pool's process was gone already{pool.log()}")
            for process in running:
                process.join(60)
                if process.exitcode != 0:
                    raise Wrong(f"round {number}: a writer hangs or failed: {process.exitcode}")
            if rand.random() < 0.5:    # else import has to clear the mounts away
                pool.unmount()
            pool.zdb()
            if rand.random() < float(os.environ.get("IMPORT_KILLS", "0.15")):
                during_import += kill_import(pool, rand)
            pool.load()
            for i, (folder, report) in enumerate(zip(folders, reports)):
                with open(report, "rb") as file:
                    acked, journal, its_acks, its_steps, error = pickle.load(file)
                if error.errno not in (5, 103, 107):    # EIO, ECONNABORTED, ENOTCONN
                    raise Wrong(f"round {number}: {error}{pool.log()}")
                try:
                    states[i], more = judge(folder, acked, journal)
                except Wrong as e:
                    raise Wrong(f"round {number}: {e}") from e
                acks, steps, beyond = acks + its_acks, steps + its_steps, beyond + more
            if number % 10 == 0 or number == rounds:
                say(f"{number} kills, {steps} operations, {acks} syncs, {beyond} operations there without one,",
                    f"{during_import} more kills during import, {time.monotonic() - began:.0f} s")
        pool.export()
        pool.zdb()
        pool.load()
        for folder, state in zip(folders, states):
            judge(folder, state, [])
        pool.export()


def kill_import(pool, rand):
    """Starts an import, and kills it at some time."""
    with subprocess.Popen([CENOTE, "zpool", "import", "-d", f"{pool.dir}/img", "-o", "cachefile=none", "-R", f"{pool.dir}/mnt", POOL],
                          env=pool.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        time.sleep(rand.random() * rand.choice((0.06, 0.3)))    # while it reads, or while it mounts
        killed = pool.kill()
        command.wait(60)
    killed += pool.kill()    # it may have begun after the first look
    if rand.random() < 0.5:
        pool.unmount()
    pool.zdb()
    return int(killed > 0)
