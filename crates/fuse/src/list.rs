//! Directories: what `readdir` and `readdirplus` list, the made-up directories of `.zfs` among them.
//!
//! A cookie says where to go on, and comes from the tree: `.` has 1, `..` has 2, and 3 is left for a
//! visible `.zfs`, as in OpenZFS. The directories of `.zfs` just count.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Error, Kind, Result, Shown};
use zpl::{FileKind, ObjectId};

use crate::accesses::Accesses;
use crate::attr::{FuseEntry, kind_bits, made_up_directory};
use crate::entries::Entries;
use crate::faults::FaultLog;
use crate::known::KnownNodes;
use crate::legacy::NotedFact;
use crate::lifetimes::{AttrLifetime, NameLifetime};
use crate::node::{CONTROL, CONTROL_NAME, OpenTree, SHARES, SHARES_NAME, SNAPSHOTS, SNAPSHOTS_NAME, root_node};
use crate::reply::{Listing, Reply};
use crate::tree::{FileTree, Source};
use crate::trees::{NodePlace, Trees};
use crate::wire::{IO_BYTES_MAX, InHeader, RequestBody};

/// Cookies of the first entries of any directory.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const THIRD: u64 = 3;
const FOURTH: u64 = 4;
/// Longest name that the kernel takes from a directory; one that is longer fails the whole listing.
const NAME_BYTES_MAX: usize = 1024;

/// One entry of a listing.
struct Listed<'a, T> {
    name: Cow<'a, [u8]>,
    /// `d_ino`.
    ino: u64,
    kind: Option<FileKind>,
    /// Continues after this entry.
    cookie: u64,
    what: ListedNode<'a, T>,
}

impl<T> Listed<'_, T> {
    /// Is it `.` or `..`, of which the kernel takes no notice?
    fn is_dot(&self) -> bool {
        matches!(self.what, ListedNode::Dot)
    }
}

/// What attributes an entry has.
enum ListedNode<'a, T> {
    /// `.` and `..`: the kernel knows them.
    Dot,
    /// A directory of `.zfs`.
    MadeUp,
    /// A snapshot, by the time when it was taken. Listing does not open it.
    Snapshot(u64),
    /// An object of a tree.
    Object(&'a OpenTree<T>, ObjectId),
}

/// Takes one entry after the other; `Break` if there is no room for this one.
type Each<'a, T> = dyn FnMut(Listed<'_, T>) -> ControlFlow<()> + 'a;

/// Answers the requests that list directories.
pub(crate) struct ListRequests<S: Source> {
    trees: Arc<Trees<S>>,
    entries: Arc<Entries<S>>,
    accesses: Arc<Accesses<S>>,
    known: Arc<KnownNodes<S>>,
    faults: Arc<FaultLog<S>>,
}

impl<S: Source> ListRequests<S> {
    pub(crate) fn new(
        trees: Arc<Trees<S>>,
        entries: Arc<Entries<S>>,
        accesses: Arc<Accesses<S>>,
        known: Arc<KnownNodes<S>>,
        faults: Arc<FaultLog<S>>,
    ) -> ListRequests<S> {
        ListRequests { trees, entries, accesses, known, faults }
    }

    /// READDIR.
    pub(crate) fn readdir(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (cookie, room) = listing(&mut body)?;
        let names = self.names(header.node, cookie, room);
        self.faults.answer("readdir", header.node, names, reply, |reply, names| reply.bytes(&names));
        Ok(())
    }

    /// READDIRPLUS.
    pub(crate) fn readdirplus(&self, header: &InHeader, mut body: RequestBody<'_>, reply: Reply) -> Result<()> {
        let (cookie, room) = listing(&mut body)?;
        let entries = self.names_and_attributes(header.node, cookie, room);
        self.faults.answer("readdir", header.node, entries, reply, |reply, (entries, facts)| {
            reply.noted(facts).bytes(&entries);
        });
        Ok(())
    }

