//! What a pool's configuration says of its vdevs.
//!
//! A configuration holds the tree as nested name-value lists, in the labels (one top-level vdev)
//! and in the MOS (all of it, below a root). [`VdevSpec`] is such a tree after every value has been
//! checked; the `vdev` layer trusts it from then on. [`VdevSpec::to_nvlist`] leads back.

mod write;

use base::{Error, Kind as ErrorKind, Result};
use format::feature::DRAID_FAILURE_DOMAINS;
use format::ids::{Guid, ObjectId, Txg, VdevNumber};
use format::nvlist::NvList;

use serde::{Deserialize, Serialize};

use crate::draid::DraidShape;
use crate::expansion::Expansion;

/// How deep trees may nest; a replacing within a spare within a raidz below the root needs 5.
const DEPTH_MAX: usize = 8;
/// Most children of one vdev.
const CHILDREN_MAX: usize = 4096;
/// Most children of a raidz.
const RAIDZ_CHILDREN_MAX: usize = 255;
/// Binary logarithm of the smallest metaslab: the largest block that the first pools could have.
const METASLAB_SHIFT_MIN: u64 = 17;
/// Most metaslabs of one vdev. It begins with 2^17 or fewer, but keeps their size when it grows.
const METASLABS_MAX: u64 = 1 << 20;

/// A vdev as configured, with all below it.
#[derive(Clone, Debug, PartialEq)]
pub struct VdevSpec {
    /// What it is.
    pub kind: VdevKind,
    /// Position among its parent's children; of a top-level vdev, the number that DVAs name.
    pub id: u64,
    /// Unique id.
    pub guid: Guid,
    /// Transaction group in which it was added; 0 if unknown.
    pub create_txg: Txg,
    /// What a top-level vdev says of its space.
    pub top: Option<TopSpec>,
    /// What a leaf says of its device.
    pub leaf: Option<LeafSpec>,
    /// Vdevs below, in order.
    pub children: Vec<VdevSpec>,
}

/// The types of vdevs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VdevKind {
    /// Above all top-level vdevs.
    Root,
    /// A disk or partition.
    Disk,
    /// A regular file.
    File,
    /// The same on every child.
    Mirror,
    /// A mirror while one child takes another's place.
    Replacing,
    /// A mirror of a vdev and the spare that stands in for it.
    Spare,
    /// Blocks with parity, dealt over the children.
    Raidz {
        /// Parity level, 1 to 3.
        nparity: usize,
    },
    /// Groups with parity, permuted over the children.
    Draid(DraidShape),
    /// A spare that is spread over the children of a draid.
    DraidSpare {
        /// Guid of the draid.
        draid_guid: Guid,
        /// Which of its spares.
        spare: u64,
    },
    /// What is left of a removed vdev: a table of where its contents are now.
    Indirect,
    /// The number of a removed log device.
    Hole,
    /// A vdev that the configuration at hand does not tell of.
    Missing,
}

impl VdevKind {
    /// What a configuration calls it.
    pub fn type_name(self) -> &'static str {
        match self {
            VdevKind::Root => "root",
            VdevKind::Disk => "disk",
            VdevKind::File => "file",
            VdevKind::Mirror => "mirror",
            VdevKind::Replacing => "replacing",
            VdevKind::Spare => "spare",
            VdevKind::Raidz { .. } => "raidz",
            VdevKind::Draid(_) => "draid",
            VdevKind::DraidSpare { .. } => "dspare",
            VdevKind::Indirect => "indirect",
            VdevKind::Hole => "hole",
            VdevKind::Missing => "missing",
        }
    }

    /// Whether children hold copies of the same bytes.
    pub fn is_copies(self) -> bool {
        matches!(self, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
    }

    /// Parity columns in a row of a raidz or draid; 0 of others.
    pub fn nparity(self) -> usize {
        match self {
            VdevKind::Raidz { nparity } => nparity,
            VdevKind::Draid(shape) => shape.nparity as usize,
            _ => 0,
        }
    }

    /// Whether it has no children.
    pub fn is_leaf(self) -> bool {
        matches!(self, VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare { .. })
    }

    /// Whether it holds bytes on devices.
    pub fn is_concrete(self) -> bool {
        !matches!(self, VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing)
    }
}

