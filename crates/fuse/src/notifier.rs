//! What the kernel is told without having asked.

use std::sync::{Arc, OnceLock};

use crate::channel::Channel;

/// The way to the kernel of one mount, once there is a connection.
#[derive(Default)]
pub(crate) struct Notifier(OnceLock<Arc<Channel>>);

impl Notifier {
    /// There is a connection.
    pub(crate) fn connected(&self, channel: Arc<Channel>) {
        // nobody has set it before: hands are shaken once
        let _ = self.0.set(channel);
    }

    /// Has the kernel drop what it keeps of a node's attributes.
    pub(crate) fn forget_attributes(&self, node: u64) {
        if let Some(channel) = self.0.get()
            && let Err(error) = channel.forget_attributes(node)
        {
            tracing::debug!(node, "the kernel keeps old attributes: {error}");
        }
    }
}
