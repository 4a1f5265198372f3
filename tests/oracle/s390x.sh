# s390x.sh - sourced by scripts that need programs of a big-endian machine.
#
# Debian builds OpenZFS for s390x, and qemu-user runs it: s390x_setup installs qemu-user-static, a cross
# compiler and the packages it is given, and unpacks the s390x packages into a folder of the cache, where
# they stay; "${S390X[@]}" PROGRAM ARG... runs one.
# shellcheck shell=bash

# shellcheck source=debs.sh
. "$(dirname "${BASH_SOURCE[0]}")/debs.sh"
S390X_CACHE=$ORACLE_CACHE/s390x
export SYSROOT=$S390X_CACHE/root
S390X_PACKAGES=(zfs-test zfsutils-linux libzpool5linux libzfs4linux libnvpair3linux libuutil3linux libzfsbootenv1linux
    libc6 libgcc-s1 libblkid1 libudev1 libuuid1 libssl3 zlib1g libzstd1 libtirpc3 libgssapi-krb5-2 libkrb5-3
    libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1)

s390x_setup() {
    local p missing=()
    for p in qemu-user-static gcc-s390x-linux-gnu libc6-dev-s390x-cross "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
    done
    if ((${#missing[@]})); then
        echo "installing ${missing[*]}" >&2
        apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
    fi
    unpack_debs "$S390X_CACHE" s390x "${S390X_PACKAGES[@]}"
    s390x_exec_shim
}

export QEMU=/usr/bin/qemu-s390x-static
S390X=("$QEMU" -L "$SYSROOT" -E LD_PRELOAD=/lib/exec.so)

# A program that runs another (ztest does) can, without binfmt_misc, only do so by way of qemu.
s390x_exec_shim() {
    s390x-linux-gnu-gcc -O1 -shared -fPIC -x c -o "$SYSROOT/lib/exec.so" - <<'END'
#include <stdlib.h>
#include <unistd.h>
extern char **environ;
int execv(const char *path, char *const argv[])
{
    int n = 0;
    while (argv[n]) n++;
    char **v = calloc(n + 5, sizeof *v);
    v[0] = "qemu", v[1] = "-L", v[2] = getenv("SYSROOT"), v[3] = (char *)path;
    for (int i = 1; i < n; i++) v[3 + i] = argv[i];
    return execve(getenv("QEMU"), v, environ);
}
END
}
