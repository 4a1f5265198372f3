#!/bin/bash
# streams.sh COMMAND - what each side of check-streams does, here or in the machine of zvm.
#
#   make POOL IMG DIR MNT       makes POOL on the file IMG, and from it all streams, in DIR/streams; what is in each
#                               snapshot is in DIR/facts
#   take POOL IMG FROM DIR MNT  makes POOL, and receives the streams of FROM/streams into it as the tables say; what came
#                               is in DIR/facts, the errors in DIR/failed; of those cut short, DIR/tokens has the tokens
#   resume POOL IMG TOKENS DIR MNT
#                               sends to DIR/streams what the tokens ask POOL for
#   rest POOL IMG FROM DIR MNT  receives that
#   table                       the streams that are made, and what is received of them
#
# All commands need `content.sh`, `manifest.pl` and the folder `seed` beside this script.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
SEED=$here/seed

# name | arguments of zfs send; all are of the pool
streams='
fs1          | POOL/fs@1
fs12         | -i @1 POOL/fs@2
fs13-all     | -I @1 POOL/fs@3
fs13-mark    | -i #b1 POOL/fs@3
fs23-mark    | -i #b2 POOL/fs@3
fs2-p        | -p POOL/fs@2
fs2-h        | -h POOL/fs@2
fs13-all-p   | -p -I @1 POOL/fs@3
back1-b      | -b POOL/back@1
fs1-e        | -e POOL/fs@1
fs1-c        | -c POOL/fs@1
fs12-c       | -c -i @1 POOL/fs@2
fs1-Lec      | -Lec POOL/fs@1
fs12-Lec     | -Lec -i @1 POOL/fs@2
fs1-w        | -w POOL/fs@1
fs12-w       | -w -i @1 POOL/fs@2
fs13-all-w   | -w -I @1 POOL/fs@3
fs1-redacted | --redact hide POOL/fs@1
fs12-filling | -i #hide POOL/fs@2
shown1       | -i POOL/fs@1 POOL/shown@1
clone1       | -i POOL/fs@2 POOL/clone@1
clone12      | -i @1 POOL/clone@2
clone-all    | -I POOL/fs@2 POOL/clone@2
large1       | POOL/large@1
large12      | -i @1 POOL/large@2
large1-L     | -L POOL/large@1
large12-L    | -L -i @1 POOL/large@2
large1-Lc    | -L -c POOL/large@1
dn1          | POOL/dn@1
dn12         | -i @1 POOL/dn@2
packed1      | POOL/packed@1
packed1-c    | -c POOL/packed@1
packed12-c   | -c -i @1 POOL/packed@2
packed12-ec  | -ec -i @1 POOL/packed@2
folded1      | POOL/folded@1
empty1       | POOL/empty@1
holes1       | POOL/holes@1
holes12      | -i @1 POOL/holes@2
holes13      | -i @1 POOL/holes@3
vol1         | POOL/vol@1
vol12        | -i @1 POOL/vol@2
vol1-c       | -c POOL/vol@1
vol12-pc     | -p -c -i @1 POOL/vol@2
tree1        | -R POOL/tree@1
tree13       | -R -I @1 POOL/tree@3
tree12       | -R -i @1 POOL/tree@2
tree23       | -R -i @2 POOL/tree@3
treefull     | -R POOL/tree@3
'
# the last ones are sent when the tree has changed
late='tree13 tree12 tree23 treefull'

