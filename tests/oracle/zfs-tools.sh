# zfs-tools.sh - sourced by scripts that need ztest and zdb: zfs_tools puts both into PATH, the machine's
# own if there are, else Debian's, unpacked into a folder of the cache.
# shellcheck shell=bash

# shellcheck source=debs.sh
. "$(dirname "${BASH_SOURCE[0]}")/debs.sh"

zfs_tools() {
    local root=$ORACLE_CACHE/tools/root arch
    PATH=$PATH:/usr/sbin:/sbin
    ! type -P ztest zdb >/dev/null || [[ -n ${ZFS_TOOLS_UNPACKED:-} ]] || return 0
    arch=$(dpkg --print-architecture) || return 1
    unpack_debs "$ORACLE_CACHE/tools" "$arch" zfs-test zfsutils-linux libzpool5linux libzfs4linux libnvpair3linux \
        libuutil3linux libzfsbootenv1linux libaio1 libblkid1 libudev1 libssl3 zlib1g libtirpc3 libgssapi-krb5-2 \
        libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 || return 1
    PATH=$root/sbin:$PATH
    export LD_LIBRARY_PATH=$root/lib/$(uname -m)-linux-gnu:$root/usr/lib/$(uname -m)-linux-gnu
    ztest -h >/dev/null
}
