//! Requests of contents: what is in files and symbolic links.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Data, Env, Error, Kind, Result};
use export::Parking;
use zpl::{Allocate, FLAG_APPENDONLY, ObjectId};

use crate::accesses::Accesses;
use crate::asker::Asker;
use crate::faults::FaultLog;
use crate::losses::{Losses, ToldLoss};
use crate::negotiated::Negotiated;
use crate::node::NodeId;
use crate::notifier::Notifier;
use crate::opened::{OpenFiles, Opened};
use crate::options::Direct;
use crate::reply::{OpenedFile, Reply};
use crate::set_ids::{drop_capability, has_set_ids, without_set_ids};
use crate::tree::{FileTree, Source, TreeFile};
use crate::trees::{NodePlace, Trees};
use crate::wire::{
    FSYNC_FDATASYNC, IO_BYTES_MAX, InHeader, RequestBody, WRITE_CACHE, WRITE_KILL_SUIDGID, fopen, opcode,
};
use crate::write_back::WriteBack;

/// What is to be written: of which node, where, whether at its end, and whether set-id bits go.
#[derive(Clone, Copy)]
struct WriteOrder {
    node: u64,
    offset: u64,
    appends: bool,
    drop_set_ids: bool,
    asker: Asker,
    /// The kernel writes out its pages, and takes every answer that is no error for all of them.
    from_cache: bool,
    /// The kernel tells by itself when the file was changed: before or after it, and not as the time of this request.
    keeps_times: bool,
    /// It is to be on disk before it is answered.
    sync: Option<SyncFirst>,
}

/// Bringing a file to disk: its contents, or all of it.
#[derive(Clone, Copy)]
struct SyncFirst {
    data_only: bool,
}

/// Answers the requests of contents.
pub(crate) struct ContentRequests<S: Source> {
    pub(crate) trees: Arc<Trees<S>>,
    pub(crate) accesses: Arc<Accesses<S>>,
    pub(crate) files: Arc<OpenFiles<S>>,
    pub(crate) faults: Arc<FaultLog<S>>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) negotiated: Arc<Negotiated>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) env: Env,
}

impl<S: Source> ContentRequests<S> {
    /// READLINK.
    pub(crate) fn readlink(&self, header: &InHeader, reply: Reply) -> Result<()> {
        let target = self.trees.place(header.node).and_then(|place| match place {
            NodePlace::Object(branch, object) => {
                let target = branch.tree.readlink(object)?;
                self.accesses.note(&branch, object, false);
                Ok(target)
            }
            NodePlace::Control | NodePlace::Shares | NodePlace::Snapshots => {
                Err(Error::new(Kind::Invalid, "a directory"))
            }
        });
        self.faults.answer("readlink", header.node, target, reply, |reply, target| reply.bytes(&target));
        Ok(())
    }

    /// OPEN. "Not implemented" would be the kernel's sign that it need not ask again, of any file and for whatever: then
    /// everybody could map a file of a snapshot and store into it, and everybody would read that.
    pub(crate) fn open(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let flags = body.u32()?.cast_signed();
        let opened = self.trees.check_open(header.node, flags).inspect(|_| {
            // first: it may be closed before this thread goes on
            self.write_back.opened(header.node, flags);
            if let NodeId::InTree { tree: 0, object } = NodeId::parse(header.node) {
                let live = self.trees.live();
                live.tree.opened(live.object(object));
            }
        });
        self.faults.answer("open", header.node, opened, reply, |reply, writing| {
            reply.opened(self.negotiated.opened(writing, flags));
        });
        Ok(())
    }

    /// RELEASE: the last user of an open file is gone.
    pub(crate) fn release(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        self.write_back.closed(header.node, body.u32()?.cast_signed());
        if let NodeId::InTree { tree: 0, object } = NodeId::parse(header.node) {
            let live = self.trees.live();
            live.tree.closed(live.object(object));
        }
        reply.done()
    }

    /// OPENDIR, likewise; the kernel may keep the listing.
    pub(crate) fn opendir(&self, reply: Reply) -> Result<()> {
        match self.negotiated.has_no_opendir() {
            true => reply.error(libc::ENOSYS),
            false => reply.opened(OpenedFile { handle: 0, flags: fopen::KEEP_CACHE | fopen::CACHE_DIR }),
        }
        Ok(())
    }

