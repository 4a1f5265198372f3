//! Random operations, each also done to a model that keeps everything in maps.
//!
//! The model is a list of nodes; two kinds of ends of an operation are compared: what it says, and after
//! every few of them the whole tree. Groups are synced now and then, while the next one is changed already;
//! what is on disk then is opened beside, and has to be what the model was when the group was closed.

use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug, Default)]
struct Node {
    is_dir: bool,
    mode: u32,
    links: u64,
    bytes: Vec<u8>,
    entries: BTreeMap<String, usize>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Step {
    Create(u8, u8, bool, u32),
    Link(u8, u8, u8),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Rename(u8, u8, u8, u8, u8),
    Write(u8, u32, u32, u8),
    Append(u8, u16, u8),
    Size(u8, u32),
    Punch(u8, u32, u32),
    Zero(u8, u32, u32, bool),
    Mode(u8, u32),
    Xattr(u8, u8, u16, u8),
    RemoveXattr(u8, u8),
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let at = prop_oneof![0..2000u32, 0..600_000u32, Just(131_072u32), Just(512u32)];
    let len = prop_oneof![1..1500u32, 1..200_000u32, Just(131_072u32)];
    let byte = any::<u8>;
    prop_oneof![
        5 => (byte(), byte(), any::<bool>(), 0..0o1000u32).prop_map(|(d, n, f, m)| Step::Create(d, n, f, m)),
        2 => (byte(), byte(), byte()).prop_map(|(f, d, n)| Step::Link(f, d, n)),
        2 => (byte(), byte()).prop_map(|(d, n)| Step::Unlink(d, n)),
        1 => (byte(), byte()).prop_map(|(d, n)| Step::Rmdir(d, n)),
        5 => (byte(), byte(), byte(), byte(), 0..3u8).prop_map(|(d, n, e, m, how)| Step::Rename(d, n, e, m, how)),
        6 => (byte(), at.clone(), len.clone(), byte()).prop_map(|(f, at, len, b)| Step::Write(f, at, len, b)),
        2 => (byte(), any::<u16>(), byte()).prop_map(|(f, len, b)| Step::Append(f, len, b)),
        3 => (byte(), at.clone()).prop_map(|(f, size)| Step::Size(f, size)),
        2 => (byte(), at.clone(), len.clone()).prop_map(|(f, at, len)| Step::Punch(f, at, len)),
        1 => (byte(), at, len, any::<bool>()).prop_map(|(f, at, len, keep)| Step::Zero(f, at, len, keep)),
        1 => (byte(), 0..0o10000u32).prop_map(|(f, mode)| Step::Mode(f, mode)),
        3 => (byte(), byte(), any::<u16>(), byte()).prop_map(|(f, n, len, b)| Step::Xattr(f, n, len, b)),
        1 => (byte(), byte()).prop_map(|(f, n)| Step::RemoveXattr(f, n)),
        2 => Just(Step::Sync),
    ]
}

#[derive(Clone)]
struct Model {
    nodes: Vec<Node>,
    /// Object numbers of the nodes.
    inos: Vec<ObjectId>,
    /// Those that have not been given back.
    alive: Vec<usize>,
}

impl Model {
    fn dirs(&self) -> Vec<usize> {
        self.alive.iter().copied().filter(|&at| self.nodes[at].is_dir).collect()
    }

    fn dir(&self, pick: u8) -> usize {
        let dirs = self.dirs();
        dirs[usize::from(pick) % dirs.len()]
    }

    fn any(&self, pick: u8) -> usize {
        self.alive[usize::from(pick) % self.alive.len()]
    }

    fn file(&self, pick: u8) -> Option<usize> {
        let files: Vec<_> = self.alive.iter().copied().filter(|&at| !self.nodes[at].is_dir).collect();
        (!files.is_empty()).then(|| files[usize::from(pick) % files.len()])
    }

    fn is_below(&self, at: usize, top: usize) -> bool {
        at == top || self.nodes[top].entries.values().any(|&child| self.nodes[child].is_dir && self.is_below(at, child))
    }

