//! `cenote trace record`: what users of a pool in use ask of files and volumes, into a file.

use std::path::PathBuf;
use std::time::Duration;

use base::{UserOp, UserRequest};
use protocol::client;
use protocol::datasets::{CellValue, DatasetRequest, Response, Select, Types, WantedProperty};
use protocol::tap::{self, TapSubject};
use protocol::words::nicenum::{nicebytes, nicenum};
use trace::{TraceOp, TraceRecorder, TraceRequest};

use super::input::said;
use super::names::FileNamer;
use crate::taps::{OpenTap, TapBatch, WatchEnd, watch_time};

/// Record what users of a pool in use ask of its files and volumes
///
/// Reads, writes and syncs with their times, for the time of --for or until interrupted, as they come to the pool: by
/// mounts, NBD, iSCSI and vhost-user. Files and datasets are numbers, as `zfs get objsetid` and `ls -i` show them, unless names
/// are asked for; nothing of what is read or written is recorded. What the kernel's page cache serves does not come to the pool. FILE is a new
/// one, compressed, and better not on that pool. The exit code is 1 if more came than could be noted.
#[derive(clap::Args)]
pub struct RecordTraceArgs {
    /// All of a pool, or one dataset
    #[arg(value_name = "POOL|DATASET")]
    name: String,
    /// The file
    #[arg(short, value_name = "FILE")]
    output: PathBuf,
    /// For how long, as 90, 10m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = watch_time)]
    time: Option<Duration>,
    /// Also the names of files: at most 65,536, each as it is when the file is first met
    #[arg(long)]
    names: bool,
}

/// Runs the command. Errors: for the user.
pub fn run(args: &RecordTraceArgs) -> Result<(), String> {
    let pool = args.name.split(['/', '@']).next().unwrap_or_default();
    let only = if pool == args.name { None } else { Some(number_of(pool, &args.name)?) };
    let tap = OpenTap::open(pool, TapSubject::Requests)?;
    let failed = |error| said(&args.output, &error);
    let mut namer = args.names.then(|| FileNamer::new(pool)).transpose()?;
    let mut recorder = TraceRecorder::create(&args.output).map_err(failed)?;
    let mut recorded = RecordedSum { only, ..RecordedSum::default() };
    let followed = tap.follow(&WatchEnd::after(args.time), |batch| {
        let requests = recorded.add(&batch)?;
        if let Some(namer) = &mut namer {
            let names = namer.names_of(&requests)?;
            let names = names.iter().map(|(stream, object, name)| (*stream, *object, name.as_str()));
            recorder.write_names(names).map_err(failed)?;
        }
        recorder.write(&requests).map_err(failed)?;
        Ok(0)
    });
    // what came so far is kept, also if the pool is gone
    recorder.finish().map_err(failed)?;
    println!("{}", recorded.text());
    if let Some(namer) = namer {
        let more = if namer.is_full { "; more files were used than are named" } else { "" };
        println!("names of {} files{more}", nicenum(namer.found));
    }
    followed?;
    match recorded.lost {
        0 => Ok(()),
        lost => Err(format!("{lost} requests are not in the trace: there were more at once than could be noted")),
    }
}

/// The number of a dataset. Errors: for the user.
fn number_of(pool: &str, name: &str) -> Result<u64, String> {
    let failed = |why: &str| format!("cannot open '{name}': {why}");
    let select = Select {
        roots: vec![name.to_owned()],
        root_types: Types::DATASETS,
        depth: Some(0),
        types: Types::DATASETS,
        properties: vec![WantedProperty::Native("objsetid".to_owned())],
        ..Select::default()
    };
    let connection = client::connect(pool).map_err(|error| failed(error.what()))?;
    let mut connection = connection.ok_or_else(|| failed("no such pool is in use"))?;
    match connection.zfs(&DatasetRequest::Datasets(select)).map_err(|error| failed(error.what()))? {
        Response::Datasets(found) => {
            let row = found.rows.into_iter().find(|row| row.name == name);
            let cell = row.and_then(|row| row.cells.into_iter().next().flatten());
            match cell.map(|cell| cell.value) {
                Some(CellValue::Number(number)) => Ok(number),
                _ => Err(failed("dataset does not exist")),
            }
        }
        _ => Err(failed("the pool's process answers another question")),
    }
}

/// What was recorded.
#[derive(Default)]
struct RecordedSum {
    /// Only requests of this dataset are.
    only: Option<u64>,
    /// Reads, writes, syncs, and the bytes of them.
    counts: [(u64, u64); 3],
    latest_ns: u64,
    begin_ns: Option<u64>,
    lost: u64,
}

impl RecordedSum {
    /// The requests of a batch that are recorded, in the order of time. Errors: entries that are none.
    fn add(&mut self, batch: &TapBatch) -> Result<Vec<TraceRequest>, String> {
        self.lost += batch.sums.lost;
        self.begin_ns.get_or_insert(batch.sums.now_ns);
        let half = || "the pool's process gave out half a request".to_owned();
        let noted: Option<Vec<UserRequest>> = batch.entries.chunks(tap::REQUEST_BYTES).map(tap::decode).collect();
        let mut noted = noted.ok_or_else(half)?;
        noted.retain(|request| self.only.is_none_or(|only| request.dataset == only));
        // threads note them a little later than they look at the clock
        noted.sort_by_key(|request| request.time_ns);
        Ok(noted.iter().map(|request| self.request(request)).collect())
    }

    fn request(&mut self, request: &UserRequest) -> TraceRequest {
        let &UserRequest { time_ns, dataset: stream, object, offset, bytes, op } = request;
        self.latest_ns = self.latest_ns.max(time_ns);
        let (count, sum) = &mut self.counts[op as usize];
        (*count, *sum) = (*count + 1, *sum + u64::from(bytes));
        let op = match op {
            UserOp::Read => TraceOp::Read,
            UserOp::Write => TraceOp::Write,
            UserOp::Sync => TraceOp::Sync,
        };
        TraceRequest { time_ns: Some(self.latest_ns), op, stream, object, offset, bytes: bytes.into() }
    }

    fn text(&self) -> String {
        let [(reads, read), (writes, written), (syncs, _)] = self.counts;
        let seconds = self.begin_ns.map_or(0, |begin_ns| self.latest_ns.saturating_sub(begin_ns)) as f64 / 1e9;
        format!(
            "{} reads of {}, {} writes of {}, {} syncs in {seconds:.1} s",
            nicenum(reads),
            nicebytes(read),
            nicenum(writes),
            nicebytes(written),
            nicenum(syncs),
        )
    }
}