# target | source | snapshots | what else is compared | streams, each with options of zfs receive before a colon
# p properties, h holds, b properties that the source received, R all below; s not where files have data: blocks are cut
received='
full         | fs     | 1     |   | fs1
inc          | fs     | 1 2   |   | fs1 fs12
all          | fs     | 1 2 3 |   | fs1 fs13-all
mark         | fs     | 1 3   |   | fs1 fs13-mark
marks        | fs     | 1 2 3 |   | fs1 fs12 fs23-mark
changed      | fs     | 1 2   |   | fs1 change -F:fs12
embedded     | fs     | 1     |   | fs1-e
packed-fs    | fs     | 1 2   |   | fs1-c fs12-c
most         | fs     | 1 2   |   | fs1-Lec fs12-Lec
mixed        | fs     | 1 2   |   | fs1-e fs12-c
raw          | fs     | 1 2   |   | fs1-w fs12-w
raw-all      | fs     | 1 2 3 |   | fs1-w fs13-all-w
filled       | fs     | 2     |   | fs1-redacted fs12-filling
shown        | shown  | 1     |   | -o,origin=POOL/filled@1:shown1
props        | fs     | 2     | p | fs2-p
props-all    | fs     | 1 2 3 | p | fs1 fs13-all-p
holds        | fs     | 2     | h | fs2-h
backup       | fs     | 1     | b | back1-b
clone        | clone  | 1 2   |   | clone1 clone12
clone-all    | clone  | 1 2   |   | clone-all
clone-of     | clone  | 1     |   | -o,origin=POOL/marks@2:clone1
large-parts  | large  | 1 2   | s | large1 large12
large        | large  | 1 2   |   | large1-L large12-L
large-packed | large  | 1 2   |   | large1-Lc large12-L
dn           | dn     | 1 2   |   | dn1 dn12
packed       | packed | 1 2   |   | packed1-c packed12-c
packed-e     | packed | 1 2   |   | packed1 packed12-ec
folded       | folded | 1     |   | folded1
empty        | empty  | 1     |   | empty1
holes        | holes  | 1 2   |   | holes1 holes12
holes-past   | holes  | 1 3   |   | holes1 holes13
vol          | vol    | 1 2   |   | vol1 vol12
vol-packed   | vol    | 1 2   | p | vol1-c vol12-pc
tree         | tree   | 1 2 3 | R | tree1 -F:tree13
tree-steps   | tree   | 1 2 3 | R | tree1 -F:tree12 -F:tree23
tree-whole   | tree   | 1 2 3 | R | treefull
'

# target | source | snapshots | streams | the one that ends early
cut='
cut          | fs     | 1     |               | fs1
cut-inc      | fs     | 1 2   | fs1           | fs12
cut-packed   | fs     | 1     |               | fs1-Lec
cut-large    | large  | 1     |               | large1-L
cut-parts    | large  | 1     |               | large1
cut-clone    | clone  | 1     |               | clone1
cut-dn       | dn     | 1     |               | dn1
cut-vol      | vol    | 1     |               | vol1
cut-mark     | fs     | 1 3   | fs1           | fs13-mark
'

rows() { sed -n 's/ *| */|/g; s/ *$//; /|/p' <<<"$1"; }

new_pool() {
    truncate -s 768M "$2"
    zpool create -f -o cachefile=none -O atime=off -O acltype=posix -O xattr=sa -O compression=lz4 -R "$3" "$1" "$2"
}

again() { zpool import -d "$(dirname "$2")" -o cachefile=none -N -R "$3" "$1"; zfs mount -a; }

# Where programs get at a volume.
volume() {
    if type -P zvol-links >/dev/null; then zvol-links; echo "/dev/zvol/$1"; else echo "$CENOTE_RUN/zvol/$1"; fi
}

# put FILE OFFSET COUNT [KIND]: bytes inside of a file.
put() { slice "${4:-random}" $((($2 + $3) % 300000)) "$3" | dd of="$1" bs=64K seek="$2" oflag=seek_bytes conv=notrunc status=none; }
# punch FILE OFFSET COUNT: a hole.
punch() { perl -e 'open(my $f, "+<", $ARGV[0]) or die; syscall(285, fileno($f), 3, $ARGV[1] + 0, $ARGV[2] + 0) == 0 or die "$ARGV[0]: $!"' "$@"; }

fill_fs() {
    local d=$1 i
    tree "$d"
    setfacl -m u:1234:rw,g:77:r "$d/text-4096"
    setfacl -d -m u:99:rwx "$d/sub"
    for i in 1 2 3 4; do setfattr -n user.long$i -v "$(printf "%0900d" $i)" "$d/text-513"; done
    setfattr -n user.a -v b "$d/sub"
    printf 'a%.0s' {1..3000} >"$d/embedded"
    for i in {1..150}; do echo "one $i" >"$d/many/g$i"; done
}

