//! The table of what a processor can do for a pool, by the names of the functions that it is in.

/// An activity, and parts of names of functions that do it.
struct ActivityRow {
    name: &'static str,
    /// One of these is in the function's name.
    parts: &'static [&'static str],
}

/// The first row that the innermost function is of counts; else that of its caller, and so on.
const ACTIVITIES: &[ActivityRow] = &[
    row(
        "copying",
        &[
            "memcpy",
            "memmove",
            "memset",
            "copy_user",
            "copy_to_iter",
            "copy_from_iter",
            "copy_page",
            "clear_page",
            "rep_movs",
            "copy_folio",
            "fuse_copy",
        ],
    ),
    row("compression", &["codec::compress", "LZ4", "ZSTD", "HUF_", "FSE_", "libdeflate", "deflate_", "HIST_"]),
    row("checksums", &["codec::checksum", "sha2::", "sha256", "blake3", "fletcher", "skein", "edonr"]),
    row("parity", &["codec::parity", "codec::raidz", "vdev::raidz", "vdev::draid"]),
    row("page faults", &["page_fault", "handle_mm_fault", "do_anonymous_page", "filemap_fault"]),
    row("memory", &["base::slab", "malloc", "calloc", "realloc", "_int_free", "cfree", "madvise", "munmap", "sys_brk"]),
    row(
        "waking and waiting",
        &["futex", "schedule", "try_to_wake_up", "ep_poll", "__wake_up", "do_nanosleep", "io_cqring_wait"],
    ),
    row(
        "devices",
        &[
            "io_uring",
            "io_submit",
            "io_issue",
            "blk_",
            "submit_bio",
            "vfs_read",
            "vfs_write",
            "vfs_fsync",
            "loop_",
            "device::",
        ],
    ),
    row("FUSE in the kernel", &["fuse_"]),
    row("network", &["tcp_", "sock_", "unix_stream", "nbd::", "iscsi::", "vhostblk::"]),
    row("dedup", &["::ddt", "dedup"]),
    row("space", &["zio::allocator", "zio::alloc", "metaslab", "space_map", "range_tree"]),
    row("cache", &["arc::", "l2arc::"]),
    row("log", &["zil::"]),
    row("blocks", &["zio::", "vdev::"]),
    row("objects and groups", &["dmu::", "dsl::", "pool::"]),
    row("files and volumes", &["zpl::", "zvol::", "fuse::", "daemon::"]),
];

/// What is in no row.
const OTHER: &str = "other";

const fn row(name: &'static str, parts: &'static [&'static str]) -> ActivityRow {
    ActivityRow { name, parts }
}

/// The activity of a stack, whose innermost function comes first.
pub fn activity_of<'a>(functions: impl Iterator<Item = &'a str>) -> &'static str {
    functions.filter_map(of_function).next().unwrap_or(OTHER)
}

fn of_function(function: &str) -> Option<&'static str> {
    let is_of = |row: &&ActivityRow| row.parts.iter().any(|part| function.contains(part));
    ACTIVITIES.iter().find(is_of).map(|row| row.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_that_is_known_counts() {
        let of = |functions: &[&str]| activity_of(functions.iter().copied());
        assert_eq!(of(&["core::iter::fold", "codec::checksum::fletcher4", "zio::write"]), "checksums");
        assert_eq!(of(&["__memmove_avx_unaligned", "codec::compress::lz4"]), "copying");
        assert_eq!(of(&["fuse_dev_do_read", "vfs_read", "fuse::channel::next"]), "FUSE in the kernel");
        assert_eq!(of(&["core::hash", "main"]), "other");
        assert_eq!(of(&[]), "other");
    }
}
