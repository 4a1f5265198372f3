//! The steps that all parties of a cut take together.

use std::time::{Duration, Instant};

use protocol::cut::{CutStage, CutStep, HeldPool, KEEP_TIME};

use super::party::Party;

/// How long a party may take to bring what was written to disk, before writes wait.
const PREPARE_TIME: Duration = Duration::from_secs(60);
/// How long parties may take to destroy what they have taken.
const UNDO_TIME: Duration = Duration::from_secs(5);

/// Takes all steps; for how long writes waited. Errors: why there are no snapshots.
pub(super) fn dance(mut parties: Vec<Party>, limit: Duration) -> Result<Vec<HeldPool>, String> {
    let outcome = steps(&mut parties, limit);
    finish(parties, outcome)
}

/// Ends the parties: if the cut failed, by destroying what they took. Errors: why it failed, and what may be left.
pub(super) fn finish(mut parties: Vec<Party>, outcome: Result<Vec<HeldPool>, String>) -> Result<Vec<HeldPool>, String> {
    if outcome.is_ok() {
        return outcome;
    }
    parties.iter_mut().for_each(Party::let_go);
    let until = Instant::now() + UNDO_TIME;
    let left: Vec<String> = parties.into_iter().filter_map(|party| party.ended(until).err()).collect();
    outcome.map_err(|why| [vec![format!("{why}; nothing is cut")], left].concat().join("; "))
}

fn steps(parties: &mut [Party], limit: Duration) -> Result<Vec<HeldPool>, String> {
    ready(parties, Instant::now() + PREPARE_TIME)?;
    let until = Instant::now() + limit;
    let mut held = Vec::new();
    for step in [CutStep::Calm, CutStep::Flush, CutStep::Park, CutStep::Take] {
        held = together(parties, step, until)?;
    }
    together(parties, CutStep::Keep, Instant::now() + KEEP_TIME)?;
    Ok(held)
}

/// Waits until all can begin. Errors: one cannot.
pub(super) fn ready(parties: &mut [Party], until: Instant) -> Result<(), String> {
    for party in parties {
        match party.answer(until)? {
            CutStage::Ready => {}
            CutStage::Done(..) => return Err(other_step(party)),
        }
    }
    Ok(())
}

/// All take a step; what they tell of it. Errors: one has not done it until then.
pub(super) fn together(parties: &mut [Party], step: CutStep, until: Instant) -> Result<Vec<HeldPool>, String> {
    parties.iter_mut().for_each(|party| party.tell(step));
    let mut held = Vec::new();
    for party in parties {
        match party.answer(until)? {
            CutStage::Done(done, of_party) if done == step => held.extend(of_party),
            _ => return Err(other_step(party)),
        }
    }
    Ok(held)
}

fn other_step(party: &Party) -> String {
    format!("{} answers another step", party.name())
}
