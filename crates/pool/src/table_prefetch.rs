//! `zpool prefetch`: dedup and clone tables are read, so that they are in the cache when they are needed.
//!
//! They are walked through in portions, each in a view of its own: what a view leads to may be used again some groups
//! later. A cache that is too small for a table keeps what came last.
//!
//! Source: zpool-prefetch(8).

use std::ops::ControlFlow;
use std::sync::Arc;

use base::Result;
use dmu::zap::Zap;
use format::ids::ObjectId;
use serde::{Deserialize, Serialize};

use crate::clones::{CLONES_PREFIX, CloneHeader};
use crate::dedup::directory::{DdtDirectory, checksums};
use crate::{Pool, object_directory};

/// Entries that are looked at in a view.
const PORTION: usize = 20_000;

/// Tables that can be read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolTables {
    /// Dedup tables.
    Dedup,
    /// Clone tables.
    Clones,
}

/// Reads the tables of a pool, whose latest state is what `view` returns. Errors: those of reading.
pub fn prefetch_tables(view: &dyn Fn() -> Arc<Pool>, which: PoolTables) -> Result<()> {
    let tables = match which {
        PoolTables::Dedup => dedup_tables(&view())?,
        PoolTables::Clones => clone_tables(&view())?,
    };
    for table in tables {
        let mut at = Some(0);
        while let Some(cookie) = at {
            at = read_portion(&view(), table, cookie)?;
        }
    }
    Ok(())
}

impl Pool {
    /// Bytes of the dedup tables that are in memory. Errors: those of reading where the tables are.
    pub fn dedup_cached_bytes(&self) -> Result<u64> {
        if self.dedup()?.disk_bytes == 0 {
            return Ok(0);
        }
        let mut bytes = 0u64;
        for table in dedup_tables(self)? {
            bytes = bytes.saturating_add(self.mos().object(table)?.cached_bytes());
        }
        Ok(bytes)
    }
}

/// The dedup tables of a pool. Errors: those of reading.
fn dedup_tables(pool: &Pool) -> Result<Vec<ObjectId>> {
    let mut tables = Vec::new();
    for checksum in checksums() {
        tables.extend(DdtDirectory::find(pool.mos(), checksum)?.tables.into_iter().flatten());
    }
    Ok(tables)
}

fn clone_tables(pool: &Pool) -> Result<Vec<ObjectId>> {
    let mut tables = Vec::new();
    for row in object_directory(pool.mos())?.entries()? {
        if let (true, Some(id)) = (row.name.to_string().starts_with(CLONES_PREFIX), row.value.first_object()) {
            tables.push(CloneHeader::of(&pool.mos().object(id)?)?.entries);
        }
    }
    Ok(tables)
}

/// Walks through some entries from `cookie` on; the place behind them, unless that is the end. A table that has gone
/// meanwhile has no more.
fn read_portion(pool: &Pool, table: ObjectId, cookie: u64) -> Result<Option<u64>> {
    let Ok(object) = pool.mos().object(table) else { return Ok(None) };
    let (mut count, mut next) = (0, None);
    Zap::open(object)?.for_each_from(cookie, &mut |entry| {
        count += 1;
        if count < PORTION {
            return ControlFlow::Continue(());
        }
        next = Some(entry.cookie);
        ControlFlow::Break(())
    })?;
    Ok(next)
}
