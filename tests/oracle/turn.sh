#!/bin/bash
# turn.sh FROM DIR MNT SEED COUNT - one turn of check-turns, here or in the machine of zvm.
#
# Imports the pool `turns` from the devices in FROM, writes what there is to DIR/numbers-before and DIR/files-before,
# lets history.pl make COUNT steps, writes DIR/numbers-after and DIR/files-after, and exports.
set -euo pipefail
from=$1 dir=$2 mnt=$3 seed=$4 count=$5
here=$(realpath "$(dirname "$0")")

# What both sides have to say alike of each dataset. Each group takes a little of the pool for itself, mounts are not of
# the pool, and versions of OpenZFS have other defaults and say `none` in other words.
numbers() {
    local unlike='mounted|mountpoint|available|snapshots_changed|relatime|encryption|keylocation|keyformat|pbkdf2iters'
    unlike+='|mlslabel|context|fscontext|defcontext|rootcontext|filesystem_count|snapshot_count|longname|prefetch|direct'
    unlike+='|volthreading|filesystem_limit|snapshot_limit|default(user|group|project)(obj)?quota|sharenfs|sharesmb'
    zfs list -Hp -t all -o name,type -s name
    zfs get -Hp -t all -o name,property,value,source all | grep -vP "\t($unlike)\t" |
        grep -vP '\tcompression\t.*\tdefault$|^turns\t(used|usedbychildren|logicalused|compressratio)\t' | sort
    zfs list -H -t snapshot -o name -s name | xargs -r zfs holds -H | sort
    zfs list -H -t bookmark -o name,guid,createtxg -s name
}

files() {
    local head snapshot
    zfs list -H -t filesystem -o name -s name | while read -r head; do
        (cd "$mnt/$head" && find . -xdev -type f -print0 | sort -z | xargs -0r sha256sum | sed "s|^|$head |")
        zfs list -H -d 1 -t snapshot -o name -s name "$head" | sed 's/.*@//' | while read -r snapshot; do
            (cd "$mnt/$head/.zfs/snapshot/$snapshot" && find . -xdev -type f -print0 | sort -z | xargs -0r sha256sum | sed "s|^|$head@$snapshot |")
        done
    done
}

settled() { zpool wait -t free turns; zpool sync turns; }

zpool import -N -d "$from" -o cachefile=none -R "$mnt" turns
settled
numbers >"$dir/numbers-before"
zfs mount -a
files >"$dir/files-before"
perl "$here/history.pl" "$seed" "$count" "$mnt" 2>&1 | tee "$dir/history"
settled
# heads that went back to before a child's mountpoint was made have lost the mount, and others may be below it
zfs unmount -a
zfs mount -a
files >"$dir/files-after"
# what the module has mounted by itself may be in use still
zpool export turns || { sleep 10; zpool export turns; }
zpool import -N -d "$from" -o cachefile=none -R "$mnt" turns
settled
numbers >"$dir/numbers-after"
zpool export turns
