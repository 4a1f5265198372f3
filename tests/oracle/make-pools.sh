#!/bin/bash
# make-pools.sh CASE - in the guest: make the pool "t_CASE" of the corpus on the disks /dev/raw/vda, ...
# make-pools.sh --list - anywhere: print "CASE JUDGE DISKS MIB DESCRIPTION" for every case; JUDGE is the OpenZFS that makes it.
#
# Run by make-corpus, which has put this, its helpers and the folder seed/ (see seed-data) in the share.
# Manifests go to /share/out, key files to /share/out/keys.
set -Eeuo pipefail
trap 'echo "make-pools: line $LINENO failed: $BASH_COMMAND" >&2' ERR

CASES=()
declare -A SPEC
maker=2.1
def() { CASES+=("$1"); SPEC[$1]="$maker $2 $3 $4"; }    # NAME DISKS MIB DESCRIPTION, then the function case_NAME

# --- building blocks, besides those of content.sh -----------------------------------------------

# mkpool ARG... : zpool create of pool $P, arguments as for it but without the pool's name.
# Disks are meant as vda, ...: the names in /dev/raw, which zpool does not partition.
mkpool() {
    local opts=()
    while [[ $1 == -* ]]; do
        if [[ $1 == -d ]]; then opts+=("$1"); shift; else opts+=("$1" "$2"); shift 2; fi
    done
    zpool create -f -o cachefile=none -O atime=off "${opts[@]}" "$P" "${@/#vd//dev/raw/vd}"
}

sync_pool() { zpool sync "$P"; }

# --- pool layouts -----------------------------------------------------------------------------

def single 1 64 "one disk, all defaults: the one to begin with"
case_single() { mkpool vda; tree "/$P"; }

def wholedisk 1 96 "one disk with a GPT, as 'zpool create POOL DISK' makes it: the pool is in partition 1"
case_wholedisk() { mkpool /dev/vda; tree "/$P"; }

def v28 1 64 "pool version 28, datasets of ZPL version 1 to 5"
case_v28() {
    local v
    mkpool -o version=28 vda
    for v in 1 2 3 4 5; do
        zfs create -o version=$v "$P/zpl$v"
        tree "/$P/zpl$v"
    done
    zfs snapshot "$P/zpl3@s"
}

def nofeatures 1 64 "pool version 5000 with no feature enabled"
case_nofeatures() { mkpool -d vda; tree "/$P"; zfs snapshot "$P@s"; }

def ashift9 1 64 "ashift 9"
case_ashift9() { mkpool -o ashift=9 vda; tree "/$P"; }

def ashift12 1 64 "ashift 12"
case_ashift12() { mkpool -o ashift=12 vda; tree "/$P"; }

def mirror 2 64 "mirror of 2; lz4"
case_mirror() { mkpool -O compression=lz4 mirror vda vdb; tree "/$P"; }

def raidz1 3 64 "raidz1 of 3, ashift 9"
case_raidz1() { mkpool -O compression=lz4 -o ashift=9 raidz1 vda vdb vdc; raidz_data; }

def raidz2 4 64 "raidz2 of 4, ashift 12"
case_raidz2() { mkpool -O compression=lz4 -o ashift=12 raidz2 vda vdb vdc vdd; raidz_data; }

def raidz3 5 64 "raidz3 of 5, ashift 9"
case_raidz3() { mkpool -O compression=lz4 -o ashift=9 raidz3 vda vdb vdc vdd vde; raidz_data; }

# all the column counts and paddings: files of one block, of many sizes
raidz_data() {
    local i
    tree "/$P"
    zfs create -o compression=off -o recordsize=128K "$P/raw"
    for i in 1 2 3 4 5 6 7 8 9 11 13 16 17 31 64 127 255; do text $((i * 512)) >"/$P/raw/$i-sectors"; done
}

def draid 5 128 "draid1:2d:5c:1s"
case_draid() { mkpool draid1:2d:5c:1s vda vdb vdc vdd vde; tree "/$P"; }

def raid10 5 64 "two mirrors of 2 and a spare"
case_raid10() { mkpool mirror vda vdb mirror vdc vdd spare vde; tree "/$P"; }

def logcache 5 64 "stripe of 2, mirrored log of 2, one cache"
case_logcache() {
    mkpool vda vdb log mirror vdc vdd cache vde
    zfs set sync=always "$P"
    tree "/$P"
}

def special 3 64 "one disk and a special mirror of 2 that takes blocks up to 8K, too"
case_special() { mkpool -O compression=lz4 -O special_small_blocks=8K vda special mirror vdb vdc; tree "/$P"; }

def removal 3 256 "a top-level disk (vdc) removed: its data is reached through an indirect vdev"
case_removal() {
    mkpool -O compression=lz4 vda vdb vdc
    tree "/$P"
    sync_pool
    zpool remove -w "$P" /dev/raw/vdc
    text 100000 >"/$P/after-removal"
}

def degraded 3 64 "raidz1 of 3; vdc was taken offline before the last writes, so it is stale"
case_degraded() {
    mkpool raidz1 vda vdb vdc
    tree "/$P"
    sync_pool
    zpool offline "$P" /dev/raw/vdc
    tree "/$P/later"
    rm -r "/$P/many"
}

