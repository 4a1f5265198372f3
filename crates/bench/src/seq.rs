//! One big file: written, read cold, read warm, and written again.

use std::sync::Arc;

use base::{Error, Kind, Result};
use dmu::INDIRECT_SHIFT;
use dmu::{Mode, Object, Objset};
use format::dnode::Dnode;
use format::object_type::ObjectType;
use pool::LivePool;

use crate::bed::{self, Bed, FS};
use crate::data::{RECORD, Records};
use crate::options::{Options, seconds};

pub(crate) fn run(options: &Options, bed: &Bed) -> Result<()> {
    for ratio in options.ratios.split(',') {
        let number = ratio.parse().map_err(|_| Error::new(Kind::Invalid, format!("no ratio: {ratio}")))?;
        let mut data = Records::new(number);
        for compression in options.compressions.split(',') {
            measure(options, bed, &mut data, ratio, compression)?;
        }
    }
    Ok(())
}

fn measure(options: &Options, bed: &Bed, data: &mut Records, ratio: &str, compression: &str) -> Result<()> {
    let mib = options.mib;
    let params = format!("\"compression\":\"{compression}\",\"data_ratio\":{ratio},\"MiB\":{mib}");
    let records = (mib << 20) / RECORD as u64;
    let emit = |test, seconds: f64| options.emit(test, &params, mib as f64 / seconds, "MiB/s");

    let (pool, set) = bed.create(&[("compression", compression)])?;
    let file = new_file(&pool, &set, RECORD as u64)?;
    let id = file.id();
    emit("seqwrite", seconds(|| fill(&pool, &file, data, 0..records))?);
    options.emit("compressratio", &params, bed::compress_ratio(&pool)?, "x");
    drop((file, set));
    bed::export(pool)?;

    let reader = bed.open_cold()?;
    let set = reader.dsl().objset(&reader.dsl().find(FS)?, Mode::Plain)?;
    let file = set.object(id)?;
    emit("seqread-cold", seconds(|| read(&file, records, |_, _| ()))?);
    if mib <= options.arc_mib * 3 / 4 {
        read(&file, records, |n, got| assert!(got == data.record(n), "record {n} is not what was written"))?;
        emit("seqread-warm", seconds(|| read(&file, records, |_, _| ()))?);
    }
    drop((file, set, reader));

    let (pool, set) = bed.import()?;
    let file = set.object(id)?;
    // other records than before in each place, so that nothing is found to be there already
    emit("rewrite", seconds(|| fill(&pool, &file, data, records..2 * records))?);
    drop((file, set));
    bed::export(pool)
}

/// A new file with blocks of so many bytes.
pub(crate) fn new_file(pool: &LivePool, set: &Arc<Objset>, block_bytes: u64) -> Result<Object> {
    let tx = pool.txgs().begin()?;
    set.allocate(&tx, Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, block_bytes, INDIRECT_SHIFT, 3, 1))
}

/// Writes these records from the file's start on, and waits until they are durable.
pub(crate) fn fill(
    pool: &LivePool,
    file: &Object,
    data: &mut Records,
    records: impl IntoIterator<Item = u64>,
) -> Result<()> {
    fill_with(RECORD, pool, file, data, records)
}

/// The same with the first `bytes` of each record.
pub(crate) fn fill_with(
    bytes: usize,
    pool: &LivePool,
    file: &Object,
    data: &mut Records,
    records: impl IntoIterator<Item = u64>,
) -> Result<()> {
    for (at, n) in records.into_iter().enumerate() {
        let tx = pool.txgs().begin()?;
        file.write(&tx, (at * bytes) as u64, &data.record(n)[..bytes])?;
    }
    pool.sync()
}

pub(crate) fn read(file: &Object, records: u64, mut each: impl FnMut(u64, &[u8])) -> Result<()> {
    let mut buf = vec![0; RECORD];
    for n in 0..records {
        file.read(n * RECORD as u64, &mut buf)?;
        each(n, &buf);
    }
    Ok(())
}
