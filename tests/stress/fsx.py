"""fsx: random input and output on files, beside a model of their bytes."""

import ctypes
import mmap
import multiprocessing
import os
import pickle
import random
import time

from pool import BYTES, POOL, SEED, Pool, Wrong, say

KEEP_SIZE, PUNCH, ZERO = 1, 2, 16    # fallocate(2)
LIBC = ctypes.CDLL(None, use_errno=True)


def fallocate(descriptor, mode, at, length):
    if LIBC.fallocate(descriptor, mode, ctypes.c_long(at), ctypes.c_long(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Fsx:
    """One file, and the bytes it must have."""

    LARGEST = 3 << 20

    def __init__(self, path, model, seed):
        self.path, self.model, self.random, self.last = path, bytearray(model), random.Random(seed), []
        self.descriptor = -1

    def open(self):
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)

    def close(self):
        os.close(self.descriptor)

    def area(self, most, end=None):
        end = self.LARGEST if end is None else end
        length = 1 + self.random.randrange(self.random.choice((16, 512, 4096, 70_000, most)))
        at = self.random.randrange(max(1, end))
        if self.random.random() < 0.3:
            at &= ~4095
        return at, max(0, min(length, end - at))

    def put(self, at, data):
        if at > len(self.model):
            self.model.extend(bytes(at - len(self.model)))
        self.model[at : at + len(data)] = data

    def bytes(self, length):
        at = self.random.randrange(len(BYTES) - length)
        return BYTES[at : at + length]

    def write(self):
        # near the end rather than far behind it, most of the time
        at, length = self.area(600_000, min(self.LARGEST, len(self.model) + 100_000) if self.random.random() < 0.9 else None)
        data = self.bytes(length)
        os.pwrite(self.descriptor, data, at)
        self.put(at, data)
        return at, length

    def append(self):
        if len(self.model) > self.LARGEST - 100_000:
            return None
        data = self.bytes(self.random.randrange(100_000))
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, data)
        os.close(descriptor)
        self.put(len(self.model), data)
        return len(data)

    def read(self):
        at, length = self.area(1_000_000)
        self.same(os.pread(self.descriptor, length, at), at, length)
        return at, length

    def same(self, got, at, length):
        want = bytes(self.model[at : at + length])
        if got != want:
            place = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            raise Wrong(f"{self.path}: byte {at + place} is wrong (read {len(got)} bytes at {at}, not {len(want)}): "
                        f"{got[place : place + 16].hex()} not {want[place : place + 16].hex()}")

    def cut(self):
        length = self.random.randrange(self.LARGEST if self.random.random() < 0.3 else len(self.model) + 1)
        os.ftruncate(self.descriptor, length)
        del self.model[length:]
        self.model.extend(bytes(length - len(self.model)))
        return length

    def punch(self):
        at, length = self.area(700_000)
        if length == 0:
            return None
        mode = self.random.choice((PUNCH | KEEP_SIZE, ZERO | KEEP_SIZE, ZERO, 0, KEEP_SIZE))
        try:
            fallocate(self.descriptor, mode, at, length)
        except OSError as e:
            if e.errno == 95:    # EOPNOTSUPP
                return f"mode {mode} is not there"
            raise
        if not mode & KEEP_SIZE and at + length > len(self.model):
            self.model.extend(bytes(at + length - len(self.model)))
        if mode & (PUNCH | ZERO):
            end = min(at + length, len(self.model))
            if end > at:
                self.model[at:end] = bytes(end - at)
        return mode, at, length

    def mapped(self):
        if not self.model:
            return None
        with mmap.mmap(self.descriptor, len(self.model)) as memory:
            at, length = self.area(200_000, len(self.model))
            if self.random.random() < 0.5:
                self.same(memory[at : at + length], at, length)
                return "read", at, length
            data = self.bytes(length)
            memory[at : at + length] = data
            self.put(at, data)
            if self.random.random() < 0.5:
                memory.flush()
            return "write", at, length

    def copy(self):
        if len(self.model) < 100:
            return None
        at, length = self.area(300_000, len(self.model))
        to = self.random.randrange(self.LARGEST - length)
        if abs(at - to) < length:
            return None
        done = os.copy_file_range(self.descriptor, self.descriptor, length, at, to)
        self.put(to, bytes(self.model[at : at + done]))
        return at, to, done

    def holes(self):
        """What is said to be a hole is zeros, and data ends where it is said to."""
        at, size = 0, len(self.model)
        while at < size:
            try:
                data = os.lseek(self.descriptor, at, os.SEEK_DATA)
            except OSError as e:
                if e.errno != 6:    # ENXIO: no more data
                    raise
                data = size
            if any(self.model[at:data]) or data < at:
                raise Wrong(f"{self.path}: SEEK_DATA from {at} says {data}, and there is data before it")
            if data >= size:
                break
            # zeros that are written are data until they are on disk, and the hole is found in between
            at = os.lseek(self.descriptor, data, os.SEEK_HOLE)
            if not data <= at <= size:
                raise Wrong(f"{self.path}: SEEK_HOLE from {data} says {at} of {size}")
        return None

    def sync(self):
        self.random.choice((os.fsync, os.fdatasync))(self.descriptor)

    def reopen(self):
        os.close(self.descriptor)
        other = f"{self.path}-moved"
        os.rename(self.path, other)
        os.rename(other, self.path)
        self.descriptor = os.open(self.path, os.O_RDWR)

    def whole(self):
        size = os.fstat(self.descriptor).st_size
        if size != len(self.model):
            raise Wrong(f"{self.path}: size {size}, not {len(self.model)}")
        self.same(os.pread(self.descriptor, size + 1, 0), 0, size + 1)

    def step(self):
        kinds = [self.write] * 8 + [self.read] * 6 + [self.append, self.cut, self.cut, self.punch, self.punch, self.punch,
                 self.mapped, self.mapped, self.copy, self.holes, self.reopen, self.whole]
        kind = self.sync if self.random.random() < 0.004 else self.random.choice(kinds)
        self.last = self.last[-30:] + [f"{kind.__name__} at size {len(self.model)}:"]
        self.last[-1] += f" {kind()}"

    def work(self, seconds, report):
        until, steps, error = time.monotonic() + seconds, 0, None
        try:
            self.open()
            self.whole()
            while time.monotonic() < until:
                self.step()
                steps += 1
            self.whole()
            self.close()
        except (Wrong, OSError) as e:
            error = f"{type(e).__name__} {e}\n  " + "\n  ".join(self.last)
        with open(report, "wb") as file:
            pickle.dump((bytes(self.model), steps, error), file)


