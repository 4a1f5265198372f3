//! Writing the log of commands and events; see [`crate::History`] for its form.

use base::{Endian, Result};
use dmu::INDIRECT_SHIFT;
use format::dnode::Dnode;
use format::ids::DatasetId;
use format::nvlist::{NvList, Value};
use format::object_type::ObjectType;

use super::SyncContext;
use crate::history::HistoryOffsets;
use crate::mos::DIRECTORY;

const BLOCK_SIZE: u64 = 128 << 10;
/// Bytes of the ring: a 10,000th of the pool, between these.
const BYTES_MIN: u64 = 128 << 10;
const BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 16 << 10;

impl SyncContext<'_> {
    /// Makes an empty log.
    pub(super) fn make_history(&self) -> Result<()> {
        let size: u64 = self.pool.tree().tops().filter_map(|top| top.top_spec()).map(|top| top.asize).sum();
        let bytes = (size / 1000).clamp(BYTES_MIN, BYTES_MAX);
        let mut dnode = Dnode::new(ObjectType::SPA_HISTORY, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
        dnode.bonus_type = ObjectType::SPA_HISTORY_OFFSETS;
        dnode.bonus = words(&[0, bytes, 0, 0, 0]);
        let object = self.change.mos.allocate(self.change.tx, dnode)?;
        self.change.add(DIRECTORY, "history", object.id().get())
    }

    /// Adds a command line to the log.
    pub fn log_history(&self, command: &str) -> Result<()> {
        let mut record = NvList::new();
        record.set("history command", Value::Str(command.to_owned()));
        self.append_of_user(record)
    }

    /// Adds a request that names many things, with the names of each in `asked`, as OpenZFS notes what its kernel module
    /// is asked for; one that would take too much of the log is left out. That it cannot be told undoes nothing.
    pub(super) fn log_request(&self, name: &str, asked: NvList) {
        let mut record = NvList::new();
        record.set("ioctl", Value::Str(name.to_owned()));
        record.set("in_nvl", Value::List(asked));
        if record.pack().len() > REQUEST_BYTES_MAX {
            return;
        }
        if let Err(error) = self.append_of_user(record) {
            tracing::warn!(pool = self.pool.name(), name, "a request is not in the history: {error}");
        }
    }

    /// Adds what was done to the pool, under OpenZFS's name for it. That it cannot be told undoes nothing.
    pub(super) fn log_event(&self, name: &str, about: &str) {
        self.append_event(NvList::new(), name, about);
    }

    /// Adds what was done to the dataset of that name and object.
    pub(super) fn log_dataset_event(&self, (dataset, id): (&str, DatasetId), name: &str, about: &str) {
        let mut record = NvList::new();
        record.set("dsname", Value::Str(dataset.to_owned()));
        record.set("dsid", Value::U64(id.get()));
        self.append_event(record, name, about);
    }

    /// Adds that the pool was made or imported, and by what.
    pub(super) fn log_version(&self, name: &str) {
        let config = self.pool.config().clone();
        let (host, pool_version) = (config.host.1, config.version);
        let version = concat!("cenote-", env!("CARGO_PKG_VERSION"));
        self.log_event(name, &format!("pool version {pool_version}; software version {version}; uts {host}"));
    }

    /// Adds that the pool was imported, and the command line that asked for that. That it cannot be told undoes nothing.
    pub(super) fn log_import(&self, command: Option<String>) {
        self.log_version("import");
        if let Some(Err(error)) = command.map(|line| self.log_history(&line)) {
            tracing::warn!(pool = self.pool.name(), "the import is not in the history: {error}");
        }
    }

    /// Tells of a record, by the names that events have for what is in it.
    fn notify_of_history(&self, record: &NvList) {
        const NAMES: [(&str, &str); 5] = [
            ("dsname", "history_dsname"),
            ("dsid", "history_dsid"),
            ("internal_name", "history_internal_name"),
            ("history internal str", "history_internal_str"),
            ("history txg", "history_txg"),
        ];
        let mut more = NvList::new();
        more.set("history_hostname", Value::Str(self.pool.config().host.1.clone()));
        for (name, value) in record.iter() {
            if let Some((_, told)) = NAMES.iter().find(|(known, _)| *known == name) {
                more.set(told, value.clone());
            }
        }
        more.set("history_time", Value::U64(self.change.env.now_s()));
        self.pool.notify_with("history_event", None, more);
    }

    fn append_event(&self, mut record: NvList, name: &str, about: &str) {
        record.set("internal_name", Value::Str(name.to_owned()));
        record.set("history internal str", Value::Str(about.to_owned()));
        record.set("history txg", Value::U64(self.change.tx.txg().get()));
        self.notify_of_history(&record);
        if let Err(error) = self.append(record) {
            tracing::warn!(pool = self.pool.name(), name, about, "an event is not in the history: {error}");
        }
    }

    fn append_of_user(&self, mut record: NvList) -> Result<()> {
        record.set("history zone", Value::Str("linux".to_owned()));
        record.set("history who", Value::U64(0));
        self.append(record)
    }

    fn append(&self, mut record: NvList) -> Result<()> {
        let Some(id) = self.change.object_id(DIRECTORY, "history")? else { return Ok(()) };
        record.set("history time", Value::U64(self.change.env.now_s()));
        record.set("history hostname", Value::Str(self.pool.config().host.1.clone()));
        let packed = record.pack();
        let mut bytes = (packed.len() as u64).to_le_bytes().to_vec();
        bytes.extend(packed);

        let object = self.change.mos.object(id)?;
        let bounds = HistoryOffsets::parse(object.bonus()).map_err(|e| e.at_block(object.bookmark(0, 0)))?;
        let HistoryOffsets { mut creation_end, physical_end, mut begin, mut end } = bounds;
        let mut lost: u64 = object.bonus().get(32..40).and_then(|raw| Endian::Little.u64(raw)).unwrap_or(0);
        let ring = physical_end - creation_end;
        begin = begin.max(creation_end.min(end));
        if bytes.len() as u64 > ring {
            return Ok(());
        }
        // room for the new record, by forgetting the oldest
        while end + bytes.len() as u64 - begin > ring {
            let mut head = [0; 8];
            self.read_ring(&object, (creation_end, physical_end), begin, &mut head)?;
            begin = begin.saturating_add(8).saturating_add(u64::from_le_bytes(head)).min(end);
            lost = lost.wrapping_add(1);
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let at = ring_offset((creation_end, physical_end), end);
            let (part, tail) = rest.split_at(rest.len().min((physical_end - at) as usize));
            object.write(self.change.tx, at, part)?;
            end += part.len() as u64;
            rest = tail;
        }
        if creation_end == 0 {
            // the record of the pool's creation stays for ever
            (creation_end, begin) = (end, end);
        }
        let offsets = [creation_end, physical_end, begin, end, lost];
        object.update(self.change.tx, |dnode| dnode.bonus = words(&offsets))
    }

    fn read_ring(&self, object: &dmu::Object, bounds: (u64, u64), mut at: u64, buf: &mut [u8]) -> Result<()> {
        for byte in buf {
            object.read(ring_offset(bounds, at), std::slice::from_mut(byte))?;
            at += 1;
        }
        Ok(())
    }

    /// Writes the pool's configuration, now and into the labels.
    pub fn write_config(&self) -> Result<()> {
        let packed = {
            let mut config = self.pool.config();
            config.txg = self.change.tx.txg();
            config.is_dirty = true;
            config.mos_config(self.pool.tree()).pack()
        };
        let object = self.change.mos.object(self.pool.config().object)?;
        object.write(self.change.tx, 0, &packed)?;
        object.update(self.change.tx, |dnode| dnode.bonus = (packed.len() as u64).to_le_bytes().to_vec())
    }
}

/// Where in the object the byte is that has that place in the log.
fn ring_offset((creation_end, physical_end): (u64, u64), at: u64) -> u64 {
    if at < creation_end { at } else { creation_end + (at - creation_end) % (physical_end - creation_end) }
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
