//! A file written with and without dedup, and with its checksum alone: records of which none is there twice, and half of them.

use base::Result;
use dmu::INDIRECT_SHIFT;
use format::dnode::Dnode;
use format::object_type::ObjectType;

use crate::bed::{self, Bed};
use crate::data::{RECORD, Records};
use crate::options::{Options, seconds};
use crate::seq::fill;
use bench::random;

pub(crate) fn run(options: &Options, bed: &Bed) -> Result<()> {
    let mut data = Records::new(1.0);
    let (mib, records) = (options.mib, (options.mib << 20) / RECORD as u64);
    for half in [0, 50] {
        for (switch, properties) in [
            ("off", [("compression", "off"), ("dedup", "off")]),
            ("checksum", [("compression", "off"), ("checksum", "sha256")]),
            ("on", [("compression", "off"), ("dedup", "on")]),
        ] {
            let (pool, set) = bed.create(&properties)?;
            let file = {
                let tx = pool.txgs().begin()?;
                set.allocate(&tx, Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, RECORD as u64, INDIRECT_SHIFT, 3, 1))?
            };
            let written = (0..records).map(|n| if half == 0 { n } else { odd_ones_again(n) });
            let rate = mib as f64 / seconds(|| fill(&pool, &file, &mut data, written))?;
            let params = format!("\"dedup\":\"{switch}\",\"duplicates_percent\":{half},\"MiB\":{mib}");
            options.emit("dedup-seqwrite", &params, rate, "MiB/s");
            let ratio = pool.view().dedup()?.ratio_percent();
            options.emit("dedupratio", &params, ratio as f64 / 100.0, "x");
            drop((file, set));
            bed::export(pool)?;
        }
    }
    Ok(())
}

/// An even number, itself; an odd one, some even one before it.
fn odd_ones_again(n: u64) -> u64 {
    if n.is_multiple_of(2) { n } else { random(&mut n.clone()) % n & !1 }
}