/// What a top-level vdev says of its space.
#[derive(Clone, Debug, PartialEq)]
pub struct TopSpec {
    /// Binary logarithm of the sector size, 9 to 16; 0 on a hole.
    pub ashift: u32,
    /// Bytes of its address space; 0 if unknown.
    pub asize: u64,
    /// Object that holds the space map numbers of the metaslabs; 0 if none.
    pub metaslab_array: ObjectId,
    /// Binary logarithm of the size of a metaslab.
    pub metaslab_shift: u32,
    /// Whether it holds the intent log only.
    pub is_log: bool,
    /// What it was set aside for.
    pub bias: Option<Bias>,
    /// Whether its removal has begun.
    pub removing: bool,
    /// ZAP object with its attributes; 0 if none.
    pub zap: ObjectId,
    /// On an indirect one, and one whose removal has begun: where its table is.
    pub indirect: Option<IndirectSpec>,
    /// On a raidz that was given more children: when.
    pub expansion: Option<Expansion>,
}

impl TopSpec {
    /// One of which nothing but its measures is known.
    fn of(ashift: u32, asize: u64, metaslab_shift: u32) -> TopSpec {
        TopSpec {
            ashift,
            asize,
            metaslab_array: ObjectId::NONE,
            metaslab_shift,
            is_log: false,
            bias: None,
            removing: false,
            zap: ObjectId::NONE,
            indirect: None,
            expansion: None,
        }
    }
}

/// Allocation classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bias {
    /// Intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// The objects of a vdev that was removed, or is being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndirectSpec {
    /// Object that holds the table of where its contents are.
    pub mapping_object: ObjectId,
    /// Object that tells when each part of the table came to be.
    pub births_object: ObjectId,
    /// The vdev that was removed before this one.
    pub previous: Option<VdevNumber>,
}

/// What a leaf says of its device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeafSpec {
    /// Path by which it was last open.
    pub path: Option<String>,
    /// Path by bus and slot.
    pub phys_path: Option<String>,
    /// Id from the device's driver.
    pub devid: Option<String>,
    /// Whether the whole disk was given to the pool, which then made the partitions.
    pub whole_disk: bool,
    /// Object that holds the transaction groups which it missed; 0 if none.
    pub dtl_object: ObjectId,
    /// ZAP object with its attributes; 0 if none.
    pub zap: ObjectId,
    /// Taken offline by the administrator.
    pub offline: bool,
    /// Faulted by the administrator (`zpool offline -f`), not by a diagnosis.
    pub faulted: bool,
    /// Taken out of its slot when last seen.
    pub removed: bool,
    /// Not found when the pool was last open.
    pub not_present: bool,
    /// Transaction group up to which it is being resilvered; 0 if it is not.
    pub resilver_txg: Txg,
    /// The group in which a sequential resilver of it began; 0 if none did.
    pub rebuild_txg: Txg,
    /// Whether it came when a resilver was under way, and waits for the next one.
    pub resilver_deferred: bool,
    /// Whether it is a spare that stands in for another leaf.
    pub is_spare: bool,
    /// Whether it is back, so that the spare beside it is to go when it has everything.
    pub unspare: bool,
}

impl VdevSpec {
    /// The tree from a pool's configuration, whose outermost vdev is of type `root`.
    pub fn parse_root(nv: &NvList) -> Result<VdevSpec> {
        let spec = VdevSpec::parse(nv, 0, 0, false)?;
        if spec.kind != VdevKind::Root {
            return Err(bad(nv, "is not the root of the tree"));
        }
        Ok(spec)
    }

    /// A top-level vdev from a label.
    pub fn parse_top(nv: &NvList) -> Result<VdevSpec> {
        let id = nv.u64("id")?;
        if id >= CHILDREN_MAX as u64 {
            return Err(bad(nv, format!("has the impossible number {id}")));
        }
        VdevSpec::parse(nv, id as usize, 1, false)
    }

    /// A leaf outside the tree: from the lists of spares and of cache devices.
    pub fn parse_leaf(nv: &NvList) -> Result<VdevSpec> {
        let spec = VdevSpec::parse(nv, nv.opt_u64("id").unwrap_or(0) as usize, DEPTH_MAX, true)?;
        if spec.leaf.is_none() {
            return Err(bad(nv, "is not a device"));
        }
        Ok(spec)
    }

