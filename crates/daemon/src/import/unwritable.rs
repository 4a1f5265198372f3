//! Devices of a pool to which nothing can be written: an import that writes does without them, if the others have all.

use format::ids::Txg;
use pool::Candidate;

use crate::locks::file_of;

/// Devices that were left out, a line each with why.
#[derive(Default)]
pub struct Unwritable(Vec<String>);

impl Unwritable {
    /// Takes all that cannot be written to out of a candidate. Errors: these, if the pool is nowhere else, or only an older
    /// state of it is.
    pub fn of(candidate: &mut Candidate) -> Result<Unwritable, Unwritable> {
        let newest = newest_txg(candidate);
        let mut lines = Vec::new();
        candidate.devices.retain(|found| match device::check_writable(file_of(&found.path)) {
            Ok(()) => true,
            Err(error) => {
                lines.push(format!("{}: {}", found.path, error.what()));
                false
            }
        });
        let left_out = Unwritable(lines);
        if newest_txg(candidate) < newest { Err(left_out) } else { Ok(left_out) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Why the pool cannot be imported without them.
    pub fn refusal(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(|line| format!("\t{line}\n")).collect();
        let what = "one or more devices is read only\n";
        format!("{what}{}\tThe pool can be imported using '-o readonly=on'.", lines.concat())
    }

    /// That the pool is imported without them.
    pub fn notice(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(|line| format!("\t    {line}\n")).collect();
        format!("The devices below cannot be written to, and are left out:\n{}\n", lines.concat())
    }
}

fn newest_txg(candidate: &Candidate) -> Txg {
    candidate.uberblocks().first().map_or(Txg::ZERO, |uberblock| uberblock.txg)
}
