//! `cenote advise POOL`: all that can be said of a pool, the best first.
//!
//! ```text
//!   pool ─▶ dedup, special, recordsize with two compressions, its log ─▶ proposals: gain, needs ─┐
//!   prices ─────────────────────────────────────────────────────────────────────────────────────┴▶ sorted ─▶ list
//! ```

mod prices;
mod proposal;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use arc::Gauge;
use codec::compress::Compress;
use protocol::client;
use protocol::words::nicenum::{nicebytes, nicenum};
use serde_json::{Value, json};

use super::dedup::DedupAnswer;
use super::recordsize::{RecordAnswer, RecordPlan};
use super::slog::{LOG_BYTES_MIN, LogDemand};
use super::special::{SpecialAnswer, SpecialWalk};
use super::subject::{AdviceSubject, BothObservers, SubjectArgs};
use crate::output;
use prices::{PricedKind, Prices};
use proposal::Proposal;

/// Compressions that are compared.
const COMPRESSIONS: [(&str, (Compress, i32)); 2] = [("lz4", (Compress::Lz4, 0)), ("zstd", (Compress::Zstd, 3))];
/// Pieces of data that are drawn.
const PIECES: usize = 300;
/// Binary logarithm of the sector size of SSDs.
const SSD_ASHIFT: u32 = 12;
/// Bytes a day that a pool has to log for a log device to be worth a look.
const LOGGED_A_DAY: f64 = (1u64 << 30) as f64;
/// Part of the data that has to be saved for a proposal to be one.
const WORTH: f64 = 0.01;

/// Say what would pay for a pool: all advice that needs no more than to look at it, the best first
///
/// Dedup, a special vdev, other compressions and records, and a log device, if the pool is in use. With prices, what a
/// proposal frees on disks is worth what such disks cost, and what it needs is paid; the best for the money comes first.
/// Without, that which frees most. Gains are those of each proposal alone. FILE is JSON, prices of a GiB that can be used:
/// {"disk": 0.02, "ssd": 0.08, "ram": 3.5}.
#[derive(clap::Parser)]
#[command(name = "cenote advise", no_binary_name = true)]
pub struct WholeArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// What a GiB costs, on disks, on SSDs, and of memory
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &WholeArgs) -> Result<(), String> {
    let named = |error: String| format!("{}: {error}", args.subject.shown());
    let prices = args.prices.as_deref().map(Prices::read).transpose()?.unwrap_or_default();
    let AdviceSubject::Pool(subject) = args.subject.open().map_err(named)? else {
        return Err(named("a folder, and no pool: ask for dedup, compression, recordsize or special".to_owned()));
    };
    let memory = Gauge::new("/").limit();
    let say = |what: &str| {
        if !args.json {
            output::eprint(format_args!("looking at {what} ...\n"));
        }
    };
    let mut proposals = Vec::new();
    say("dedup and metadata");
    let (mut survey, mut special) = (DedupAnswer::survey(&subject), SpecialWalk::new(&subject, SSD_ASHIFT, None));
    let walked = subject.walk(&mut BothObservers(&mut survey, &mut special));
    walked.map_err(|error| named(error.to_string()))?;
    let (dedup, special) = (DedupAnswer::of_survey(&survey), special.answer());
    // its bar
    drop(survey);
    proposals.push(of_special(&special, memory));
    say("records");
    let plan = RecordPlan { ashift: SSD_ASHIFT, pieces: PIECES, seed: 1 };
    let answers = RecordAnswer::of_pool(&subject, &plan, COMPRESSIONS.map(|(_, setting)| setting)).map_err(named)?;
    let answers: Vec<_> = COMPRESSIONS.map(|(name, _)| name).into_iter().zip(answers).collect();
    let now = answers.iter().find_map(|(_, answer)| answer.space_of(128 << 10)).map_or(dedup.bytes, |[.., now]| now);
    proposals.push(of_dedup(&dedup, now, memory));
    proposals.extend(of_records(&answers));
    let pool = subject.pool.name();
    if subject.dataset.is_none() && client::connect(pool).is_ok_and(|connection| connection.is_some()) {
        say("the log");
        proposals.extend(LogDemand::asked(pool).ok().map(|demand| of_log(&demand)));
    }
    proposals.sort_by(|a, b| a.order(b, &prices));
    match args.json {
        true => println!("{}", json_of(&proposals, &prices)),
        false => print!("{}", text(&proposals, &prices, now)),
    }
    Ok(())
}

/// Dedup frees of what the data takes now the part that its ratio says.
fn of_dedup(answer: &DedupAnswer, now: f64, memory: Option<u64>) -> Proposal {
    let [table, _] = answer.table_bytes();
    let [low, value, high] = [answer.ratio.low, answer.ratio.value, answer.ratio.high].map(DedupAnswer::saves);
    let verdict = answer.verdict(memory);
    Proposal {
        what: "dedup=on".to_owned(),
        frees: now * value,
        error: now * (high - low) / 2.0,
        needs: vec![(PricedKind::Ram, table)],
        is_advised: verdict.is_advised,
        is_for_speed: false,
        verdict: verdict.words,
    }
}

