//! A mounted dataset: [`mount`] makes it, [`Mount`] is its handle.
//!
//! ```text
//!   mount()                 threads "fuse"                    kernel
//!     attach, by the helper  ----------------------------->   mounted, INIT waits
//!     handshake  <------------------------------------------  INIT
//!     lobby  ----------->  one of them takes requests, and others with it  <-->  requests
//!     ...
//!   unmount()
//!     detach, by the helper  ----------------------------->   last user gone: ENODEV to all readers
//!     wait  <-------------  threads end: Unused
//!     wait  <-------------  what was written is on disk: Ended
//! ```
//!
//! The process that serves a mount must not use it: were it killed while one of its threads waits for
//! another's answer, that thread would wait for ever and keep the connection open. A mountpoint may lie
//! in such a mount, so all that is done there, a [`Helper`] does.
//!
//! Invariant: nothing is unmounted but the file system that [`mount`] attached. Its device number
//! tells it from whatever else lies at the same place while it is mounted, and the end of its threads
//! tells that it is not: only then can its number be given to another.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Env, Error, FactFile, FoundFacts, Kind, Mutex, Result};
use zpl::{ObjectId, Unsettled};

use crate::channel::Channel;
use crate::device;
use crate::freezer::Freeze;
use crate::helper::Helper;
use crate::keeper::{InheritedMount, KeptMount};
use crate::legacy::{Legacy, LostObjects};
use crate::life::{Life, MountStage};
use crate::lobby::{Lobby, LobbyGuest, Stay, no_thread};
use crate::mountinfo::{self, MountInfo, MountTable};
use crate::node::{CONTROL_NAME, root_node};
use crate::options::{MountOptions, Remountable, Unmount, WriteBackCache};
use crate::ring_threads::{RingTeam, RingThreads};
use crate::room::scarce_below;
use crate::serve::{self, RequestThreads, ServeEnd};
use crate::session::Session;
use crate::tree::{FileTree, Source};
use crate::visits::MountPlace;
use crate::wire::init;

/// How long the kernel may take after an unmount to say that nobody uses it.
pub const SETTLE_MAX: Duration = Duration::from_secs(2);
/// How long what is mounted already may take to say that it lives.
const ALIVE_TIME: Duration = Duration::from_secs(5);
/// The same, of what is mounted where something shall be mounted: the folder may be on a slow disk.
const FOLDER_TIME: Duration = Duration::from_secs(60);

/// A mounted dataset. Dropping it unmounts lazily.
pub struct Mount {
    fs_name: String,
    point: PathBuf,
    dev: String,
    freezer: Weak<dyn Freeze>,
    /// Tells the kernel what it shall drop. It is closed when nobody answers requests any more: else programs would wait
    /// for answers for ever.
    channel: Weak<Channel>,
    life: Arc<Life>,
    helper: Helper,
    /// As it was mounted.
    options: MountOptions,
    remountable: Arc<Remountable>,
    /// Its options as they are kept for the process after this one.
    kept: Mutex<MountOptions>,
    /// The tree can be written.
    is_writable: bool,
}

/// Mounts `source` as `options` say; it answers requests from now on, on threads of its own.
///
/// `env` is the clock that limits how often errors are logged. Errors: `NotFound`, `NotDirectory`,
/// `Exists` for a mountpoint that is not there, no directory, or not empty although
/// [`MountOptions::overlay`] is off; `Missing` without /dev/fuse or fusermount3; `Permission`; and
/// those of reading the root directory.
pub fn mount<S: Source>(source: Arc<S>, options: &MountOptions, env: &Env, helper: &Helper) -> Result<Mount> {
    let mut options = options.clone();
    options.read_only |= !source.tree().is_writable();
    if options.write_back == WriteBackCache::IfSafe && !is_write_back_safe(&*source, &options, helper) {
        options.write_back = WriteBackCache::Off;
    }
    let team = RingTeam::of_mount(&mut options);
    let life = Arc::new(Life::default());
    let legacy = if options.reattach { begin_legacy(&*source, None)? } else { Legacy::default() };
    let session = Session::new(source, options.clone(), env.clone(), life.clone(), &legacy)?;
    helper.clear_dead(&options.mountpoint, &options.subtype, FOLDER_TIME)?;
    let attached = helper.attach(&options)?;
    let channel = match legacy.file() {
        None => Channel::new(attached.connection),
        Some(_) => Channel::kept(attached.connection),
    };
    let channel = Arc::new(channel);
    // it is unmounted if it is dropped before it is served
    let mount = Mount::of(&session, (attached.point, attached.dev), options, &channel, life, helper);
    serve::shake_hands(&session, &channel)?;
    // not before: what the handshake says is the most
    set_readahead(&mount.dev, mount.options.readahead_bytes);
    if let Some(file) = legacy.file()
        && let Err(error) = mount.keep(session.negotiated().chosen(), &channel, file)
    {
        tracing::info!(dataset = mount.fs_name, "its mount ends with this process: {error}");
        mount.kept.lock().reattach = false;
    }
    let team = team.filter(|_| session.negotiated().chosen() & init::OVER_IO_URING != 0);
    let rings = team.map(|team| team.start(&session, &channel)).transpose()?;
    mount.serve(session, channel, rings)?;
    Ok(mount)
}

