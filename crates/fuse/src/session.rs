//! One mounted file system as the kernel sees it: the table of requests, and the parts that answer them.
//!
//! A function that answers a request reads the request's own structure (source: linux/fuse.h) from its body, does what is
//! asked for, and uses up the reply. What is no such structure ends it early, and the reply says EIO.

use std::sync::{Arc, Weak};

use base::{Data, Env, Mutex, Result};
use export::{Gate, Parking};

use crate::accesses::Accesses;
use crate::attributes::AttributeRequests;
use crate::channel::Channel;
use crate::contents::ContentRequests;
use crate::entries::Entries;
use crate::faults::FaultLog;
use crate::flags::FlagRequests;
use crate::freezer::{Freeze, Freezer, TellKernel};
use crate::known::KnownNodes;
use crate::legacy::{Legacy, LostObjects};
use crate::life::{Life, MountStage};
use crate::list::ListRequests;
use crate::losses::Losses;
use crate::names::NameRequests;
use crate::negotiated::Negotiated;
use crate::notifier::Notifier;
use crate::opened::OpenFiles;
use crate::options::{MountOptions, Remountable};
use crate::repeats::Repeats;
use crate::reply::Reply;
use crate::request_counts;
use crate::room::RoomWatch;
use crate::told_lately::ToldLately;
use crate::tree::Source;
use crate::trees::Trees;
use crate::visits::{MountPlace, Visits};
use crate::wire::{FuseRequest, InHeader, RequestBody, opcode};
use crate::write_back::WriteBack;
use crate::xattr::XattrRequests;

/// The parts of one mount, shared by its threads.
pub(crate) struct Session<S: Source> {
    trees: Arc<Trees<S>>,
    accesses: Arc<Accesses<S>>,
    known: Arc<KnownNodes<S>>,
    names: Arc<NameRequests<S>>,
    lists: ListRequests<S>,
    contents: Arc<ContentRequests<S>>,
    attributes: Arc<AttributeRequests<S>>,
    xattrs: Arc<XattrRequests<S>>,
    flags: Arc<FlagRequests<S>>,
    negotiated: Arc<Negotiated>,
    notifier: Arc<Notifier>,
    freezer: Arc<Freezer<S>>,
    gate: Arc<Gate>,
    env: Env,
    life: Arc<Life>,
}

impl<S: Source> Session<S> {
    /// Errors: those of reading the root directory.
    pub(crate) fn new(
        source: Arc<S>,
        options: MountOptions,
        env: Env,
        life: Arc<Life>,
        legacy: &Legacy,
    ) -> Result<Arc<Session<S>>> {
        let parts = SharedParts::new(source, options, &env, legacy)?;
        let attributes = parts.attributes();
        Ok(Arc::new(Session {
            names: parts.names(attributes.clone()),
            lists: parts.lists(),
            contents: parts.contents(&env),
            xattrs: parts.xattrs(),
            flags: parts.flags(),
            freezer: parts.freezer(),
            attributes,
            trees: parts.trees,
            accesses: parts.accesses,
            known: parts.known,
            negotiated: parts.negotiated,
            notifier: parts.notifier,
            gate: parts.gate,
            env,
            life,
        }))
    }

    /// Of what a kernel can do, what it shall do.
    pub(crate) fn choose(&self, can: u64) -> u64 {
        self.negotiated.choose(can)
    }

    /// What was agreed on with the kernel.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// It is mounted there.
    pub(crate) fn mounted(&self, place: MountPlace) {
        self.contents.write_back.visits().mounted(place);
    }

    /// There is a connection to the kernel.
    pub(crate) fn connected(&self, channel: Arc<Channel>) {
        self.notifier.connected(channel);
    }

    /// Has the kernel drop, by `tell`, what it has of objects that lost changes; then programs are told. Errors: those
    /// of `tell`.
    pub(crate) fn drop_lost(&self, lost: &LostObjects, tell: TellKernel<'_>) -> Result<()> {
        let dropped = self.freezer.drop_lost(lost, tell);
        self.freezer.correct_lost(lost);
        self.contents.losses.dropped();
        let expired = self.freezer.expire_lost(lost, tell);
        self.contents.losses.names_expired();
        dropped.and(expired)
    }

    /// Frees what the process before could not, as nobody uses it any more.
    pub(crate) fn reclaim_unknown(&self) {
        let _passage = self.gate.pass();
        self.known.reclaim_unknown(|node| self.notifier.knows(node));
    }

    /// What freezes it, for as long as it is there.
    pub(crate) fn freezer(&self) -> Weak<dyn Freeze> {
        let freezer: Arc<dyn Freeze> = self.freezer.clone();
        Arc::downgrade(&freezer)
    }