fn of_special(answer: &SpecialAnswer, memory: Option<u64>) -> Proposal {
    let verdict = answer.verdict(memory);
    let bytes = answer.vdev_bytes(None);
    Proposal {
        what: format!("special vdev of {}, mirrored", nicebytes(bytes as u64)),
        frees: if answer.has_special() { 0.0 } else { answer.metadata_bytes() },
        error: 0.0,
        needs: vec![(PricedKind::Ssd, 2.0 * bytes)],
        is_advised: verdict.is_advised,
        is_for_speed: true,
        verdict: verdict.words,
    }
}

/// What other compressions and larger records would free, beside what the data takes now.
fn of_records(answers: &[(&'static str, RecordAnswer)]) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for (name, answer) in answers {
        for record in [128 << 10, 1 << 20] {
            let Some([bytes, error, now]) = answer.space_of(record) else { continue };
            let (what, saves) = (format!("compression={name}, recordsize={}", nicebytes(record)), now - bytes);
            let is_advised = saves - error > now * WORTH;
            let verdict = match saves {
                saves if is_advised => format!(
                    "Would free {}, {:.0} % of {}, once all is written again: what is there stays as it is.\n",
                    nicebytes(saves as u64),
                    saves / now * 100.0,
                    nicebytes(now as u64)
                ),
                saves if saves > 0.0 => "Would free next to nothing: not worth writing all again.\n".to_owned(),
                saves => format!("Would take {} more than there is now.\n", nicebytes(-saves as u64)),
            };
            proposals.push(Proposal {
                what,
                frees: saves,
                error,
                needs: Vec::new(),
                is_advised,
                is_for_speed: false,
                verdict,
            });
        }
    }
    proposals
}

fn of_log(demand: &LogDemand) -> Proposal {
    let size = demand.log_bytes().unwrap_or(LOG_BYTES_MIN) as f64;
    let is_advised = demand.bytes_a_day >= LOGGED_A_DAY;
    let logged = nicebytes(demand.bytes_a_day as u64);
    let verdict = match is_advised {
        true => format!(
            "It logs {logged} a day: measure an SSD for it (cenote advise slog DEVICE --for {}).\n",
            demand.pool
        ),
        false => format!("Do not buy a log device: it logs {logged} a day.\n"),
    };
    let what = format!("log device of {}, mirrored", nicebytes(size as u64));
    Proposal {
        what,
        frees: 0.0,
        error: 0.0,
        needs: vec![(PricedKind::Ssd, 2.0 * size)],
        is_advised,
        is_for_speed: true,
        verdict,
    }
}

fn money(amount: Option<f64>) -> String {
    // nothing is not less than nothing
    amount.map_or_else(|| "-".to_owned(), |amount| format!("{amount:.2}").replace("-0.00", "0.00"))
}

fn text(proposals: &[Proposal], prices: &Prices, bytes: f64) -> String {
    let mut text = format!(
        "{} of data. Gains are those of each proposal alone{}\n\n{:44} {:>9} {:>18} {:>9} {:>9}\n",
        nicebytes(bytes as u64),
        if prices.is_empty() { "; with --prices, by gain for the money." } else { ", the best for the money first." },
        "PROPOSAL",
        "FREES",
        "NEEDS",
        "COSTS",
        "NET"
    );
    for proposal in proposals {
        text += &format!(
            "{:44} {:>9} {:>18} {:>9} {:>9}\n",
            proposal.what,
            proposal.frees_text(),
            proposal.needs_text(),
            money(proposal.cost(prices)),
            money(proposal.net(prices))
        );
    }
    text.push('\n');
    for (number, proposal) in proposals.iter().enumerate() {
        text += &format!("{}. {}: {}", nicenum(number as u64 + 1), proposal.what, proposal.verdict);
    }
    text += "What more memory or a cache device would serve: cenote advise cache --trace FILE.\n";
    text
}

fn json_of(proposals: &[Proposal], prices: &Prices) -> Value {
    let of = |proposal: &Proposal| {
        let needs = proposal.needs.iter().map(|(need, bytes)| json!({"kind": need.name(), "bytes": *bytes as u64}));
        json!({
            "proposal": proposal.what,
            "frees_bytes": proposal.frees as i64,
            "frees_error_bytes": proposal.error as u64,
            "needs": needs.collect::<Vec<_>>(),
            "cost": proposal.cost(prices),
            "net": proposal.net(prices),
            "is_advised": proposal.is_advised,
            "verdict": proposal.verdict.trim_end(),
        })
    };
    Value::Array(proposals.iter().map(of).collect())
}
