//! What the kernel is told without having asked.

use std::sync::{Arc, OnceLock};

use base::Result;

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
        self.tell(node, "what it has of it", |channel| channel.invalidate(node));
    }

    /// The same, but of its contents only those from a byte on.
    pub(crate) fn invalidate_from(&self, node: u64, from: u64) {
        self.tell(node, "what it has of it", |channel| channel.invalidate_from(node, from));
    }

    /// Tells the kernel bytes of a node's contents, and so that it is at least as long. It may first want answers to
    /// other requests.
    pub(crate) fn store(&self, node: u64, offset: u64, bytes: &[u8]) {
        self.tell(node, "the size that it knew", |channel| channel.store(node, offset, bytes));
    }

    /// Has the kernel ask again for a name, also if it takes it for absent. It may first want answers to other requests.
    pub(crate) fn expire_name(&self, directory: u64, name: &[u8]) {
        self.tell(directory, "what it has of a name", |channel| channel.expire_name(directory, name));
    }

    /// Has the kernel drop what it keeps of a name, and what is mounted there.
    pub(crate) fn invalidate_name(&self, directory: u64, name: &[u8]) {
        self.tell(directory, "what it has of a name", |channel| channel.invalidate_name(directory, name));
    }

    /// Has the kernel drop what it keeps of a node's attributes.
    pub(crate) fn forget_attributes(&self, node: u64) {
        self.tell(node, "old attributes", |channel| channel.forget_attributes(node));
    }

    /// Whether the kernel has a node; what it keeps of its attributes it drops.
    pub(crate) fn knows(&self, node: u64) -> bool {
        self.0.get().is_none_or(|channel| channel.knows(node))
    }

    /// Sends what is to be said of a node; if that fails, the kernel keeps `what`.
    fn tell(&self, node: u64, what: &str, send: impl FnOnce(&Channel) -> Result<()>) {
        if let Some(channel) = self.0.get()
            && let Err(error) = send(channel)
        {
            tracing::debug!(node, "the kernel keeps {what}: {error}");
        }
    }
}
