# To be sourced: virtual machines whose disk is a volume, by vhost-user, in emulation, so that no KVM is needed.
#
# The script sets `cenote` (the program), `mem` (MB of the machine), `console` (where all is kept that machines say) and
# `tools` (programs that machines have beside busybox), and calls machine_parts; it writes $root/init and calls
# machine_sealed; it makes a pool called $pool on $work/disk, with the volume $pool/vm. Then machine, until_says, says, off,
# kill_pool and check are there, and $passed and $failed count. What a machine tells us are lines that begin with GUEST.
PATH=$PATH:/usr/sbin:/sbin

# machine_parts POOL: a place to work, which goes in the end, and the root of an initramfs that init is missing in.
machine_parts() {
    local pair tool file to missing=() number=0 version
    pool=$1
    for pair in qemu-system-x86_64:qemu-system-x86 fio:fio mke2fs:e2fsprogs cpio:cpio modprobe:kmod "${@:2}"; do
        command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [[ -x /bin/busybox ]] || missing+=(busybox-static)
    compgen -G '/boot/vmlinuz-*' >/dev/null || missing+=(linux-image-amd64)
    ((${#missing[@]} == 0)) || apt-get install -qy --no-install-recommends "${missing[@]}" >/dev/null
    kernel=$(printf '%s\n' /boot/vmlinuz-* | sort -V | tail -1)

    work=$(mktemp -d "${TMPDIR:-/tmp}/cenote-$pool.XXXXXX")
    export CENOTE_RUN=$work/run ZFS_HOSTID=7
    qemu_pid='' passed=0 failed=0
    trap machine_cleanup EXIT

    root=$work/root
    mkdir -p "$root"/{bin,etc,tools,dev,proc,sys,tmp,mnt,modules}
    cp /bin/busybox "$root/bin/busybox"
    cp /etc/mke2fs.conf "$root/etc/"
    for tool in $tools; do
        cp "$(command -v "$tool")" "$root/tools/"
        ldd "$(command -v "$tool")" | grep -o '/[^ ]*' | while read -r library; do
            mkdir -p "$root${library%/*}"
            cp -L "$library" "$root$library"
        done
    done
    version=${kernel#*vmlinuz-}
    [[ -e /lib/modules/$version/modules.dep ]] || depmod "$version"
    for module in virtio_pci virtio_blk ext4 crc32c_generic; do
        modprobe -S "$version" --show-depends $module | awk '$1 == "insmod" { print $2 }'
    done | awk '!seen[$0]++' | while read -r file; do
        number=$((number + 1))
        to=$root/modules/$(printf '%02d' $number).ko
        case $file in
        *.xz) xz -dc "$file" >"$to" ;;
        *.zst) zstd -qdc "$file" >"$to" ;;
        *) cp "$file" "$to" ;;
        esac
    done
    # the beginning of each init
    cat >"$root/begin" <<'END'
/bin/busybox --install -s /bin
export PATH=/tools:/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
ln -s /proc/mounts /etc/mtab
for module in /modules/*.ko; do insmod $module; done
while [ ! -b /dev/vda ]; do sleep 0.1; done
cat /proc/cmdline >/tmp/cmdline
value() { sed -n "s/.*$1=\([^ ]*\).*/\1/p" /tmp/cmdline; }
content() { yes "file $1" | head -c 100000; }
fail() { echo "GUEST failed $*"; }
END
}
machine_cleanup() {
    [[ -z $qemu_pid ]] || kill -9 "$qemu_pid" 2>/dev/null || true
    "$cenote" zpool export -f "$pool" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}

machine_sealed() {
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
}

# machine PHASE [WORD]... : starts it; what it says goes to $work/says. Options for QEMU are in more_qemu.
# norandmaps: QEMU can keep its translation of a program from one start of it to the next; no_timer_check: on a busy machine,
# no tick comes in the time in which the kernel wants to see some.
more_qemu=()
machine() {
    local socket
    socket=$("$cenote" volumes "$pool/vm" | awk -F'\t' '$2 == "vhost" { print $3 }')
    : >"$work/says"
    qemu-system-x86_64 -machine q35,memory-backend=ram -accel tcg,thread=multi -cpu max -smp 2 -m "$mem" \
        -object memory-backend-memfd,id=ram,size="$mem"M,share=on \
        -chardev socket,id=vm,path="$socket",reconnect=1 -device vhost-user-blk-pci,chardev=vm,num-queues=2 "${more_qemu[@]}" \
        -nodefaults -no-user-config -display none -no-reboot -kernel "$kernel" -initrd "$work/initrd" \
        -append "console=ttyS0 loglevel=5 panic=-1 nowatchdog norandmaps no5lvl no_timer_check phase=$1 ${*:2}" \
        -chardev file,id=console,path="$work/says" -serial chardev:console </dev/null >"$work/qemu" 2>&1 &
    qemu_pid=$!
}
# waits until the machine says so, or is off
until_says() {
    while kill -0 "$qemu_pid" 2>/dev/null && ! says "$1"; do sleep 0.2; done
    says "$1"
}
off() { wait "$qemu_pid" 2>/dev/null || true; qemu_pid=''; cat "$work/says" >>"$console"; }
says() { grep -qE "^GUEST $1" <<<"$(tr -d '\r\0' <"$work/says")"; }
# the last number that it said of something
last_said() { tr -d '\r' <"$work/says" | sed -n "s/^GUEST $1 //p" | tail -1; }

# what a power cut would be for the pool, and for the machine
kill_pool() {
    local process
    for process in /proc/[0-9]*; do
        ! grep -qxF "$work/disk" <<<"$(readlink "$process"/fd/* 2>/dev/null)" || kill -9 "${process#/proc/}"
    done
}

# check TITLE COMMAND... : it has to succeed.
check() {
    local title=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $title"
        tail -n 5 "$work/out"
        cat "$work/qemu"
    fi
}
not() { ! "$@"; }
# the pool is handed back without a leak
export_and_check() {
    "$cenote" zpool export "$pool"
    if command -v zdb >/dev/null; then
        check 'zdb: no leaks' bash -c "zdb -bcc -e -p '$work' '$pool' | grep 'No leaks'"
    fi
}
