//! Names that fold, at random: a real kernel, which keeps what it is told, above a file system whose names have
//! aliases, beside a model in memory.
//!
//! ```text
//!   step: create, link, rename, exchange, list, ... of a name in a random spelling
//!     ├─▶ the mount ─▶ answer ─┐
//!     └─▶ the model ─▶ answer ─┴─ equal?  at the end, names and spellings in the tree as well
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuse::{Mount, MountOptions};
use testkit::rng::Rng;
use zpl::{CaseMode, NewFs, ObjectId, Zpl};

use crate::harness::{Dir, get_xattr, mount, require, set_xattr};
use crate::names::{mknod, renameat2};
use crate::rules::FileSystem;

/// `normalization=formD`, as the property has it.
const FORM_D: u64 = 0x10;
/// Where links lead to, which is nowhere.
const TARGET: &str = "nowhere/at all";
const DIRECTORIES: [&str; 2] = ["one", "two"];

/// Spellings of one name.
type Spellings = Vec<String>;

/// A directory, and a name in one of its spellings.
#[derive(Clone, Copy, Debug)]
struct Place {
    directory: usize,
    name: usize,
    spelling: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(Place),
    CreateNew(Place),
    Mkdir(Place),
    Mknod(Place),
    Symlink(Place),
    Link(Place, Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place, u32),
    Stat(Place),
    Append(Place),
    Read(Place),
    List(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    File,
    Directory,
    Socket,
    Symlink,
}

struct Node {
    shape: Shape,
    links: u64,
    bytes: Vec<u8>,
}

/// What is said of a step: something of what it found, or an errno.
type Answer = Result<String, i32>;

/// What the file system has to be. An entry has a spelling and a node.
#[derive(Default)]
struct Model {
    nodes: Vec<Node>,
    directories: [BTreeMap<usize, (String, usize)>; 2],
}

struct Folded {
    names: Vec<Spellings>,
    model: Model,
    zpl: Arc<Zpl>,
    _mount: Mount,
    dir: Dir,
}

impl Model {
    fn find(&self, at: Place) -> Result<usize, i32> {
        self.directories[at.directory].get(&at.name).map(|(_, node)| *node).ok_or(libc::ENOENT)
    }

    fn make(&mut self, at: Place, spelling: &str, shape: Shape, bytes: &[u8]) -> Answer {
        if self.find(at).is_ok() {
            return Err(libc::EEXIST);
        }
        self.nodes.push(Node { shape, links: 1, bytes: bytes.to_vec() });
        self.put(at, spelling, self.nodes.len() - 1);
        Ok(String::new())
    }

    fn put(&mut self, at: Place, spelling: &str, node: usize) {
        self.directories[at.directory].insert(at.name, (spelling.to_owned(), node));
    }

    fn remove(&mut self, at: Place, is_rmdir: bool) -> Answer {
        let node = self.find(at)?;
        match (is_rmdir, self.nodes[node].shape == Shape::Directory) {
            (true, false) => return Err(libc::ENOTDIR),
            (false, true) => return Err(libc::EISDIR),
            _ => {}
        }
        self.directories[at.directory].remove(&at.name);
        self.nodes[node].links -= 1;
        Ok(String::new())
    }

    /// The bytes of a file that is opened through its name.
    fn open(&mut self, at: Place) -> Result<&mut Vec<u8>, i32> {
        let node = self.find(at)?;
        let node = &mut self.nodes[node];
        match node.shape {
            Shape::File => Ok(&mut node.bytes),
            Shape::Directory => Err(libc::EISDIR),
            Shape::Socket => Err(libc::ENXIO),
            Shape::Symlink => Err(libc::ENOENT),
        }
    }

