# content.sh - sourced by the scripts that fill pools: what to write into them.
#
# Needs SEED, the folder that seed-data filled.  Same calls, same bytes: every run makes the same files.
# shellcheck shell=bash

slice() { dd if="$SEED/$1" iflag=skip_bytes,count_bytes skip="$2" count="$3" bs=1M status=none; }
rpos=0 tpos=0
# rand N, text N : the next N bytes of random data, of text; do not use in a pipe, they keep a position.
rand() { ((rpos + $1 <= 400000)) || rpos=$((rpos % 977)); slice random $rpos "$1"; rpos=$((rpos + $1)); }
text() { ((tpos + $1 <= 2000000)) || tpos=$((tpos % 9973)); slice text $tpos "$1"; tpos=$((tpos + $1)); }

# Three files, in the folder $1.
few() { text 100 >"$1/small"; text 5000 >"$1/middle"; { text 150000; rand 1000; } >"$1/large"; }

# A small tree with some of everything, in the folder $1.
tree() {
    local d=$1 i n
    mkdir -p "$d/sub/deep/deeper" "$d/empty-dir" "$d/many"
    : >"$d/empty"
    for n in 1 60 511 512 513 4096 131071 131072 131073; do text $n >"$d/text-$n"; done
    text 400000 >"$d/text-400000"
    rand 3000 >"$d/random-3000"
    rand 10000 >"$d/random-10000"
    { text 70000; rand 4000; text 70000; } >"$d/mixed"
    truncate -s 2M "$d/sparse"
    slice text 300 5000 | dd of="$d/sparse" bs=64K seek=1000000 oflag=seek_bytes conv=notrunc status=none
    text 700 >"$d/sub/deep/deeper/file"
    ln "$d/sub/deep/deeper/file" "$d/hard-link"
    ln -s sub/deep "$d/link"
    ln -s "$(printf 'long/%.0s' {1..30})target" "$d/long-link"
    mkfifo "$d/fifo"
    for i in {1..40}; do echo "file $i" >"$d/many/f$i"; done
    setfattr -n user.colour -v blue "$d/empty"
    chown 1000:1001 "$d/text-512"
    chmod 4711 "$d/text-512"
    touch -d '2001-02-03 04:05:06.789012345Z' "$d/text-512"
}