/// Whether nothing is lost or hidden if the kernel keeps what is written, so far as can be known before it is mounted. What is to
/// be on disk at once is not kept either: that takes a request more.
fn is_write_back_safe<S: Source>(source: &S, options: &MountOptions, helper: &Helper) -> bool {
    let has_room = || source.room_bytes().is_ok_and(|room| room >= scarce_below());
    options.reattach && !options.read_only && !options.sync && has_room() && helper.may_visit()
}

/// A mount that goes on being served.
pub struct AdoptedMount<S> {
    /// It.
    pub mount: Mount,
    /// Its dataset.
    pub source: Arc<S>,
    /// What was lost with the process before.
    pub lost: Arc<LostObjects>,
}

/// Goes on serving a mount that another process served until it died, with requests that it had not answered. `open` opens
/// its dataset. Errors: those of that, and of reading the root directory; the mount has ended then.
pub fn adopt<S: Source>(
    open: impl FnOnce() -> Result<Arc<S>>,
    inherited: InheritedMount,
    env: &Env,
    helper: &Helper,
) -> Result<AdoptedMount<S>> {
    let KeptMount { point, dev, .. } = inherited.kept.clone();
    let adopted = open().and_then(|source| adopt_source(source, inherited, env, helper));
    if adopted.is_err() {
        helper.release(&dev);
        if let Err(error) = helper.detach(&point, &dev, Unmount::Lazy) {
            tracing::warn!(point = %point.display(), "cannot unmount what nobody serves: {error}");
        }
    }
    adopted
}

fn adopt_source<S: Source>(
    source: Arc<S>,
    inherited: InheritedMount,
    env: &Env,
    helper: &Helper,
) -> Result<AdoptedMount<S>> {
    let InheritedMount { kept: KeptMount { options, point, dev, flags }, connection, facts } = inherited;
    let life = Arc::new(Life::default());
    let legacy = begin_legacy(&*source, Some(facts?))?;
    let lost = legacy.lost();
    let session = Session::new(source.clone(), options.clone(), env.clone(), life.clone(), &legacy)?;
    session.negotiated().restore(flags);
    let channel = Arc::new(Channel::kept(connection));
    session.connected(channel.clone());
    let mount = Mount::of(&session, (point, dev), options, &channel, life, helper);
    if let Some(file) = legacy.file() {
        helper.keep_facts(&mount.dev, file.as_fd())?;
    }
    let told = session.clone();
    mount.serve(session, channel.clone(), None)?;
    channel.resend()?;
    let reclaiming = told.clone();
    // without a thread they wait for the end of the mount
    env.spawn("fuse-orphans", move || reclaiming.reclaim_unknown());
    if !lost.is_empty() {
        let (env, helper, dataset, lost) = (told.env().clone(), helper.clone(), mount.fs_name.clone(), lost.clone());
        // by the helper: the kernel may first want answers to other requests, and if this process is killed while it waits in
        // the kernel for them, it does not die, and nobody gives them
        let tell = move || {
            let tell = &mut |messages: &[Vec<u8>]| helper.tell_kernel(channel.as_fd(), messages);
            if let Err(error) = told.drop_lost(&lost, tell) {
                tracing::warn!(dataset, "the kernel may show changes that were lost: {error}");
            }
        };
        env.spawn("fuse-lost", tell).then_some(()).ok_or_else(no_thread)?;
    }
    Ok(AdoptedMount { mount, source, lost })
}