    /// A root above `tops`; numbers that none of them has are filled with missing vdevs, up to
    /// `count` in all. For an import, which at first knows only what labels say.
    pub fn root_of(guid: Guid, tops: Vec<VdevSpec>, count: usize) -> Result<VdevSpec> {
        let mut children: Vec<Option<VdevSpec>> = Vec::new();
        if count > CHILDREN_MAX || tops.iter().any(|top| top.id >= CHILDREN_MAX as u64) {
            return Err(Error::corrupt(format!("configuration has more than {CHILDREN_MAX} top-level vdevs")));
        }
        children.resize(tops.iter().map(|top| top.id as usize + 1).fold(count, usize::max), None);
        for top in tops {
            let place = &mut children[top.id as usize];
            if place.replace(top).is_some() {
                return Err(Error::corrupt("configuration has two top-level vdevs of one number"));
            }
        }
        let children =
            (0..).zip(children).map(|(id, top)| top.unwrap_or_else(|| VdevSpec::empty(VdevKind::Missing, id)));
        Ok(VdevSpec { guid, children: children.collect(), ..VdevSpec::empty(VdevKind::Root, 0) })
    }

    /// What is left of a log device with that number.
    pub fn hole(number: VdevNumber) -> VdevSpec {
        VdevSpec { top: Some(TopSpec::of(0, 0, 0)), ..VdevSpec::empty(VdevKind::Hole, number.get()) }
    }

    /// A root, of guid 1, over one file with sectors of 512 bytes and `asize` bytes of space, as tests use it.
    pub fn of_file(guid: Guid, asize: u64, metaslab_shift: u32) -> VdevSpec {
        let top = TopSpec::of(9, asize, metaslab_shift);
        let leaf = LeafSpec { path: Some("disk".to_owned()), ..LeafSpec::default() };
        let file = VdevSpec { guid, top: Some(top), leaf: Some(leaf), ..VdevSpec::empty(VdevKind::File, 0) };
        VdevSpec { guid: Guid::new(1), children: vec![file], ..VdevSpec::empty(VdevKind::Root, 0) }
    }

    /// Name for messages: of a leaf the path by which it was last open, type and number of others (`raidz1-0`).
    pub fn name(&self) -> String {
        let id = self.id;
        let path = || self.leaf.as_ref().and_then(|leaf| leaf.path.clone()).unwrap_or_else(|| self.guid.to_string());
        match self.kind {
            VdevKind::Root => "root".to_owned(),
            VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare { .. } => path(),
            VdevKind::Mirror => format!("mirror-{id}"),
            VdevKind::Replacing => format!("replacing-{id}"),
            VdevKind::Spare => format!("spare-{id}"),
            VdevKind::Raidz { nparity } => format!("raidz{nparity}-{id}"),
            VdevKind::Draid(shape) => format!("{shape}-{id}"),
            VdevKind::Indirect => format!("indirect-{id}"),
            VdevKind::Hole => format!("hole-{id}"),
            VdevKind::Missing => format!("missing-{id}"),
        }
    }

    fn empty(kind: VdevKind, id: u64) -> VdevSpec {
        VdevSpec { kind, id, guid: Guid::NONE, create_txg: Txg::ZERO, top: None, leaf: None, children: Vec::new() }
    }

    /// The vdev at `depth` (0: root, 1: top-level) that is its parent's child number `id`; whether
    /// there is a raidz or draid above it.
    fn parse(nv: &NvList, id: usize, depth: usize, below_parity: bool) -> Result<VdevSpec> {
        let lists = nv.opt_lists("children").unwrap_or_default();
        if lists.len() > CHILDREN_MAX || (depth >= DEPTH_MAX && !lists.is_empty()) {
            return Err(bad(nv, "has too many vdevs below it"));
        }
        if nv.opt_u64("id").is_some_and(|n| n != id as u64) {
            return Err(bad(nv, format!("is number {id}, but says otherwise")));
        }
        let kind = parse_kind(nv, lists.len())?;
        let below_parity = below_parity || kind.nparity() > 0;
        let children = lists.iter().enumerate().map(|(i, child)| VdevSpec::parse(child, i, depth + 1, below_parity));
        let spec = VdevSpec {
            kind,
            id: id as u64,
            guid: nv.opt_guid("guid").unwrap_or(Guid::NONE),
            create_txg: Txg::new(nv.opt_u64("create_txg").unwrap_or(0)),
            top: if depth == 1 { Some(TopSpec::parse(nv, kind)?) } else { None },
            leaf: kind.is_leaf().then(|| LeafSpec::parse(nv)),
            children: children.collect::<Result<_>>()?,
        };
        spec.check(nv, depth, below_parity)?;
        Ok(spec)
    }

