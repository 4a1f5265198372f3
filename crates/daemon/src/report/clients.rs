//! Clients of volumes, as they are told of.

use export::ServedClient;
use protocol::client_report::ClientReport;
use protocol::words::one_line;

/// A client of a volume of that name.
pub fn of<D>(protocol: &str, volume: &str, client: &ServedClient<D>) -> ClientReport {
    let ServedClient { number, name, sums, .. } = client;
    ClientReport {
        protocol: protocol.to_owned(),
        number: *number,
        // an initiator may call itself anything
        name: one_line(name),
        volume: volume.to_owned(),
        operations: sums.operations,
        bytes: sums.bytes,
    }
}
