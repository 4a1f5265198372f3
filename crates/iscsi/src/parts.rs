//! The parts of a server that its connections share.

use std::sync::Arc;

use base::{Env, Mutex};
use export::{Gate, Parking};

use crate::incoming::SharedRoom;
use crate::target::Targets;

/// What all connections of a server share.
#[derive(Clone)]
pub(crate) struct ServerParts {
    pub(crate) env: Env,
    pub(crate) targets: Arc<dyn Targets>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) parking: Arc<Parking>,
    /// Held by what looks for targets: strangers may ask for that, and get one thread's time together.
    pub(crate) looking: Arc<Mutex<()>>,
    /// What all have asked for to be written.
    pub(crate) asked: SharedRoom,
}
