# debs.sh - sourced by scripts that need programs of Debian packages without installing these.
#
# unpack_debs DIR ARCHITECTURE PACKAGE... unpacks packages into DIR/root, once.  apt works in folders of
# its own below DIR, with `contrib` (home of ZFS) added to the machine's sources: no root, and nothing in
# the system changes.
# shellcheck shell=bash

unpack_debs() {
    local dir=$1 arch=$2 apt p
    shift 2
    [[ ! -e $dir/ready ]] || return 0
    type -P apt-get dpkg >/dev/null || { echo "no apt-get here: unpack $* into $dir/root yourself" >&2; return 1; }
    mkdir -p "$dir"/apt/{lists/partial,cache/archives/partial,sources} "$dir"/{debs,root}
    cat /etc/apt/sources.list >"$dir/apt/main.list" 2>/dev/null || true
    cp /etc/apt/sources.list.d/* "$dir/apt/sources/" 2>/dev/null || true
    sed -i -E '/^Components:.*main/{/contrib/!s/$/ contrib/}; /^deb .* main/{/contrib/!s/ main/ main contrib/}' \
        "$dir/apt/main.list" "$dir"/apt/sources/*
    apt=(-qq -o APT::Architecture="$arch" -o APT::Architectures::="$arch" -o APT::Sandbox::User=root
        -o Dir::Etc::sourcelist="$dir/apt/main.list" -o Dir::Etc::sourceparts="$dir/apt/sources"
        -o Dir::State::lists="$dir/apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$dir/apt/cache")
    # a source without contrib or without this architecture makes it complain
    apt-get "${apt[@]}" update >"$dir/apt/log" 2>&1 || true
    (cd "$dir/debs" && apt-get "${apt[@]}" download "$@") || { cat "$dir/apt/log" >&2; return 1; }
    for p in "$dir"/debs/*.deb; do dpkg -x "$p" "$dir/root"; done
    touch "$dir/ready"
}

ORACLE_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/zvm
