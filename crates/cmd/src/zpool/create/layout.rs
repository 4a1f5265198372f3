//! What `zpool create -n` prints: the vdevs of the pool that would be made.

use protocol::wish::{Class, Shape, WishedLeaf, WishedVdev};

use super::super::names::DEVICE_FOLDERS;
use super::spec::Spec;

/// The text.
pub fn text(pool: &str, spec: &Spec) -> String {
    let mut text = format!("would create '{pool}' with the following layout:\n\n");
    let classes = [(Class::Normal, pool), (Class::Dedup, "dedup"), (Class::Special, "special"), (Class::Log, "logs")];
    for (class, title) in classes {
        let vdevs: Vec<&WishedVdev> = spec.vdevs.iter().filter(|vdev| vdev.class == class).collect();
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

fn vdev_lines(vdev: &WishedVdev) -> String {
    let (title, indent) = match vdev.shape {
        Shape::Single => (String::new(), "  "),
        Shape::Mirror => ("\t  mirror\n".to_owned(), "    "),
        Shape::Raidz(parity) => (format!("\t  raidz{parity}\n"), "    "),
    };
    let leaves = vdev.leaves.iter().map(|leaf| format!("\t{indent}{}\n", leaf_name(leaf)));
    title + &leaves.collect::<String>()
}

fn leaf_name(leaf: &WishedLeaf) -> &str {
    let stripped = DEVICE_FOLDERS.iter().find_map(|folder| leaf.path.strip_prefix(folder));
    if leaf.is_file { &leaf.path } else { stripped.unwrap_or(&leaf.path) }
}
