//! What room a layout has: the pool is made, on disks in memory, and asked.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Env, Result};
use daemon::compat::{self, Allowed};
use daemon::new_contents;
use device::{Device, ThinDevice};
use dsl::{Property, PropertyValue};
use format::ids::VdevNumber;
use pool::{LivePool, NewLeaf, NewPool, NewVdev, NewVdevShape, PoolState};

use super::candidates::{PlannedLayout, Shape};
use super::estimate::PoolLoad;

/// The room of a new pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayoutSpace {
    /// What `zfs list` shows.
    pub available_bytes: u64,
    /// Bytes of data that fill it, as records of files.
    pub record_bytes: f64,
    /// The same as blocks of volumes.
    pub volume_bytes: f64,
}

/// Makes the pool on disks of these sizes, the largest first, and asks it. Errors: those of making it.
pub fn try_out(layout: &PlannedLayout, sizes: &[u64], ashift: u32, load: &PoolLoad) -> Result<LayoutSpace> {
    let env = Env::real();
    let path = |at: usize| PathBuf::from(format!("/disk{at}"));
    let devices: HashMap<PathBuf, Arc<dyn Device>> = sizes
        .iter()
        .enumerate()
        .map(|(at, size)| {
            let device: Arc<dyn Device> = Arc::new(ThinDevice::new(path(at).display().to_string(), *size));
            (path(at), device)
        })
        .collect();
    let leaf = |at: usize| NewLeaf { path: path(at).display().to_string(), is_file: true };
    let shape = match layout.shape {
        Shape::Single => NewVdevShape::Single,
        Shape::Mirror(_) => NewVdevShape::Mirror,
        Shape::Raidz { parity, .. } => NewVdevShape::Raidz(parity),
        Shape::Draid(shape) => NewVdevShape::Draid(shape),
    };
    let width = layout.width();
    let vdev = |at: usize| NewVdev { shape, bias: None, leaves: (at * width..(at + 1) * width).map(leaf).collect() };
    let new = NewPool {
        name: "trial".to_owned(),
        temporary_name: None,
        vdevs: (0..layout.vdevs).map(vdev).collect(),
        spares: (layout.vdevs * width..sizes.len()).map(leaf).collect(),
        caches: Vec::new(),
        ashift: Some(ashift),
        features: compat::features_for(&Allowed::baseline(), false, &[]),
        properties: Vec::new(),
        fs_properties: Vec::new(),
        history: String::new(),
        host: (0, String::new()),
    };
    let pool = LivePool::create(&env, &new, &devices, new_contents::of_file_system(&env))?;
    let view = pool.view();
    let root = view.dsl().root_subject()?;
    let available = view.dsl().property(&root, Property::Available, view.usable_bytes()?)?;
    let available_bytes = match available.map(|sourced| sourced.value) {
        Some(PropertyValue::Number(bytes)) => bytes,
        _ => 0,
    };
    let first = VdevNumber::new(0);
    let part = |block: u64| -> Result<f64> {
        let taken = view.tree().deflate(first, view.tree().asize(first, block)?)?;
        Ok(available_bytes as f64 * block as f64 / taken.max(1) as f64)
    };
    let space =
        LayoutSpace { available_bytes, record_bytes: part(load.record_bytes)?, volume_bytes: part(load.block_bytes)? };
    pool.close(PoolState::Exported)?;
    Ok(space)
}