change_fs() {
    local d=$1 i
    rm "$d"/many/f?; rm "$d"/many/g*5
    for i in {1..60}; do echo "two $i" >"$d/many/h$i"; done
    truncate -s 100000 "$d/text-400000"
    text 3000 >>"$d/text-131072"
    text 300000 >>"$d/text-60"
    put "$d/mixed" 60000 9000
    punch "$d/random-10000" 0 5000
    punch "$d/text-131073" 4096 8192
    rm "$d/random-3000"; mkdir "$d/random-3000"; echo in >"$d/random-3000/in"
    for i in 1 2 3 4; do setfattr -x user.long$i "$d/text-513"; done
    for i in 1 2 3 4; do setfattr -n user.long$i -v "$(printf "%0800d" $i)" "$d/text-512"; done
    setfacl -b "$d/text-4096"; setfacl -m u:7:r "$d/text-131071"
    mv "$d/sub/deep" "$d/moved"
    rm "$d/fifo"; mknod "$d/fifo" c 1 3
    printf 'b%.0s' {1..3000} >"$d/embedded"
}

make_fs() {
    local d=$MNT/$POOL/fs
    zfs create "$POOL/fs"
    fill_fs "$d"
    zfs snapshot "$POOL/fs@1"
    zfs bookmark "$POOL/fs@1" "$POOL/fs#b1"
    # what is other, or gone, in a clone is redacted
    zfs clone "$POOL/fs@1" "$POOL/shown"
    put "$MNT/$POOL/shown/mixed" 40000 20000; rm "$MNT/$POOL/shown/random-10000"; truncate -s 70000 "$MNT/$POOL/shown/text-400000"
    zfs snapshot "$POOL/shown@1"
    zfs redact "$POOL/fs@1" hide "$POOL/shown@1"
    change_fs "$d"
    zfs snapshot "$POOL/fs@2"
    zfs bookmark "$POOL/fs@2" "$POOL/fs#b2"
    zfs clone "$POOL/fs@2" "$POOL/clone"
    rm -r "$d/moved" "$d"/many/h*; rm "$d/sparse"
    tree "$d/more"
    zfs set recordsize=16K "$POOL/fs"
    text 200000 >"$d/new"; text 5000 >>"$d/text-60"
    zfs snapshot "$POOL/fs@3"
    zfs set quota=600M com.example:note='some text' "$POOL/fs"
    zfs set com.example:snap=one "$POOL/fs@2"
    zfs hold keep "$POOL/fs@2"
    d=$MNT/$POOL/clone
    put "$d/mixed" 0 5000; rm "$d"/many/g1*; few "$d/sub"
    zfs snapshot "$POOL/clone@1"
    text 9000 >>"$d/sub/large"; setfattr -n user.c -v d "$d/sub/small"
    zfs snapshot "$POOL/clone@2"
    # with properties that were received
    zfs send -p "$POOL/fs@1" | zfs receive "$POOL/back"
    zfs set com.example:note='other text' recordsize=8K "$POOL/back"
}