    /// READ.
    pub(crate) fn read(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (offset, len) = (body.offset()?, body.u32()?.min(IO_BYTES_MAX));
        body.skip(4 + 8)?;
        let flags = body.u32()?.cast_signed();
        let read = self.files.file(header.node).and_then(|opened| {
            let is_direct = match self.trees.options().direct {
                Direct::Disabled => false,
                Direct::Standard => flags & libc::O_DIRECT != 0,
                Direct::Always => true,
            };
            let read = opened.file.read_pieces(offset, len as usize, is_direct)?;
            if flags & libc::O_NOATIME == 0 {
                let _ = self.files.was_read(header.node, &opened);
            }
            Ok(read)
        });
        self.faults.answer("read", header.node, read, reply, |reply, read| reply.pieces(&read));
        Ok(())
    }

    /// LSEEK. What the kernel has not sent yet looks like a hole from here, and comes first.
    pub(crate) fn lseek(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (offset, whence) = (body.u64()?.cast_signed(), body.u32()?.cast_signed());
        let (contents, node) = (self.clone(), header.node);
        let from = u64::try_from(offset).unwrap_or(0);
        self.write_back.before(node, from, move || match contents.seek(node, offset, whence) {
            Err(error) if error.kind() == Kind::Missing => reply.error(libc::ENXIO),
            found => contents.faults.answer("lseek", node, found, reply, |reply, offset| {
                reply.offset(offset.cast_unsigned());
            }),
        });
        Ok(())
    }

    /// FSYNC, and FSYNCDIR.
    pub(crate) fn fsync(self: &Arc<Self>, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        body.skip(8)?;
        let (node, data_only) = (header.node, body.u32()? & FSYNC_FDATASYNC != 0);
        // the kernel drops no name of a directory for as long as it waits for this
        let is_file = header.opcode == opcode::FSYNC;
        let work = move |contents: &Self| contents.sync(node, data_only);
        self.parking.change(self, work, move |contents, done| {
            let (done, reply) = contents.with_loss(node, is_file, done, reply);
            let (faults, may_tell) = (contents.faults.clone(), is_file && done.is_err());
            let answer = move || faults.answer_done("fsync", node, done, reply);
            if may_tell && contents.answers_wait() { contents.losses.when_dropped(answer) } else { answer() }
        });
        Ok(())
    }

    /// WRITE.
    pub(crate) fn write(
        self: &Arc<Self>,
        header: &InHeader,
        mut body: RequestBody<'_>,
        data: Data<'_>,
        reply: Reply,
    ) -> Result<()> {
        body.skip(8)?;
        let (node, offset, size, flags) = (header.node, body.offset()?, body.u32()?, body.u32()?);
        if size as usize != data.len() {
            return Err(Error::corrupt(format!("{} bytes of data where {size} belong", data.len())));
        }
        body.skip(8)?;
        let from_cache = flags & WRITE_CACHE != 0;
        let opened_with = if from_cache { 0 } else { body.u32()?.cast_signed() };
        let syncs = opened_with & libc::O_DSYNC != 0 && self.negotiated.leaves_syncs();
        let write = WriteOrder {
            node,
            offset,
            appends: opened_with & libc::O_APPEND != 0,
            drop_set_ids: flags & WRITE_KILL_SUIDGID != 0,
            asker: Asker::of(header),
            from_cache,
            keeps_times: from_cache && self.negotiated.keeps_written(),
            sync: syncs.then_some(SyncFirst { data_only: opened_with & libc::O_SYNC != libc::O_SYNC }),
        };
        let answer = move |contents: &Self, done: Result<usize>| {
            if let (true, Err(error)) = (from_cache, &done) {
                // nobody is to read what is nowhere
                contents.write_back.drop_pages(node, error.kind());
            }
            let (done, reply) =
                if write.sync.is_some() { contents.with_loss(node, true, done, reply) } else { (done, reply) };
            // it came in one request, so its length fits
            contents.faults.answer("write", node, done, reply, |reply, written| reply.count(written as u32));
        };
        if from_cache {
            self.write_back.writes(size.into());
        }
        match self.write_and_sync(write, data) {
            // only then is there need for a copy
            Err(error) if error.kind() == Kind::Suspended => {
                let data = data.to_vec();
                let work = move |contents: &Self| contents.write_and_sync(write, (&data).into());
                self.parking.park(self, work, answer);
            }
            done => answer(self, done),
        }
        Ok(())
    }

    /// FALLOCATE.
    pub(crate) fn fallocate(
        self: &Arc<Self>,
        header: &InHeader,
        mut body: RequestBody<'_>,
        reply: Reply,
    ) -> Result<()> {
        body.skip(8)?;
        let (offset, len, mode) = (body.offset()?, body.offset()?, body.u32()?.cast_signed());
        let (node, asker) = (header.node, Asker::of(header));
        let work = move |contents: &Self| contents.allocate(node, mode, offset, len, asker);
        self.parking
            .change(self, work, move |contents, done| contents.faults.answer_done("fallocate", node, done, reply));
        Ok(())
    }

