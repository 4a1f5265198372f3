//! Which files of a dataset are used most, found out only while a page looks.
//!
//! ```text
//!   page ── /files, every 2 s ──▶ FileWatches ── a thread a pool: tap of requests, taken each second ─▶ sums by object
//!                                      └── nobody has asked for some seconds: the thread ends, the tap is closed
//! ```
//!
//! Sums are kept for a few seconds, of so many objects at most; what is beyond is counted, but not told apart.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Mutex, UserOp, UserRequest};
use protocol::client::{self, Connection};
use protocol::tap::{self, TapSubject};
use serde::Serialize;

use super::series::rounded;
use crate::device_rates::rate;
use crate::file_paths::paths_of;
use crate::taps::{OpenTap, TapBatch};

/// How often requests are taken, and how long is waited before a tap is tried again.
const PERIOD: Duration = Duration::from_secs(1);
/// How long is watched after somebody has asked for the last time.
const PATIENCE: Duration = Duration::from_secs(6);
/// Takes that are summed up.
const TAKES: usize = 5;
/// Objects that are told apart in one take.
const OBJECTS_MAX: usize = 8192;
/// Files that are told.
const FILES_MAX: usize = 20;
/// Datasets of one pool that are looked at together.
const DATASETS_MAX: usize = 8;
/// Pools that are looked at together.
const POOLS_MAX: usize = 8;
/// Names that are remembered, and for how long: files are renamed.
const NAMES_MAX: usize = 1024;
const NAMES_TIME: Duration = Duration::from_secs(30);

/// A file: its object, its path if that may be told and is known; reads, bytes read, writes and bytes written a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileRates(String, Option<String>, [f32; 4]);

/// The files of a dataset that are used most, as they are sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilesAnswer {
    /// Why nothing is known.
    pub failure: Option<String>,
    /// Whether names may be told.
    pub has_names: bool,
    /// The time that rates are of; 0 before the first.
    pub seconds: f32,
    /// Files, those that most bytes go through first.
    pub files: Vec<FileRates>,
    /// How many more were used.
    pub more: usize,
    /// Requests a second that could not be noted.
    pub lost: f32,
}

/// The pools that pages look into. See the top of the file.
pub struct FileWatches {
    has_names: bool,
    watched: Mutex<HashMap<String, FileWatch>>,
}

/// A pool that pages look into.
#[derive(Default)]
struct FileWatch {
    /// Datasets, when they were asked for last, and what is known of their files.
    asked: HashMap<u64, (Instant, FilesAnswer)>,
}

/// What one object, or all together, was asked for: reads, bytes read, writes, bytes written.
type ObjectSums = [u64; 4];

/// Sums of one take.
struct TakenSums {
    seconds: f64,
    objects: HashMap<(u64, u64), ObjectSums>,
    lost: u64,
}

/// The latest takes.
#[derive(Default)]
struct RecentSums(VecDeque<TakenSums>);

impl FileWatches {
    /// Nobody looks yet. Names are told or not: not every user of this machine may read every folder.
    pub fn new(has_names: bool) -> FileWatches {
        FileWatches { has_names, watched: Mutex::default() }
    }

    /// What is known of the files of a dataset by now; begins to find out, if nobody looks yet.
    pub fn ask(self: &Arc<Self>, pool: &str, dataset: u64) -> FilesAnswer {
        let mut watched = self.watched.lock();
        let is_new = !watched.contains_key(pool);
        let refused = |why: &str| FilesAnswer { failure: Some(why.to_owned()), ..FilesAnswer::default() };
        if is_new && watched.len() >= POOLS_MAX {
            return refused("others look into too many pools");
        }
        let watch = watched.entry(pool.to_owned()).or_default();
        if !watch.asked.contains_key(&dataset) && watch.asked.len() >= DATASETS_MAX {
            return refused("others look into too many datasets");
        }
        let first = || (Instant::now(), FilesAnswer { has_names: self.has_names, ..FilesAnswer::default() });
        let (asked, answer) = watch.asked.entry(dataset).or_insert_with(first);
        *asked = Instant::now();
        let answer = answer.clone();
        if is_new {
            let (watches, name) = (self.clone(), pool.to_owned());
            let thread = std::thread::Builder::new().name("files".to_owned());
            if thread.spawn(move || watches.follow(&name)).is_err() {
                watched.remove(pool);
                return refused("the system gives no more threads");
            }
        }
        answer
    }

