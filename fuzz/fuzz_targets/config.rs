//! A label's configuration, from packed list to an open tree of vdevs, and what it says of sizes.
#![no_main]

use std::collections::HashMap;

use format::ids::{Guid, Txg, VdevNumber};
use format::nvlist::NvList;
use vdev::{Extent, Tree, VdevSpec};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(config) = NvList::unpack(bytes) else { return };
    let Some(tree) = config.opt_list("vdev_tree") else { return };
    let spec = VdevSpec::parse_root(tree)
        .or_else(|_| VdevSpec::root_of(Guid::new(1), vec![VdevSpec::parse_top(tree)?], 1));
    let Some(tree) = spec.and_then(|spec| Tree::open(spec, &HashMap::new())).ok() else { return };
    tree.health(tree.root().id());
    for number in (0..tree.tops().len() as u64).map(VdevNumber::new) {
        for (offset, size) in [(0, 512), (1 << 20, 128 << 10), (u64::MAX - 511, 4096)] {
            let _ = tree.asize(number, size);
            let extent = Extent { top: number, offset, size, birth_txg: Txg::new(5) };
            let _ = tree.read_verified(extent, &mut vec![0; size as usize], &mut |_| true);
        }
    }
});
