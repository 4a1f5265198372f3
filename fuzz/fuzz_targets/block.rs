//! A block pointer over a device of noise: gang headers, embedded data, every checksum and compression.
#![no_main]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base::{Bookmark, Env};
use device::{Device, MemDevice};
use format::blkptr::BlkPtr;
use format::ids::Guid;
use vdev::{Tree, VdevSpec};
use zio::{Mode, ReadRequest, Zio};

static ZIO: LazyLock<Zio> = LazyLock::new(|| {
    let bytes = (0..64u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let device: Arc<dyn Device> = Arc::new(MemDevice::new("disk", bytes));
    let guid = Guid::new(11);
    let tree = Tree::open(VdevSpec::of_file(guid, 59 << 20, 24), &HashMap::from([(guid, device)])).unwrap();
    Zio::new(Arc::new(tree), Env::fixed(0))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(bp) = BlkPtr::parse(bytes) else { return };
    for mode in [Mode::Plain, Mode::Raw] {
        let request = ReadRequest { bp, bookmark: Bookmark::default(), mode };
        if let Ok(contents) = ZIO.read(request) {
            assert!(mode == Mode::Raw || contents.len() as u64 == bp.lsize());
        }
    }
    let _ = ZIO.read_log_block(&bp, Bookmark::default());
    let _ = format!("{bp:?}");
});