    /// Whether the vdevs fit together.
    fn check(&self, nv: &NvList, depth: usize, below_parity: bool) -> Result<()> {
        if (self.kind == VdevKind::Root) != (depth == 0) {
            return Err(bad(nv, "is at the wrong place in the tree"));
        }
        let count = self.children.len();
        let count_fits = match self.kind {
            VdevKind::Root => true,
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => count >= 1,
            VdevKind::Raidz { nparity } => count > nparity && count <= RAIDZ_CHILDREN_MAX,
            VdevKind::Draid(shape) => count as u64 == shape.children,
            _ => count == 0,
        };
        if !count_fits {
            return Err(bad(nv, format!("has {count} children")));
        }
        // below a top-level vdev are leaves and copies; copies of a raidz too, but no parity below parity
        let fits = |child: &VdevSpec| match child.kind {
            VdevKind::Raidz { .. } => !below_parity,
            kind => kind.is_leaf() || kind.is_copies() || kind == VdevKind::Missing,
        };
        if depth > 0 && !self.children.iter().all(fits) {
            return Err(bad(nv, "has a vdev below it that does not belong there"));
        }
        Ok(())
    }
}

impl TopSpec {
    fn parse(nv: &NvList, kind: VdevKind) -> Result<TopSpec> {
        let number = |name| nv.opt_u64(name).unwrap_or(0);
        let object = |name| ObjectId::new(number(name));
        let ashift = number("ashift");
        if !(9..=16).contains(&ashift) && !matches!(kind, VdevKind::Hole | VdevKind::Missing) {
            return Err(bad(nv, format!("has the impossible ashift {ashift}")));
        }
        let metaslab_shift = number("metaslab_shift");
        if metaslab_shift != 0 && !(METASLAB_SHIFT_MIN..64).contains(&metaslab_shift) {
            return Err(bad(nv, format!("has the impossible metaslab_shift {metaslab_shift}")));
        }
        let bias = match nv.opt_str("alloc_bias") {
            None => None,
            Some("log") => Some(Bias::Log),
            Some("special") => Some(Bias::Special),
            Some("dedup") => Some(Bias::Dedup),
            Some(other) => return Err(bad(nv, format!("has the unknown alloc_bias '{other}'"))),
        };
        let mapping_object = object("com.delphix:indirect_object");
        let indirect = (kind == VdevKind::Indirect || mapping_object.is_some()).then(|| IndirectSpec {
            mapping_object,
            births_object: object("com.delphix:indirect_births"),
            previous: nv.opt_u64("com.delphix:prev_indirect_vdev").filter(|&id| id != u64::MAX).map(VdevNumber::new),
        });
        let top = TopSpec {
            ashift: ashift as u32,
            asize: number("asize"),
            metaslab_array: object("metaslab_array"),
            metaslab_shift: metaslab_shift as u32,
            is_log: number("is_log") != 0,
            bias,
            removing: number("removing") != 0,
            zap: object("com.delphix:vdev_zap_top"),
            indirect,
            expansion: parse_expansion(nv, kind)?,
        };
        if top.metaslabs() > METASLABS_MAX {
            let (count, most) = (top.metaslabs(), METASLABS_MAX);
            return Err(bad(nv, format!("is cut into {count} metaslabs, where {most} are the most")));
        }
        Ok(top)
    }

    /// Whether it is a raidz whose sectors are being moved to another child.
    pub fn is_expanding(&self) -> bool {
        self.expansion.as_ref().is_some_and(|expansion| expansion.is_running)
    }

    /// Number of whole metaslabs in its address space; 0 if it has none.
    pub fn metaslabs(&self) -> u64 {
        if self.metaslab_shift == 0 { 0 } else { self.asize >> self.metaslab_shift }
    }
}

/// What is behind the path of a leaf that is replaced by a new one on the same path.
const OLD: &str = "/old";

impl LeafSpec {
    /// Says that the device at its path is now `new`'s, which takes its place: its own path, which no device has, is
    /// that with `/old` behind it, as OpenZFS has it. Nothing if that leaf has another path.
    pub(crate) fn yield_path(&mut self, new: &LeafSpec) {
        if let Some(path) = self.path.as_mut().filter(|path| new.path.as_ref() == Some(path)) {
            path.push_str(OLD);
            self.devid = None;
        }
    }

    /// Takes its path again, as `new` does not take its place any more.
    pub(crate) fn reclaim_path(&mut self, new: &LeafSpec) {
        if let Some(before) = self.path.as_ref().and_then(|path| path.strip_suffix(OLD))
            && new.path.as_deref() == Some(before)
        {
            self.path = Some(before.to_owned());
        }
    }

