//! Processes that do a load together, here and on other hosts: each phase begins when all have ended the one before.
//!
//! ```text
//!   cenote bench ior, mdtest ─┬─ stdin, stdout ── cenote bench task        of this host
//!                             └─ CMD cenote bench task                     of the host that CMD reaches
//!
//!     TaskOrder ──▶     LoadPhase ──▶     ◀── PhaseTold     LoadPhase ──▶     ◀── PhaseTold    ...    end of input
//! ```

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command};
use std::time::Instant;

use protocol::wire;
use serde::{Deserialize, Serialize};

use super::phase::{LoadPhase, PhaseTold};
use super::{io_task, name_task};
use crate::via;

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;

/// What a process is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TaskOrder {
    Io(io_task::IoOrder),
    Names(name_task::NameOrder),
}

/// How long a phase took, from the word to all until the answer of the last, and what each process told.
pub struct PhaseTime {
    pub seconds: f64,
    pub told: Vec<PhaseTold>,
}

/// The processes.
pub struct LoadProcesses {
    all: Vec<LoadProcess>,
    /// How many hosts they are on.
    pub hosts: usize,
}

struct LoadProcess {
    host: String,
    child: Child,
    orders: UnixStream,
    answers: ChildStdout,
}

impl LoadProcesses {
    /// Starts `count` processes, in turn on the hosts that `vias` reach, or on this one; `order` says what each is to do.
    /// Errors: one cannot be started.
    pub fn start(count: u64, vias: &[String], order: impl Fn(u64) -> TaskOrder) -> Result<LoadProcesses, String> {
        let hosts = vias.len().max(1);
        let mut all = Vec::new();
        for number in 0..count {
            let via = vias.get(number as usize % hosts);
            let mut task = LoadProcess::start(via)?;
            wire::send(&mut task.orders, &order(number)).map_err(|e| format!("{}: {}", task.host, e.what()))?;
            all.push(task);
        }
        Ok(LoadProcesses { hosts: hosts.min(all.len()), all })
    }

    /// All do a phase. Errors: of any, the first.
    pub fn phase(&mut self, phase: LoadPhase) -> Result<PhaseTime, String> {
        let began = Instant::now();
        for task in &mut self.all {
            wire::send(&mut task.orders, &phase).map_err(|e| format!("{}: {}", task.host, e.what()))?;
        }
        let mut told = Vec::new();
        for (number, task) in self.all.iter_mut().enumerate() {
            let answer = wire::receive::<PhaseTold>(&mut task.answers, MESSAGE_BYTES_MAX);
            let answer = answer.map_err(|e| format!("{}: {}", task.host, e.what()))?;
            let answer = answer.ok_or_else(|| format!("{}: process {number} has ended", task.host))?;
            if let Some(why) = &answer.failed {
                return Err(format!("{}: process {number}: {why}", task.host));
            }
            told.push(answer);
        }
        Ok(PhaseTime { seconds: began.elapsed().as_secs_f64(), told })
    }
}

impl LoadProcess {
    fn start(via: Option<&String>) -> Result<LoadProcess, String> {
        let (started, host) = match via {
            None => {
                let mut own = Command::new("/proc/self/exe");
                own.args(["bench", "task"]);
                (via::start_program(own).map_err(|e| e.to_string()), "this host".to_owned())
            }
            Some(via) => (via::start(via, "bench task"), format!("host of '{via}'")),
        };
        let (mut child, orders) = started.map_err(|e| format!("{host}: a process cannot be started: {e}"))?;
        let answers = child.stdout.take().ok_or("a process without a pipe")?;
        Ok(LoadProcess { host, child, orders, answers })
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        // it may be in the middle of a phase that another one has failed in
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Be one of the processes of a load: 'cenote bench ior' and 'mdtest' run it
#[derive(clap::Args)]
pub struct TaskArgs {}

/// What a process does.
pub fn run(_: &TaskArgs) -> Result<(), String> {
    let (mut orders, mut answers) = (io::stdin(), io::stdout());
    let text = |e: base::Error| e.what().to_owned();
    let order = wire::receive::<TaskOrder>(&mut orders, MESSAGE_BYTES_MAX).map_err(text)?;
    let Some(order) = order else { return Ok(()) };
    while let Some(phase) = wire::receive::<LoadPhase>(&mut orders, MESSAGE_BYTES_MAX).map_err(text)? {
        let done = match &order {
            TaskOrder::Io(order) => order.run(phase),
            TaskOrder::Names(order) => order.run(phase),
        };
        let told = done.unwrap_or_else(|why| PhaseTold { failed: Some(why), ..PhaseTold::default() });
        wire::send(&mut answers, &told).map_err(text)?;
        answers.flush().map_err(|e| e.to_string())?;
    }
    Ok(())
}
