#!/bin/bash
# block.sh - what check-block does in the emulated machine. Prints each step; the first that is not as it should be ends it.
set -uo pipefail

step() { echo "== $* ($(cut -d. -f1 /proc/uptime) s)"; }
fail() {
    echo "WRONG: $*"
    ls -lR /dev/zvol
    tail -n 30 /run/cenote/*.log
    dmesg | tail -n 20
    exit 1
}
is() { [[ $1 == "$2" ]] || fail "'$1', not '$2'${3:+: $3}"; }
# until COMMAND...: it is so within a minute
until_so() {
    local left=600
    until "$@" >/dev/null 2>&1; do
        ((left-- > 0)) || fail "not so within a minute: $*"
        sleep 0.1
    done
}
refused() {
    local said
    said=$("$@" 2>&1) && fail "not refused: $*"
    echo "   refused: $said"
}
sum() { sha256sum | cut -d' ' -f1; }
pool_process() { pgrep -f 'cenote serve' | head -n 1; }
zpool() { cenote zpool "$@"; }
zfs() { cenote zfs "$@"; }

# the kernel looks for modules outside of this root
modprobe -a nbd ext4 || fail "no modules"

# more than three kills a minute are nobody's fault here
export CENOTE_PARAMETERS=/tmp/parameters
mkdir $CENOTE_PARAMETERS
echo 1000 >$CENOTE_PARAMETERS/cenote_deaths_max

step "volumes are devices"
zpool create -m /mnt/t t /dev/raw/vda || fail "no pool"
zfs create -V 64M t/a || fail "no volume"
[[ -b /dev/zvol/t/a ]] || fail "no device"
is "$(blockdev --getsize64 /dev/zvol/t/a)" $((64 << 20)) size
is "$(blockdev --getss /dev/zvol/t/a)" 512 "sector size"
zfs create -s -V 32M -o volblocksize=4K t/folder 2>/dev/null || fail "no second volume"
zfs destroy t/folder || fail "not destroyed"
[[ ! -e /dev/zvol/t/folder ]] || fail "its device is still there"
zfs create t/deep && zfs create -V 48M t/deep/b
is "$(readlink /dev/zvol/t/deep/b | sed 's|nbd.*||')" ../../../ link
cenote volumes | grep -P '^t/a\tblock\t/dev/zvol/t/a$' || fail "cenote volumes does not say it"

step "they keep what is written"
dd if=/dev/urandom of=/tmp/data bs=1M count=8 status=none
dd if=/tmp/data of=/dev/zvol/t/a bs=1M oflag=direct status=none || fail "not written"
is "$(dd if=/dev/zvol/t/a bs=1M count=8 iflag=direct status=none | sum)" "$(sum </tmp/data)" direct
is "$(head -c 8M /run/cenote/zvol/t/a | sum)" "$(sum </tmp/data)" "the file of the volume"
blkdiscard -o 1M -l 1M /dev/zvol/t/a || fail "not discarded"
is "$(dd if=/dev/zvol/t/a bs=1M skip=1 count=1 iflag=direct status=none | tr -d '\0' | wc -c)" 0 discarded

step "in use, they are not destroyed"
exec 7</dev/zvol/t/a
refused zfs destroy t/a
exec 7<&-
mkfs.ext4 -q /dev/zvol/t/deep/b && mkdir -p /mnt/b && mount /dev/zvol/t/deep/b /mnt/b || fail "no ext4"
refused zfs destroy t/deep/b
refused zpool export t
cp /tmp/data /mnt/b/data && sync /mnt/b/data || fail "not copied"

step "names and sizes"
zfs rename t/deep t/other || fail "not renamed"
[[ -b /dev/zvol/t/other/b && ! -e /dev/zvol/t/deep ]] || fail "links do not follow"
zfs set volsize=64M t/other/b || fail "not resized"
is "$(blockdev --getsize64 /dev/zvol/t/other/b)" $((64 << 20)) "new size"
resize2fs /dev/zvol/t/other/b >/dev/null 2>&1 || fail "the file system does not grow"
zfs set readonly=on t/a || fail
is "$(blockdev --getro /dev/zvol/t/a)" 1 readonly
zfs set readonly=off t/a
is "$(blockdev --getro /dev/zvol/t/a)" 0 "writable again"

step "partitions"
sgdisk -n 1:2048:+8M -n 2:0:+8M /dev/zvol/t/a >/dev/null || fail "no partitions"
partprobe /dev/zvol/t/a 2>/dev/null || blockdev --rereadpt /dev/zvol/t/a
until_so test -b /dev/zvol/t/a-part1
until_so test -b /dev/zvol/t/a-part2
sgdisk -d 2 /dev/zvol/t/a >/dev/null; blockdev --rereadpt /dev/zvol/t/a
until_so test ! -e /dev/zvol/t/a-part2
zfs set volmode=none t/a || fail
[[ ! -e /dev/zvol/t/a && ! -e /dev/zvol/t/a-part1 ]] || fail "volmode=none has a device"
zfs set volmode=dev t/a || fail
[[ -b /dev/zvol/t/a ]] || fail "volmode=dev has no device"
until_so test ! -e "/sys/block/$(basename "$(readlink /dev/zvol/t/a)")/$(basename "$(readlink /dev/zvol/t/a)")p1"
[[ ! -e /dev/zvol/t/a-part1 ]] || fail "volmode=dev has partitions"
zfs set volmode=full t/a
until_so test -b /dev/zvol/t/a-part1

step "snapshots, and a rollback"
zfs snapshot t/a@s || fail
[[ ! -e /dev/zvol/t/a@s ]] || fail "snapdev=hidden shows it"
zfs set snapdev=visible t/a
[[ -b /dev/zvol/t/a@s ]] || fail "snapdev=visible does not show it"
is "$(blockdev --getro /dev/zvol/t/a@s)" 1 "of a snapshot"
before=$(sum </dev/zvol/t/a)
is "$(sum </dev/zvol/t/a@s)" "$before" snapshot
dd if=/tmp/data of=/dev/zvol/t/a bs=1M seek=20 status=none conv=notrunc
[[ $(sum </dev/zvol/t/a) != "$before" ]] || fail "nothing changed"
zfs rollback t/a@s || fail "no rollback"
is "$(sum </dev/zvol/t/a)" "$before" "rolled back"
zfs snapshot t/a@later
[[ -b /dev/zvol/t/a@later ]] || fail "a later snapshot has no device"
zfs destroy t/a@later || fail
[[ ! -e /dev/zvol/t/a@later ]] || fail "a destroyed snapshot has a device"

step "the process is killed under load: a file system notices nothing"
(
    i=0
    while [[ ! -e /tmp/stop ]]; do
        dd if=/tmp/data of=/mnt/b/file-$((i % 4)) bs=64k count=16 conv=fsync status=none || { echo "a write failed"; break; }
        i=$((i + 1))
    done
    echo "$i files" >/tmp/wrote
) & writer=$!
# kill_it ROUND : and another process goes on
kill_it() {
    local pid
    pid=$(pool_process)
    kill -9 "$pid"
    until_so zpool list t
    [[ $(pool_process) != "$pid" ]] || fail "it is the same process"
    echo "   kill $1: $(zpool list -H -o name,health t)"
    dd if=/dev/zvol/t/a of=/dev/null bs=64k count=4 iflag=direct status=none || fail "a device does not answer after it"
}
for round in 1 2 3; do sleep 3; kill_it $round; done
step "another program in its place"
cenote upgrade t || fail "not upgraded"
dd if=/dev/zvol/t/a of=/dev/null bs=64k count=4 iflag=direct status=none || fail "a device does not answer after it"
touch /tmp/stop
wait "$writer"
echo "   $(cat /tmp/wrote)"
for i in 0 1 2 3; do is "$(sum </mnt/b/file-$i)" "$(head -c 1M /tmp/data | sum)" "file $i"; done
is "$(sum </mnt/b/data)" "$(sum </tmp/data)" "the file from before"

step "what was written is there, flushed or not, and no flush fails"
cat >/tmp/flushes.py <<'END'
import mmap, os, random, sys
device, stop = sys.argv[1:3]
rng, written, promised = random.Random(5), {}, {}
fd = os.open(device, os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
flushes = count = 0
while not os.path.exists(stop):
    for _ in range(rng.randrange(1, 40)):
        count += 1
        at = rng.randrange(2048)
        page[:] = count.to_bytes(8, "little") * 512
        os.pwrite(fd, page, at * 4096)
        written[at] = count
    promised.update(written)
    written = {}
    if rng.random() < 0.5:
        os.fsync(fd)
        flushes += 1
wrong = 0
for at, count in promised.items():
    os.preadv(fd, [page], at * 4096)
    wrong += int.from_bytes(page[:8], "little") != count
print(f"   {flushes} flushes, {count} writes, {len(promised)} blocks, {wrong} wrong")
sys.exit(wrong > 0)
END
zfs create -V 16M t/raw || fail
python3 /tmp/flushes.py /dev/zvol/t/raw /tmp/stop-flushes & writer=$!
for round in 4 5 6 7 8; do sleep $((round % 3)).7; kill_it $round; done
sleep 2
touch /tmp/stop-flushes
wait "$writer" || fail "a flush failed, or what was written is not there"

step "export and import"
umount /mnt/b || fail "not unmounted"
e2fsck -fn /dev/zvol/t/other/b >/tmp/fsck 2>&1 || { cat /tmp/fsck; fail "e2fsck finds errors"; }
zpool export t || fail "not exported"
[[ ! -e /dev/zvol/t ]] || fail "links are left"
grep -l cenote: /sys/block/nbd*/backend 2>/dev/null && fail "devices are left"
zpool import -d /dev/raw t || fail "not imported"
[[ -b /dev/zvol/t/a && -b /dev/zvol/t/other/b && -b /dev/zvol/t/a@s ]] || fail "devices are not there again"
mount -o ro /dev/zvol/t/other/b /mnt/b && is "$(sum </mnt/b/data)" "$(sum </tmp/data)" "after an import"
umount /mnt/b

step "switches"
zfs set org.cenote:block=off t/a
[[ ! -e /dev/zvol/t/a ]] || fail "block=off has a device"
zfs send t/a@s | zfs receive t/copy || fail "not received"
[[ ! -e /dev/zvol/t/copy ]] || fail "what a stream brought is a device"
zfs set org.cenote:block=on t/copy
[[ -b /dev/zvol/t/copy ]] || fail "block=on has no device"
zpool destroy t || fail "not destroyed"
[[ ! -e /dev/zvol/t ]] || fail "links are left"
step "all is as it should be"