make_others() {
    local d=$MNT/$POOL i kind
    zfs create -o recordsize=1M -o compression=off "$POOL/large"
    { slice random 0 400000; slice text 0 2000000; slice random 5000 400000; } >"$d/large/a"
    slice text 1000 900000 >"$d/large/b"; truncate -s 9M "$d/large/c"; put "$d/large/c" 5000000 100000
    zfs snapshot "$POOL/large@1"
    put "$d/large/a" 1040000 300000; truncate -s 500000 "$d/large/b"; slice text 7 1500000 >"$d/large/d"; punch "$d/large/c" 4194304 2097152
    zfs snapshot "$POOL/large@2"

    zfs create -o dnodesize=auto "$POOL/dn"
    for i in {1..60}; do echo "$i" >"$d/dn/f$i"; setfattr -n user.x -v "$(printf "%0$((i * 10))d" 1)" "$d/dn/f$i"; done
    zfs snapshot "$POOL/dn@1"
    rm "$d"/dn/f*[024]
    zfs set dnodesize=4k "$POOL/dn"
    for i in {1..20}; do echo "$i" >"$d/dn/g$i"; setfattr -n user.y -v "$(printf "%0$((i * 100))d" 1)" "$d/dn/g$i"; done
    zfs set dnodesize=legacy "$POOL/dn"
    for i in {1..90}; do echo "$i" >"$d/dn/h$i"; done
    zfs snapshot "$POOL/dn@2"

    zfs create "$POOL/packed"
    for kind in off lzjb zle gzip-1 gzip-9 lz4 zstd zstd-fast-5; do
        zfs set compression=$kind "$POOL/packed"
        mkdir "$d/packed/$kind"; few "$d/packed/$kind"; printf "$kind%.0s" {1..900} >"$d/packed/$kind/embedded"
        { head -c 70000 /dev/zero; slice random 1 500; head -c 70000 /dev/zero; } >"$d/packed/$kind/zeros"
    done
    zfs snapshot "$POOL/packed@1"
    for kind in off lzjb zle gzip-1 gzip-9 lz4 zstd zstd-fast-5; do
        zfs set compression=$kind "$POOL/packed"
        put "$d/packed/$kind/large" 30000 60000 text; text 40000 >"$d/packed/$kind/next"
    done
    zfs snapshot "$POOL/packed@2"

    zfs create -o casesensitivity=insensitive -o normalization=formD "$POOL/folded"
    mkdir "$d/folded/Dir"; echo 1 >"$d/folded/Dir/FiLe"; echo 2 >"$d/folded/ä"
    zfs snapshot "$POOL/folded@1"
    zfs create "$POOL/empty"
    zfs snapshot "$POOL/empty@1"

    zfs create -o recordsize=4K -o compression=on "$POOL/holes"
    truncate -s 1G "$d/holes/a"; put "$d/holes/a" 700000000 50000; put "$d/holes/a" 100000 50000
    slice random 0 300000 >"$d/holes/b"; slice random 3 300000 >"$d/holes/c"; truncate -s 100M "$d/holes/none"
    for i in {1..8}; do slice random "$i" 20000 >"$d/holes/f$i"; done
    zfs snapshot "$POOL/holes@1"
    punch "$d/holes/a" 699990000 30000; truncate -s 0 "$d/holes/b"; truncate -s 300000 "$d/holes/b"; put "$d/holes/b" 200000 4096
    punch "$d/holes/c" 4096 200000; rm "$d"/holes/f[1-4]
    for i in {1..4}; do truncate -s 60000 "$d/holes/n$i"; put "$d/holes/n$i" $((i * 5000)) 3000; done
    zfs snapshot "$POOL/holes@2"
    truncate -s 150000 "$d/holes/c"; truncate -s 290000 "$d/holes/c"; put "$d/holes/none" 60000000 9000; rm "$d/holes/a"
    zfs snapshot "$POOL/holes@3"

    zfs create -s -V 6M -b 8K "$POOL/vol"
    d=$(volume "$POOL/vol")
    put "$d" 0 200000; put "$d" 1000000 150000 text; put "$d" 5000000 250000
    sync
    zfs snapshot "$POOL/vol@1"
    put "$d" 100000 8192; put "$d" 3000000 70000 text; head -c 65536 /dev/zero | dd of="$d" bs=64K seek=1048576 oflag=seek_bytes conv=notrunc status=none
    sync
    zfs snapshot "$POOL/vol@2"
}

make_tree() {
    local top=$POOL/tree one
    zfs create "$top"
    for one in a a/x b e; do zfs create "$top/$one"; few "$MNT/$top/$one"; done
    zfs set com.example:here=yes compression=gzip "$top/a"
    zfs set com.example:top=1 "$top"
    zfs snapshot -r "$top@0"
    zfs clone "$top/a@0" "$top/c"
    zfs create -s -V 2M -b 8K "$top/v"
    text 30000 >"$MNT/$top/c/own"; text 20000 >"$MNT/$top/a/own"
    put "$(volume "$top/v")" 30000 100000
    sync
    zfs snapshot -r "$top@gone"
    text 10000 >"$MNT/$top/b/own"
    zfs snapshot -r "$top@1"
}

change_tree() {
    local top=$POOL/tree
    zfs destroy -r "$top@gone"
    zfs rename "$top/b" "$top/d"
    zfs destroy -r "$top/a/x"
    zfs create "$top/d/new"; few "$MNT/$top/d/new"
    zfs inherit com.example:here "$top/a"
    zfs set recordsize=32K "$top/e"
    text 50000 >"$MNT/$top/e/big"; rm "$MNT/$top/d/own"
    zfs snapshot -r "$top@2"
    zfs rename "$top/e" "$top/a/e"
    zfs destroy -r "$top/d/new"
    put "$(volume "$top/v")" 60000 20000
    text 7000 >"$MNT/$top/a/e/more"
    sync
    zfs snapshot -r "$top@3"
}