    fn rename(&mut self, (from, old): (Place, &str), (to, new): (Place, &str), flags: u32) -> Answer {
        let (source, target) = (self.find(from)?, self.find(to));
        if flags == libc::RENAME_NOREPLACE && target.is_ok() {
            return Err(libc::EEXIST);
        }
        match target {
            // the kernel does not even ask
            Ok(target) if target == source => return Ok(String::new()),
            Ok(target) if flags == libc::RENAME_EXCHANGE => self.put(from, old, target),
            Ok(target) => {
                match [source, target].map(|node| self.nodes[node].shape == Shape::Directory) {
                    [true, false] => return Err(libc::ENOTDIR),
                    [false, true] => return Err(libc::EISDIR),
                    _ => self.nodes[target].links -= 1,
                }
                self.directories[from.directory].remove(&from.name);
            }
            Err(error) if flags == libc::RENAME_EXCHANGE => return Err(error),
            Err(_) => drop(self.directories[from.directory].remove(&from.name)),
        }
        self.directories[to.directory].remove(&to.name);
        self.put(to, new, source);
        Ok(String::new())
    }

    fn shown(&self, node: usize) -> String {
        let Node { shape, links, bytes } = &self.nodes[node];
        match shape {
            Shape::Directory => "Directory".to_owned(),
            Shape::File => format!("File, {links} links, {} bytes", bytes.len()),
            _ => format!("{shape:?}, {links} links"),
        }
    }

    fn listed(&self, directory: usize) -> String {
        let mut lines: Vec<String> = self.directories[directory]
            .values()
            .map(|(name, node)| format!("{name}: {}\n", self.shown(*node)))
            .collect();
        lines.sort();
        lines.concat()
    }
}

/// The same of a file of the mount.
fn shown(stat: &fs::Metadata) -> String {
    let kind = stat.file_type();
    match () {
        () if kind.is_dir() => "Directory".to_owned(),
        () if kind.is_file() => format!("File, {} links, {} bytes", stat.nlink(), stat.size()),
        () if kind.is_socket() => format!("Socket, {} links", stat.nlink()),
        () => format!("Symlink, {} links", stat.nlink()),
    }
}

fn listed(directory: &Path) -> io::Result<String> {
    let line = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok(format!("{}: {}\n", entry.file_name().to_string_lossy(), shown(&entry.metadata()?)))
    };
    let mut lines = fs::read_dir(directory)?.map(line).collect::<io::Result<Vec<String>>>()?;
    lines.sort();
    Ok(lines.concat())
}

impl Folded {
    fn new(new_fs: &NewFs, names: Vec<Spellings>) -> Folded {
        let source = FileSystem::of(new_fs);
        let (zpl, dir) = (source.zpl.clone(), Dir::new());
        let mount = mount(Arc::new(source), &MountOptions::new("folded", &dir.0)).unwrap();
        for name in DIRECTORIES {
            fs::create_dir(dir.0.join(name)).unwrap();
        }
        Folded { names, model: Model::default(), zpl, _mount: mount, dir }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let name = rng.below(self.names.len() as u64) as usize;
        let mut place = |name: usize| Place {
            directory: rng.below(2) as usize,
            name,
            spelling: rng.below(self.names[name].len() as u64) as usize,
        };
        let (at, same) = (place(name), place(name));
        let other = rng.below(self.names.len() as u64) as usize;
        let to = Place { name: other, directory: rng.below(2) as usize, spelling: 0 };
        let to = Place { spelling: rng.below(self.names[other].len() as u64) as usize, ..to };
        let to = if rng.below(5) == 0 { same } else { to };
        match rng.below(16) {
            0 | 1 => Step::Create(at),
            2 => Step::CreateNew(at),
            3 => Step::Mkdir(at),
            4 => Step::Mknod(at),
            5 => Step::Symlink(at),
            6 => Step::Link(at, to),
            7 => Step::Unlink(at),
            8 => Step::Rmdir(at),
            9 => Step::Rename(at, to, 0),
            10 => Step::Rename(at, to, libc::RENAME_NOREPLACE),
            11 => Step::Rename(at, to, libc::RENAME_EXCHANGE),
            12 => Step::Stat(at),
            13 => Step::Append(at),
            14 => Step::Read(at),
            _ => Step::List(at.directory),
        }
    }

    fn spelled(&self, at: Place) -> String {
        self.names[at.name][at.spelling].clone()
    }

