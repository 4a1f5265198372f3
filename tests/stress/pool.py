"""A pool of its own for a test: made, mounted, killed, checked by zdb, and put away."""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time


HERE = os.path.dirname(os.path.realpath(__file__))
CENOTE = os.path.realpath(os.environ.get("CENOTE", f"{HERE}/../../target/release/cenote"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 31)))
MEMORY_LOG = int(os.environ.get("MEMORY_LOG", 256 << 20))
POOL = f"stress{os.getpid()}"
LAYOUTS = {
    "single": (1, "0"),
    "mirror": (2, "mirror 0 1"),
    "raidz1": (3, "raidz1 0 1 2"),
    "log": (4, "mirror 0 1 log mirror 2 3"),
    "hybrid": (7, "mirror 0 1 log mirror 2 3 cache 4 special mirror 5 6"),
}
# What files are made of: half of it does not compress.
BYTES = random.Random(1).randbytes(1 << 20) + (b"all work and no play " * 60000)[: 1 << 20]


class Wrong(Exception):
    """The pool is not as it must be."""


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


class Pool:
    """A pool over sparse files in a folder of its own, with its own run folder."""

    def __init__(self, layout="mirror", mib=512, deaths_max=0):
        """After `deaths_max` deaths in a minute no other process goes on with its mounts."""
        self.dir = tempfile.mkdtemp(prefix="mount-stress.", dir=os.environ.get("TMPDIR", "/var/tmp"))
        self.mnt = f"{self.dir}/mnt/{POOL}"
        self.env = dict(os.environ, CENOTE_RUN=f"{self.dir}/run", CENOTE_PARAMETERS=f"{self.dir}/parameters")
        os.mkdir(f"{self.dir}/img")
        os.mkdir(f"{self.dir}/run", 0o755)
        self.tune("cenote_deaths_max", deaths_max)
        self.tune("cenote_memory_log_max", MEMORY_LOG)
        self.layout, self.mib = layout, mib

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        os.chdir("/")
        try:
            self.run("zpool", "export", "-f", POOL, check=False, timeout=60)
        except subprocess.TimeoutExpired:
            pass
        self.kill()
        self.unmount()
        if kind and issubclass(kind, Exception):
            print(f"left: {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def tune(self, name, value):
        os.makedirs(f"{self.dir}/parameters", exist_ok=True)
        with open(f"{self.dir}/parameters/{name}", "w") as file:
            file.write(str(value))

    def run(self, *words, check=True, timeout=600):
        done = subprocess.run([CENOTE, *words], env=self.env, timeout=timeout, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if check and done.returncode:
            raise Wrong(f"cenote {' '.join(words)}: status {done.returncode}: {done.stdout}{self.log()}")
        return done

    def log(self):
        """The end of the pool process's log."""
        try:
            with open(f"{self.dir}/run/{POOL}.log") as log:
                return "\n" + log.read()[-3000:]
        except OSError:
            return ""

    def create(self):
        count, words = LAYOUTS[self.layout]
        for i in range(count):
            with open(f"{self.dir}/img/{i}", "wb") as image:
                image.truncate(self.mib << 20)
        devices = [f"{self.dir}/img/{word}" if word.isdigit() else word for word in words.split()]
        options = [word for option in os.environ.get("OPTIONS", "compression=lz4").split() for word in ("-O", option)]
        self.run("zpool", "create", "-f", "-o", "cachefile=none", *options, "-R", f"{self.dir}/mnt", POOL, *devices)

    def load(self):
        self.run("zpool", "import", "-d", f"{self.dir}/img", "-o", "cachefile=none", "-R", f"{self.dir}/mnt", POOL)

    def export(self):
        self.run("zpool", "export", POOL)

    def servers(self):
        found, mark = [], f"CENOTE_RUN={self.dir}/run".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/cmdline", "rb") as line:
                    if mark in environ.read().split(b"\0") and line.read().split(b"\0")[1:2] == [b"serve"]:
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def kill(self):
        """Kills the pool's process, and returns how many there were (1, or the commands before it are wrong)."""
        pids = self.servers()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 20
        while any(map(threads, pids)):
            if time.monotonic() > until:
                stacks = "".join(f"{thread}:\n{read(f'{thread}/stack').decode()}" for pid in pids for thread in threads(pid))
                self.abort()
                raise Wrong(f"the pool's process does not die: it waits for itself\n{stacks}")
            time.sleep(0.002)
        return len(pids)

    def abort(self):
        """Breaks the connections of all mounts, so that whoever waits for them goes on."""
        subprocess.run(["mount", "-t", "fusectl", "fusectl", "/sys/fs/fuse/connections"], check=False, stderr=subprocess.DEVNULL)
        with open("/proc/self/mountinfo") as mounts:
            for line in mounts:
                if line.split()[4].startswith(f"{self.dir}/"):
                    with open(f"/sys/fs/fuse/connections/{line.split()[2].split(':')[1]}/abort", "w") as control:
                        control.write("1")

    def unmount(self):
        with open("/proc/mounts") as mounts:
            points = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{self.dir}/")]
        for point in sorted(points):    # those below go with it, and are not to be found any more
            subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)

    def zdb(self):
        """Every block's checksum, and the space maps against what is in use."""
        done = subprocess.run(["zdb", "-e", "-p", f"{self.dir}/img", "-bcc", POOL], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode or "No leaks" not in done.stdout:
            raise Wrong(f"zdb: status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")


def threads(pid):
    """Folders in /proc of the threads of a process that have not ended; its first may have, and others live."""
    try:
        found = [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
    return [thread for thread in found if is_alive(thread)]


def is_alive(thread):
    try:
        with open(f"{thread}/stat") as stat:
            return stat.read().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def read(path):
    with open(path, "rb") as file:
        return file.read()
