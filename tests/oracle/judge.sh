# judge.sh - sourced by scripts that ask OpenZFS: which OpenZFS, and its programs.
#
#   2.1   that of Debian 12: the machine's own, or unpacked into the cache without installing it
#   2.4   that of trixie-backports, in a root of its own, which `zvm --judge 2.4 setup` makes
#
# A script's option `--judge VERSION` chooses, else JUDGE in the environment, else it is 2.1.
# shellcheck shell=bash

# shellcheck source=debs.sh
. "$(dirname "${BASH_SOURCE[0]}")/debs.sh"

# judge VERSION: from now on, and in all that is started, this one is asked.
#   JUDGE_CACHE   what `zvm setup` made for it: stamp, version, vmlinux, initrd, and of 2.4 root/ and bin/
#   JUDGE_ROOT    the system that has it
judge() {
    JUDGE_CACHE=${ZVM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zvm}
    case $1 in
    2.1) JUDGE_ROOT=/ ;;
    2.4) JUDGE_CACHE+=-2.4 JUDGE_ROOT=$JUDGE_CACHE/root ;;
    *) echo "${0##*/}: there is no judge $1, but 2.1 and 2.4" >&2; exit 2 ;;
    esac
    export JUDGE=$1
}

# no_revival DIR: a process of a pool that is killed is not followed by another one, so that a kill is a power cut; DIR is
# made for tunables.
no_revival() {
    export CENOTE_PARAMETERS=$1
    mkdir -p "$1"
    echo 0 >"$1/cenote_deaths_max"
}

# maker DIR: the judge that made this case of the corpus, or can speak for who made it.
maker() { sed -E 's/.*"maker":"openzfs","version":"([0-9]+\.[0-9]+).*/\1/; t; s/.*/2.1/' "$1/case.json"; }

# Whether the judge's kernel module can be asked.
has_module() { [[ -f $JUDGE_CACHE/stamp ]]; }

# Put zdb, ztest and what belongs to them into PATH.
zfs_tools() {
    local root=$ORACLE_CACHE/tools/root arch
    PATH=$PATH:/usr/sbin:/sbin
    if [[ $JUDGE != 2.1 ]]; then
        [[ -x $JUDGE_CACHE/bin/zdb ]] || { echo "${0##*/}: no zdb of OpenZFS $JUDGE (tests/oracle/zvm --judge $JUDGE setup)" >&2; return 1; }
        PATH=$JUDGE_CACHE/bin:$PATH
        return
    fi
    if type -P ztest zdb >/dev/null && [[ -z ${ZFS_TOOLS_UNPACKED:-} ]]; then
        zdb_at_once
        return
    fi
    arch=$(dpkg --print-architecture) || return 1
    unpack_debs "$ORACLE_CACHE/tools" "$arch" zfs-test zfsutils-linux libzpool5linux libzfs4linux libnvpair3linux \
        libuutil3linux libzfsbootenv1linux libaio1 libblkid1 libudev1 libssl3 zlib1g libtirpc3 libgssapi-krb5-2 \
        libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 || return 1
    PATH=$root/sbin:$PATH
    export LD_LIBRARY_PATH=$root/lib/$(uname -m)-linux-gnu:$root/usr/lib/$(uname -m)-linux-gnu
    ztest -h >/dev/null && zdb_at_once
}

# zdb 2.1 ends when what it has read ahead is six seconds old, and spins until then: put a zdb into PATH that does not
# wait. Variables it sets in libzpool.so, by the name that only packages of developers have.
zdb_at_once() {
    local zdb lib dir=$ORACLE_CACHE/zdb
    zdb=$(type -P zdb)
    # nothing, if it is that already
    lib=$(ldd "$zdb" 2>/dev/null | awk '$1 ~ /^libzpool\.so/ { print $3 }') || return 0
    [[ -e $lib ]] || return 0
    mkdir -p "$dir"
    ln -fs "$lib" "$dir/libzpool.so"
    cat >"$dir/zdb.$$" <<END
#!/bin/sh
LD_LIBRARY_PATH=$dir:${LD_LIBRARY_PATH:-} exec $zdb -o zfs_arc_min_prefetch_ms=1 -o zfs_arc_min_prescient_prefetch_ms=1 "\$@"
END
    chmod 755 "$dir/zdb.$$"
    mv "$dir/zdb.$$" "$dir/zdb"
    PATH=$dir:$PATH
}

judge "${JUDGE:-2.1}"