    fn path(&self, at: Place) -> PathBuf {
        self.dir.0.join(DIRECTORIES[at.directory]).join(self.spelled(at))
    }

    fn modelled(&mut self, step: Step, text: &[u8]) -> Answer {
        let names = &self.names;
        let spelled = |at: Place| names[at.name][at.spelling].clone();
        let model = &mut self.model;
        match step {
            Step::Create(at) => match model.make(at, &spelled(at), Shape::File, text) {
                Err(libc::EEXIST) => model.open(at).map(|bytes| *bytes = text.to_vec()).map(|()| String::new()),
                made => made,
            },
            Step::CreateNew(at) => model.make(at, &spelled(at), Shape::File, text),
            Step::Mkdir(at) => model.make(at, &spelled(at), Shape::Directory, b""),
            Step::Mknod(at) => model.make(at, &spelled(at), Shape::Socket, b""),
            Step::Symlink(at) => model.make(at, &spelled(at), Shape::Symlink, b""),
            Step::Link(at, to) => {
                let node = model.find(at)?;
                if model.find(to).is_ok() {
                    return Err(libc::EEXIST);
                }
                if model.nodes[node].shape == Shape::Directory {
                    return Err(libc::EPERM);
                }
                model.nodes[node].links += 1;
                model.put(to, &spelled(to), node);
                Ok(String::new())
            }
            Step::Unlink(at) => model.remove(at, false),
            Step::Rmdir(at) => model.remove(at, true),
            Step::Rename(at, to, flags) => model.rename((at, &spelled(at)), (to, &spelled(to)), flags),
            Step::Stat(at) => model.find(at).map(|node| model.shown(node)),
            Step::Append(at) => model.open(at).map(|bytes| bytes.extend(text)).map(|()| String::new()),
            Step::Read(at) => model.open(at).map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            Step::List(directory) => Ok(model.listed(directory)),
        }
    }