/// Where facts about a mount are noted for the process after this one.
fn begin_legacy<S: Source>(source: &S, mut before: Option<FoundFacts>) -> Result<Legacy> {
    if source.has_lost_nothing() {
        before.iter_mut().for_each(Unsettled::none_lost);
    }
    let file = Arc::new(FactFile::new()?);
    let unsettled = Arc::new(Unsettled::new(file.clone()));
    source.keep_unsettled(&unsettled)?;
    let tree = source.tree();
    Ok(Legacy::new(file, Some(unsettled), before, |object| tree.stat(object).ok().map(|stat| stat.generation)))
}

impl Mount {
    /// One that `session` answers for on `channel`, at a place that is a path and a device number.
    fn of<S: Source>(
        session: &Arc<Session<S>>,
        (point, dev): (PathBuf, String),
        options: MountOptions,
        channel: &Arc<Channel>,
        life: Arc<Life>,
        helper: &Helper,
    ) -> Mount {
        let kept = options.reattach.then(|| Arc::downgrade(channel));
        session.mounted(MountPlace { helper: helper.clone(), point: point.clone(), dev: dev.clone(), kept });
        Mount {
            fs_name: options.fs_name.clone(),
            point,
            dev,
            freezer: session.freezer(),
            channel: Arc::downgrade(channel),
            life,
            helper: helper.clone(),
            kept: Mutex::new(options.clone()),
            options,
            remountable: session.remountable().clone(),
            is_writable: session.is_writable(),
        }
    }

    /// Has the helper keep it. Errors: the kernel cannot; there is no helper.
    fn keep(&self, flags: u64, channel: &Channel, file: &FactFile) -> Result<()> {
        if flags & init::HAS_RESEND == 0 {
            return Err(Error::new(Kind::Unsupported, "the kernel sends no request twice, before Linux 6.9"));
        }
        let (options, point, dev) = (self.options.clone(), self.point.clone(), self.dev.clone());
        self.helper.keep(&KeptMount { options, point, dev, flags }, channel.as_fd(), file.as_fd())
    }

    /// Has requests answered from now on.
    fn serve<S: Source>(
        &self,
        session: Arc<Session<S>>,
        channel: Arc<Channel>,
        rings: Option<RingThreads>,
    ) -> Result<()> {
        let threads = RequestThreads::new(&session, channel, self.options.threads())?;
        let (point, dev, fs_name) = (self.point.clone(), self.dev.clone(), self.fs_name.clone());
        let (life, helper) = (self.life.clone(), self.helper.clone());
        Lobby::of_process()?.admit(Box::new(ServedMount { threads, rings, session, fs_name, point, dev, life, helper }))
    }

    /// Where it is mounted: absolute, without links.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Is it still mounted there? (Somebody may have called umount.)
    pub fn is_mounted(&self) -> bool {
        // if /proc cannot be read any more, the request threads alone have to know
        !self.has_ended() && mountinfo::is_mounted(&self.point, &self.dev).unwrap_or(true)
    }

    /// Is it what is found at its mountpoint? The kernel takes away what is mounted on a folder that is gone only when
    /// somebody goes there, as a helper does now; the end of that is waited for, as in [`Mount::settle`].
    pub fn is_at_its_place(&self) -> bool {
        let found = self.helper.device_at(&self.point);
        let is_there = found.as_ref().is_ok_and(|dev| *dev == self.dev);
        if !is_there {
            tracing::info!(dataset = self.fs_name, point = %self.point.display(), "its folder is gone: {found:?}");
            self.settle(SETTLE_MAX);
        }
        is_there
    }

    /// Is it among these mounts? For those that ask about many.
    pub fn is_among(&self, mounts: &MountTable) -> bool {
        !self.has_ended() && mounts.has(&self.dev, &self.point).unwrap_or(true)
    }

    /// Unmounts it. That it is not mounted any more is no error; `Busy` is, if it is in use or covered, and leaves it
    /// mounted.
    ///
    /// With [`Unmount::IfUnused`] all requests have been answered and all that was written is on disk when
    /// this returns, unless another mount namespace, a container's for instance, still has the file system:
    /// [`Mount::has_ended`] tells.
    pub fn unmount(&self, how: Unmount) -> Result<()> {
        self.take_away(how)?;
        if how == Unmount::IfUnused {
            self.settle(SETTLE_MAX);
        }
        Ok(())
    }

