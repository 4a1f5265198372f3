"""full: a pool and the quotas in it get full, over and over.

Whoever has no room is told so by the right error, and by nothing else; what was written stays; removing always
works, and makes room again.
"""

import errno
import hashlib
import os
import random
import shutil
import time

from pool import BYTES, POOL, SEED, Pool, Wrong, say

NOBODY = 65534


class Files:
    """A folder that is filled, and what its files must be."""

    def __init__(self, folder, expected, seed, owner=None):
        self.folder, self.expected, self.owner = folder, expected, owner
        self.random, self.files, self.number = random.Random(seed), {}, 0

    def write(self):
        """One more file. Errors: of the file system; what of the file was written is known then, too."""
        self.number += 1
        path = f"{self.folder}/{self.random.choice('ab')}{self.number}"
        length = self.random.randrange(self.random.choice((2000, 50_000, 3_000_000)))
        start = self.random.randrange(len(BYTES) - length % len(BYTES))
        data = (BYTES[start:] + BYTES)[:length]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        at = 0
        try:
            while at < length:
                at += os.write(descriptor, data[at : at + 131072])
            if self.random.random() < 0.1:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
            self.files[path] = hashlib.sha256(data[:at]).digest()

    def fill(self):
        """Writes until there is no room; as somebody else if there is an owner."""
        written = 0
        try:
            if self.owner:
                os.seteuid(self.owner)
            while True:
                self.write()
                written += 1
        except OSError as e:
            if e.errno != self.expected:
                raise Wrong(f"{self.folder}: {errno.errorcode[e.errno]}, not {errno.errorcode[self.expected]}") from e
        finally:
            os.seteuid(0)
        return written

    def remove(self, part):
        for path in self.random.sample(sorted(self.files), int(len(self.files) * part)):
            os.unlink(path)
            del self.files[path]

    def check(self):
        there = {f"{self.folder}/{name}" for name in os.listdir(self.folder)}
        # the one that had no room for its first byte may be there, empty
        if missing := set(self.files) - there:
            raise Wrong(f"lost: {sorted(missing)[:5]}")
        if more := there - set(self.files):
            raise Wrong(f"there, but nobody made it: {sorted(more)[:5]}")
        for path, digest in self.files.items():
            with open(path, "rb") as file:
                if hashlib.file_digest(file, "sha256").digest() != digest:
                    raise Wrong(f"{path} is not what was written")


def full(rounds=10, layout="mirror"):
    rand, began, written = random.Random(SEED), time.monotonic(), 0
    with Pool(layout, mib=256) as pool:
        pool.create()
        pool.run("zfs", "create", "-o", "quota=40M", f"{POOL}/quota")
        pool.run("zfs", "create", "-o", "refquota=40M", f"{POOL}/refquota")
        pool.run("zfs", "create", f"{POOL}/user")
        pool.run("zfs", "set", f"userquota@{NOBODY}=20M", f"{POOL}/user")
        pool.run("zfs", "create", f"{POOL}/rest")
        for path in (pool.dir, f"{pool.dir}/mnt", pool.mnt):
            os.chmod(path, 0o755)
        os.chmod(f"{pool.mnt}/user", 0o777)
        places = [Files(f"{pool.mnt}/quota", errno.EDQUOT, rand.random()),
                  Files(f"{pool.mnt}/refquota", errno.EDQUOT, rand.random()),
                  Files(f"{pool.mnt}/user", errno.EDQUOT, rand.random(), owner=NOBODY),
                  Files(f"{pool.mnt}/rest", errno.ENOSPC, rand.random())]
        for number in range(1, rounds + 1):
            for place in places:
                written += place.fill()
            for place in places:
                place.check()
            if rand.random() < 0.5:
                pool.export()
                pool.zdb()
                pool.load()
            for place in places:
                place.check()
                place.remove(rand.choice((0.3, 0.7, 1)))
            pool.run("zpool", "sync", POOL)
            pool.run("zpool", "sync", POOL)    # what was freed is free two groups later
            pool.run("zpool", "sync", POOL)
            free = shutil.disk_usage(f"{pool.mnt}/rest").free
            if free < 1 << 20:
                raise Wrong(f"round {number}: removed, and {free} bytes are free")
            say(f"{number} times full, {written} files, {time.monotonic() - began:.0f} s")
        pool.export()
        pool.zdb()
