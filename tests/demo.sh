# demo.sh - `./x demo`, sourced by x: what Cenote does, shown on a pool that it makes, and on pools of the
# corpus, which OpenZFS made.
# shellcheck shell=bash

# Show a command as a user would type it, and run it.
shown() {
    printf '\n%s$ %s%s\n' "$bold" "$*" "$plain" | sed "s#$demo_dir/##g"
    "$@"
}

# Unpack a case of the corpus into a folder of image files.
demo_pool() {
    local image
    mkdir "$demo_dir/$1"
    for image in tests/corpus/"$1"/*.img.zst; do
        zstd -dq --sparse "$image" -o "$demo_dir/$1/$(basename "$image" .zst)"
    done
}

demo_end() {
    cenote zpool export t_snapshots >/dev/null 2>&1 || true
    cenote zpool export -f tank >/dev/null 2>&1 || true
    cenote zpool export -f backup >/dev/null 2>&1 || true
    rm -rf --one-file-system "$demo_dir"
}

# A pool of hard disks, a log and a cache, made of sparse files: written, exported, judged, imported again.
demo_written() {
    local disks=$demo_dir/disks
    mkdir "$disks"
    truncate -s 1G "$disks"/{hdd0,hdd1}
    truncate -s 256M "$disks"/{ssd0,ssd1,ssd2}
    say "a hybrid pool: a mirror of disks, a mirrored log, a cache"
    shown cenote zpool create -R "$demo_dir/mnt" -O compression=lz4 tank \
        mirror "$disks/hdd0" "$disks/hdd1" log mirror "$disks/ssd0" "$disks/ssd1" cache "$disks/ssd2"
    shown cenote zfs create -o compression=zstd tank/project
    shown cp -r "$OLDPWD/crates" mnt/tank/project/
    shown dd if=/dev/urandom of=mnt/tank/data bs=1M count=64 status=none
    shown mv mnt/tank/project/crates mnt/tank/project/sources
    shown rm -r mnt/tank/project/sources/cmd
    shown cenote zpool sync tank
    shown cenote zpool status tank
    shown cenote zpool iostat -v tank
    shown cenote zfs list -o name,used,avail,refer,compressratio,mountpoint
    shown df -hT mnt/tank
    local before
    before=$(find mnt/tank -type f -exec sha256sum {} + | sort | sha256sum)
    shown cenote zpool export tank
    if type -P zdb >/dev/null; then
        say "OpenZFS's own checker looks at every block"
        zdb -e -p "$disks" -bcc tank 2>/dev/null | grep -E 'leak|bp count|bp logical|bp allocated'
    else
        skip "zdb is not there to look at the pool (Debian's zfsutils-linux)"
    fi
    shown cenote zpool import -d "$disks" -R "$demo_dir/mnt" tank
    same_files "$before"
    say "back in time: a snapshot, a mistake, and the files as they were"
    shown cenote zfs snapshot -r tank@before
    shown rm -r mnt/tank/project/sources
    shown ls mnt/tank/project/.zfs/snapshot/before
    shown cenote zfs rollback tank/project@before
    same_files "$before"
    shown cenote zfs clone tank/project@before tank/try
    shown cenote zfs list -t all -r tank
    shown cenote zfs destroy tank/try
    demo_sent "$disks"
    demo_survived
    same_files "$before"
    say "a disk rots, and another one takes its place"
    shown dd if=/dev/urandom of="$disks/hdd1" bs=1M seek=8 count=900 conv=notrunc status=none
    shown cenote zpool scrub -w tank
    shown cenote zpool status tank
    truncate -s 1G "$disks/hdd2"
    shown cenote zpool replace -w tank "$disks/hdd1" "$disks/hdd2"
    shown cenote zpool status tank
    same_files "$before"
    shown cenote zpool export tank
}

# A file system goes to a second pool, and then what changed.
demo_sent() {
    say "to a second pool, and the next night only what changed"
    truncate -s 512M "$1/usb"
    shown cenote zpool create -R "$demo_dir/mnt" backup "$1/usb"
    piped 'cenote zfs send -R tank/project@before | cenote zfs receive backup/project'
    shown touch mnt/tank/project/more
    shown cenote zfs snapshot tank/project@later
    piped 'cenote zfs send -v -i @before tank/project@later | cenote zfs receive backup/project'
    shown diff -r mnt/tank/project mnt/backup/project
    shown cenote zfs list -t snapshot -r backup
    shown rm mnt/tank/project/more
    shown cenote zpool export backup
}

# The process of the pool is replaced by another one, and killed, under a program that writes and reads.
demo_survived() {
    local pid writer count
    say "a program writes and reads, while the pool's process is replaced, and then killed"
    shown cenote zfs create tank/steady
    steady_writer mnt/tank/steady/lines &
    writer=$!
    sleep 0.5
    shown cenote upgrade tank | tee upgraded
    pid=$(sed -n 's/^tank: process \([0-9]*\) serves it now$/\1/p' upgraded)
    sleep 0.5
    shown kill -9 "$pid"
    sleep 1.5
    kill "$writer" 2>/dev/null || die "the program was told of an error"
    wait "$writer" 2>/dev/null || true
    count=$(wc -l <mnt/tank/steady/lines)
    [[ $(tail -n 1 mnt/tank/steady/lines) == "line $count" ]] || die "a line is missing"
    say "$count lines were written, synced and read again meanwhile, and no call failed"
    shown cenote zfs destroy tank/steady
}

# Appends lines to a file, brings each to disk, and reads it again, until something fails.
steady_writer() {
    local line=0
    while ((++line)); do
        echo "line $line" >>"$1" && sync "$1" && [[ $(tail -n 1 "$1") == "line $line" ]] || return 1
    done
}

piped() {
    printf '\n%s$ %s%s\n' "$bold" "$1" "$plain"
    bash -o pipefail -c "$1"
}

same_files() {
    [[ $1 == "$(find mnt/tank -type f -exec sha256sum {} + | sort | sha256sum)" ]] || die "the files are not what they were"
    say "all files are what they were"
}

demo() {
    build
    need zstd=zstd fusermount3=fuse3
    PATH=$PWD/target/release:$PATH
    demo_dir=$(mktemp -d)
    trap demo_end EXIT
    demo_pool snapshots
    demo_pool raidz1
    cd "$demo_dir"

    if [[ -e /dev/fuse ]] && ((EUID == 0)); then demo_written; else skip "no /dev/fuse, or not root: no pool is made"; fi

    say "a raidz1 pool of three disks, of which one is gone: still readable, without mounting, without root"
    rm raidz1/vdb.img
    shown cenote zpool import -d raidz1
    shown cenote ls -l -d raidz1 t_raidz1:/
    shown cenote cp -r -d raidz1 t_raidz1:/sub copied
    shown find copied

    if [[ ! -e /dev/fuse ]]; then
        skip "there is no /dev/fuse: the second half of the demo mounts a pool"
        return
    fi
    say "a pool with snapshots and clones, imported and mounted"
    shown cenote zpool import -d snapshots -o readonly=on -R "$demo_dir/mnt" t_snapshots
    shown cenote zfs list -t all -r t_snapshots
    shown ls -C mnt/t_snapshots/promoted
    shown ls mnt/t_snapshots/promoted/.zfs/snapshot
    shown wc -c mnt/t_snapshots/promoted/text-512 mnt/t_snapshots/promoted/.zfs/snapshot/first/text-512
    shown head -n 3 mnt/t_snapshots/promoted/sub/deep/deeper/file
    shown cenote zpool status t_snapshots
    shown cenote zpool export t_snapshots
    say "done; nothing is left mounted"
}
