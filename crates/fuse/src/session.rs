//! One mounted file system as the kernel sees it: the table of requests, and the parts that answer them.
//!
//! A function that answers a request reads the request's own structure (source: linux/fuse.h) from its body, does what is
//! asked for, and uses up the reply. What is no such structure ends it early, and the reply says EIO.

use std::sync::Arc;

use base::{Data, Env, Result};
use export::Parking;

use crate::accesses::Accesses;
use crate::attributes::AttributeRequests;
use crate::channel::Channel;
use crate::contents::ContentRequests;
use crate::entries::Entries;
use crate::faults::FaultLog;
use crate::flags::FlagRequests;
use crate::known::KnownNodes;
use crate::life::{Life, Stage};
use crate::list::ListRequests;
use crate::names::NameRequests;
use crate::negotiated::Negotiated;
use crate::notifier::Notifier;
use crate::opened::OpenFiles;
use crate::options::{MountOptions, Remountable};
use crate::reply::Reply;
use crate::tree::{Source, Tree};
use crate::trees::Trees;
use crate::wire::{Body, Header, Request, opcode};
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
    env: Env,
    life: Arc<Life>,
}

impl<S: Source> Session<S> {
    /// Errors: those of reading the root directory.
    pub(crate) fn new(source: Arc<S>, options: MountOptions, env: Env, life: Arc<Life>) -> Result<Arc<Session<S>>> {
        let parking = parking(source.clone(), &env);
        let trees = Arc::new(Trees::new(source, options)?);
        let negotiated = Arc::new(Negotiated::new(trees.options(), trees.is_writable()));
        let notifier = Arc::<Notifier>::default();
        let faults = Arc::new(FaultLog::new(trees.clone(), env.clone()));
        let accesses = Accesses::new(trees.clone(), faults.clone(), env.clone());
        let entries = Arc::new(Entries::new(trees.clone(), accesses.clone(), env.clone()));
        let files = Arc::new(OpenFiles::new(trees.clone(), accesses.clone(), env.clone()));
        let known = Arc::new(KnownNodes::new(trees.clone(), files.clone(), faults.clone(), parking.clone()));
        let lists = ListRequests::new(trees.clone(), entries.clone(), accesses.clone(), known.clone(), faults.clone());
        let attributes = Arc::new(AttributeRequests {
            trees: trees.clone(),
            entries: entries.clone(),
            accesses: accesses.clone(),
            files: files.clone(),
            faults: faults.clone(),
            parking: parking.clone(),
        });
        let contents = Arc::new(ContentRequests {
            trees: trees.clone(),
            accesses: accesses.clone(),
            files: files.clone(),
            faults: faults.clone(),
            parking: parking.clone(),
            negotiated: negotiated.clone(),
            notifier: notifier.clone(),
        });
        let xattrs = Arc::new(XattrRequests {
            trees: trees.clone(),
            files: files.clone(),
            faults: faults.clone(),
            parking: parking.clone(),
            negotiated: negotiated.clone(),
        });
        let flags = Arc::new(FlagRequests {
            trees: trees.clone(),
            files,
            faults: faults.clone(),
            parking: parking.clone(),
            notifier: notifier.clone(),
        });
        let names = Arc::new(NameRequests {
            trees: trees.clone(),
            entries,
            known: known.clone(),
            faults,
            parking,
            negotiated: negotiated.clone(),
            attributes: attributes.clone(),
        });
        Ok(Arc::new(Session {
            trees,
            accesses,
            known,
            names,
            lists,
            contents,
            attributes,
            xattrs,
            flags,
            negotiated,
            notifier,
            env,
            life,
        }))
    }

    /// Of what a kernel can do, what it shall do.
    pub(crate) fn choose(&self, can: u64) -> u64 {
        self.negotiated.choose(can)
    }

    /// There is a connection to the kernel.
    pub(crate) fn connected(&self, channel: Arc<Channel>) {
        self.notifier.connected(channel);
    }

    /// Object number of the live tree's root.
    pub(crate) fn root(&self) -> u64 {
        self.trees.live().tree.root()
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
        self.life.reach(Stage::Unused);
        if !self.trees.is_writable() {
            return;
        }
        self.accesses.write_all();
        self.known.reclaim_all();
        if let Err(error) = self.trees.source().sync() {
            tracing::error!(dataset = self.fs_name(), "what was written last is not on disk: {error}");
        }
    }

    /// Answers one request.
    pub(crate) fn answer(&self, request: Request<'_>, reply: Reply) {
        let Request { header, body, data } = request;
        self.env.failpoint("request");
        if let Err(error) = self.answer_one(&header, body, data, reply) {
            tracing::error!(opcode = header.opcode, node = header.node, "the kernel's request makes no sense: {error}");
        }
    }

    /// The table of requests. Errors: `Corrupt` for one that is not what it has to be.
    fn answer_one(&self, header: &Header, body: Body<'_>, data: Data<'_>, reply: Reply) -> Result<()> {
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
            opcode::OPEN => self.contents.open(reply),
            opcode::OPENDIR => self.contents.opendir(reply),
            opcode::READ => self.contents.read(header, body, reply),
            opcode::WRITE => self.contents.write(header, body, data, reply),
            opcode::FSYNC | opcode::FSYNCDIR => self.contents.fsync(header, body, reply),
            opcode::LSEEK => self.contents.lseek(header, body, reply),
            opcode::FALLOCATE => self.contents.fallocate(header, body, reply),
            opcode::COPY_FILE_RANGE => self.contents.copy_file_range(header, body, reply),
            // files have no state of being open
            opcode::RELEASE | opcode::RELEASEDIR => reply.done(),
            opcode::GETATTR => self.attributes.getattr(header, reply),
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

/// Where requests wait while the pool of a dataset is suspended.
fn parking<S: Source>(source: Arc<S>, env: &Env) -> Arc<Parking> {
    Parking::new(env.clone(), move || source.wait_resumed())
}
