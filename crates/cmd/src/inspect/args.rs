//! What the kinds of things to inspect are told.

use crate::keys::KeyArgs;
use crate::offline::PoolArgs;

/// Arguments of what goes by device.
#[derive(clap::Args)]
pub(super) struct DeviceArgs {
    #[command(flatten)]
    pub(super) pool: PoolArgs,
    /// Print JSON
    #[arg(short)]
    pub(super) json: bool,
    /// Show whole configurations, and root pointers
    #[arg(short)]
    pub(super) verbose: bool,
    /// Only devices of this pool, by name or guid
    pub(super) name: Option<String>,
}

/// Arguments of what goes by pool.
#[derive(clap::Args)]
pub(super) struct PoolsArgs {
    #[command(flatten)]
    pub(super) pool: PoolArgs,
    /// Print JSON
    #[arg(short)]
    pub(super) json: bool,
    /// Pools, by name or guid
    #[arg(required = true, value_name = "POOL")]
    pub(super) names: Vec<String>,
}

/// Arguments of what shows objects.
#[derive(clap::Args)]
pub(super) struct ObjectArgs {
    #[command(flatten)]
    pub(super) pool: PoolArgs,
    #[command(flatten)]
    pub(super) keys: KeyArgs,
    /// Show more of each object: -vv contents, -vvv block pointers, -vvvv all copies
    #[arg(short, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// Numbers in full
    #[arg(short)]
    pub(super) parseable: bool,
    /// Pool, dataset or snapshot
    #[arg(value_name = "POOL[/DS][@SNAP]")]
    pub(super) dataset: String,
    /// Object numbers; -1 to -3 are space used by users, groups, projects [default: all]
    #[arg(value_name = "OBJECT", allow_negative_numbers = true)]
    pub(super) objects: Vec<i64>,
}

/// Arguments of what shows logs.
#[derive(clap::Args)]
pub(super) struct LogArgs {
    #[command(flatten)]
    pub(super) pool: PoolArgs,
    #[command(flatten)]
    pub(super) keys: KeyArgs,
    /// Pool, for the logs of all its datasets, or a dataset
    #[arg(value_name = "POOL[/DS]")]
    pub(super) dataset: String,
}
