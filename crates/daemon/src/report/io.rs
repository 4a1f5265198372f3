//! Making an [`IoReport`] of an open pool.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use device::meter::{Meter, Purpose};
use format::ids::Guid;
use pool::Pool;
use protocol::io_report::{IoCounters, IoReport};
use vdev::{Tree, Vdev};

/// The counters of all vdevs of a pool, which was opened that long ago.
pub fn gather(pool: &Pool, open_ns: u64) -> IoReport {
    let (tree, mut vdevs) = (pool.tree(), HashMap::new());
    let root = of_vdev(tree, tree.root(), &mut vdevs);
    // it may have got another guid since
    vdevs.insert(pool.guid(), root);
    for cache in pool.cache().l2arc().reports() {
        let [[reads, read_bytes], [writes, write_bytes]] = cache.done;
        let times = of_meter(&cache.meter);
        let (operations, bytes) = ([reads, writes], [read_bytes, write_bytes]);
        vdevs.insert(cache.guid, IoCounters { operations, bytes, ..times });
    }
    IoReport { open_ns, vdevs }
}

fn of_vdev(tree: &Tree, vdev: &Vdev, out: &mut HashMap<Guid, IoCounters>) -> IoCounters {
    let mut counters = if vdev.is_leaf() { of_leaf(vdev) } else { IoCounters::default() };
    let (mut reads, mut writes) = ([0; 2], [0; 2]);
    let is_root = vdev.parent().is_none();
    for &child in vdev.children() {
        let below = of_vdev(tree, tree.vdev(child), out);
        let [read, write] = [0, 1].map(|side| [below.operations[side], below.bytes[side]]);
        reads = [reads[0] + read[0], reads[1] + read[1]];
        writes = match is_root {
            true => [writes[0] + write[0], writes[1] + write[1]],
            false => [writes[0].max(write[0]), writes[1].max(write[1])],
        };
        counters.add_times(&below);
    }
    let is_between = vdev.parent().is_some_and(|parent| tree.vdev(parent).parent().is_some());
    if !vdev.is_leaf() && (is_root || is_between) {
        (counters.operations, counters.bytes) = ([reads[0], writes[0]], [reads[1], writes[1]]);
    } else {
        let stats = vdev.stats();
        counters.operations = [&stats.reads, &stats.writes].map(|n| n.load(Ordering::Relaxed));
        counters.bytes = [&stats.read_bytes, &stats.write_bytes].map(|n| n.load(Ordering::Relaxed));
    }
    out.insert(vdev.guid(), counters.clone());
    counters
}

fn of_leaf(vdev: &Vdev) -> IoCounters {
    of_meter(&vdev.stats().meter)
}

fn of_meter(meter: &Meter) -> IoCounters {
    let in_progress = Purpose::ALL.map(|purpose| meter.in_progress(purpose));
    IoCounters {
        pending: in_progress.map(|[pending, _]| pending),
        active: in_progress.map(|[_, active]| active),
        total: meter.totals().map(Vec::from),
        disk: meter.disks().map(Vec::from),
        waits: Purpose::ALL.map(|purpose| meter.waits(purpose).into()),
        sizes: Purpose::ALL.map(|purpose| meter.sizes(purpose).into()),
        joined_sizes: Purpose::ALL.map(|purpose| meter.joined_sizes(purpose).into()),
        ..IoCounters::default()
    }
}