    /// Does the same without waiting: see [`Mount::settle`].
    pub fn take_away(&self, how: Unmount) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        // behind it, the number of the device may be another's
        let connection = if how == Unmount::Force { self.connection() } else { None };
        self.helper.detach(&self.point, &self.dev, how)?;
        if let Some(mut connection) = connection
            && let Err(error) = connection.write_all(b"1")
        {
            tracing::debug!(point = %self.point.display(), "connection not aborted: {error}");
        }
        Ok(())
    }

    /// Waits until all requests have been answered and all is on disk, once it is mounted nowhere. If it still is after
    /// `limit`, in another mount namespace, it is let be.
    pub fn settle(&self, limit: Duration) {
        if self.life.wait_a_while(MountStage::Unused, limit) < MountStage::Unused {
            tracing::warn!(dataset = self.fs_name, "unmounted here, but still in use in another mount namespace");
            return;
        }
        // a sync takes as long as it takes
        self.wait();
    }

    /// Returns when the last request is answered and all is on disk: it is unmounted, and nobody uses it
    /// any more.
    pub fn wait(&self) {
        self.life.wait(MountStage::Ended);
    }

    /// Gives it the options of `wanted` that can be changed while it is in use: `read_only`, `atime`,
    /// `relatime`, `dir_atime`, `sync`, `exec`, `setuid`, `devices`, `xattrs`, `posix_acl` and `snapdir`.
    ///
    /// Errors: `Busy` if it is to be read-only while a file is open for writing; `Unsupported` if this user
    /// may not remount, or something else is mounted over it.
    pub fn remount(&self, wanted: &MountOptions) -> Result<()> {
        let mut options = self.options.remounted(wanted);
        options.read_only |= !self.is_writable;
        if mountinfo::at(&self.point)?.is_none_or(|mount| mount.dev != self.dev) {
            return Err(Error::new(Kind::Unsupported, "something else is mounted over it"));
        }
        self.helper.set_flags(&self.point, &options)?;
        let has_other_root = self.remountable.snapdir() != options.snapdir;
        let has_other_acls = self.remountable.has_acls() != options.posix_acl;
        self.remountable.set(&options);
        self.keep_options(|kept| *kept = kept.remounted(&options));
        if has_other_acls && let Some(freezer) = self.freezer.upgrade() {
            freezer.acls_changed();
        }
        if has_other_root {
            // of names that the kernel does not know it need not forget
            let _ = self.with_channel(|channel| channel.invalidate_name(root_node(0), CONTROL_NAME));
            let _ = self.with_channel(|channel| channel.invalidate(root_node(0)));
        }
        Ok(())
    }

    /// Its dataset has another name.
    pub fn renamed(&self, name: &str) {
        self.keep_options(|kept| name.clone_into(&mut kept.fs_name));
    }

    fn keep_options(&self, change: impl FnOnce(&mut MountOptions)) {
        let mut kept = self.kept.lock();
        change(&mut kept);
        if kept.reattach {
            self.helper.keep_options(&self.dev, &kept);
        }
    }

    /// Have all requests been answered, for ever?
    pub fn has_ended(&self) -> bool {
        self.life.stage() == MountStage::Ended
    }

    /// Has the kernel drop what it keeps of an object of the live tree, its attributes and its contents,
    /// because it changed by another way than through this mount. Not from within a [`FileTree`]'s method: the
    /// kernel may first want an answer to a request. For that reason, a process that is killed meanwhile may
    /// wait for itself.
    pub fn invalidate(&self, object: ObjectId) -> Result<()> {
        self.with_channel(|channel| channel.invalidate(self.node(object)))
    }

    /// Has the kernel drop what it keeps of a name in a directory of the live tree, even that there is no
    /// such name. Not from within a [`FileTree`]'s method, either.
    pub fn invalidate_name(&self, directory: ObjectId, name: &[u8]) -> Result<()> {
        self.with_channel(|channel| channel.invalidate_name(self.node(directory), name))
    }

    /// Lets `change` change a file by another way than through this mount, as one of its requests would: not while it is
    /// frozen, and the kernel drops what it has of the file afterwards. `inode` is its number as stat(2) tells it, `change`
    /// is told its object now, and what it returns this returns. Not from within a [`FileTree`]'s method, either. Errors:
    /// `ReadOnly`; `Stale` if the file is not there any more; `NotFound` if nothing is mounted any more; those of `change`.
    pub fn change_file<T>(&self, inode: u64, change: &dyn Fn(ObjectId) -> Result<T>) -> Result<T> {
        let freezer = self.freezer.upgrade().ok_or_else(|| Error::new(Kind::NotFound, "not mounted any more"))?;
        let mut changed = None;
        freezer.change_file(inode, &mut |object| changed = Some(change(object)))?;
        changed.unwrap_or_else(|| Err(Error::new(Kind::NotFound, "not mounted any more")))
    }

    /// Freezes it while the root of the dataset is replaced. Not from within a [`FileTree`]'s method, either. Errors:
    /// `Unsupported`; it is not frozen then.
    pub fn freeze(&self) -> Result<()> {
        self.freezer.upgrade().map_or(Ok(()), |freezer| freezer.freeze())
    }

    /// Answers requests again, of the tree that the source says is there now. Without [`Mount::freeze`] before, nothing
    /// happens. Errors: those of opening that tree: all files are gone then, and it can only be unmounted.
    pub fn thaw(&self) -> Result<()> {
        self.freezer.upgrade().map_or(Ok(()), |freezer| freezer.thaw())
    }

    /// Has no request done from now on, for the process after this one to do them. Errors: `Unsupported` if there will be
    /// none.
    pub fn hold(&self) -> Result<()> {
        if !self.kept.lock().reattach {
            return Err(Error::new(Kind::Unsupported, format!("{} ends with its process", self.point.display())));
        }
        self.freezer.upgrade().iter().for_each(|freezer| freezer.hold());
        Ok(())
    }

    /// Has writes wait that the kernel would keep, until [`Mount::go_on`].
    pub fn calm(&self) {
        self.freezer.upgrade().iter().for_each(|freezer| freezer.calm());
    }

    /// Has the kernel send what it keeps, while writes wait: when this returns, the tree has all of it that was written before
    /// they waited.
    pub fn flush(&self) {
        self.freezer.upgrade().iter().for_each(|freezer| freezer.flush());
    }

    /// Has no request done for a moment, until [`Mount::go_on`].
    pub fn park(&self) {
        self.freezer.upgrade().iter().for_each(|freezer| freezer.hold());
    }

    /// Has requests done again.
    pub fn go_on(&self) {
        self.freezer.upgrade().iter().for_each(|freezer| freezer.go_on());
    }

    /// Snapshots of the dataset may have been made, renamed or destroyed. Not from within a [`FileTree`]'s method, either.
    /// Errors: those of reading which there are.
    pub fn snapshots_changed(&self) -> Result<()> {
        self.freezer.upgrade().map_or(Ok(()), |freezer| freezer.snapshots_changed())
    }

    /// All that was changed is on disk: the kernel asks again how much room it takes. Not from within a [`FileTree`]'s
    /// method, nor from a thread that one may wait for.
    pub fn settled(&self) {
        if let Some(freezer) = self.freezer.upgrade() {
            freezer.settled();
        }
    }

    /// Has the kernel send what programs stored into mappings, and what its write-back cache has, with the times of last
    /// change: when this returns, the tree has all that a program could read before. Not from within a [`FileTree`]'s
    /// method, nor from a thread that one may wait for.
    pub fn send_pages(&self) {
        if let Some(freezer) = self.freezer.upgrade() {
            freezer.send_pages();
        }
    }

    fn with_channel(&self, tell: impl FnOnce(&Channel) -> Result<()>) -> Result<()> {
        self.channel.upgrade().map_or(Ok(()), |channel| tell(&channel))
    }

    /// The node of an object of the live tree.
    fn node(&self, object: ObjectId) -> u64 {
        let is_root = self.freezer.upgrade().is_some_and(|freezer| freezer.root() == object);
        if is_root { root_node(0) } else { object.get() }
    }

    /// What breaks the connection when it is written to: root's forced unmount has the kernel do that already,
    /// fusermount3's has not. It is the mounting user's to write, where that file system is mounted at all; when the
    /// connection has gone, it does nothing.
    fn connection(&self) -> Option<File> {
        let opened = File::options().write(true).open(device::abort_path(&self.dev));
        opened
            .inspect_err(|error| tracing::debug!(point = %self.point.display(), "connection not aborted: {error}"))
            .ok()
    }
}