def fsx(seconds=60, layout="mirror", files=3):
    rand, until, steps, mounts = random.Random(SEED), time.monotonic() + seconds, 0, 0
    models = [b""] * files
    with Pool(layout) as pool:
        pool.create()
        while time.monotonic() < until:
            mounts += 1
            pool.run("zfs", "set", f"recordsize={rand.choice(('512', '4K', '16K', '128K', '1M'))}", POOL)
            pool.run("zfs", "set", f"compression={rand.choice(('off', 'lz4', 'zstd', 'gzip-1', 'zle', 'lzjb'))}", POOL)
            for i in range(files):
                if rand.random() < 0.3:    # with a new record size
                    models[i] = b""
                    if os.path.exists(f"{pool.mnt}/file{i}"):
                        os.unlink(f"{pool.mnt}/file{i}")
            reports = [f"{pool.dir}/report{i}" for i in range(files)]
            length = min(rand.uniform(3, 15), max(1, until - time.monotonic()))
            running = [
                multiprocessing.Process(target=Fsx(f"{pool.mnt}/file{i}", models[i], rand.random()).work, args=(length, report))
                for i, report in enumerate(reports)
            ]
            for process in running:
                process.start()
            while any(process.is_alive() for process in running):
                time.sleep(rand.random())
                pool.run("zpool", "sync", POOL)
            for i, report in enumerate(reports):
                running[i].join()
                with open(report, "rb") as file:
                    models[i], its_steps, error = pickle.load(file)
                if error:
                    raise Wrong(f"{error}{pool.log()}")
                steps += its_steps
            if rand.random() < 0.7:
                pool.export()
                if rand.random() < 0.3:
                    pool.zdb()
                pool.load()
            say(f"{steps} operations, {mounts} mounts")
        for i in range(files):
            last = Fsx(f"{pool.mnt}/file{i}", models[i], 0)
            last.open()
            last.whole()
            last.close()
        pool.export()
        pool.zdb()