def checkpoint 1 64 "a checkpoint, and changes and a destroyed dataset after it"
case_checkpoint() {
    mkpool vda
    zfs create "$P/gone"
    tree "/$P"; tree "/$P/gone"
    zpool checkpoint "$P"
    zfs destroy "$P/gone"
    rm -r "/$P/sub"
    text 9000 >"/$P/new"
}

def gang 1 64 "gang blocks"
case_gang() {
    mkpool -O compression=off vda
    echo 1536 >/sys/module/zfs/parameters/metaslab_force_ganging
    tree "/$P"
    sync_pool
    echo 16777217 >/sys/module/zfs/parameters/metaslab_force_ganging
}

def errlog 1 64 "an error log with one damaged file (only so by injection: the data is good)"
case_errlog() {
    mkpool vda
    tree "/$P"
    zpool export "$P"; zpool import "$P"
    zinject -q -t data -e checksum -f 100 "/$P/text-400000" >/dev/null
    zpool scrub -w "$P"
    zinject -q -c all >/dev/null
}

def churn 1 64 "many transaction groups of creations and deletions: space maps with a history"
case_churn() {
    local i j
    mkpool -O compression=lz4 vda
    zfs create "$P/fs"
    for i in {1..40}; do
        for j in {1..25}; do echo "$i $j" >"/$P/fs/f$((i * j % 397))"; done
        text $((i * 3000)) >"/$P/fs/big$((i % 7))"
        rm -f "/$P/fs"/f*[$((i % 10))]
        sync_pool
    done
}

# --- data in files ----------------------------------------------------------------------------

def compress 1 96 "a dataset for each compression"
case_compress() {
    local c
    mkpool vda
    for c in off on lzjb lz4 gzip-1 gzip-9 zle zstd zstd-1 zstd-19 zstd-fast-10; do
        zfs create -o compression=$c "$P/$c"
        tpos=0 rpos=0
        text 300000 >"/$P/$c/text"
        rand 20000 >"/$P/$c/random"
        { text 20000; slice random 50000 5000; head -c 30000 /dev/zero; text 20000; } >"/$P/$c/mixed"
        head -c 200000 /dev/zero >"/$P/$c/zeros"
        { head -c 100000 /dev/zero; echo end; } >"/$P/$c/zeros-and-end"
        yes 'short period' | head -c 262144 >"/$P/$c/repetitive" || true
        text 50 >"/$P/$c/tiny"
    done
}

def recordsize 1 128 "recordsize 512, 4K, 128K, 1M, 16M; files of up to 5 levels of indirection"
case_recordsize() {
    local r
    mkpool -O compression=lz4 vda
    echo 16777216 >/sys/module/zfs/parameters/zfs_max_recordsize
    for r in 512 4K 128K 1M 16M; do
        zfs create -o recordsize=$r "$P/$r"
        text 100 >"/$P/$r/100"
        text 5000 >"/$P/$r/5000"
        text 300000 >"/$P/$r/300000"
        { text 1000000; text 1000000; slice random 3000 20000; } >"/$P/$r/2020000"
        # data at 0, 1 GiB and 1 TiB - 1000 bytes
        echo start >"/$P/$r/far"
        slice text 1000 3000 | dd of="/$P/$r/far" bs=64K seek=1G oflag=seek_bytes conv=notrunc status=none
        slice text 5000 1000 | dd of="/$P/$r/far" bs=64K seek=$((2**40 - 1000)) oflag=seek_bytes conv=notrunc status=none
    done
    yes "a line that says nothing, again and again" | head -c 20000000 >/tmp/x || true
    dd if=/tmp/x of="/$P/16M/20000000" bs=16M status=none    # in small pieces this takes minutes
    # 4 MiB in blocks of 512, not compressed
    zfs create -o recordsize=512 -o compression=off "$P/raw512"
    yes "a line that says nothing, again and again" | head -c 4194304 >"/$P/raw512/4M" || true
}

def checksum 1 64 "a dataset for each checksum"
case_checksum() {
    local c
    mkpool vda
    for c in off on fletcher2 fletcher4 sha256 sha512 skein edonr; do
        zfs create -o checksum=$c "$P/$c"
        few "/$P/$c"
    done
}

def dedup 1 64 "dedup: sha256, skein, and sha512 with verify; most blocks are there twice or more"
case_dedup() {
    local c i
    mkpool -O recordsize=16K vda
    for c in sha256 skein sha512,verify; do
        zfs create -o dedup=$c "$P/${c/,/-}"
        for i in 1 2 3; do tpos=0 rpos=0; tree "/$P/${c/,/-}/copy$i"; done
    done
    rm -r "/$P/sha256/copy3"
}

def copies 1 64 "copies=2 and 3; redundant_metadata=most"
case_copies() {
    mkpool vda
    zfs create -o copies=2 "$P/two"; tree "/$P/two"
    zfs create -o copies=3 "$P/three"; tree "/$P/three"
    zfs create -o redundant_metadata=most "$P/most"; tree "/$P/most"
}

