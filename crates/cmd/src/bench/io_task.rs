//! What a process of `cenote bench ior` does: writes and reads its part of the data.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use base::{AlignedBuf, mixed};
use serde::{Deserialize, Serialize};

use super::phase::{LoadPhase, PhaseTold};
use super::placed::PlacedBytes;
use super::random::RandomOrder;

/// The part of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoOrder {
    /// The file; with a file for each process, the beginning of its name.
    pub path: String,
    pub file_per_process: bool,
    pub transfer: u64,
    pub block: u64,
    pub segments: u64,
    /// Transfers come in random order, each once.
    pub random: bool,
    pub fsync: bool,
    /// Which process it is, of how many, and whose data it reads.
    pub rank: u64,
    pub tasks: u64,
    pub reads_rank: u64,
    pub seed: u64,
    pub ratio: f64,
}

impl IoOrder {
    pub fn run(&self, phase: LoadPhase) -> Result<PhaseTold, String> {
        match phase {
            LoadPhase::Write => self.transfers(self.rank, None),
            LoadPhase::Read { verify } => self.transfers(self.reads_rank, Some(verify)),
            LoadPhase::RemoveFiles => self.remove(),
            _ => Err("no phase of a load of data".to_owned()),
        }
    }

    /// The file that has the data of a process.
    pub fn file_of(&self, rank: u64) -> String {
        if self.file_per_process { format!("{}.{rank:08}", self.path) } else { self.path.clone() }
    }

    /// Where transfer `number` of a process is.
    fn offset(&self, rank: u64, number: u64) -> u64 {
        let of_block = self.block / self.transfer;
        let (segment, within) = (number / of_block, number % of_block * self.transfer);
        match self.file_per_process {
            true => segment * self.block + within,
            false => segment * self.block * self.tasks + rank * self.block + within,
        }
    }

    fn transfers(&self, rank: u64, reads: Option<bool>) -> Result<PhaseTold, String> {
        let path = self.file_of(rank);
        let failed = |what: &str, e: std::io::Error| format!("{path}: {what}: {e}");
        let began = Instant::now();
        let file = match reads {
            Some(_) => File::open(&path),
            None => OpenOptions::new().write(true).create(true).truncate(false).open(&path),
        };
        let file = file.map_err(|e| failed("open", e))?;
        let opened = Instant::now();
        let mut told = PhaseTold { open_s: (opened - began).as_secs_f64(), ..PhaseTold::default() };
        let bytes = PlacedBytes::new(self.seed, self.ratio);
        let named = if self.file_per_process { rank } else { 0 };
        let len = usize::try_from(self.transfer).map_err(|e| e.to_string())?;
        let (mut buffer, mut scratch) = (AlignedBuf::zeroed(len), vec![0; len]);
        let count = self.segments * (self.block / self.transfer);
        let order = RandomOrder::new(count, mixed(self.seed ^ rank));
        for number in 0..count {
            let offset = self.offset(rank, if self.random { order.take() } else { number });
            match reads {
                None => {
                    bytes.fill(named, offset, &mut buffer);
                    file.write_all_at(&buffer, offset).map_err(|e| failed("write", e))?;
                }
                Some(verify) => {
                    file.read_exact_at(&mut buffer, offset).map_err(|e| failed("read", e))?;
                    let wrong = verify.then(|| bytes.first_wrong(named, offset, &buffer, &mut scratch)).flatten();
                    if let Some(place) = wrong {
                        if told.wrong == 0 {
                            told.first_wrong = format!("{path}, byte {place}");
                        }
                        told.wrong += 1;
                    }
                }
            }
        }
        if reads.is_none() && self.fsync {
            file.sync_all().map_err(|e| failed("fsync", e))?;
        }
        let worked = Instant::now();
        drop(file);
        told.work_s = (worked - opened).as_secs_f64();
        told.close_s = worked.elapsed().as_secs_f64();
        told.count = count;
        Ok(told)
    }

    fn remove(&self) -> Result<PhaseTold, String> {
        if self.file_per_process || self.rank == 0 {
            let path = self.file_of(self.rank);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(format!("{path}: {e}")),
                _ => {}
            }
        }
        Ok(PhaseTold::default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn order(path: &str, rank: u64) -> IoOrder {
        IoOrder {
            path: path.to_owned(),
            file_per_process: false,
            transfer: 4096,
            block: 16 << 10,
            segments: 3,
            random: true,
            fsync: true,
            rank,
            tasks: 2,
            reads_rank: 1 - rank,
            seed: 5,
            ratio: 1.5,
        }
    }

    #[test]
    fn a_shared_file_has_every_byte_once() {
        let mut places = BTreeSet::new();
        for rank in 0..2 {
            assert!((0..12).all(|number| places.insert(order("x", rank).offset(rank, number))));
        }
        assert!(places.into_iter().eq((0..24).map(|number| number * 4096)));
    }

    #[test]
    fn what_is_wrong_is_found_by_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let orders = [0, 1].map(|rank| order(path.to_str().unwrap(), rank));
        orders.iter().for_each(|order| assert_eq!(order.run(LoadPhase::Write).unwrap().count, 12));
        let wrong = |order: &IoOrder| {
            let told = order.run(LoadPhase::Read { verify: true }).unwrap();
            (told.wrong, told.first_wrong)
        };
        assert_eq!([wrong(&orders[0]).0, wrong(&orders[1]).0], [0, 0]);
        // two pieces that have changed places: the second process reads what the first one wrote
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut piece = [0; 4096];
        file.read_exact_at(&mut piece, 0).unwrap();
        file.write_all_at(&piece, 4096).unwrap();
        assert_eq!(wrong(&orders[1]), (1, format!("{}, byte 4096", path.display())));
        assert_eq!(wrong(&orders[0]).0, 0);
        orders.iter().for_each(|order| drop(order.run(LoadPhase::RemoveFiles).unwrap()));
        assert!(!path.exists());
        assert!(orders[0].run(LoadPhase::Read { verify: false }).unwrap_err().contains("open"));
    }
}