    /// COPY_FILE_RANGE. An answer of "not supported" makes the kernel copy by reading and writing.
    pub(crate) fn copy_file_range(
        self: &Arc<Self>,
        header: &InHeader,
        mut body: RequestBody<'_>,
        reply: Reply,
    ) -> Result<()> {
        body.skip(8)?;
        let (from, to) = ((header.node, body.offset()?), body.u64()?);
        body.skip(8)?;
        let (to, len) = ((to, body.offset()?), body.u64()?);
        let asker = Asker::of(header);
        let work = move |contents: &Self| contents.copy(from, to, len, asker);
        self.parking.change(self, work, move |contents, done| {
            contents.faults.answer("copy_file_range", to.0, done, reply, |reply, copied| {
                reply.count(u32::try_from(copied).unwrap_or(u32::MAX));
            });
        });
        Ok(())
    }

    /// The next data or hole; `Missing` if there is none.
    fn seek(&self, node: u64, offset: i64, whence: i32) -> Result<i64> {
        let from = u64::try_from(offset).map_err(|_| no_such_offset())?;
        let file = &self.files.file(node)?.file;
        let found = match whence {
            libc::SEEK_DATA => file.seek_data(from)?,
            libc::SEEK_HOLE => file.seek_hole(from)?,
            _ => return Err(Error::new(Kind::Invalid, "unknown kind of seek")),
        };
        i64::try_from(found.ok_or_else(no_such_offset)?).map_err(|_| no_such_offset())
    }

    fn write_and_sync(&self, order: WriteOrder, data: Data<'_>) -> Result<usize> {
        let written = match self.write_data(order, data) {
            Err(error) if order.keeps_times && error.kind() == Kind::Forbidden => self.write_end(order, data, error)?,
            written => written?,
        };
        order.sync.map_or(Ok(()), |SyncFirst { data_only }| self.sync(order.node, data_only))?;
        if order.from_cache && self.write_back.outlives_process() {
            let tree = self.trees.live().tree;
            if !tree.outlives_process() {
                // until it is answered the kernel has the page. A program that stored into it may never call fsync, as SQLite
                // does not for the index of its log, and go on with that after the process has died
                tree.sync(self.trees.changeable(order.node)?, true)?;
            }
        }
        Ok(written)
    }

    fn write_data(&self, order: WriteOrder, data: Data<'_>) -> Result<usize> {
        let object = self.trees.changeable(order.node)?;
        let opened = self.files.file(order.node)?;
        self.drop_privileges(order.node, (object, &opened), order.asker, || !order.drop_set_ids)?;
        let known = self.trees.known();
        let Some(kernels) = known.kernel_size(object) else { return Self::write_at(&opened, order, data) };
        // the kernel may not know how long the file is since the root was replaced
        let size = self.trees.live().tree.stat(object)?.size;
        let offset = if order.appends { kernels.append_at(order.offset, size) } else { order.offset };
        let written = Self::write_at(&opened, WriteOrder { offset, ..order }, data)?;
        if order.appends && order.offset == size {
            known.size_known(object);
        }
        known.reaches(object, order.offset + written as u64);
        if offset != order.offset {
            let notifier = self.notifier.clone();
            // it has that where it wanted to write it; without a thread it keeps that
            self.env.spawn("fuse-forget", move || notifier.invalidate(order.node));
        }
        Ok(written)
    }

    /// Writes a page that the kernel has kept to a file that may only grow: the part of it that is new, as the kernel sends
    /// pages whole. Errors: `forbidden` if it is no such file.
    fn write_end(&self, order: WriteOrder, data: Data<'_>, forbidden: Error) -> Result<usize> {
        let stat = self.trees.live().tree.stat(self.trees.changeable(order.node)?)?;
        let old = usize::try_from(stat.size.saturating_sub(order.offset)).unwrap_or(usize::MAX).min(data.len());
        if stat.flags & FLAG_APPENDONLY == 0 || old == 0 {
            return Err(forbidden);
        }
        let opened = self.files.file(order.node)?;
        let order = WriteOrder { offset: order.offset + old as u64, ..order };
        Ok(old + Self::write_at(&opened, order, data.part(old..data.len()))?)
    }

