//! Something that can be done for a pool, with what it brings and what it needs.

use std::cmp::Ordering;

use protocol::words::nicenum::nicebytes;

use super::prices::{PricedKind, Prices};

const GIB: f64 = (1u64 << 30) as f64;

/// See the top of the file.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// In a few words.
    pub what: String,
    /// Bytes that it frees on disks, and how far off that may be; less than 0 if it takes more.
    pub frees: f64,
    pub error: f64,
    /// Bytes that it needs.
    pub needs: Vec<(PricedKind, f64)>,
    /// Whether it is worth doing.
    pub is_advised: bool,
    /// Whether it is meant to make things faster rather than to free room.
    pub is_for_speed: bool,
    /// In words.
    pub verdict: String,
}

impl Proposal {
    /// What it costs, if all that it needs has a price.
    pub fn cost(&self, prices: &Prices) -> Option<f64> {
        self.needs.iter().try_fold(0.0, |sum, (need, bytes)| Some(sum + prices.of(*need)? * bytes / GIB))
    }

    /// What it frees is worth, less what it costs.
    pub fn net(&self, prices: &Prices) -> Option<f64> {
        Some(prices.disk()? * self.frees / GIB - self.cost(prices)?)
    }

    /// What is advised comes first; then what has most left for the money, or frees most.
    pub fn order(&self, other: &Proposal, prices: &Prices) -> Ordering {
        let gain = |proposal: &Proposal| match prices.is_empty() {
            true => proposal.frees,
            false => proposal.net(prices).unwrap_or(f64::NEG_INFINITY),
        };
        other.is_advised.cmp(&self.is_advised).then(gain(other).total_cmp(&gain(self)))
    }

    /// What it frees, as people read it.
    pub fn frees_text(&self) -> String {
        match self.frees {
            frees if frees < 0.0 => format!("-{}", nicebytes(-frees as u64)),
            _ if self.is_for_speed => "speed".to_owned(),
            frees => nicebytes(frees as u64),
        }
    }

    /// What it needs, as people read it.
    pub fn needs_text(&self) -> String {
        match self.needs.is_empty() {
            true => "-".to_owned(),
            false => {
                let all =
                    self.needs.iter().map(|(need, bytes)| format!("{} {}", nicebytes(*bytes as u64), need.name()));
                all.collect::<Vec<_>>().join(", ")
            }
        }
    }
}
