//! Which pools a command is about, and how often it runs.

use protocol::client::{self, Connection};
use protocol::io_report::IoReport;
use protocol::pool_report::{DedupReport, PoolReport};
use protocol::words::time;
use protocol::{pool_names, wire};

use super::command::{CommandResult, Stop};

/// The pools that are imported. Those whose processes do not answer are complained about: what these have is not known.
pub fn imported() -> Result<Vec<wire::Hello>, Stop> {
    Ok(survey(&mut false)?.hellos)
}

/// The same; `failed` is set if there are such.
fn survey(failed: &mut bool) -> Result<client::ImportedPools, Stop> {
    let survey = client::survey().map_err(|e| Stop::Failed(e.to_string()))?;
    for (name, why) in &survey.silent {
        eprintln!("cannot open '{name}': {}", why.what());
        *failed = true;
    }
    Ok(survey)
}

/// A pool whose process can be asked.
pub struct OpenPool {
    /// Name of the pool.
    pub name: String,
    connection: Connection,
}

impl OpenPool {
    /// Everything about the pool.
    pub fn report(&mut self) -> Result<PoolReport, Stop> {
        match self.ask(&wire::Request::Report)? {
            wire::PoolReply::Report(report) => Ok(*report),
            _ => Err(self.off_topic()),
        }
    }

    /// Names of the files that are damaged.
    pub fn damaged(&mut self) -> Result<Vec<String>, Stop> {
        match self.ask(&wire::Request::Damaged)? {
            wire::PoolReply::Damaged(paths) => Ok(paths),
            _ => Err(self.off_topic()),
        }
    }

    /// The dedup tables.
    pub fn dedup(&mut self) -> Result<DedupReport, Stop> {
        match self.ask(&wire::Request::Dedup)? {
            wire::PoolReply::Dedup(dedup) => Ok(dedup),
            _ => Err(self.off_topic()),
        }
    }

    /// What its vdevs have read and written.
    pub fn io(&mut self) -> Result<IoReport, Stop> {
        match self.ask(&wire::Request::Io)? {
            wire::PoolReply::Io(io) => Ok(io),
            _ => Err(self.off_topic()),
        }
    }

    /// Sends a request to the pool's process.
    pub fn ask(&mut self, request: &wire::Request) -> Result<wire::PoolReply, Stop> {
        let failed = |e: base::Error| Stop::Failed(format!("cannot open '{}': {}", self.name, e.what()));
        self.connection.ask(request).map_err(failed)
    }

    /// The connection to its process.
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    fn off_topic(&self) -> Stop {
        Stop::Failed(format!("cannot open '{}': its process answers another question", self.name))
    }
}

/// Whether a pool of that name is imported. Errors: its process does not answer.
pub fn is_imported(name: &str) -> Result<bool, Stop> {
    let failed = |e: base::Error| Stop::Failed(format!("cannot open '{name}': {}", e.what()));
    client::connect(name).map(|connection| connection.is_some()).map_err(failed)
}

/// The names of all pools. Those whose processes do not answer are complained about, and `failed` set.
pub fn all(failed: &mut bool) -> Result<Vec<String>, Stop> {
    Ok(survey(failed)?.hellos.into_iter().map(|hello| hello.pool).collect())
}

/// Opens the pools of those names, or all. What cannot be opened is complained about, and `failed` set.
pub fn open(names: &[String], failed: &mut bool) -> Result<Vec<OpenPool>, Stop> {
    Ok(match names.is_empty() {
        true => connect(all(failed)?, true, failed),
        false => connect(names.to_vec(), false, failed),
    })
}

/// Connects with these pools; `are_listed`: one that is not there has been exported since it was listed.
fn connect(mut wanted: Vec<String>, are_listed: bool, failed: &mut bool) -> Vec<OpenPool> {
    wanted.sort();
    let mut open: Vec<OpenPool> = Vec::new();
    for name in wanted {
        let complaint = match pool_names::check(&name).map(|()| client::connect(&name)) {
            // named twice
            _ if open.last().is_some_and(|last| last.name == name) => None,
            Ok(Ok(Some(connection))) => {
                open.push(OpenPool { name, connection });
                continue;
            }
            Ok(Ok(None)) if are_listed => continue,
            Ok(Ok(None)) => Some("no such pool".to_owned()),
            Ok(Err(e)) => Some(e.what().to_owned()),
            Err(why) => Some(why),
        };
        if let Some(why) = complaint {
            eprintln!("cannot open '{name}': {why}");
        }
        *failed = true;
    }
    open
}

