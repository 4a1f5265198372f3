#!/bin/bash
# written-pool.sh COMMAND - what happens to the pool `written` of check-written, on both sides.
#
#   list            all that can be known of the files below the working folder, a sorted line each
#   small DIR N     make N small files and folders, the same each time
#   change DIR N    delete, overwrite, cut, lengthen, move and link about half of the files; N varies it
#   volume FILE N   write to a volume of 24 MiB and discard some of it; N varies it
#   guest           in the machine of zvm: import, scrub, read, write, export; lists go to /share
set -euo pipefail

# Owner, mode, links, size, time to the nanosecond and target; checksums; attributes; ACLs.
# .zfs is not in the listing of its folder. Sparse files of a terabyte are read where they have data.
list() {
    export LC_ALL=C
    find . -mindepth 1 ! -type d -printf 'f %P %y %m %U %G %n %s %T@ %l\n' -o -mindepth 1 -printf 'd %P %m %U %G %n %s %T@\n' | sort
    find . -type f -size -4G -print0 | sort -z | xargs -0 sha256sum
    [[ ! -e sparse ]] || tail -c 1M sparse | sha256sum
    find . -print0 | sort -z | xargs -0 getfattr -h -d -e hex -m '^(user|trusted)\.' --
    find . ! -type l -print0 | sort -z | xargs -0 getfacl -n -s --
}

small() {
    mkdir -p "$1"
    perl -e '
        my ($dir, $n) = @ARGV;
        my $f;
        srand(7);
        for my $i (0 .. $n - 1) {
            my $sub = "$dir/" . int($i / 1000);
            mkdir $sub unless $i % 1000;
            # most are small, one of a hundred has several blocks
            my $len = int(rand($i % 100 ? 6000 : 400000));
            my $data = $i % 3 ? join(" ", map { $_ * $i } 0 .. $len / 5) : pack("N*", map { rand(4294967296) } 0 .. $len / 4);
            open($f, ">", "$sub/file-$i") && print($f $data) && close($f) or die "$sub/file-$i: $!";
            chmod(0400 + $i % 256, "$sub/file-$i") && chown($i % 5, $i % 3, "$sub/file-$i") or die $!;
            utime($i, $i * 10, "$sub/file-$i") if $i % 10 == 1;
            symlink("x" x (1 + $i % 200), "$sub/link-$i") or die $! if $i % 20 == 2;
        }' "$1" "$2"
    local file
    for file in "$1"/0/file-?; do
        setfattr -n user.short -v "${file##*/}" "$file"
        setfattr -n user.long -v "$(printf '%01500d' 7)" "$file"
        ! type -P setfacl >/dev/null || setfacl -m u:1234:r,g:77:rw "$file"
    done
}

change() {
    find "$1" -type f -size -4G -print0 | sort -z | perl -0 -ne '
        BEGIN { our $turn = shift @ARGV; srand($turn) }
        chomp;
        my ($f, $size, $what) = (undef, -s $_, ($. * 7 + $turn) % 16);
        # the database is changed by its own program
        next if m{/db(-|$)} || m{/\.git/} && $what > 0;
        sub bytes { pack("N*", map { rand(4294967296) } 0 .. $_[0] / 4) }
        if ($what < 2) { unlink or die "$_: $!" }
        elsif ($what < 4) {     # inside, at any offset
            open($f, "+<", $_) or die "$_: $!";
            for (1 .. 1 + $size / 300000) { seek($f, int(rand($size)), 0); print $f bytes(rand(20000)) }
            close($f) or die "$_: $!";
        }
        elsif ($what == 4) { truncate($_, int(rand($size))) or die "$_: $!" }
        elsif ($what == 5) { truncate($_, $size + int(rand(200000))) or die "$_: $!" }
        elsif ($what == 6) { open($f, ">>", $_) && print($f bytes(rand(50000))) && close($f) or die "$_: $!" }
        elsif ($what == 7) { rename($_, "$_ moved") or die "$_: $!"; link("$_ moved", "$_ linked") or die "$_: $!" }
        elsif ($what == 8) { open($f, ">", $_) && print($f bytes(rand(3000))) && close($f) or die "$_: $!" }
    ' "$2"
}

volume() {
    perl -e '
        my ($file, $turn) = @ARGV;
        srand($turn);
        open(my $f, "+<", $file) or die "$file: $!";
        for (1 .. 80) {
            seek($f, int(rand(23 << 20)), 0) or die $!;
            print $f $_ % 3 ? pack("N*", map { rand(4294967296) } 0 .. rand(20000)) : "text " x rand(10000);
        }
        close($f) or die "$file: $!";' "$1" "$2"
    sync "$1"
    if [[ -b $1 ]]; then blkdiscard -o "${2}M" -l 3M "$1"; else fallocate -p -o "${2}M" -l 3M "$1"; fi
    sync "$1"
}

guest() {
    set -x
    zpool import -d /dev/raw -R /mnt written
    zpool scrub -w written
    zpool status -v written | tee /share/status
    (cd /mnt/written && bash /share/written-pool.sh list) >/share/kernel-read
    # a second look at the counts of errors: reading may have found what the scrub did not
    zpool status -v written >/share/status
    grep -q 'errors: No known data errors' /share/status
    ! grep -E '(ONLINE|DEGRADED) +[0-9]+ +[0-9]+ +[0-9]+' /share/status | grep -vE ' 0 +0 +0( |$)'

    zvol-links
    sha256sum </dev/zvol/written/vol >/share/kernel-volume-read

    zfs snapshot -r written@kernel
    (cd /mnt/written/.zfs/snapshot/kernel && bash /share/written-pool.sh list) >/share/snapshot-read
    bash /share/written-pool.sh change /mnt/written/small 5
    bash /share/written-pool.sh small /mnt/written/fs/kernel 300
    zfs create -o compression=lz4 -o recordsize=16K written/kernel
    dd if=/dev/urandom of=/mnt/written/kernel/new bs=64k count=60 2>&1
    dd if=/dev/urandom of=/mnt/written/big bs=64k seek=3 count=20 conv=notrunc 2>&1
    bash /share/written-pool.sh volume /dev/zvol/written/vol 5
    sha256sum </dev/zvol/written/vol >/share/kernel-volume
    zpool sync written
    (cd /mnt/written && bash /share/written-pool.sh list) >/share/kernel
    zpool export written
}

case ${1:-} in
list | guest) "$1" ;;
small | change | volume) "$@" ;;
*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