    pub(crate) fn remountable(&self) -> &Arc<Remountable> {
        self.trees.remountable()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.trees.is_writable()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// The dataset's name, for messages.
    pub(crate) fn fs_name(&self) -> &str {
        &self.trees.options().fs_name
    }

    /// The kernel is gone, and with it all users of files.
    pub(crate) fn destroy(&self) {
        self.life.reach(MountStage::Unused);
        if !self.trees.is_writable() {
            return;
        }
        let _passage = self.gate.pass();
        self.accesses.write_all();
        self.known.reclaim_all();
        if let Err(error) = self.trees.source().sync() {
            tracing::error!(dataset = self.fs_name(), "what was written last is not on disk: {error}");
        }
    }

    /// Answers one request.
    pub(crate) fn answer(&self, request: FuseRequest<'_>, reply: Reply) {
        let FuseRequest { header, body, data } = request;
        self.env.failpoint("request");
        request_counts::count(header.opcode);
        let _passage = self.gate.pass();
        if let Err(error) = self.answer_one(&header, body, data, reply) {
            tracing::error!(opcode = header.opcode, node = header.node, "the kernel's request makes no sense: {error}");
        }
    }

    /// The table of requests. Errors: `Corrupt` for one that is not what it has to be.
    fn answer_one(&self, header: &InHeader, body: RequestBody<'_>, data: Data<'_>, reply: Reply) -> Result<()> {
        match header.opcode {
            opcode::FORGET => {
                reply.none();
                self.known.forget(header, body)
            }
            opcode::BATCH_FORGET => {
                reply.none();
                self.known.batch_forget(body)
            }
            opcode::LOOKUP => self.names.lookup(header, body, reply),
            opcode::CREATE => self.names.create(header, body, reply),
            opcode::TMPFILE => self.names.tmpfile(header, body, reply),
            opcode::MKNOD => self.names.mknod(header, body, reply),
            opcode::MKDIR => self.names.mkdir(header, body, reply),
            opcode::SYMLINK => self.names.symlink(header, body, reply),
            opcode::LINK => self.names.link(header, body, reply),
            opcode::UNLINK => self.names.unlink(header, body, reply),
            opcode::RMDIR => self.names.rmdir(header, body, reply),
            opcode::RENAME => self.names.rename(header, body, false, reply),
            opcode::RENAME2 => self.names.rename(header, body, true, reply),
            opcode::READDIR => self.lists.readdir(header, body, reply),
            opcode::READDIRPLUS => self.lists.readdirplus(header, body, reply),
            opcode::READLINK => self.contents.readlink(header, reply),
            opcode::OPEN => self.contents.open(header, body, reply),
            opcode::OPENDIR => self.contents.opendir(reply),
            opcode::READ => self.contents.read(header, body, reply),
            opcode::WRITE => self.contents.write(header, body, data, reply),
            opcode::FSYNC | opcode::FSYNCDIR => self.contents.fsync(header, body, reply),
            opcode::LSEEK => self.contents.lseek(header, body, reply),
            opcode::FALLOCATE => self.contents.fallocate(header, body, reply),
            opcode::COPY_FILE_RANGE => self.contents.copy_file_range(header, body, reply),
            opcode::RELEASE => self.contents.release(header, body, reply),
            // folders have no state of being open
            opcode::RELEASEDIR => reply.done(),
            opcode::GETATTR => self.attributes.getattr(header, body, reply),
            opcode::STATX => self.attributes.statx(header, reply),
            opcode::SETATTR => self.attributes.setattr(header, body, reply),
            opcode::STATFS => self.attributes.statfs(header, reply),
            opcode::GETXATTR => self.xattrs.getxattr(header, body, reply),
            opcode::LISTXATTR => self.xattrs.listxattr(header, body, reply),
            opcode::SETXATTR => self.xattrs.setxattr(header, body, reply),
            opcode::REMOVEXATTR => self.xattrs.removexattr(header, body, reply),
            opcode::IOCTL => self.flags.ioctl(header, body, reply),
            // the kernel does without from then on, or does it by itself: ACCESS, FLUSH, INTERRUPT, locks
            _ => reply.refuse(libc::ENOSYS),
        }
    }
}

/// What the parts that answer requests share.
struct SharedParts<S: Source> {
    trees: Arc<Trees<S>>,
    faults: Arc<FaultLog<S>>,
    accesses: Arc<Accesses<S>>,
    entries: Arc<Entries<S>>,
    files: Arc<OpenFiles<S>>,
    known: Arc<KnownNodes<S>>,
    parking: Arc<Parking>,
    negotiated: Arc<Negotiated>,
    notifier: Arc<Notifier>,
    write_back: Arc<WriteBack>,
    repeats: Arc<Repeats>,
    losses: Arc<Losses>,
    gate: Arc<Gate>,
}

impl<S: Source> SharedParts<S> {
    /// Errors: those of reading the root directory.
    fn new(source: Arc<S>, options: MountOptions, env: &Env, legacy: &Legacy) -> Result<SharedParts<S>> {
        let trees = Arc::new(Trees::new(source.clone(), env, options, legacy)?);
        let (gate, notifier) = (Arc::<Gate>::default(), Arc::<Notifier>::default());
        let parking = Parking::new(env.clone(), gate.clone(), move || source.wait_resumed());
        let negotiated = Arc::new(Negotiated::new(trees.options(), trees.is_writable()));
        let faults = Arc::new(FaultLog::new(trees.clone(), env.clone()));
        let accesses = Accesses::new(trees.clone(), faults.clone(), gate.clone(), env.clone());
        let files = Arc::new(OpenFiles::new(trees.clone(), accesses.clone(), env.clone()));
        let room = {
            let trees = trees.clone();
            Arc::new(RoomWatch::new(env.clone(), move || trees.source().room_bytes()))
        };
        let (of, may_keep) = (trees.clone(), (negotiated.clone(), room.clone()));
        let entries = Arc::new(Entries::new(of, accesses.clone(), may_keep, env.clone()));
        let seen = trees.clone();
        let visits = Visits::new(move |node| seen.visited(node));
        ToldLately::watch(entries.told_lately(), &notifier, legacy, env);
        Ok(SharedParts {
            entries,
            known: Arc::new(KnownNodes::new(trees.clone(), files.clone(), faults.clone(), parking.clone())),
            write_back: WriteBack::new(
                env.clone(),
                gate.clone(),
                notifier.clone(),
                negotiated.clone(),
                legacy.clone(),
                (visits, room),
            ),
            repeats: Arc::new(Repeats::new(legacy.clone())),
            losses: Arc::new(Losses::new(legacy)),
            notifier,
            negotiated,
            trees,
            faults,
            accesses,
            files,
            parking,
            gate,
        })
    }