/// What `ask` gets to know of each of these pools, or of all; see [`ask_listed`]. Errors: those of `ask`; see also [`open`].
pub fn ask_each<T>(
    names: &[String],
    failed: &mut bool,
    ask: impl Fn(OpenPool) -> Result<T, Stop>,
) -> Result<Vec<T>, Stop> {
    match names.is_empty() {
        true => ask_listed(|_| true, failed, ask),
        false => open(names, failed)?.into_iter().map(ask).collect(),
    }
}

/// What `ask` gets to know of each pool that is imported and meant; those that are exported meanwhile are passed over.
/// Errors: those of `ask`.
pub fn ask_listed<T>(
    is_meant: impl Fn(&String) -> bool,
    failed: &mut bool,
    ask: impl Fn(OpenPool) -> Result<T, Stop>,
) -> Result<Vec<T>, Stop> {
    let listed = all(failed)?.into_iter().filter(is_meant).collect();
    let mut answers = Vec::new();
    for pool in connect(listed, true, failed) {
        let name = pool.name.clone();
        match ask(pool) {
            Ok(answer) => answers.push(answer),
            Err(_) if !is_imported(&name)? => {}
            Err(stop) => return Err(stop),
        }
    }
    Ok(answers)
}

/// `[INTERVAL [COUNT]]` behind the names.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Repeat {
    interval_s: f64,
    count: u64,
}

impl Repeat {
    /// Takes the numbers off the end of the operands.
    pub fn parse(mut operands: Vec<String>) -> Result<(Vec<String>, Repeat), Stop> {
        let number = |operands: &[String]| {
            let text = operands.last()?;
            text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse::<f64>().ok()).flatten()
        };
        let mut numbers = Vec::new();
        while let Some(n) = number(&operands).filter(|_| numbers.len() < 2) {
            if n <= 0.0 || !n.is_finite() {
                return Err(Stop::usage("interval cannot be zero"));
            }
            operands.pop();
            numbers.push(n);
        }
        let repeat = match numbers[..] {
            [count, interval_s] => Repeat { interval_s, count: count as u64 },
            [interval_s] => Repeat { interval_s, count: 0 },
            _ => Repeat::default(),
        };
        Ok((operands, repeat))
    }

    /// Whether an interval is given.
    pub fn is_repeated(self) -> bool {
        self.interval_s > 0.0
    }

    /// The interval, if one is given.
    pub fn interval(self) -> Option<std::time::Duration> {
        self.is_repeated().then(|| std::time::Duration::try_from_secs_f64(self.interval_s).unwrap_or_default())
    }

    /// Waits for an interval.
    pub fn pause(self) {
        use std::io::Write;
        drop(std::io::stdout().flush());
        std::thread::sleep(std::time::Duration::try_from_secs_f64(self.interval_s).unwrap_or_default());
    }

    /// Runs `step` once, or again and again; ends with the first failure.
    pub fn run(mut self, mut step: impl FnMut() -> CommandResult) -> CommandResult {
        loop {
            if !step()? {
                return Ok(false);
            }
            if self.interval_s == 0.0 || self.count == 1 {
                return Ok(true);
            }
            self.count = self.count.saturating_sub(1);
            self.pause();
        }
    }
}

/// Flag `-T`: what is printed before each repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamp {
    /// Nothing.
    #[default]
    None,
    /// The date.
    Date,
    /// Seconds since 1970.
    Unix,
}

impl Timestamp {
    /// From the value of `-T`; only its first letter counts.
    pub fn parse(text: &str) -> Result<Timestamp, Stop> {
        match text.as_bytes().first() {
            Some(b'u') => Ok(Timestamp::Unix),
            Some(b'd') => Ok(Timestamp::Date),
            _ => Err(Stop::usage("")),
        }
    }

    /// The time now; `None` if it is not to be shown.
    pub fn text(self) -> Option<String> {
        match self {
            Timestamp::None => None,
            Timestamp::Date => Some(time::ctime(time::now())),
            Timestamp::Unix => Some(time::now().to_string()),
        }
    }

    /// The line with the time, or nothing.
    pub fn line(self) -> String {
        self.text().map_or(String::new(), |text| text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        let parse = |line: &str| Repeat::parse(line.split_whitespace().map(str::to_owned).collect());
        let check = |line: &str, names: &[&str], interval_s: f64, count: u64| {
            let (rest, repeat) = parse(line).unwrap();
            assert_eq!(
                (rest, repeat),
                (names.iter().map(|s| s.to_string()).collect(), Repeat { interval_s, count }),
                "{line}"
            );
        };
        check("tank", &["tank"], 0.0, 0);
        check("tank 5", &["tank"], 5.0, 0);
        check("0.5 3", &[], 0.5, 3);
        check("tank 1 2 3", &["tank", "1"], 2.0, 3);
        assert!(parse("tank 0").is_err() && parse("0 1").is_err());
    }
}
