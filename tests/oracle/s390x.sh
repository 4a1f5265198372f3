# s390x.sh - sourced by scripts that need programs of a big-endian machine.
#
# Debian builds OpenZFS for s390x, and qemu-user runs it: s390x_setup installs qemu-user-static, a cross
# compiler and the packages it is given, and unpacks the s390x packages into a folder of the cache, where
# they stay; "${S390X[@]}" PROGRAM ARG... runs one.
# shellcheck shell=bash

S390X_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/zvm/s390x
export SYSROOT=$S390X_CACHE/root
S390X_PACKAGES=(zfs-test zfsutils-linux libzpool5linux libzfs4linux libnvpair3linux libuutil3linux libzfsbootenv1linux
    libc6 libgcc-s1 libblkid1 libudev1 libuuid1 libssl3 zlib1g libzstd1 libtirpc3 libgssapi-krb5-2 libkrb5-3
    libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1)

s390x_setup() {
    local p missing=() apt
    for p in qemu-user-static gcc-s390x-linux-gnu libc6-dev-s390x-cross "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
    done
    if ((${#missing[@]})); then
        echo "installing ${missing[*]}" >&2
        apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
    fi
    [[ ! -e $S390X_CACHE/ready ]] || return 0
    mkdir -p "$S390X_CACHE"/{apt/lists/partial,apt/cache/archives/partial,debs,root}
    apt=(-qq -o APT::Architecture=s390x -o APT::Architectures::=s390x -o Dir::State::lists="$S390X_CACHE/apt/lists"
        -o Dir::State::status=/dev/null -o Dir::Cache="$S390X_CACHE/apt/cache" -o APT::Sandbox::User=root)
    apt-get "${apt[@]}" update || true    # of sources that do not have this architecture
    (cd "$S390X_CACHE/debs" && apt-get "${apt[@]}" download "${S390X_PACKAGES[@]}")
    for p in "$S390X_CACHE"/debs/*.deb; do dpkg -x "$p" "$SYSROOT"; done
    s390x_exec_shim
    touch "$S390X_CACHE/ready"
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