/// A mount whose requests are answered.
struct ServedMount<S: Source> {
    threads: RequestThreads<S>,
    /// Those that requests come to by io_uring.
    rings: Option<RingThreads>,
    session: Arc<Session<S>>,
    fs_name: String,
    point: PathBuf,
    dev: String,
    life: Arc<Life>,
    helper: Helper,
}

impl<S: Source> LobbyGuest for ServedMount<S> {
    fn connection(&self) -> BorrowedFd<'_> {
        self.threads.channel().as_fd()
    }

    fn serve(mut self: Box<Self>, stay: Stay) -> Option<Box<dyn LobbyGuest>> {
        match self.threads.run(stay) {
            Ok(ServeEnd::IsIdle) => return Some(self),
            Ok(ServeEnd::HasEnded) => self.rings.take().into_iter().for_each(RingThreads::wait),
            Err(error) => {
                let point = self.point.display();
                tracing::error!(dataset = self.fs_name, %point, "FUSE requests are not served any more: {error}");
            }
        }
        self.end();
        None
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> bool {
        self.session.env().spawn("fuse", work)
    }
}

impl<S: Source> ServedMount<S> {
    /// Its requests are answered, and no more are.
    fn end(self) {
        let ServedMount { threads, rings: _, session, fs_name, point, dev, life, helper } = self;
        // asked now: once it is gone, another one may be mounted there, and get its device number
        let is_left = mountinfo::is_mounted(&point, &dev).unwrap_or(true);
        session.destroy();
        // they have the last descriptors of the connection
        drop((threads, session));
        helper.release(&dev);
        // a mount that nobody answers for is worse than none
        if is_left && let Err(error) = helper.detach(&point, &dev, Unmount::Lazy) {
            tracing::warn!(dataset = fs_name, point = %point.display(), "cannot unmount: {error}");
        }
        life.reach(MountStage::Ended);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(Unmount::Lazy) {
            tracing::warn!(dataset = self.fs_name, point = %self.point.display(), "{error}");
        }
    }
}