    /// What moving a name does, or why it cannot be.
    fn rename(&mut self, from: (usize, &str), to: (usize, &str), mode: RenameMode) -> Result<Option<usize>, Kind> {
        let source = *self.nodes[from.0].entries.get(from.1).ok_or(Kind::NotFound)?;
        let target = self.nodes[to.0].entries.get(to.1).copied();
        let is_dir = |model: &Model, at: usize| model.nodes[at].is_dir;
        if from.0 != to.0 && is_dir(self, source) && self.is_below(to.0, source) {
            return Err(Kind::Invalid);
        }
        if target.is_some() && mode == RenameMode::NoReplace {
            return Err(Kind::Exists);
        }
        let Some(target) = target else {
            if mode == RenameMode::Exchange {
                return Err(Kind::NotFound);
            }
            self.nodes[from.0].entries.remove(from.1);
            self.nodes[to.0].entries.insert(to.1.to_owned(), source);
            return Ok(None);
        };
        if mode == RenameMode::Exchange {
            if from.0 != to.0 && is_dir(self, target) && self.is_below(from.0, target) {
                return Err(Kind::Invalid);
            }
            self.nodes[from.0].entries.insert(from.1.to_owned(), target);
            self.nodes[to.0].entries.insert(to.1.to_owned(), source);
            return Ok(None);
        }
        if target == source {
            return Ok(None);
        }
        match (is_dir(self, source), is_dir(self, target)) {
            (true, false) => return Err(Kind::NotDirectory),
            (false, true) => return Err(Kind::IsDirectory),
            (true, true) if !self.nodes[target].entries.is_empty() => return Err(Kind::NotEmpty),
            _ => {}
        }
        self.nodes[from.0].entries.remove(from.1);
        self.nodes[to.0].entries.insert(to.1.to_owned(), source);
        Ok(self.drop_link(target))
    }

    fn drop_link(&mut self, at: usize) -> Option<usize> {
        self.nodes[at].links -= 1;
        (self.nodes[at].is_dir || self.nodes[at].links == 0).then_some(at)
    }