    /// Whether its path is another leaf's.
    pub(crate) fn has_yielded_path(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.ends_with(OLD))
    }

    fn parse(nv: &NvList) -> LeafSpec {
        let number = |name| nv.opt_u64(name).unwrap_or(0);
        let object = |name| ObjectId::new(number(name));
        let string = |name| nv.opt_str(name).map(str::to_owned);
        LeafSpec {
            path: string("path"),
            phys_path: string("phys_path"),
            devid: string("devid"),
            whole_disk: number("whole_disk") == 1,
            dtl_object: object("DTL"),
            zap: object("com.delphix:vdev_zap_leaf"),
            offline: number("offline") != 0,
            faulted: nv.opt_str("aux_state") == Some("external"),
            removed: number("removed") != 0,
            not_present: number("not_present") != 0,
            resilver_txg: Txg::new(number("resilver_txg")),
            rebuild_txg: Txg::new(number("rebuild_txg")),
            resilver_deferred: nv.has("com.datto:resilver_defer"),
            is_spare: number("is_spare") != 0,
            unspare: number("unspare") != 0,
        }
    }
}

fn parse_kind(nv: &NvList, count: usize) -> Result<VdevKind> {
    Ok(match nv.str("type")? {
        "root" => VdevKind::Root,
        "disk" => VdevKind::Disk,
        "file" => VdevKind::File,
        "mirror" => VdevKind::Mirror,
        "replacing" => VdevKind::Replacing,
        "spare" => VdevKind::Spare,
        "raidz" => parse_raidz(nv)?,
        "draid" => VdevKind::Draid(parse_draid(nv, count)?),
        "dspare" => parse_draid_spare(nv)?,
        "indirect" => VdevKind::Indirect,
        "hole" => VdevKind::Hole,
        "missing" => VdevKind::Missing,
        other => return Err(bad(nv, format!("is of the unknown type '{other}'"))),
    })
}

fn parse_raidz(nv: &NvList) -> Result<VdevKind> {
    // pools older than double parity do not say
    match nv.opt_u64("nparity").unwrap_or(1) {
        n @ 1..=3 => Ok(VdevKind::Raidz { nparity: n as usize }),
        n => Err(bad(nv, format!("has the impossible parity level {n}"))),
    }
}

fn parse_expansion(nv: &NvList, kind: VdevKind) -> Result<Option<Expansion>> {
    let is_running = nv.has("raidz_expanding");
    let txgs = nv.opt_u64s("raidz_expand_txgs").unwrap_or_default();
    if !is_running && txgs.is_empty() {
        return Ok(None);
    }
    let VdevKind::Raidz { nparity } = kind else { return Err(bad(nv, "was expanded, but is no raidz")) };
    let expansion = Expansion { txgs: txgs.iter().copied().map(Txg::new).collect(), is_running };
    let children = nv.opt_lists("children").map_or(0, <[NvList]>::len);
    if !txgs.is_sorted() || expansion.first_width(children).is_none_or(|first| first <= nparity) {
        return Err(bad(nv, "has impossible expansions"));
    }
    Ok(Some(expansion))
}

fn parse_draid(nv: &NvList, count: usize) -> Result<DraidShape> {
    if nv.opt_u64("draid_nchildren").is_some_and(|n| n != count as u64) {
        return Err(unsupported(DRAID_FAILURE_DOMAINS));
    }
    Ok(DraidShape {
        children: count as u64,
        ndata: nv.u64("draid_ndata")?,
        nparity: nv.u64("nparity")?,
        nspares: nv.u64("draid_nspares")?,
        ngroups: nv.u64("draid_ngroups")?,
    })
}

fn parse_draid_spare(nv: &NvList) -> Result<VdevKind> {
    Ok(VdevKind::DraidSpare { draid_guid: nv.guid("top_guid")?, spare: nv.u64("spareid")? })
}

/// An error that says which vdev it is about.
fn bad(nv: &NvList, what: impl std::fmt::Display) -> Error {
    let kind = nv.opt_str("type").unwrap_or("without a type");
    let guid = nv.opt_guid("guid").unwrap_or(Guid::NONE);
    Error::corrupt(format!("configuration: the vdev of type {kind} with guid {guid} {what}"))
}

fn unsupported(feature: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the pool uses the feature {feature}, which this version cannot read"))
}

#[cfg(test)]
mod tests;
