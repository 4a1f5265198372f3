"""Trials in file systems of one pool and in an ext4 beside it, by turns."""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from command import run


def timed(work):
    """How many seconds it takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def by_turns(usage, pool, file_systems, trials):
    """Prints a table of the medians of `trials(folder, archive)`, which gives names and values, in each of the file systems of
    `pool`, given with their properties, and in an ext4. All are in the folder that the first argument names, as often as the
    second says (3). The archive is a tar of /usr/share/doc."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    place = tempfile.mkdtemp(prefix=f"{pool}.", dir=sys.argv[1])
    os.environ["CENOTE_RUN"] = f"{place}/run"
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        archive = f"{temporary}/doc.tar"
        subprocess.run(["tar", "cf", archive, "-C", "/usr/share", "doc"], check=True)
        for image, size in (("pool", 8 << 30), ("ext4", 4 << 30)):
            with open(f"{place}/{image}", "wb") as file:
                file.truncate(size)
        ext4 = f"{temporary}/ext4"
        os.mkdir(ext4)
        subprocess.run(["mkfs.ext4", "-q", "-F", f"{place}/ext4"], check=True)
        subprocess.run(["mount", "-o", "loop", f"{place}/ext4", ext4], check=True)
        run("zpool", "create", "-o", "cachefile=none", "-R", f"{temporary}/mnt", pool, f"{place}/pool")
        try:
            folders = {"ext4": ext4}
            for name, properties in file_systems.items():
                options = [word for property in properties for word in ("-o", property)]
                run("zfs", "create", *options, f"{pool}/{name}")
                folders[name] = f"{temporary}/mnt/{pool}/{name}"
            for turn in range(rounds):
                for name, folder in folders.items():
                    inner = f"{folder}/{turn}"
                    os.mkdir(inner)
                    for trial, value in trials(inner, archive):
                        found.setdefault(trial, {}).setdefault(name, []).append(value)
                    shutil.rmtree(inner)
        finally:
            run("zpool", "destroy", pool)
            subprocess.run(["umount", ext4], check=False)
            shutil.rmtree(place)
    columns = [*file_systems, "ext4"]
    print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    for trial, values in found.items():
        print(f"| {trial} |", *(f"{statistics.median(values[name]):.3g} |" for name in columns))