    fn write(&mut self, at: usize, offset: usize, bytes: &[u8]) {
        let old = &mut self.nodes[at].bytes;
        old.resize(old.len().max(offset + bytes.len()), 0);
        old[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

fn name(pick: u8) -> String {
    match pick % 12 {
        11 => "long".repeat(50),
        n => format!("n{n}"),
    }
}

fn run(fs: &Fs, steps: Vec<Step>) {
    let root = Node { is_dir: true, mode: 0o755, links: 1, ..Node::default() };
    let mut model = Model { nodes: vec![root], inos: vec![fs.root], alive: vec![0] };
    let mut steps = steps.into_iter().enumerate();
    while let Some((count, step)) = steps.next() {
        if let Step::Sync = step {
            let closed = model.clone();
            fs.sync(|| {
                for (_, step) in steps.by_ref().take(3) {
                    one(fs, &mut model, &step);
                }
                compare(fs, &model);
            });
            compare(&fs.reopened(), &closed);
        }
        one(fs, &mut model, &step);
        if count % 8 == 7 {
            compare(fs, &model);
        }
    }
    compare(fs, &model);
    assert_eq!(fs.queued(), 0);
}

/// Does a step to both, and gives back what lost its last name.
fn one(fs: &Fs, model: &mut Model, step: &Step) {
    if matches!(step, Step::Sync) {
        return;
    }
    if let Some(at) = apply(fs, model, step) {
        assert_eq!(fs.stat(model.inos[at]).nlink, 0);
        fs.zpl.reclaim(model.inos[at]).unwrap();
        assert_eq!(kind(fs.zpl.stat(model.inos[at])), Kind::NotFound);
        model.alive.retain(|&alive| alive != at);
    }
}

/// Does a step to both. The node that lost its last name.
fn apply(fs: &Fs, model: &mut Model, step: &Step) -> Option<usize> {
    let zpl = &fs.zpl;
    match *step {
        Step::Create(dir, pick, is_dir, mode) => {
            let (dir, name) = (model.dir(dir), name(pick));
            let how = if is_dir { NewKind::Directory } else { NewKind::File };
            let made = zpl.create(model.inos[dir], name.as_bytes(), &new(how, mode));
            if model.nodes[dir].entries.contains_key(&name) {
                assert_eq!(kind(made), Kind::Exists);
                return None;
            }
            let at = model.nodes.len();
            model.inos.push(made.unwrap().ino);
            model.nodes.push(Node { is_dir, mode, links: 1, ..Node::default() });
            model.nodes[dir].entries.insert(name, at);
            model.alive.push(at);
        }
        Step::Link(file, dir, pick) => {
            let (file, dir, name) = (model.file(file)?, model.dir(dir), name(pick));
            let linked = zpl.link(model.inos[file], model.inos[dir], name.as_bytes());
            match model.nodes[dir].entries.contains_key(&name) {
                true => assert_eq!(kind(linked), Kind::Exists),
                false => {
                    linked.unwrap();
                    model.nodes[file].links += 1;
                    model.nodes[dir].entries.insert(name, file);
                }
            }
        }
        Step::Unlink(..) | Step::Rmdir(..) => return apply_removal(fs, model, step),
        Step::Rename(from, a, to, b, how) => {
            let (from, to) = (model.dir(from), model.dir(to));
            let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][usize::from(how)];
            let (a, b) = (name(a), name(b));
            let ends = ((model.inos[from], a.as_bytes()), (model.inos[to], b.as_bytes()));
            let done = zpl.rename(ends.0, ends.1, mode);
            match model.rename((from, &a), (to, &b), mode) {
                Err(expect) => assert_eq!(kind(done), expect, "{step:?}"),
                Ok(orphan) => {
                    assert_eq!(done.unwrap(), orphan.map(|at| model.inos[at]));
                    return orphan;
                }
            }
        }
        _ => apply_to_contents(fs, model, step),
    }
    None
}

/// The same of a step that takes a name away.
fn apply_removal(fs: &Fs, model: &mut Model, step: &Step) -> Option<usize> {
    let zpl = &fs.zpl;
    match *step {
        Step::Unlink(dir, pick) => {
            let (dir, name) = (model.dir(dir), name(pick));
            let done = zpl.unlink(model.inos[dir], name.as_bytes());
            match model.nodes[dir].entries.get(&name).copied() {
                None => assert_eq!(kind(done), Kind::NotFound),
                Some(at) if model.nodes[at].is_dir => assert_eq!(kind(done), Kind::IsDirectory),
                Some(at) => {
                    model.nodes[dir].entries.remove(&name);
                    let orphan = model.drop_link(at);
                    assert_eq!(done.unwrap(), orphan.map(|at| model.inos[at]));
                    return orphan;
                }
            }
        }
        Step::Rmdir(dir, pick) => {
            let (dir, name) = (model.dir(dir), name(pick));
            let done = zpl.rmdir(model.inos[dir], name.as_bytes());
            match model.nodes[dir].entries.get(&name).copied() {
                None => assert_eq!(kind(done), Kind::NotFound),
                Some(at) if !model.nodes[at].is_dir => assert_eq!(kind(done), Kind::NotDirectory),
                Some(at) if !model.nodes[at].entries.is_empty() => assert_eq!(kind(done), Kind::NotEmpty),
                Some(at) => {
                    model.nodes[dir].entries.remove(&name);
                    assert_eq!(done.unwrap(), model.inos[at]);
                    return Some(at);
                }
            }
        }
        _ => unreachable!("a step that takes no name away"),
    }
    None
}

fn apply_to_contents(fs: &Fs, model: &mut Model, step: &Step) {
    let zpl = &fs.zpl;
    let open = |model: &Model, pick: u8| {
        let at = model.file(pick)?;
        Some((at, zpl.open_file(model.inos[at]).unwrap()))
    };
    match *step {
        Step::Write(file, offset, len, byte) => {
            let Some((at, file)) = open(model, file) else { return };
            let bytes = vec![byte; len as usize];
            assert_eq!(file.write(offset.into(), &bytes).unwrap(), bytes.len());
            model.write(at, offset as usize, &bytes);
        }
        Step::Append(file, len, byte) => {
            let Some((at, file)) = open(model, file) else { return };
            let (end, bytes) = (model.nodes[at].bytes.len(), vec![byte; len.into()]);
            assert_eq!(file.append(&bytes).unwrap(), end as u64);
            model.write(at, end, &bytes);
        }
        Step::Size(file, size) => {
            let Some(at) = model.file(file) else { return };
            let set = SetAttr { size: Some(size.into()), ..SetAttr::default() };
            assert_eq!(zpl.set_attr(model.inos[at], &set).unwrap().size, size.into());
            model.nodes[at].bytes.resize(size as usize, 0);
        }
        Step::Punch(file, offset, len) => {
            let Some((at, file)) = open(model, file) else { return };
            file.allocate(Allocate::PunchHole, offset.into(), len.into()).unwrap();
            let bytes = &mut model.nodes[at].bytes;
            let end = bytes.len().min((offset + len) as usize);
            bytes[(offset as usize).min(end)..end].fill(0);
        }
        Step::Zero(file, offset, len, keep_size) => {
            let Some((at, file)) = open(model, file) else { return };
            file.allocate(Allocate::ZeroRange { keep_size }, offset.into(), len.into()).unwrap();
            let bytes = &mut model.nodes[at].bytes;
            let end = (offset + len) as usize;
            if !keep_size {
                bytes.resize(bytes.len().max(end), 0);
            }
            let end = end.min(bytes.len());
            bytes[(offset as usize).min(end)..end].fill(0);
        }
        Step::Mode(pick, mode) => {
            let at = model.any(pick);
            zpl.set_attr(model.inos[at], &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
            // new files in it would get its group, and the bit
            model.nodes[at].mode = mode & !0o2000;
            zpl.set_attr(model.inos[at], &SetAttr { mode: Some(mode & !0o2000), ..SetAttr::default() }).unwrap();
        }
        Step::Xattr(pick, name, len, byte) => {
            let (at, name) = (model.any(pick), format!("user.{}", name % 4).into_bytes());
            let value = vec![byte; usize::from(len)];
            zpl.set_xattr(model.inos[at], &name, &value, XattrMode::Any).unwrap();
            model.nodes[at].xattrs.insert(name, value);
        }
        Step::RemoveXattr(pick, name) => {
            let (at, name) = (model.any(pick), format!("user.{}", name % 4).into_bytes());
            let done = zpl.remove_xattr(model.inos[at], &name);
            match model.nodes[at].xattrs.remove(&name) {
                Some(_) => done.unwrap(),
                None => assert_eq!(kind(done), Kind::NoAttribute),
            }
        }
        _ => unreachable!("a step of names"),
    }
}

fn compare(fs: &Fs, model: &Model) {
    for &at in &model.alive {
        let (node, ino) = (&model.nodes[at], model.inos[at]);
        let stat = fs.stat(ino);
        assert_eq!(stat.mode, node.mode);
        let mut xattrs = fs.zpl.xattr_names(ino).unwrap();
        xattrs.sort();
        assert_eq!(xattrs, node.xattrs.keys().cloned().collect::<Vec<_>>());
        for (name, value) in &node.xattrs {
            assert!(fs.zpl.xattr(ino, name).unwrap() == *value);
        }
        if node.is_dir {
            let subdirectories = node.entries.values().filter(|&&child| model.nodes[child].is_dir).count() as u64;
            assert_eq!((stat.nlink, stat.size), (2 + subdirectories, 2 + node.entries.len() as u64));
            assert_eq!(fs.names(ino), node.entries.keys().cloned().collect::<Vec<_>>());
            for (name, &child) in &node.entries {
                assert_eq!(fs.zpl.lookup(ino, name.as_bytes()).unwrap(), model.inos[child]);
                assert!(!model.nodes[child].is_dir || fs.stat(model.inos[child]).parent == ino);
            }
        } else {
            assert_eq!((stat.nlink, stat.size), (node.links, node.bytes.len() as u64));
            assert!(fs.contents(ino) == node.bytes, "contents of {ino}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_the_model(steps in prop::collection::vec(step(), 1..120), xattr_sa: bool, small: bool) {
        let record_bytes = if small { 4096 } else { 128 << 10 };
        run(&fs_with(NewFs::default(), ZplOptions { xattr_sa, record_bytes, ..ZplOptions::default() }), steps);
    }
}
