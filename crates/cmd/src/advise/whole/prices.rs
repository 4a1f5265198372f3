//! What a GiB costs.

use std::path::Path;

use serde::Deserialize;

/// Bytes of a file with prices, at most.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Prices of a GiB, in any money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// On disks, as it can be used: what parity and mirrors take is in it.
    disk: Option<f64>,
    /// On SSDs.
    ssd: Option<f64>,
    /// Of memory.
    ram: Option<f64>,
}

/// What a proposal may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PricedKind {
    /// Room on SSDs.
    Ssd,
    /// Memory.
    Ram,
}

impl PricedKind {
    /// As prices call it.
    pub fn name(self) -> &'static str {
        match self {
            PricedKind::Ssd => "ssd",
            PricedKind::Ram => "ram",
        }
    }
}

impl Prices {
    /// Those in a file. Errors: it cannot be read; it has something else.
    pub fn read(path: &Path) -> Result<Prices, String> {
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let about = std::fs::metadata(path).map_err(|error| said(&error))?;
        if !about.is_file() || about.len() > FILE_BYTES_MAX {
            return Err(said(&"no file of prices"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
        Prices::parse(&text).map_err(|error| said(&error))
    }

    /// Those in a text. Errors: it has something else.
    pub fn parse(text: &str) -> Result<Prices, String> {
        let prices: Prices = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let is_price = |price: f64| price.is_finite() && price >= 0.0;
        match [prices.disk, prices.ssd, prices.ram].into_iter().flatten().all(is_price) {
            true => Ok(prices),
            false => Err("a price is below 0".to_owned()),
        }
    }

    /// Whether nothing has a price.
    pub fn is_empty(&self) -> bool {
        *self == Prices::default()
    }

    /// What a GiB on disks costs.
    pub fn disk(&self) -> Option<f64> {
        self.disk
    }

    /// What a GiB of something costs.
    pub fn of(&self, need: PricedKind) -> Option<f64> {
        match need {
            PricedKind::Ssd => self.ssd,
            PricedKind::Ram => self.ram,
        }
    }
}
