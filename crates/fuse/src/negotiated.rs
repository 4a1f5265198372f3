//! What the kernel and a mount agree on in their first messages.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::options::{MountOptions, Transport, WriteBackCache};
use crate::reply::OpenedFile;
use crate::trees::WritePlace;
use crate::wire::{fopen, init, opens_for_writing};

/// The kernel's number of a file that is open for writing; all others have 0.
pub(crate) const WRITER_HANDLE: u64 = 1;

/// What was agreed on for one mount.
pub(crate) struct Negotiated {
    /// The kernel checks permissions.
    checks_permissions: bool,
    page_cache: bool,
    keep_pages: bool,
    write_back: WriteBackCache,
    over_io_uring: bool,
    is_writable: bool,
    /// Flags of INIT.
    chosen: AtomicU64,
    /// The kernel understands that directories need not be opened.
    no_opendir: AtomicBool,
    /// The kernel says of a new ACL whether set-group-id may stay.
    setxattr_ext: AtomicBool,
}

impl Negotiated {
    /// Nothing yet: `options` say what is wanted.
    pub(crate) fn new(options: &MountOptions, is_writable: bool) -> Negotiated {
        Negotiated {
            checks_permissions: options.default_permissions || options.posix_acl,
            page_cache: options.page_cache,
            keep_pages: options.keep_pages,
            write_back: if is_writable && options.page_cache { options.write_back } else { WriteBackCache::Off },
            over_io_uring: options.transport == Transport::IoUring,
            is_writable,
            chosen: AtomicU64::new(0),
            no_opendir: AtomicBool::new(false),
            setxattr_ext: AtomicBool::new(false),
        }
    }

    /// Of what a kernel can do, what it shall do.
    pub(crate) fn choose(&self, can: u64) -> u64 {
        let mut wanted = init::ASYNC_READ
            | init::BIG_WRITES
            | init::MAX_PAGES
            | init::ASYNC_DIO
            | init::DO_READDIRPLUS
            | init::READDIRPLUS_AUTO
            | init::PARALLEL_DIROPS
            | init::CACHE_SYMLINKS
            | init::EXPLICIT_INVAL_DATA
            | init::EXPORT_SUPPORT
            | init::INIT_EXT
            | init::HAS_RESEND
            | init::NO_OPENDIR_SUPPORT;
        let mut want = |flag, is_wanted| wanted |= if is_wanted { flag } else { 0 };
        // it hears of ACLs once only, and there may be some later: until then it is told of each file that it has none
        want(init::POSIX_ACL, self.checks_permissions);
        // a default ACL comes before the umask, and only the tree knows whether there is one
        want(init::DONT_MASK, self.is_writable);
        want(init::SETXATTR_EXT, self.is_writable);
        // set-id bits and capabilities are our matter: otherwise the kernel asks for them at each write
        want(init::HANDLE_KILLPRIV_V2, self.is_writable);
        let keeps_written = match self.write_back {
            WriteBackCache::Off => false,
            // what the kernel has then outlives this process
            WriteBackCache::IfSafe => can & init::HAS_RESEND != 0,
            WriteBackCache::On => true,
        };
        want(init::WRITEBACK_CACHE, keeps_written);
        want(init::DIRECT_IO_ALLOW_MMAP, !self.page_cache);
        want(init::OVER_IO_URING, self.over_io_uring);
        let chosen = wanted & can;
        self.restore(chosen);
        chosen
    }

    /// What was agreed on by the process that served the mount before, or just now.
    pub(crate) fn restore(&self, chosen: u64) {
        self.chosen.store(chosen, Ordering::Relaxed);
        self.no_opendir.store(chosen & init::NO_OPENDIR_SUPPORT != 0, Ordering::Relaxed);
        self.setxattr_ext.store(chosen & init::SETXATTR_EXT != 0, Ordering::Relaxed);
    }

    /// What was agreed on.
    pub(crate) fn chosen(&self) -> u64 {
        self.chosen.load(Ordering::Relaxed)
    }

    pub(crate) fn has_no_opendir(&self) -> bool {
        self.no_opendir.load(Ordering::Relaxed)
    }

    pub(crate) fn has_setxattr_ext(&self) -> bool {
        self.setxattr_ext.load(Ordering::Relaxed)
    }

    /// May the kernel have data of files that it has not sent yet?
    pub(crate) fn keeps_written(&self) -> bool {
        self.page_cache && self.chosen() & init::WRITEBACK_CACHE != 0
    }

    /// Does the kernel leave it to us to bring to disk what is written with `O_DSYNC`, and not ask for it afterwards?
    pub(crate) fn leaves_syncs(&self) -> bool {
        !self.page_cache
    }

    /// How a file that is opened with `flags` is read, written and closed. With the page cache, what is written past it cannot
    /// be mapped to be shared: a mapping knows no end that it would have to keep to. With the write-back cache the kernel would
    /// not see the times of such writes; so what can only be written, and so not be mapped, goes through it.
    pub(crate) fn opened(&self, writing: WritePlace, flags: i32) -> OpenedFile {
        let at_end = writing == WritePlace::AtEnd;
        let is_direct = at_end && !(self.keeps_written() && flags & libc::O_ACCMODE == libc::O_WRONLY);
        let how = fopen::NOFLUSH
            | match (self.page_cache, self.keep_pages) {
                (true, true) if is_direct => fopen::DIRECT_IO | fopen::KEEP_CACHE,
                (true, false) if is_direct => fopen::DIRECT_IO,
                (true, true) => fopen::KEEP_CACHE,
                (true, false) => 0,
                (false, _) => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
            };
        let handle = if opens_for_writing(flags) { WRITER_HANDLE } else { 0 };
        OpenedFile { handle, flags: how }
    }
}
