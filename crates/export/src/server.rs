//! What the process of a pool knows of a server of disks, whatever protocol it speaks.

/// Serves disks to clients that connect.
pub trait DiskServer: Send + Sync + 'static {
    /// Whether clients use any disk.
    fn has_clients(&self) -> bool;

    /// Ends all connections.
    fn disconnect_all(&self);

    /// No request is done from when this returns until [`DiskServer::thaw`].
    fn freeze(&self);

    /// Requests are done again.
    fn thaw(&self);
}
