//! `zdb -C` and `-u`: the pool's configuration, and the root that it was opened at.

use std::io::{self, Write};

use base::{Error, Result};
use format::uberblock::{MAGIC, MMP_MAGIC, Uberblock};
use pool::{FeatureState, Pool};
use protocol::words::time;

use super::args::ZdbArgs;
use super::text::{Pointer, print_nvlist};

/// Bytes of the smallest slot of the ring.
const UBERBLOCK_SIZE: usize = 1024;

/// The configuration in the MOS.
pub fn print_config(pool: &Pool, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nMOS Configuration:")?;
    Ok(print_nvlist(pool.config(), 8, out)?)
}

/// The uberblock in force.
pub fn print_uberblock(args: &ZdbArgs, pool: &Pool, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nUberblock:")?;
    uberblock(pool.uberblock(), args.uberblock >= 4, out)?;
    Ok(writeln!(out)?)
}

/// The root of the checkpoint, if there is one.
pub fn print_checkpoint(args: &ZdbArgs, pool: &Pool, out: &mut dyn Write) -> Result<()> {
    if pool.features().state(format::feature::ZPOOL_CHECKPOINT) != FeatureState::Active {
        return Ok(());
    }
    let Some(words) = pool::directory_u64s(pool.mos(), "com.delphix:zpool_checkpoint")? else {
        return Ok(writeln!(out, "\nPartially discarded checkpoint state found:")?);
    };
    // older versions know fewer fields
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(bytes.len().max(UBERBLOCK_SIZE), 0);
    let checkpoint = Uberblock::parse(&bytes)?.ok_or_else(|| Error::corrupt("checkpoint is no uberblock"))?;
    writeln!(out, "\nCheckpointed uberblock found:")?;
    uberblock(&checkpoint, args.uberblock >= 4, out)?;
    Ok(writeln!(out)?)
}

/// The fields of an uberblock.
pub fn uberblock(ub: &Uberblock, with_root: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\tmagic = {MAGIC:016x}")?;
    writeln!(out, "\tversion = {}", ub.version)?;
    writeln!(out, "\ttxg = {}", ub.txg)?;
    writeln!(out, "\tguid_sum = {}", ub.guid_sum)?;
    writeln!(out, "\ttimestamp = {} UTC = {}", ub.timestamp_s, time::ctime(ub.timestamp_s))?;
    writeln!(out, "\tmmp_magic = {:016x}", if ub.mmp.is_some() { MMP_MAGIC } else { 0 })?;
    if let Some(mmp) = ub.mmp {
        writeln!(out, "\tmmp_delay = {}", mmp.delay_ns)?;
        let fields = [("seq", mmp.seq, 2), ("fail", mmp.fail_intervals, 4), ("write", mmp.interval_ms, 1)];
        for (name, value, _) in fields {
            if let Some(value) = value {
                writeln!(out, "\tmmp_{name} = {value}")?;
            }
        }
        let valid: u32 = fields.iter().filter(|(_, value, _)| value.is_some()).map(|(_, _, bit)| bit).sum();
        writeln!(out, "\tmmp_valid = {valid:x}")?;
    }
    if with_root {
        writeln!(out, "\trootbp = {}", Pointer(&ub.rootbp))?;
    }
    writeln!(out, "\tcheckpoint_txg = {}", ub.checkpoint_txg)
}