# --- names, attributes, special files ---------------------------------------------------------

def dirs 1 96 "small and large folders, names of 1 to 255 bytes, odd names, case and Unicode properties"
case_dirs() {
    local i n name
    mkpool -O compression=lz4 vda
    zfs create "$P/small"
    mkdir "/$P/small"/{none,one,fifty}
    : >"/$P/small/one/only"
    for i in {1..50}; do : >"/$P/small/fifty/file-$i"; done
    zfs create "$P/large"
    mkdir "/$P/large/5000" "/$P/large/shrunk"
    for i in {1..5000}; do : >"/$P/large/5000/entry-$i"; done
    for i in {1..2000}; do : >"/$P/large/shrunk/entry-$i"; done
    rm "/$P/large/shrunk"/*[1-9]
    zfs create "$P/names"
    mkdir "/$P/names/length" "/$P/names/odd"
    name=
    for n in {1..255}; do name+=$((n % 10)); : >"/$P/names/length/$name"; done
    # shellcheck disable=SC2016
    for name in ' ' '  lead' 'trail ' -dash .hidden ... 'a"b' "a'b" 'a\b' 'a%b' 'a*?[b' $'a\nb' $'a\tb' $'\x01' $'\x7f' \
        naïve $'nai\u0308ve' 日本語 Ωμέγα עברית 😀 $'\xff\xfe' $'latin-\xe9' CON 'a:b' '~' '$HOME'; do
        : >"/$P/names/odd/$name"
    done
    for n in none,insensitive formD,insensitive formC,mixed formC,sensitive formD,sensitive formKC,sensitive formKD,sensitive; do
        zfs create -o normalization="${n%,*}" -o casesensitivity="${n#*,}" "$P/${n/,/-}"
        for name in README MixedCase ÄÖÜ $'e\u0301' é ﬁ 日本語; do : >"/$P/${n/,/-}/$name"; done
    done
    zfs create -o utf8only=on "$P/utf8only"
    for name in README 日本語 😀; do : >"/$P/utf8only/$name"; done
}

def files 1 64 "every type of file; modes, owners and times; links; sparse, tiny and embedded data"
case_files() {
    local d i n t
    mkpool -O compression=lz4 vda
    zfs create "$P/types"; d=/$P/types
    text 100 >"$d/file"; mkdir "$d/dir"; mkfifo "$d/fifo"
    ln -s file "$d/link"
    mknod "$d/char-1-3" c 1 3; mknod "$d/block-8-0" b 8 0
    mknod "$d/char-big" c 4095 1048575; mknod "$d/block-big" b 511 65536
    perl -MSocket -e 'socket S, AF_UNIX, SOCK_STREAM, 0; chdir shift; bind S, sockaddr_un("socket") or die' "$d"
    for n in 1 59 60 61 100 120 200 255 1000 4000; do
        ln -s "$(printf '0123456789/%.0s' {1..400} | cut -c "1-$n")" "$d/link-$n"
    done
    zfs create "$P/modes"; d=/$P/modes
    for n in 0000 0400 0644 0755 0777 1777 2755 4755 7777; do : >"$d/f$n"; chmod $n "$d/f$n"; mkdir "$d/d$n"; chmod $n "$d/d$n"; done
    for n in 1 1000:1001 65534:65534 65536:65537 4294967294:4294967294; do : >"$d/owner-$n"; chown $n "$d/owner-$n"; done
    zfs create "$P/times"; d=/$P/times
    for t in 0 -1 -0.5 1 999999999.999999999 2147483647 2147483648.000000001 4294967295 4294967296.5 -2147483649 17179869184; do
        : >"$d/at$t"; touch -d "@$t" "$d/at$t"
    done
    zfs create "$P/links"; d=/$P/links
    mkdir "$d/a" "$d/b"
    text 1000 >"$d/name-1"
    for i in {2..40}; do ln "$d/name-1" "$d/name-$i"; done
    ln "$d/name-1" "$d/a/other"; ln "$d/name-1" "$d/b/other"; rm "$d/name-1"
    zfs create "$P/data"; d=/$P/data
    : >"$d/empty"
    truncate -s 1 "$d/hole-1"; truncate -s 100000 "$d/hole-100000"; truncate -s 1T "$d/hole-1T"
    for n in {1..130}; do text "$n" >"$d/text-$n"; done          # on both sides of the embedding limit
    for n in 1 50 100 111 112 113 120 200; do rand $n >"$d/random-$n"; done
    { text 20; head -c 50000 /dev/zero; } >"$d/mostly-zeros"
    text 300000 >"$d/punched"
    perl -e 'open F, "+<", shift; syscall(285, fileno F, 3, 131072, 131072) and die' "$d/punched"
    text 300000 >"$d/shortened"; truncate -s 100001 "$d/shortened"
    text 1000 >"$d/lengthened"; truncate -s 500000 "$d/lengthened"
    text 1000 >"$d/grown"; sync_pool; text 1000 >>"$d/grown"; sync_pool; text 200000 >>"$d/grown"
    text 1000000 >"$d/overwritten"; sync_pool
    for i in 3 70000 131072 600001; do
        slice random $i 300 | dd of="$d/overwritten" bs=64K seek=$i oflag=seek_bytes conv=notrunc status=none
    done
    truncate -s 100M "$d/islands"
    for i in 0 1000000 1048576 33554432 99999000; do
        slice text $i 1000 | dd of="$d/islands" bs=64K seek=$i oflag=seek_bytes conv=notrunc status=none
    done
    sync_pool
}

def xattr 1 64 "extended attributes as system attributes and as folders, few and many; POSIX ACLs in both"
case_xattr() {
    local x d i n
    mkpool vda
    for x in sa on; do
        zfs create -o xattr=$x -o acltype=posixacl "$P/$x"; d=/$P/$x
        : >"$d/one"; setfattr -n user.one -v 1 "$d/one"
        : >"$d/empty-value"; setfattr -n user.empty "$d/empty-value"
        : >"$d/kinds"
        for n in user.a trusted.b security.c; do setfattr -n $n -v "value of $n" "$d/kinds"; done
        : >"$d/many"; for i in {1..100}; do setfattr -n "user.name-$i" -v "value $i" "$d/many"; done
        : >"$d/removed"; for i in {1..20}; do setfattr -n "user.$i" -v "$i" "$d/removed"; done
        for i in {1..20..2}; do setfattr -x "user.$i" "$d/removed"; done
        for n in 100 300 1000 5000 20000 60000; do
            : >"$d/value-$n"
            setfattr -n user.value -v "0s$(slice random $n $n | base64 -w 0)" "$d/value-$n"
        done
        : >"$d/name"; setfattr -n "user.$(printf 'n%.0s' {1..250})" -v long "$d/name"
        mkdir "$d/dir"; setfattr -n user.on -v dir "$d/dir"
        ln -s one "$d/link"; setfattr -h -n trusted.on -v link "$d/link"
        mkfifo "$d/fifo"; setfattr -n trusted.on -v fifo "$d/fifo"
        text 5000 >"$d/acl"; setfacl -m u:1000:rwx,u:1001:r--,g:1002:r-x,m::rwx "$d/acl"
        mkdir "$d/acl-dir"; setfacl -m u:1000:rwx -m d:u:1000:rwx,d:g:1001:r-x,d:o::--- "$d/acl-dir"
        : >"$d/acl-dir/inherits"; mkdir "$d/acl-dir/inherits-dir"
        : >"$d/acl-many"; setfacl -m "$(printf 'u:%d:r-x,' {2000..2060})g:7:r" "$d/acl-many"
    done
    # one file with attributes of both kinds
    : >"/$P/sa/both"; setfattr -n user.sa -v 1 "/$P/sa/both"
    zfs set xattr=on "$P/sa"; setfattr -n user.dir -v 2 "/$P/sa/both"; zfs set xattr=sa "$P/sa"
}

def dnodesize 1 64 "large dnodes: dnodesize legacy, auto, 1k to 16k, with xattr=sa"
case_dnodesize() {
    local s d i
    mkpool -O compression=lz4 -O xattr=sa vda
    for s in legacy auto 1k 2k 4k 8k 16k; do
        zfs create -o dnodesize=$s "$P/$s"; d=/$P/$s
        for i in {1..60}; do echo "$i" >"$d/f$i"; done
        for i in {1..20}; do setfattr -n user.x -v "$(slice text "$i" 300)" "$d/f$i"; done
        rm "$d"/f*5
        for i in legacy 1k 4k; do zfs set dnodesize=$i "$P/$s"; mkdir "$d/dir-$i"; echo $i >"$d/dir-$i/f"; done
        zfs set dnodesize=$s "$P/$s"
        ln -s "$(printf 'long/%.0s' {1..60})" "$d/link"
    done
}

# --- datasets ---------------------------------------------------------------------------------

def snapshots 1 64 "snapshots, clones, promote, rollback, bookmarks, holds, a destroyed snapshot"
case_snapshots() {
    mkpool -O compression=lz4 vda
    zfs create "$P/fs"
    tree "/$P/fs"
    zfs snapshot -r "$P@first"
    zfs snapshot "$P/fs@one"
    rm -r "/$P/fs/many"; text 20000 >>"/$P/fs/text-512"; mv "/$P/fs/mixed" "/$P/fs/renamed"
    zfs snapshot "$P/fs@two"
    text 30000 >"/$P/fs/random-10000"; chmod 700 "/$P/fs/sub"
    zfs snapshot -o user:note="third" "$P/fs@three"
    rm "/$P/fs/text-400000"
    zfs snapshot "$P/fs@four"
    zfs destroy "$P/fs@three"
    text 100 >"/$P/fs/lost-by-rollback"
    zfs rollback "$P/fs@four"
    zfs clone "$P/fs@one" "$P/clone"
    text 1000 >"/$P/clone/in-clone"; rm "/$P/clone/text-131072"
    zfs snapshot "$P/clone@c1"
    zfs clone "$P/fs@two" "$P/promoted"
    text 1000 >"/$P/promoted/in-promoted"
    zfs promote "$P/promoted"
    zfs bookmark "$P/fs@four" "$P/fs#four"
    zfs bookmark "$P/promoted@two" "$P/promoted#two"
    zfs hold -r keep "$P/fs@four"
    text 777 >"/$P/fs/after"
}

def datasets 1 64 "nested datasets: inherited and own properties, quotas and reservations of all kinds, mountpoints"
case_datasets() {
    mkpool -O compression=lz4 -O user:top=yes vda
    zfs create -o compression=gzip-6 -o recordsize=16K "$P/a"
    zfs create -p "$P/a/b/c/d"
    zfs create -o compression=off -o user:note="set on b2" "$P/a/b2"
    zfs create -o quota=20M -o reservation=2M "$P/quota"
    zfs create -o refquota=10M -o refreservation=1M "$P/quota/ref"
    zfs create -o filesystem_limit=5 -o snapshot_limit=7 "$P/limits"; zfs create "$P/limits/x"
    zfs create -o mountpoint=/elsewhere "$P/mnt"; zfs create "$P/mnt/child"
    zfs create -o mountpoint=legacy "$P/legacy"
    zfs create -o canmount=off "$P/cannot"; zfs create "$P/cannot/can"
    zfs create -o readonly=on "$P/readonly"
    zfs create -o atime=on -o relatime=on -o exec=off -o setuid=off -o devices=off -o primarycache=metadata \
        -o logbias=throughput -o sync=disabled -o snapdir=visible "$P/props"
    zfs create "$P/space"
    zfs set userquota@1000=5M groupquota@1001=6M userobjquota@1000=100 groupobjquota@1001=200 \
        projectquota@42=7M projectobjquota@42=300 "$P/space"
    text 100000 >"/$P/space/by-1000"; chown 1000:1001 "/$P/space/by-1000"
    text 50000 >"/$P/space/by-2000"; chown 2000:1001 "/$P/space/by-2000"
    mkdir "/$P/space/project"; zfs project -s -p 42 "/$P/space/project"
    text 40000 >"/$P/space/project/file"
    zfs allow -u 1000 snapshot,mount "$P/space"
    zfs allow -g 1001 -l create "$P/a"
    zfs allow -s @set clone,promote "$P"
    tree "/$P/a/b/c/d"; text 3000 >"/$P/a/file"; text 2000 >"/$P/quota/ref/file"; text 2000 >"/elsewhere/child/file"
    zfs snapshot -r "$P@all"
    zfs rename "$P/a/b2" "$P/a/b/renamed"
}

def zvol 1 64 "volumes with volblocksize 512, 8K and 128K, a sparse one, a snapshot and a clone"
case_zvol() {
    local b
    mkpool vda
    for b in 512 8K 128K; do
        zfs create -o snapdev=visible -V 2M -b $b "$P/vol$b" 2>/dev/null
    done
    zfs create -s -V 1G -o compression=zstd "$P/sparse"
    zvol-links
    for b in vol512 vol8K vol128K; do
        text 300000 >/tmp/x; rand 5000 >>/tmp/x
        dd if=/tmp/x of="/dev/zvol/$P/$b" bs=64K conv=fsync status=none
        echo "the end" | dd of="/dev/zvol/$P/$b" bs=512 seek=4095 conv=sync,fsync status=none
    done
    slice text 0 100000 | dd of="/dev/zvol/$P/sparse" bs=64K seek=1000 conv=fsync status=none
    sync_pool
    zfs snapshot "$P/vol8K@s"
    head -c 65536 /dev/zero | dd of="/dev/zvol/$P/vol8K" bs=64K seek=1 conv=fsync status=none
    zfs clone "$P/vol8K@s" "$P/clone"
}

def encrypted 1 96 "the six encryption suites, with passphrase, hex and raw keys; snapshot, clone, volume"
case_encrypted() {
    local e fmt
    mkpool -O compression=lz4 vda
    for e in aes-128-ccm,hex aes-192-ccm,raw aes-256-ccm,hex aes-128-gcm,raw aes-192-gcm,hex aes-256-gcm,passphrase; do
        fmt=${e#*,} e=${e%,*}
        case $fmt in
        passphrase) echo "correct horse battery staple" ;;
        hex) slice random 1000 32 | od -An -v -tx1 | tr -d ' \n' ;;
        raw) slice random 2000 32 ;;
        esac >"$KEYS/$P+$e.key"
        zfs create -o encryption="$e" -o keyformat="$fmt" -o keylocation="file://$KEYS/$P+$e.key" "$P/$e"
        few "/$P/$e"
    done
    e=$P/aes-256-gcm
    tree "/$e"
    zfs create -o compression=gzip -o dedup=sha256 "$e/child"; few "/$e/child"; cp "/$e/child/large" "/$e/child/copy"
    zfs create -V 2M "$e/vol"
    zvol-links
    slice text 0 300000 | dd of="/dev/zvol/$e/vol" bs=64K conv=fsync status=none
    setfattr -n user.secret -v "$(slice text 0 2000)" "/$e/text-512"
    zfs snapshot "$e@s"; rm "/$e/text-400000"
    zfs clone "$e@s" "$e/clone"; echo changed >"/$e/clone/changed"
    # an own key for a child of an encrypted dataset, changed once
    echo "another passphrase" >"$KEYS/$P+aes-256-gcm+own.key"
    zfs create -o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000 \
        -o keylocation="file://$KEYS/$P+aes-256-gcm+own.key" "$e/own"
    few "/$e/own"
    zfs change-key -o pbkdf2iters=123456 "$e/own"
}

def send 1 96 "streams of zfs send, kept beside the pool; received datasets, one of them partly"
case_send() {
    local s=/share/out/streams
    mkpool -O recordsize=1M -O xattr=sa -O snapdev=visible vda
    mkdir -p $s
    zfs create -o compression=lz4 "$P/fs"
    tree "/$P/fs"; zfs snapshot "$P/fs@1"
    rm -r "/$P/fs/many"; text 200000 >>"/$P/fs/text-512"; zfs snapshot "$P/fs@2"
    truncate -s 100 "/$P/fs/text-400000"; mkdir "/$P/fs/new"; text 100 >"/$P/fs/new/f"; zfs snapshot "$P/fs@3"
    zfs bookmark "$P/fs@1" "$P/fs#1"
    zfs clone "$P/fs@2" "$P/clone"; text 5000 >"/$P/clone/c"; zfs snapshot "$P/clone@c"
    zfs create -V 1M "$P/vol"; zvol-links
    slice text 0 300000 | dd of="/dev/zvol/$P/vol" bs=64K conv=fsync status=none; zfs snapshot "$P/vol@v"
    slice random 3000 32 >"$KEYS/$P+enc.key"
    zfs create -o encryption=on -o keyformat=raw -o keylocation="file://$KEYS/$P+enc.key" "$P/enc"
    few "/$P/enc"; zfs snapshot "$P/enc@e1"; rm "/$P/enc/small"; text 9000 >"/$P/enc/new"; zfs snapshot "$P/enc@e2"
    zfs snapshot "$P/fs@redact"; zfs clone "$P/fs@redact" "$P/redacted"; rm "/$P/redacted/text-131073"
    zfs snapshot "$P/redacted@r"; zfs redact "$P/fs@redact" book "$P/redacted@r"

    zfs send "$P/fs@1" >$s/full
    zfs send -L -e -c "$P/fs@1" >$s/full-large-embedded-compressed
    zfs send -c "$P/fs@1" >$s/full-compressed
    zfs send -p "$P/fs@1" >$s/full-props
    zfs send -i @1 "$P/fs@2" >$s/incremental-1-2
    zfs send -c -L -i @1 "$P/fs@2" >$s/incremental-1-2-compressed
    zfs send -i "$P/fs#1" "$P/fs@3" >$s/incremental-bookmark-3
    zfs send -I @1 "$P/fs@3" >$s/incremental-all-1-3
    zfs send -i "$P/fs@2" "$P/clone@c" >$s/clone
    zfs send -R -w "$P/fs@3" >$s/replicate
    zfs send "$P/vol@v" >$s/volume
    zfs send -w "$P/enc@e1" >$s/raw-full
    zfs send -w -i @e1 "$P/enc@e2" >$s/raw-incremental
    zfs send --redact book "$P/fs@redact" >$s/redacted

    zfs receive -u "$P/received" <$s/full
    zfs receive -u "$P/received" <$s/incremental-1-2
    zfs receive -u "$P/received-raw" <$s/raw-full
    cp "$KEYS/$P+enc.key" "$KEYS/$P+received-raw.key"
    # a part: what is left of an interrupted receive
    head -c 500000 $s/full | zfs receive -s -u "$P/partial" 2>/dev/null || true
}

# --- intent log -------------------------------------------------------------------------------

# Log many operations, and crash with none of them in the pool proper: the manifest (written before
# the crash, and for the rest of it see dump-pool.sh) is what the filesystem must be after replay.
zil_case() {
    local fs=$P/fs d=/$P/fs i
    zfs create -o xattr="${1:-on}" "$fs"; zfs create -V 2M "$P/vol"; zvol-links
    tree "$d"; mkdir "$d/dir"
    for i in {1..20}; do text 1000 >"$d/dir/old$i"; done
    zfs set sync=always "$P"
    echo sync >"$d/first"                                            # makes the logs exist
    slice text 0 65536 | dd of="/dev/zvol/$P/vol" bs=64K oflag=sync status=none
    sync_pool
    live_manifest synced
    zpool freeze "$P"

    text 100 >"$d/new-small"; text 200000 >"$d/new-large"; rand 20000 >"$d/new-random"
    text 5000 >>"$d/text-512"
    slice text 100 3000 | dd of="$d/text-131073" bs=4K seek=100 oflag=seek_bytes conv=notrunc status=none
    truncate -s 1000 "$d/text-131072"; truncate -s 700000 "$d/text-4096"
    mkdir "$d/dir/sub"; text 500 >"$d/dir/sub/f"
    ln "$d/mixed" "$d/dir/link"; ln -s somewhere "$d/dir/symlink"
    mknod "$d/dir/node" c 5 6; mkfifo "$d/dir/fifo"
    rm "$d/dir"/old{1..5}; rm -r "$d/many"; rmdir "$d/empty-dir"
    mv "$d/dir/old6" "$d/dir/moved6"; mv "$d/dir/old7" "$d/sub/moved7"; mv "$d/dir/old8" "$d/dir/old9"
    chmod 600 "$d/dir/old10"; chown 123:456 "$d/dir/old11"; touch -d '2010-01-01 00:00:00.5Z' "$d/dir/old12"
    setfattr -n user.logged -v yes "$d/dir/old13" "$d/new-small"
    text 10 >"$d/made-and-removed"; rm "$d/made-and-removed"
    [[ ${1:-} != sa ]] || { cp --reflink=always "$d/mixed" "$d/cloned"; setfattr -x user.colour "$d/empty"; }
    exec 7<"$d/dir/old14"; rm "$d/dir/old14"                         # open while unlinked
    slice text 500 100000 | dd of="/dev/zvol/$P/vol" bs=64K seek=1 oflag=sync status=none
    live_manifest replayed
    crash 0
}
live_manifest() {
    mkdir -p "/share/out/$1"
    perl /share/manifest.pl "/$P/fs" >"/share/out/$1/$P+fs.jsonl"
    { echo "size 2097152"; sha256sum <"/dev/zvol/$P/vol" | sed 's/^/sha256 /; s/ *-$//'; } >"/share/out/$1/$P+vol.zvol"
}

def zil 1 64 "a log not replayed, in the pool; 'synced' is the state before replay, 'replayed' after (but for times)"
case_zil() { mkpool vda; zil_case; }

def zilslog 3 64 "the same in a mirrored log device"
case_zilslog() { mkpool vda log mirror vdb vdc; zil_case; }

def zilcrypt 1 64 "the same in the log of an encrypted pool"
case_zilcrypt() {
    slice random 4000 32 >"$KEYS/$P.key"
    mkpool -O compression=lz4 -O encryption=on -O keyformat=raw -O keylocation="file://$KEYS/$P.key" vda
    zil_case
}

# --- what came after 2.1 ----------------------------------------------------------------------

maker=2.4
tunable() { echo "$2" >"/sys/module/zfs/parameters/$1"; }

def newest 2 64 "a mirror with all features enabled; blake3"
case_newest() {
    mkpool -O compression=zstd -O checksum=blake3 -O xattr=sa mirror vda vdb
    tree "/$P"
    zfs snapshot "$P@s"
    rm -r "/$P/many"
}

def zilsa 1 64 "a log not replayed, with attributes as system attributes and with clones"
case_zilsa() { mkpool vda; zil_case sa; }

def cloned 1 96 "block cloning: whole files and parts, in another file system, of deleted and overwritten ones"
case_cloned() {
    mkpool -O compression=lz4 vda
    zfs create "$P/a"; zfs create "$P/b"
    tree "/$P/a"; { text 600000; rand 50000; } >"/$P/a/large"
    { text 200000; rand 20000; } >"/$P/b/source"
    sync_pool
    local i
    for i in 1 2 3; do cp --reflink=always "/$P/a/large" "/$P/a/clone-$i"; done
    # between file systems there is no reflink, but copy_file_range(2)
    perl -e 'open I, "<", $ARGV[0]; open O, ">", $ARGV[1]; -s I == syscall 326, fileno I, 0, fileno O, 0, -s I, 0 or die "$!\n"' \
        "/$P/a/text-400000" "/$P/b/from-a"
    cp --reflink=always "/$P/b/source" "/$P/b/clone"
    sync_pool
    cp --reflink=always "/$P/a/clone-1" "/$P/a/clone-of-clone"
    slice random 5000 3000 | dd of="/$P/a/clone-2" bs=64K seek=200000 oflag=seek_bytes conv=notrunc status=none
    truncate -s 300000 "/$P/a/clone-3"
    zfs snapshot "$P/a@s"
    rm "/$P/a/large" "/$P/b/source"
    sync_pool
    cp --reflink=always "/$P/a/clone-1" "/$P/a/after"
}

def fastdedup 1 96 "fast dedup, with entries in the tables and in their logs, and some pruned"
case_fastdedup() {
    local c i
    mkpool -O recordsize=16K vda
    for c in sha256 blake3 skein,verify; do
        zfs create -o dedup=$c "$P/${c/,/-}"
        for i in 1 2 3; do tpos=0 rpos=0; tree "/$P/${c/,/-}/copy$i"; sync_pool; done
    done
    rm -r "/$P/sha256/copy3"
    sync_pool
    zpool ddtprune -p 20 "$P"
    tunable zfs_dedup_log_flush_entries_min 0
    tunable zfs_dedup_log_flush_entries_max 1
    tpos=7000; tree "/$P/blake3/logged"; cp -r "/$P/blake3/logged" "/$P/blake3/logged-again"
    sync_pool
}

# raidz of 3 that becomes one of 4
expand() {
    mkpool -O compression=lz4 raidz1 vda vdb vdc
    raidz_data
    zfs snapshot "$P/raw@before"
    sync_pool
    zpool attach "${@}" "$P" raidz1-0 /dev/raw/vdd
}

def expanded 4 96 "a raidz1 of 3 that was expanded to 4, with data of before and after"
case_expanded() {
    expand -w
    tree "/$P/after"
    text 300000 >"/$P/raw/after"
    text 2000 >>"/$P/raw/17-sectors"
}

def expanding 4 96 "a raidz1 in the middle of its expansion from 3 to 4"
case_expanding() {
    local i
    tunable raidz_expand_max_reflow_bytes 150000
    expand
    for ((i = 0; i < 60; i++)); do
        ! zpool status "$P" | grep -E 'expand: .*copied' || break
        sleep 1
    done
    sleep 10
    tree "/$P/meanwhile"
    sync_pool
    zpool status "$P"
}

def longnames 1 64 "names of up to 1023 bytes, in small and large folders"
case_longnames() {
    local i n name
    mkpool -O compression=lz4 vda
    zfs create -o longname=on "$P/long"; mkdir "/$P/long/few" "/$P/long/many"
    for n in 1 255 256 257 500 767 1000 1022 1023; do
        name=$(printf '%01023d' "$n" | tail -c "$n")
        echo "$n" >"/$P/long/few/$name"
        [[ $n != 500 ]] || { mkdir "/$P/long/$name"; : >"/$P/long/$name/in-it"; ln -s "$name" "/$P/long/link"; }
    done
    for i in {1..400}; do : >"/$P/long/many/$(printf '%0*d' $((200 + i)) "$i")"; done
    tree "/$P"
}

def largemicrozap 1 96 "folders in micro ZAPs of up to 1 MiB"
case_largemicrozap() {
    local i
    tunable zap_micro_max_size 1048576
    mkpool -O compression=lz4 vda
    mkdir "/$P/2000" "/$P/6000" "/$P/shrunk"
    for i in {1..2000}; do : >"/$P/2000/entry-$i"; done
    for i in {1..6000}; do : >"/$P/6000/e$i"; done
    for i in {1..4000}; do : >"/$P/shrunk/e$i"; done
    rm "/$P/shrunk"/*[1-8]
}

def redaction 1 96 "a redacted file system as it was received, redaction bookmarks, one with a long list"
case_redaction() {
    local i
    mkpool -O compression=lz4 vda
    zfs create -o recordsize=512 "$P/fs"
    tree "/$P/fs"
    zfs snapshot "$P/fs@s"
    for i in {1..40}; do
        zfs clone "$P/fs@s" "$P/c$i"
        # what none of the snapshots has any more is redacted
        slice random 100 3000 | dd of="/$P/c$i/text-400000" bs=64K seek=20000 oflag=seek_bytes conv=notrunc status=none
        slice random $((i * 100)) 300 | dd of="/$P/c$i/mixed" bs=64K seek=$((i * 1000)) oflag=seek_bytes conv=notrunc status=none
        rm "/$P/c$i/text-131071"
        zfs snapshot "$P/c$i@r"
    done
    zfs redact "$P/fs@s" few "$P/c1@r" "$P/c2@r"
    # shellcheck disable=SC2046  # words
    zfs redact "$P/fs@s" many $(printf "$P/c%d@r " {1..40})
    zfs send --redact few "$P/fs@s" | zfs receive -u "$P/received"
    for i in {3..40}; do zfs destroy -r "$P/c$i"; done
}

def dynamicgang 1 96 "gang blocks with headers larger than a sector of 512, of ashift 12"
case_dynamicgang() {
    mkpool -o ashift=12 -O compression=off vda
    tunable metaslab_force_ganging_pct 100
    tunable metaslab_force_ganging 9216
    tree "/$P"
    sync_pool
    tunable metaslab_force_ganging 16777217
}

def rewritten 2 96 "files written anew by 'zfs rewrite', logically and physically, after a vdev and other properties came"
case_rewritten() {
    mkpool vda
    zfs create "$P/logical"; zfs create "$P/physical"; zfs create "$P/snapped"
    tree "/$P/logical"; tree "/$P/physical"; tree "/$P/snapped"
    zfs snapshot "$P/snapped@before"
    sync_pool
    zpool add -f "$P" /dev/raw/vdb
    zfs set compression=zstd checksum=sha256 "$P"
    zfs rewrite -r "/$P/logical"
    zfs rewrite -P -r "/$P/physical"
    zfs rewrite -P -r "/$P/snapped/mixed" "/$P/snapped/sub"
    zfs snapshot "$P/physical@after"
}

# --- main -------------------------------------------------------------------------------------

if [[ $1 == --list ]]; then
    for c in "${CASES[@]}"; do echo "$c ${SPEC[$c]}"; done
    exit
fi

SEED=/share/seed
# shellcheck source=content.sh
. /share/content.sh
KEYS=/share/out/keys
P=t_$1
mkdir -p $KEYS
"case_$1"

# Look at what is on disk, not in memory, and change nothing more.
zpool export "$P"
zpool import -N -o readonly=on "$P"
bash /share/dump-pool.sh "$P" /share/out $KEYS
zpool export "$P"