    fn done(&self, step: Step, text: &[u8]) -> io::Result<String> {
        let nothing = |()| String::new();
        match step {
            Step::Create(at) => fs::write(self.path(at), text).map(nothing),
            Step::CreateNew(at) => File::create_new(self.path(at))?.write_all(text).map(nothing),
            Step::Mkdir(at) => fs::create_dir(self.path(at)).map(nothing),
            Step::Mknod(at) => mknod(&self.path(at), libc::S_IFSOCK | 0o600, 0).map(nothing),
            Step::Symlink(at) => symlink(TARGET, self.path(at)).map(nothing),
            Step::Link(at, to) => fs::hard_link(self.path(at), self.path(to)).map(nothing),
            Step::Unlink(at) => fs::remove_file(self.path(at)).map(nothing),
            Step::Rmdir(at) => fs::remove_dir(self.path(at)).map(nothing),
            Step::Rename(at, to, flags) => renameat2(&self.path(at), &self.path(to), flags).map(nothing),
            Step::Stat(at) => fs::symlink_metadata(self.path(at)).map(|stat| shown(&stat)),
            Step::Append(at) => File::options().append(true).open(self.path(at))?.write_all(text).map(nothing),
            Step::Read(at) => fs::read(self.path(at)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            Step::List(directory) => listed(&self.dir.0.join(DIRECTORIES[directory])),
        }
    }

    /// The names as they are in the tree.
    fn stored(&self, directory: usize) -> Vec<String> {
        let object: ObjectId = self.zpl.resolve(DIRECTORIES[directory].as_bytes()).unwrap();
        let mut names = Vec::new();
        let each = &mut |entry: zpl::DirEntry| {
            names.push(String::from_utf8(entry.name).unwrap());
            ControlFlow::Continue(())
        };
        self.zpl.readdir(object, 2, each).unwrap();
        names.sort();
        names
    }

    /// Takes `count` steps from `seed`.
    fn compare(&mut self, seed: u64, count: usize) {
        let mut rng = Rng::new(seed);
        for number in 0..count {
            let step = self.step(&mut rng);
            let text = format!("of step {number}; ").into_bytes();
            let found = self.done(step, &text).map_err(|error| error.raw_os_error().unwrap());
            let expect = self.modelled(step, &text);
            assert_eq!(found, expect, "seed {seed}, step {number}: {step:?} of {:?}", self.names);
        }
        for directory in [0, 1] {
            let mut expect: Vec<String> =
                self.model.directories[directory].values().map(|(spelling, _)| spelling.clone()).collect();
            expect.sort();
            assert_eq!(self.stored(directory), expect, "seed {seed}");
        }
    }
}

fn spellings(groups: &[&[&str]]) -> Vec<Spellings> {
    groups.iter().map(|group| group.iter().map(|name| (*name).to_owned()).collect()).collect()
}

fn compare_all(new_fs: &NewFs, groups: &[&[&str]]) {
    let seeds: u64 = std::env::var("CENOTE_FOLDED_SEEDS").map_or(2, |text| text.parse().unwrap());
    for seed in 0..seeds {
        Folded::new(new_fs, spellings(groups)).compare(seed, 3000);
    }
}

#[test]
fn names_without_case() {
    require!(root);
    let new_fs = NewFs { case: CaseMode::Insensitive, ..NewFs::default() };
    compare_all(
        &new_fs,
        &[&["foo", "FOO", "Foo", "fOO"], &["Report.TXT", "report.txt", "REPORT.txt"], &["a", "A"], &["ab", "AB", "aB"]],
    );
}

#[test]
fn names_of_several_forms() {
    require!(root);
    let new_fs = NewFs { normalization: FORM_D, utf8only: true, ..NewFs::default() };
    let groups: [&[&str]; 5] = [
        &["caf\u{e9}", "cafe\u{301}"],
        // case counts
        &["CAF\u{c9}", "CAFE\u{301}"],
        &["\u{c5}", "A\u{30a}", "\u{212b}"],
        &["\u{f6}l", "o\u{308}l"],
        &["plain"],
    ];
    compare_all(&new_fs, &groups);
}

#[test]
fn names_without_case_of_several_forms() {
    require!(root);
    let new_fs = NewFs { case: CaseMode::Insensitive, normalization: FORM_D, utf8only: true, ..NewFs::default() };
    let groups: [&[&str]; 3] = [
        &["caf\u{e9}", "cafe\u{301}", "CAF\u{c9}", "CAFE\u{301}", "Cafe\u{301}"],
        &["\u{c5}", "A\u{30a}", "\u{e5}", "a\u{30a}"],
        &["foo", "FOO"],
    ];
    compare_all(&new_fs, &groups);
}

/// Case counts for users of a mount, and with `normalization` there are aliases nevertheless.
#[test]
fn names_of_mixed_case() {
    require!(root);
    let mixed = NewFs { case: CaseMode::Mixed, ..NewFs::default() };
    compare_all(&mixed, &[&["foo"], &["FOO"], &["Foo"], &["bar"], &["Bar"]]);
    let formed = NewFs { normalization: FORM_D, utf8only: true, ..mixed };
    compare_all(&formed, &[&["caf\u{e9}", "cafe\u{301}"], &["CAF\u{c9}", "CAFE\u{301}"], &["foo"], &["FOO"]]);
}

/// A listing tells the kernel of names for no longer than a lookup does.
#[test]
fn a_name_that_was_listed_is_looked_up_again() {
    require!(root);
    let new_fs = NewFs { case: CaseMode::Insensitive, ..NewFs::default() };
    let folded = Folded::new(&new_fs, Vec::new());
    let p = |name: &str| folded.dir.0.join("one").join(name);
    fs::write(p("FOO"), "old").unwrap();
    assert_eq!(listed(&folded.dir.0.join("one")).unwrap(), "FOO: File, 1 links, 3 bytes\n");
    fs::remove_file(p("foo")).unwrap();
    fs::write(p("FOO"), "NEW").unwrap();
    assert_eq!((folded.stored(0), fs::read(p("foo")).unwrap()), (vec!["FOO".to_owned()], b"NEW".to_vec()));
    // of a name that was moved away, which the kernel has still
    fs::rename(p("Foo"), p("bar")).unwrap();
    fs::write(p("FOO"), "another").unwrap();
    assert_eq!((fs::read(p("BAR")).unwrap(), fs::read(p("foo")).unwrap()), (b"NEW".to_vec(), b"another".to_vec()));
    // and over another spelling
    fs::rename(p("bar"), p("foo")).unwrap();
    assert_eq!((folded.stored(0), fs::read(p("FOO")).unwrap()), (vec!["foo".to_owned()], b"NEW".to_vec()));
}

/// A file that is removed or moved in the overlay leaves a whiteout in the upper folder.
#[test]
fn overlayfs_has_its_upper_folder_here() {
    require!(root);
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("\toverlay\n") {
        eprintln!("SKIPPED {}:{}: the kernel has no overlay", file!(), line!());
        return;
    }
    let folded = Folded::new(&NewFs::default(), Vec::new());
    let (one, two, merged) = (folded.dir.0.join("one"), folded.dir.0.join("two"), Dir::new());
    for name in ["upper", "work"] {
        fs::create_dir(two.join(name)).unwrap();
    }
    fs::write(one.join("removed"), "").unwrap();
    fs::write(one.join("moved"), "text").unwrap();
    // what a copy has to keep
    let capability: Vec<u8> = [0x0200_0001u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    for name in ["touched", "owned"] {
        fs::write(one.join(name), "text").unwrap();
        chown(one.join(name), Some(1000), Some(1001)).unwrap();
        fs::set_permissions(one.join(name), fs::Permissions::from_mode(0o6755)).unwrap();
        set_xattr(&one.join(name), "security.capability", &capability, 0).unwrap();
    }
    // a whiteout by the call that overlayfs makes
    fs::write(two.join("a"), "text").unwrap();
    renameat2(&two.join("a"), &two.join("b"), libc::RENAME_WHITEOUT).unwrap();
    let is_whiteout = |path: PathBuf| {
        let stat = fs::symlink_metadata(path).unwrap();
        stat.file_type().is_char_device() && stat.rdev() == 0 && stat.mode() & 0o7777 == 0
    };
    assert!(is_whiteout(two.join("a")) && fs::read(two.join("b")).unwrap() == b"text");

    let (upper, work) = (two.join("upper"), two.join("work"));
    let how = format!("lowerdir={},upperdir={},workdir={}", one.display(), upper.display(), work.display());
    let none = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("overlay"), &merged.0, Some("overlay"), none, Some(how.as_str())).unwrap();
    let changed = fs::remove_file(merged.0.join("removed"))
        .and_then(|()| fs::rename(merged.0.join("moved"), merged.0.join("new")))
        .and_then(|()| File::open(merged.0.join("touched"))?.set_modified(std::time::SystemTime::UNIX_EPOCH))
        .and_then(|()| chown(merged.0.join("owned"), Some(1002), None))
        .and_then(|()| listed(&merged.0));
    nix::mount::umount(&merged.0).unwrap();
    let listing = ["new", "owned", "touched"].map(|name| format!("{name}: File, 1 links, 4 bytes\n"));
    assert_eq!(changed.unwrap(), listing.concat());
    let stat = |name: &str| fs::metadata(upper.join(name)).unwrap();
    let touched = stat("touched");
    assert_eq!((touched.mode() & 0o7777, touched.uid(), touched.gid()), (0o6755, 1000, 1001));
    assert_eq!(get_xattr(&upper.join("touched"), "security.capability", 64).unwrap().1, capability);
    assert_eq!((stat("owned").mode() & 0o7777, stat("owned").uid()), (0o755, 1002));
    assert!(get_xattr(&upper.join("owned"), "security.capability", 64).is_err());
    assert!(is_whiteout(upper.join("removed")) && is_whiteout(upper.join("moved")));
    assert_eq!(fs::read(upper.join("new")).unwrap(), b"text");
    assert!(listed(&one).unwrap().starts_with("moved: File, 1 links, 4 bytes\n"));
}