    /// Follows a pool until nobody asks any more.
    fn follow(&self, pool: &str) {
        while let Some(datasets) = self.wanted(pool) {
            // it returns when the pool was forgotten; another thread may follow it by then
            let Err(why) = self.watch(pool) else { return };
            for dataset in datasets {
                self.tell(pool, dataset, FilesAnswer { failure: Some(why.clone()), ..FilesAnswer::default() });
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// Watches as long as somebody asks. Errors: for the user.
    fn watch(&self, pool: &str) -> Result<(), String> {
        let mut tap = OpenTap::open(pool, TapSubject::Requests)?;
        let (mut recent, mut names) = (RecentSums::default(), FileNames::new(pool));
        let mut since = Instant::now();
        while let Some(datasets) = self.wanted(pool) {
            std::thread::sleep(PERIOD);
            let (batch, now) = (tap.take(0)?, Instant::now());
            recent.add(&batch, now.duration_since(since).as_secs_f64())?;
            since = now;
            for dataset in datasets {
                let mut answer = recent.files_of(dataset);
                answer.has_names = self.has_names;
                if self.has_names {
                    names.add_to(dataset, &mut answer.files);
                }
                self.tell(pool, dataset, answer);
            }
        }
        Ok(())
    }

    /// The datasets that somebody has asked for of late; `None`, and the pool is forgotten, if there are none.
    fn wanted(&self, pool: &str) -> Option<Vec<u64>> {
        let mut watched = self.watched.lock();
        let watch = watched.get_mut(pool)?;
        watch.asked.retain(|_, (asked, _)| asked.elapsed() < PATIENCE);
        if watch.asked.is_empty() {
            watched.remove(pool);
            return None;
        }
        Some(watch.asked.keys().copied().collect())
    }

    fn tell(&self, pool: &str, dataset: u64, answer: FilesAnswer) {
        if let Some((_, known)) = self.watched.lock().get_mut(pool).and_then(|watch| watch.asked.get_mut(&dataset)) {
            *known = answer;
        }
    }
}

impl RecentSums {
    /// Adds what was taken in so many seconds. Errors: entries that are none.
    fn add(&mut self, batch: &TapBatch, seconds: f64) -> Result<(), String> {
        let mut taken = TakenSums { seconds, objects: HashMap::new(), lost: batch.sums.lost };
        for entry in batch.entries.chunks(tap::REQUEST_BYTES) {
            let request = tap::decode(entry).ok_or("the pool's process gave out half a request")?;
            taken.add(&request);
        }
        self.0.push_back(taken);
        if self.0.len() > TAKES {
            self.0.pop_front();
        }
        Ok(())
    }

    /// The files of a dataset that were used most.
    fn files_of(&self, dataset: u64) -> FilesAnswer {
        let seconds: f64 = self.0.iter().map(|taken| taken.seconds).sum();
        let mut sums = HashMap::<u64, ObjectSums>::new();
        for (&(_, object), one) in self.0.iter().flat_map(|taken| &taken.objects).filter(|((of, _), _)| *of == dataset)
        {
            let all = sums.entry(object).or_default();
            all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
        }
        let mut sums: Vec<(u64, ObjectSums)> = sums.into_iter().collect();
        sums.sort_by_key(|&(object, [reads, read, writes, written])| {
            (std::cmp::Reverse((read + written, reads + writes)), object)
        });
        let more = sums.len().saturating_sub(FILES_MAX);
        let rate = |count: u64| rounded(rate(0, count, seconds));
        let file = |(object, sums): (u64, ObjectSums)| FileRates(object.to_string(), None, sums.map(rate));
        let files = sums.into_iter().take(FILES_MAX).map(file).collect();
        let lost = rate(self.0.iter().map(|taken| taken.lost).sum());
        FilesAnswer { seconds: rounded(seconds), files, more, lost, ..FilesAnswer::default() }
    }
}

impl TakenSums {
    fn add(&mut self, request: &UserRequest) {
        let way = match request.op {
            UserOp::Read => 0,
            UserOp::Write => 2,
            UserOp::Sync => return,
        };
        let key = (request.dataset, request.object);
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(&key) {
            self.lost += 1;
            return;
        }
        let sums = self.objects.entry(key).or_default();
        sums[way] += 1;
        sums[way + 1] += u64::from(request.bytes);
    }
}

/// Names of the files of a pool, asked for once in a while.
struct FileNames<'a> {
    pool: &'a str,
    connection: Option<Connection>,
    known: HashMap<(u64, String), Option<String>>,
    since: Instant,
}

impl FileNames<'_> {
    fn new(pool: &str) -> FileNames<'_> {
        FileNames { pool, connection: None, known: HashMap::new(), since: Instant::now() }
    }

