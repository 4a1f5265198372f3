//! `cenote cut-hold`: the helper of `cenote cut` on another host. It takes the steps that come by standard input with all pools
//! of this host; when that ends, they let go.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use protocol::cut::{CUT_BYTES_MAX, CutOrder, CutStage, CutStep, HostOrder, HostTold, KEEP_TIME};
use protocol::wire;

use super::{dance, party};
use crate::output;

/// How long pools may take to prepare: the command that waits for them ends this one before.
const PREPARE_TIME: Duration = Duration::from_secs(120);

/// Take the steps of a cut that standard input says, with pools of this host: 'cenote cut --via' runs it
#[derive(clap::Parser)]
#[command(name = "cenote cut-hold", no_binary_name = true)]
struct HoldArgs {}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    output::run_command("cut-hold", args, |HoldArgs {}| {
        let order = wire::receive::<HostOrder>(&mut io::stdin(), CUT_BYTES_MAX).map_err(|e| e.what().to_owned())?;
        let outcome = match order {
            Some(HostOrder::Cut(order)) => cut(order),
            Some(HostOrder::Undo(order)) => party::undo(&order).and_then(|()| tell(CutStage::Ready)),
            None => Ok(()),
        };
        // the command that asked for it says why
        outcome.or_else(|why| send(&HostTold::Failed(why)))
    })
}

fn cut(order: CutOrder) -> Result<(), String> {
    let limit = Duration::from_millis(order.limit_ms);
    let mut parties = party::here(order);
    let outcome = take_steps(&mut parties, limit).map(|()| Vec::new());
    dance::finish(parties, outcome).map(drop)
}

fn take_steps(parties: &mut [party::Party], limit: Duration) -> Result<(), String> {
    dance::ready(parties, Instant::now() + PREPARE_TIME)?;
    tell(CutStage::Ready)?;
    let mut until = None;
    loop {
        let step = wire::receive::<CutStep>(&mut io::stdin(), CUT_BYTES_MAX).map_err(|e| e.what().to_owned())?;
        let step = step.ok_or("the command has ended")?;
        let until = match step {
            CutStep::Keep => Instant::now() + KEEP_TIME,
            _ => *until.get_or_insert_with(|| Instant::now() + limit),
        };
        let held = dance::together(parties, step, until)?;
        let told = tell(CutStage::Done(step, held));
        if step == CutStep::Keep {
            // they are kept, also if the command is gone
            return Ok(());
        }
        told?;
    }
}

fn tell(stage: CutStage) -> Result<(), String> {
    send(&HostTold::Stage(stage))
}

fn send(told: &HostTold) -> Result<(), String> {
    let mut out = io::stdout();
    let sent = wire::send(&mut out, told).and_then(|()| Ok(out.flush()?));
    sent.map_err(|e| e.what().to_owned())
}
