//! What `zpool create -n` prints: the vdevs of the pool that would be made.

use pool::{NewLeaf, NewVdev, NewVdevShape};
use vdev::spec::Bias;

use super::super::names::DEVICE_FOLDERS;
use super::spec::NewPoolSpec;

/// The text.
pub fn text(pool: &str, spec: &NewPoolSpec) -> String {
    let mut text = format!("would create '{pool}' with the following layout:\n\n");
    let biases =
        [(None, pool), (Some(Bias::Dedup), "dedup"), (Some(Bias::Special), "special"), (Some(Bias::Log), "logs")];
    for (bias, title) in biases {
        let vdevs: Vec<&NewVdev> = spec.vdevs.iter().filter(|vdev| vdev.bias == bias).collect();
        if !vdevs.is_empty() {
            text += &format!("\t{title}\n");
        }
        vdevs.into_iter().for_each(|vdev| text += &vdev_lines(vdev));
    }
    for (title, leaves) in [("cache", &spec.caches), ("spares", &spec.spares)] {
        if !leaves.is_empty() {
            text += &format!("\t{title}\n");
            leaves.iter().for_each(|leaf| text += &format!("\t  {}\n", leaf_name(leaf)));
        }
    }
    text
}

fn vdev_lines(vdev: &NewVdev) -> String {
    let (title, indent) = match vdev.shape {
        NewVdevShape::Single => (String::new(), "  "),
        NewVdevShape::Mirror => ("\t  mirror\n".to_owned(), "    "),
        NewVdevShape::Raidz(parity) => (format!("\t  raidz{parity}\n"), "    "),
        NewVdevShape::Draid(shape) => (format!("\t  {shape}\n"), "    "),
    };
    let leaves = vdev.leaves.iter().map(|leaf| format!("\t{indent}{}\n", leaf_name(leaf)));
    title + &leaves.collect::<String>()
}

fn leaf_name(leaf: &NewLeaf) -> &str {
    let stripped = DEVICE_FOLDERS.iter().find_map(|folder| leaf.path.strip_prefix(folder));
    if leaf.is_file { &leaf.path } else { stripped.unwrap_or(&leaf.path) }
}