    /// Gives files the names that they have.
    fn add_to(&mut self, dataset: u64, files: &mut [FileRates]) {
        if self.known.len() > NAMES_MAX || self.since.elapsed() > NAMES_TIME {
            self.known.clear();
            self.since = Instant::now();
        }
        let is_unknown = |file: &&FileRates| !self.known.contains_key(&(dataset, file.0.clone()));
        let unknown: Vec<String> = files.iter().filter(is_unknown).map(|file| file.0.clone()).collect();
        // what cannot be told now is asked for the next time
        for (object, name) in unknown.iter().zip(self.find(dataset, &unknown).unwrap_or_default()) {
            self.known.insert((dataset, object.clone()), name);
        }
        for file in files {
            file.1 = self.known.get(&(dataset, file.0.clone())).cloned().flatten();
        }
    }

    fn find(&mut self, dataset: u64, objects: &[String]) -> Option<Vec<Option<String>>> {
        if objects.is_empty() {
            return None;
        }
        if self.connection.is_none() {
            self.connection = client::connect(self.pool).ok().flatten();
        }
        let objects: Vec<u64> = objects.iter().filter_map(|object| object.parse().ok()).collect();
        let paths = paths_of(self.connection.as_mut()?, dataset, &objects).ok();
        if paths.is_none() {
            self.connection = None;
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use protocol::tap::Tapped;

    use super::*;

    fn request(op: UserOp, dataset: u64, object: u64, bytes: u32) -> UserRequest {
        UserRequest { time_ns: 1, dataset, object, offset: 0, bytes, op }
    }

    fn batch(requests: &[UserRequest]) -> TapBatch {
        let entries = requests.iter().flat_map(tap::encode).collect();
        TapBatch { entries, sums: Tapped { lost: 5, ..Tapped::default() } }
    }

    #[test]
    fn files_that_most_goes_through_come_first() {
        let mut recent = RecentSums::default();
        let (read, write) = (UserOp::Read, UserOp::Write);
        let requests = [
            request(read, 7, 100, 4096),
            request(read, 7, 100, 4096),
            request(write, 7, u64::MAX, 65_536),
            request(write, 8, 100, 1 << 20),
            request(UserOp::Sync, 7, 200, 0),
        ];
        recent.add(&batch(&requests), 1.0).unwrap();
        recent.add(&batch(&requests[..1]), 1.0).unwrap();
        let answer = recent.files_of(7);
        let file = |object: u64, rates: [f32; 4]| FileRates(object.to_string(), None, rates);
        let files = [file(u64::MAX, [0.0, 0.0, 0.5, 32_770.0]), file(100, [1.5, 6144.0, 0.0, 0.0])];
        assert_eq!((&answer.files[..], answer.more, answer.lost, answer.seconds), (&files[..], 0, 5.0, 2.0));
        assert_eq!(recent.files_of(9).files, []);
        // what was used some seconds ago does not count any more
        (0..TAKES).for_each(|_| recent.add(&batch(&[]), 1.0).unwrap());
        assert_eq!(recent.files_of(7).files, []);
        let half = TapBatch { entries: vec![0; 5], sums: Tapped::default() };
        assert!(recent.add(&half, 1.0).is_err());
    }

    #[test]
    fn objects_are_bounded_and_what_is_beyond_is_counted() {
        let mut recent = RecentSums::default();
        let many: Vec<UserRequest> = (0..OBJECTS_MAX as u64 + 10).map(|n| request(UserOp::Read, 7, n, 1)).collect();
        recent.add(&batch(&many), 1.0).unwrap();
        let answer = recent.files_of(7);
        assert_eq!((answer.files.len(), answer.more, answer.lost), (FILES_MAX, OBJECTS_MAX - FILES_MAX, 15.0));
    }

    /// Nobody watches for ever, and a pool that is not there is told as such.
    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let watches = Arc::new(FileWatches::new(true));
        let answer = watches.ask("no-such-pool-anywhere", 7);
        assert_eq!((answer.failure, answer.has_names), (None, true));
        let end = Instant::now() + Duration::from_secs(60);
        while watches.ask("no-such-pool-anywhere", 7).failure.is_none() {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(20));
        }
        for n in 0..DATASETS_MAX as u64 {
            watches.ask("no-such-pool-anywhere", n);
        }
        assert!(watches.ask("no-such-pool-anywhere", 99).failure.unwrap().contains("too many datasets"));
        while !watches.watched.lock().is_empty() {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