    /// Entries of the directory `node` after `cookie`, as READDIR lists them in `room` bytes.
    fn names(&self, node: u64, cookie: u64, room: usize) -> Result<Listing> {
        let mut listing = Listing::new(room);
        let result = self.list(node, cookie, &mut |entry| {
            let mode = entry.kind.map_or(0, kind_bits);
            match listing.add(None, (entry.ino, entry.cookie, mode), &entry.name) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        answer(result, listing)
    }

    /// The same with attributes, as READDIRPLUS lists them.
    fn names_and_attributes(&self, node: u64, cookie: u64, room: usize) -> Result<(Listing, Vec<NotedFact>)> {
        let (mut listing, mut facts) = (Listing::new(room), Vec::new());
        let name_ttl = self.entries.name_ttl(node);
        let result = self.list(node, cookie, &mut |entry| {
            let (told, is_sure) = self.listed_attributes(node, &entry);
            let what = (told.attr.ino, entry.cookie, told.attr.mode);
            if !listing.add(Some((&told, if is_sure { name_ttl } else { NameLifetime::NONE })), what, &entry.name) {
                return ControlFlow::Break(());
            }
            if !entry.is_dot() {
                facts.extend(self.known.told(told.attr.ino, told.generation));
            }
            ControlFlow::Continue(())
        });
        Ok((answer(result, listing)?, facts))
    }

    /// Lists the directory `node` after `cookie`.
    fn list(&self, node: u64, cookie: u64, each: &mut Each<'_, S::Tree>) -> Result<()> {
        match self.trees.place(node)? {
            NodePlace::Control => {
                let live = self.trees.live();
                let above = live.ino(live.tree.root());
                let names = [made_up(SHARES_NAME, SHARES, THIRD), made_up(SNAPSHOTS_NAME, SNAPSHOTS, FOURTH)];
                list_made_up([CONTROL, above], names, cookie, each);
                Ok(())
            }
            NodePlace::Shares => {
                list_made_up([SHARES, CONTROL], [], cookie, each);
                Ok(())
            }
            NodePlace::Snapshots => self.list_snapshots(cookie, each),
            NodePlace::Object(branch, object) => self.list_tree(node, &branch, object, cookie, each),
        }
    }

    fn list_snapshots(&self, cookie: u64, each: &mut Each<'_, S::Tree>) -> Result<()> {
        let list = self.trees.snapshots().list()?;
        let first = u16::try_from(cookie.saturating_sub(DOT_DOT) + 1).unwrap_or(u16::MAX);
        let snapshots = list.from(first).map(|(place, snapshot)| Listed {
            name: snapshot.name.as_bytes().into(),
            ino: root_node(place),
            kind: Some(FileKind::Directory),
            cookie: DOT_DOT + u64::from(place),
            what: ListedNode::Snapshot(snapshot.created_s),
        });
        list_made_up([SNAPSHOTS, CONTROL], snapshots, cookie, each);
        Ok(())
    }

    fn list_tree(
        &self,
        node: u64,
        branch: &OpenTree<S::Tree>,
        object: ObjectId,
        cookie: u64,
        each: &mut Each<'_, S::Tree>,
    ) -> Result<()> {
        // .zfs stands between `..` and the first name
        let mut control = (cookie <= DOT_DOT && self.trees.lists_control(branch, object))
            .then(|| made_up(CONTROL_NAME, CONTROL, THIRD));
        let cookie = if cookie == THIRD { DOT_DOT } else { cookie };
        let mut stopped = false;
        branch.tree.readdir(object, cookie, &mut |entry| {
            let dot = entry.cookie <= DOT_DOT;
            if !dot && let Some(control) = control.take() {
                each(control)?;
            }
            if !dot && !is_name(&entry.name) {
                let what = format!("a directory has the impossible name '{}'", Shown(&entry.name));
                self.faults.fail("readdir", node, Error::corrupt(what));
                return ControlFlow::Continue(());
            }
            let flow = each(Listed {
                name: entry.name.into(),
                ino: branch.ino(entry.ino),
                kind: entry.kind,
                cookie: entry.cookie,
                what: if dot { ListedNode::Dot } else { ListedNode::Object(branch, entry.ino) },
            });
            stopped = flow.is_break();
            flow
        })?;
        // once for each time that it is read from the beginning
        if cookie == 0 {
            self.accesses.note(branch, object, true);
        }
        if let (false, Some(control)) = (stopped, control) {
            let _ = each(control);
        }
        Ok(())
    }

    /// The attributes of a listed entry, and whether its name may be kept for as long as others of the directory.
    /// One whose attributes cannot be had is listed nonetheless: a program that wants more of it than
    /// its name is told the error. So is one that wants more of a snapshot, which is opened for it.
    fn listed_attributes(&self, node: u64, listed: &Listed<'_, S::Tree>) -> (FuseEntry, bool) {
        let (mut attr, attr_ttl, is_sure) = match listed.what {
            ListedNode::Object(branch, object) => match self.entries.of_named_object(branch, object) {
                Ok(entry) => return (entry, true),
                Err(error) => {
                    self.faults.fail("readdir", node, error);
                    (made_up_directory(listed.ino, 0), AttrLifetime::NONE, false)
                }
            },
            ListedNode::MadeUp => (made_up_directory(listed.ino, self.trees.born_s()), AttrLifetime::FOREVER, true),
            ListedNode::Snapshot(created_s) => (made_up_directory(listed.ino, created_s), AttrLifetime::NONE, false),
            ListedNode::Dot => (made_up_directory(listed.ino, 0), AttrLifetime::NONE, false),
        };
        let kind = kind_bits(listed.kind.unwrap_or(FileKind::File));
        attr.mode = kind | attr.mode & !libc::S_IFMT;
        (FuseEntry { attr, attr_ttl, generation: 0 }, is_sure)
    }
}

/// What READDIR and READDIRPLUS say, `fuse_read_in`: after which entry to go on, and for how many bytes there is
/// room.
fn listing(body: &mut RequestBody<'_>) -> Result<(u64, usize)> {
    body.skip(8)?;
    Ok((body.u64()?, body.u32()?.min(IO_BYTES_MAX) as usize))
}

/// What is answered after a listing ended with `result`: entries that were found before an error come first,
/// and the error when they go on from there.
fn answer(result: Result<()>, found: Listing) -> Result<Listing> {
    match result {
        Err(error) if found.is_empty() || error.kind() == Kind::Interrupted => Err(error),
        _ => Ok(found),
    }
}

/// Lists, after `cookie`, what a directory of `.zfs` has; it and the one above it come first.
fn list_made_up<'a, T: FileTree>(
    [own, above]: [u64; 2],
    names: impl IntoIterator<Item = Listed<'a, T>>,
    cookie: u64,
    each: &mut Each<'_, T>,
) {
    let dots = [made_up(b".", own, DOT), made_up(b"..", above, DOT_DOT)];
    // stopping early is no failure
    let _ = dots.into_iter().chain(names).filter(|entry| entry.cookie > cookie).try_for_each(each);
}

fn made_up<T>(name: &'static [u8], ino: u64, cookie: u64) -> Listed<'static, T> {
    let what = if cookie <= DOT_DOT { ListedNode::Dot } else { ListedNode::MadeUp };
    Listed { name: name.into(), ino, kind: Some(FileKind::Directory), cookie, what }
}

/// The kernel refuses a whole listing for one name that it does not take.
fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_BYTES_MAX && zpl::is_possible_name(name)
}