    /// Writes what there is room for. What keeps the rest out may pass: then all is written again.
    fn write_at(opened: &Opened<<S::Tree as FileTree>::File>, order: WriteOrder, data: Data<'_>) -> Result<usize> {
        let write = |offset, data| match order.keeps_times {
            true => opened.file.write_without_times(offset, data),
            false => opened.file.write(offset, data),
        };
        let mut written = write(order.offset, data);
        while let Ok(done) = written
            && 0 < done
            && done < data.len()
        {
            match write(order.offset + done as u64, data.part(done..data.len())) {
                Ok(more) if more > 0 => written = Ok(done + more),
                Err(error) if order.from_cache || error.kind() == Kind::Suspended => written = Err(error),
                _ => break,
            }
        }
        opened.written();
        written
    }

    fn allocate(&self, node: u64, mode: i32, offset: u64, len: u64, asker: Asker) -> Result<()> {
        let object = self.trees.changeable(node)?;
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let how = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::ZeroRange { keep_size },
            _ => return Err(Error::new(Kind::Unsupported, "no such kind of fallocate")),
        };
        let opened = self.files.file(node)?;
        self.drop_privileges(node, (object, &opened), asker, || asker.keeps_set_ids())?;
        let done = opened.file.allocate(how, offset, len);
        if done.is_ok() && !keep_size {
            self.trees.known().reaches(object, offset.saturating_add(len));
        }
        opened.written();
        done
    }

    /// Copies from a file of any tree to one of the live tree.
    fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64, asker: Asker) -> Result<u64> {
        let object = self.trees.changeable(to.0)?;
        let (source, target) = (self.files.file(from.0)?, self.files.file(to.0)?);
        self.drop_privileges(to.0, (object, &target), asker, || asker.keeps_set_ids())?;
        let copied = target.file.copy_from(to.1, &source.file, from.1, len.min(u32::MAX.into()))?;
        self.trees.known().reaches(object, to.1.saturating_add(copied));
        target.written();
        if self.files.was_read(from.0, &source) {
            // of a READ the kernel knows that by itself
            self.notifier.forget_attributes(from.0);
        }
        Ok(copied)
    }

    /// May the answer to a sync wait until the kernel has dropped what was lost? It has a lock of the file meanwhile, which a
    /// helper wants that has it take over the size.
    fn answers_wait(&self) -> bool {
        !self.negotiated.keeps_written()
    }

    /// The answer to a sync of a node: if the file lost something before, that.
    fn with_loss<T>(&self, node: u64, is_file: bool, done: Result<T>, reply: Reply) -> (Result<T>, Reply) {
        let NodeId::InTree { tree: 0, object } = NodeId::parse(node) else { return (done, reply) };
        let object = self.trees.live().object(object);
        let told = match is_file {
            true => self.losses.tell(object, self.answers_wait()),
            false => self.losses.tell_of_names(object),
        };
        match told.map(ToldLoss::into_answer) {
            Some((error, fact)) => (Err(error), reply.noted(fact)),
            None => (done, reply),
        }
    }

    fn sync(&self, node: u64, data_only: bool) -> Result<()> {
        match NodeId::parse(node) {
            NodeId::InTree { tree: 0, object } if self.trees.is_writable() => {
                self.trees.live().tree.sync(self.trees.live_object(object)?, data_only)
            }
            // what never changes is on disk
            _ => Ok(()),
        }
    }

    /// What a change of contents does to capabilities, and to set-id bits if the asker does not keep them.
    fn drop_privileges(
        &self,
        node: u64,
        (object, opened): (ObjectId, &Opened<<S::Tree as FileTree>::File>),
        asker: Asker,
        keeps_set_ids: impl FnOnce() -> bool,
    ) -> Result<()> {
        // marked first: if they are set meanwhile, the mark is taken away after this
        if opened.is_clean.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let dropped = (|| {
            let tree = self.trees.live().tree;
            let stat = tree.stat(object)?;
            let mut is_clean = !has_set_ids(&stat);
            if !is_clean && !keeps_set_ids() {
                let stat = tree.set_attr(object, &without_set_ids(&stat, asker))?;
                is_clean = !has_set_ids(&stat);
                self.notifier.forget_attributes(node);
            }
            drop_capability(&*tree, object)?;
            Ok(is_clean)
        })();
        if !matches!(dropped, Ok(true)) {
            opened.is_clean.store(false, Ordering::SeqCst);
        }
        dropped.map(|_| ())
    }
}

fn no_such_offset() -> Error {
    Error::new(Kind::Missing, "nothing of that kind from there on")
}
