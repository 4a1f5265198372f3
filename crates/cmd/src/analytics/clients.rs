//! What each client of a pool's volumes asks for in a second.

use std::collections::HashMap;

use protocol::client_report::{ClientReport, ClientsReport};
use serde::Serialize;

use super::series::rounded;
use crate::device_rates::rate;

/// Clients that are shown.
const CLIENTS_MAX: usize = 64;

/// A client, as it is sent: protocol, name, volume; reads, bytes read, writes, bytes written and other requests a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClientRates(pub String, pub String, pub String, pub [f32; 5]);

/// The clients of a pool, as they were seen last.
#[derive(Default)]
pub struct ClientWatch {
    seen: ClientsReport,
}

impl ClientWatch {
    /// Rates since the last time, of those through which most bytes go, and how many clients there are. One that is new
    /// has had nothing before.
    pub fn rates(&mut self, now: ClientsReport) -> (Vec<ClientRates>, usize) {
        let seconds = now.now_ns.saturating_sub(self.seen.now_ns) as f64 / 1e9;
        let known: HashMap<_, _> = self.seen.clients.iter().map(|client| (key(client), client)).collect();
        let none = ClientReport::default();
        let one = |client: &ClientReport| {
            let before = known.get(&key(client)).copied().unwrap_or(&none);
            let operation = |at: usize| rate(before.operations[at], client.operations[at], seconds);
            let bytes = |at: usize| rate(before.bytes[at], client.bytes[at], seconds);
            let rates = [operation(0), bytes(0), operation(1), bytes(1), operation(2)];
            ClientRates(client.protocol.clone(), client.name.clone(), client.volume.clone(), rates.map(rounded))
        };
        let mut rates: Vec<ClientRates> = now.clients.iter().map(one).collect();
        let bytes = |ClientRates(.., rates): &ClientRates| rates[1] + rates[3];
        let names =
            |ClientRates(protocol, name, volume, _): &ClientRates| (volume.clone(), protocol.clone(), name.clone());
        rates.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)).then_with(|| names(a).cmp(&names(b))));
        rates.truncate(CLIENTS_MAX);
        let count = now.clients.len();
        self.seen = now;
        (rates, count)
    }
}

fn key(client: &ClientReport) -> (&str, &str, u64) {
    (&client.protocol, &client.volume, client.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_each_client() {
        let client = |number: u64, name: &str, times: u64| ClientReport {
            protocol: "nbd".into(),
            number,
            name: name.into(),
            volume: "tank/v".into(),
            operations: [10 * times, 20 * times, times],
            bytes: [4096 * times, 512 * times],
        };
        let report = |at_s: u64, clients: Vec<ClientReport>| ClientsReport { now_ns: at_s * 1_000_000_000, clients };
        let mut watch = ClientWatch::default();
        assert_eq!(watch.rates(report(10, vec![client(1, "a", 2)])).1, 1);
        // one that goes on, one that has come
        let (rates, count) = watch.rates(report(12, vec![client(1, "a", 4), client(2, "b", 4)]));
        let shown: Vec<(&str, [f32; 5])> = rates.iter().map(|rates| (&*rates.1, rates.3)).collect();
        let [b, a] = [("b", [20.0, 8192.0, 40.0, 1024.0, 2.0]), ("a", [10.0, 4096.0, 20.0, 512.0, 1.0])];
        assert_eq!((shown, count), (vec![b, a], 2));
        // another connection with the same number, as of a pool that was imported anew
        let (rates, _) = watch.rates(report(13, vec![client(1, "c", 1)]));
        assert_eq!(rates[0].3, [10.0, 4096.0, 20.0, 512.0, 1.0]);
        let many: Vec<ClientReport> = (0..100).map(|n| client(n, "x", n)).collect();
        let (rates, count) = watch.rates(report(14, many));
        assert_eq!((rates.len(), count, rates[0].3[0]), (CLIENTS_MAX, 100, 990.0));
    }
}
