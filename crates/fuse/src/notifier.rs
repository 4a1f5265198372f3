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

    /// Has the kernel write back what it has of a node's contents, and drop it with the node's attributes. It may first
    /// want answers to other requests.
    pub(crate) fn invalidate(&self, node: u64) {
        if let Some(channel) = self.0.get()
            && let Err(error) = channel.invalidate(node)
        {
            tracing::debug!(node, "the kernel keeps what it has of it: {error}");
        }
    }

    /// Has the kernel ask again for a name, also if it takes it for absent. It may first want answers to other requests.
    pub(crate) fn expire_name(&self, directory: u64, name: &[u8]) {
        if let Some(channel) = self.0.get()
            && let Err(error) = channel.expire_name(directory, name)
        {
            tracing::debug!(directory, "the kernel keeps what it has of a name: {error}");
        }
    }

    /// Has the kernel drop what it keeps of a name, and what is mounted there.
    pub(crate) fn invalidate_name(&self, directory: u64, name: &[u8]) {
        if let Some(channel) = self.0.get()
            && let Err(error) = channel.invalidate_name(directory, name)
        {
            tracing::debug!(directory, "the kernel keeps what it has of a name: {error}");
        }
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
