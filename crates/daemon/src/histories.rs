//! The last groups of a pool, and its last heartbeats, as tables in files: what OpenZFS shows as `txgs` and `multihost`.

use pool::{GroupRecord, GroupStage, HeartbeatRecord, LivePool};
use protocol::kstat::Kstat;

/// The tables of a pool.
pub fn tables(pool: &LivePool) -> [Kstat; 2] {
    [groups(pool.group_times()), heartbeats(pool.heartbeats())]
}

/// Times in nanoseconds. Groups do not wait between being closed and being written.
fn groups(records: Vec<GroupRecord>) -> Kstat {
    let columns = [
        ("txg", 8),
        ("birth", 16),
        ("state", 5),
        ("ndirty", 12),
        ("nread", 12),
        ("nwritten", 12),
        ("reads", 8),
        ("writes", 8),
        ("otime", 12),
        ("qtime", 12),
        ("wtime", 12),
        ("stime", 12),
    ];
    let rows = records.into_iter().map(|group| {
        let stage = match group.stage {
            GroupStage::Open => "O",
            GroupStage::Syncing => "S",
            GroupStage::Committed => "C",
        };
        let io = group.io;
        let numbers = [group.dirty_bytes, io.read_bytes, io.written_bytes, io.reads, io.writes];
        let [dirty, read, written, reads, writes] = numbers.map(|number| number.to_string());
        let [open, quiesce, sync] = [group.open_ns, group.quiesce_ns, group.sync_ns].map(|ns| ns.to_string());
        let (txg, birth) = (group.txg.to_string(), group.birth_ns.to_string());
        [txg, birth, stage.to_owned(), dirty, read, written, reads, writes, open, quiesce, "0".to_owned(), sync]
    });
    Kstat::of_rows("txgs", columns, rows)
}

/// Those that were left out have no device.
fn heartbeats(records: Vec<HeartbeatRecord>) -> Kstat {
    let columns = [
        ("id", 10),
        ("txg", 10),
        ("timestamp", 10),
        ("error", 6),
        ("duration", 10),
        ("mmp_delay", 12),
        ("vdev_guid", 24),
        ("vdev_label", 10),
        ("vdev_path", 0),
    ];
    let rows = records.into_iter().map(|heartbeat| {
        let (guid, label, path) = match heartbeat.place {
            Some(place) => (place.leaf.to_string(), place.label.to_string(), place.path),
            None => ("0".to_owned(), "-".to_owned(), "-".to_owned()),
        };
        let numbers = [heartbeat.id, heartbeat.txg.get(), heartbeat.time_s];
        let [id, txg, time] = numbers.map(|number| number.to_string());
        let [duration, delay] = [heartbeat.duration_ns, heartbeat.delay_ns].map(|ns| ns.to_string());
        [id, txg, time, heartbeat.error.to_string(), duration, delay, guid, label, path]
    });
    Kstat::of_rows("multihost", columns, rows)
}