    fn names(&self, attributes: Arc<AttributeRequests<S>>) -> Arc<NameRequests<S>> {
        Arc::new(NameRequests {
            trees: self.trees.clone(),
            entries: self.entries.clone(),
            known: self.known.clone(),
            faults: self.faults.clone(),
            parking: self.parking.clone(),
            negotiated: self.negotiated.clone(),
            write_back: self.write_back.clone(),
            repeats: self.repeats.clone(),
            losses: self.losses.clone(),
            attributes,
        })
    }

    fn lists(&self) -> ListRequests<S> {
        let (trees, entries, accesses) = (self.trees.clone(), self.entries.clone(), self.accesses.clone());
        ListRequests::new(trees, entries, accesses, self.known.clone(), self.faults.clone())
    }

    fn contents(&self, env: &Env) -> Arc<ContentRequests<S>> {
        Arc::new(ContentRequests {
            trees: self.trees.clone(),
            accesses: self.accesses.clone(),
            files: self.files.clone(),
            faults: self.faults.clone(),
            parking: self.parking.clone(),
            negotiated: self.negotiated.clone(),
            notifier: self.notifier.clone(),
            write_back: self.write_back.clone(),
            losses: self.losses.clone(),
            env: env.clone(),
        })
    }

    fn attributes(&self) -> Arc<AttributeRequests<S>> {
        Arc::new(AttributeRequests {
            trees: self.trees.clone(),
            entries: self.entries.clone(),
            accesses: self.accesses.clone(),
            files: self.files.clone(),
            faults: self.faults.clone(),
            parking: self.parking.clone(),
            write_back: self.write_back.clone(),
        })
    }

    fn xattrs(&self) -> Arc<XattrRequests<S>> {
        Arc::new(XattrRequests {
            trees: self.trees.clone(),
            files: self.files.clone(),
            faults: self.faults.clone(),
            parking: self.parking.clone(),
            negotiated: self.negotiated.clone(),
            write_back: self.write_back.clone(),
            repeats: self.repeats.clone(),
        })
    }

    fn flags(&self) -> Arc<FlagRequests<S>> {
        Arc::new(FlagRequests {
            trees: self.trees.clone(),
            files: self.files.clone(),
            faults: self.faults.clone(),
            parking: self.parking.clone(),
            notifier: self.notifier.clone(),
            write_back: self.write_back.clone(),
        })
    }

    fn freezer(&self) -> Arc<Freezer<S>> {
        Arc::new(Freezer {
            trees: self.trees.clone(),
            accesses: self.accesses.clone(),
            entries: self.entries.clone(),
            files: self.files.clone(),
            negotiated: self.negotiated.clone(),
            notifier: self.notifier.clone(),
            write_back: self.write_back.clone(),
            gate: self.gate.clone(),
            frozen: Mutex::default(),
        })
    }
}
