# demo.sh - `./x demo`, sourced by x: what Cenote does, shown on pools of the corpus, which OpenZFS made.
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
    rm -rf --one-file-system "$demo_dir"
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