/// Unmounts the file systems of type `fuse.SUBTYPE` whose source passes the test, those below others first: what a
/// process cannot do any more that has no helper. Errors: `Busy`, and which; no /proc.
pub fn unmount_all(helper: &Helper, subtype: &str, is_wanted: impl Fn(&str) -> bool, how: Unmount) -> Result<()> {
    ours(subtype, is_wanted)?.iter().try_for_each(|mount| helper.detach(&mount.point, &mount.dev, how))
}

/// The mounts of type `fuse.SUBTYPE` whose source passes the test, those below others first.
fn ours(subtype: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<MountInfo>> {
    let fs_type = format!("fuse.{subtype}");
    let is_ours = |mount: &MountInfo| mount.fs_type == fs_type && is_wanted(&mount.source);
    // those mounted later lie on or below those mounted earlier
    Ok(mountinfo::all()?.into_iter().rev().filter(is_ours).collect())
}

/// Unmounts the dead file systems of type `fuse.SUBTYPE` whose source passes the test, those below others
/// first; returns how many these were. One that cannot be unmounted is logged. Errors: no /proc.
pub fn clear_dead_mounts(helper: &Helper, subtype: &str, is_wanted: impl Fn(&str) -> bool) -> Result<usize> {
    let (mut cleared, mut failed) = (0, Vec::new());
    for mount in ours(subtype, is_wanted)? {
        match helper.clear_dead(&mount.point, subtype, ALIVE_TIME) {
            Ok(count) => cleared += count,
            Err(error) => failed.push((mount, error)),
        }
    }
    for (mount, error) in failed {
        // a dead mount above was in the way, and took it along
        if mountinfo::is_mounted(&mount.point, &mount.dev)? {
            tracing::warn!(point = %mount.point.display(), "cannot unmount what a dead process left there: {error}");
        }
    }
    Ok(cleared)
}

/// FUSE may lower the kernel's readahead of 128 KiB by itself, but only root may raise it.
fn set_readahead(dev: &str, bytes: u32) {
    let path = format!("/sys/class/bdi/{dev}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, (bytes >> 10).to_string()) {
        tracing::debug!("readahead stays at the system's default: {path}: {error}");
    }
}