send_some() {
    local name args
    while IFS='|' read -r name args; do
        [[ " $late " == *" $name "* ]] && [[ $1 == early ]] && continue
        [[ " $late " != *" $name "* ]] && [[ $1 == late ]] && continue
        # shellcheck disable=SC2086  # words
        zfs send ${args//POOL/$POOL} >"$DIR/streams/$name" 2>"$DIR/log" || { mkdir -p "$DIR/failed"; cp "$DIR/log" "$DIR/failed/send $name"; }
    done < <(rows "$streams")
}

# What a snapshot holds: names, what is known of them, attributes, contents; where files have data.
files() {
    perl "$here/manifest.pl" "$1" | perl -pe 's/"ino":(\d+)/"\"ino\":" . ($1 & 0xffffffff)/e; s/"btime":\[.*?\],?//; s/,\}/}/; s/"ino":\d+,// if /"path":"\."/'
    (cd "$1" && find . -xdev -type f -print0 | sort -z | perl -0 -ne '
        chomp;
        sysopen(my $f, $_, 0) or die "$_: $!";
        my ($at, @found) = (0);
        while (defined(my $from = sysseek($f, $at, 3))) { $from += 0; $at = sysseek($f, $from, 4) + 0; push @found, "$from-$at" }
        print "$_ data @found\n" if @found != 1 || $found[0] !~ /^0-/;')
}

# What is of the pool, or is not sent.
UNLIKE='mountpoint|volsize|snapshots_changed|filesystem_count|snapshot_count'

# facts DATASET SOURCE NAME: of each snapshot of a dataset, into DIR/facts/NAME@SNAPSHOT; properties of that source.
facts() {
    local dataset=$1 name=${3//\//+} snapshot own kind
    kind=$(zfs get -H -o value type "$dataset")
    [[ $kind == volume ]] || zfs mount "$dataset" 2>/dev/null || [[ $(zfs get -H -o value mounted "$dataset") == yes ]]
    for snapshot in $(zfs list -H -d 1 -t snapshot -o name -s name "$dataset"); do
        own=${snapshot#*@}
        [[ $(zfs get -H -o value redact_snaps "$snapshot") == - ]] || continue
        {
            zfs get -Hp -o property,value guid,creation,version,utf8only,normalization,casesensitivity,volsize "$snapshot"
            if [[ $kind == volume ]]; then
                zfs clone "$snapshot" "$POOL/looked"
                sha256sum <"$(volume "$POOL/looked")"
                zfs destroy "$POOL/looked"
            else
                files "$MNT/$dataset/.zfs/snapshot/$own"
            fi
        } >"$DIR/facts/$name@$own"
        zfs get -H -s local,received -o property,value com.example:snap "$snapshot" >"$DIR/facts/$name@$own.properties"
        zfs holds -H "$snapshot" | cut -f 2 >"$DIR/facts/$name@$own.holds"
    done
    zfs get -Hp -s "$2" -o property,value all "$dataset" | grep -vE "^($UNLIKE)" >"$DIR/facts/$name.properties" || true
}

facts_below() {
    local one
    for one in $(zfs list -H -r -t filesystem,volume -o name -s name "$1"); do facts "$one" "$2" "$3${one#"$1"}"; done
    zfs list -H -r -t all -o name -s name "$1" | sed "s|^$1|top|" >"$DIR/facts/$3.names"
}

make() {
    local one
    mkdir -p "$DIR"/{streams,facts}
    new_pool "$POOL" "$IMG" "$MNT"
    make_fs
    make_others
    make_tree
    send_some early
    change_tree
    send_some late
    for one in fs clone shown large dn packed folded empty holes vol; do facts "$POOL/$one" local "$one"; done
    zfs get -Hp -o property,received all "$POOL/back" | grep -vE "^($UNLIKE)" | grep -vP '\t-$' >"$DIR/facts/back.properties" || true
    facts_below "$POOL/tree" local tree
    zpool export "$POOL"
}

# try NAME COMMAND...: what fails is noted, with what was said.
try() {
    local name=$1
    shift
    "$@" >"$DIR/log" 2>&1 || { mkdir -p "$DIR/failed"; { echo "$*"; cat "$DIR/log"; } >"$DIR/failed/$name"; return 1; }
}
receive_from() { zfs receive "${@:2}" <"$1"; }

receive_all() {
    local target=$1 step options
    for step in $2; do
        options=(-u)
        if [[ $step == change ]]; then
            zfs mount "$POOL/$target"
            echo changed >"$MNT/$POOL/$target/text-4096"
            zfs unmount "$POOL/$target"
            continue
        fi
        if [[ $step == *:* ]]; then
            IFS=, read -r -a options <<<"${step%%:*}"
            options=(-u "${options[@]//POOL/$POOL}")
        fi
        try "$target" receive_from "$FROM/streams/${step#*:}" "${options[@]}" "$POOL/$target" || return 0
    done
}

cut_short() { head -c "$1" "$2" | zfs receive -s -u "$3"; }

take() {
    local target source wanted what steps last size
    mkdir -p "$DIR"/{facts,tokens}
    new_pool "$POOL" "$IMG" "$MNT"
    while IFS='|' read -r target source wanted what steps <&3; do
        receive_all "$target" "$steps"
    done 3< <(rows "$received")
    while IFS='|' read -r target source wanted steps last <&3; do
        receive_all "$target" "$steps"
        size=$(stat -c %s "$FROM/streams/$last")
        try "$target" cut_short $((size * 3 / 5)) "$FROM/streams/$last" "$POOL/$target" || true
        rm -f "$DIR/failed/$target"
        zfs get -H -o value receive_resume_token "$POOL/$target" >"$DIR/tokens/$target"
    done 3< <(rows "$cut")
    # streams of one dataset are received twice below a name of their own
    mkdir -p "$DIR/names"
    zfs create -p "$POOL/names/empty"
    try names receive_from "$FROM/streams/fs1" -u -e "$POOL/names" || true
    try names receive_from "$FROM/streams/tree1" -u -d "$POOL/names" || true
    try names receive_from "$FROM/streams/tree1" -u -e "$POOL/names/empty" || true
    zfs list -H -r -t all -o name -s name "$POOL/names" | sed "s|^$POOL/names|top|" >"$DIR/facts/names"
    while IFS='|' read -r target source wanted what steps <&3; do
        zfs list -H -o name "$POOL/$target" >/dev/null 2>&1 || continue
        if [[ $what == R ]]; then facts_below "$POOL/$target" received "$target"; else facts "$POOL/$target" received "$target"; fi
    done 3< <(rows "$received")
    zpool export "$POOL"
}

resume() {
    local token target
    mkdir -p "$DIR/streams"
    again "$POOL" "$IMG" "$MNT"
    for token in "$FROM"/tokens/*; do
        target=${token##*/}
        try "resumed $target" zfs send -nvP -t "$(<"$token")" || continue
        sed -n 's/^size\t//p' "$DIR/log" >"$DIR/streams/$target.size"
        # options are shown for people
        zfs send -nv -t "$(<"$token")" >"$DIR/streams/$target.told" 2>&1 || true
        zfs send -t "$(<"$token")" >"$DIR/streams/$target" 2>"$DIR/log" || { mkdir -p "$DIR/failed"; cp "$DIR/log" "$DIR/failed/resumed $target"; }
    done
    zpool export "$POOL"
}

rest() {
    local target source wanted steps last
    again "$POOL" "$IMG" "$MNT"
    while IFS='|' read -r target source wanted steps last <&3; do
        try "$target" receive_from "$FROM/streams/$target" -s -u "$POOL/$target" || continue
        facts "$POOL/$target" received "$target"
    done 3< <(rows "$cut")
    zpool export "$POOL"
}

case ${1:-} in
table) rows "$received"; echo; rows "$cut"; exit ;;
make) POOL=$2 IMG=$3 DIR=$4 MNT=$5 ;;
take | resume | rest) POOL=$2 IMG=$3 FROM=$4 DIR=$5 MNT=$6 ;;
*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
# shellcheck source=content.sh
. "$here/content.sh"
"$1"
