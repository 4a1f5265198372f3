//! What both sides agree on, key by key: RFC 7143, section 13.

use crate::pdu::{DATA_BYTES_MAX, Digests};

/// Most bytes of one sequence of data.
const BURST_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of data that nobody asked for.
const FIRST_BURST_BYTES_MAX: u32 = 256 << 10;
/// Numbers of keys are below this.
const NUMBER_MAX: u32 = 0xff_ffff;

/// What was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) digests: Digests,
    /// Data that the initiator takes in one message.
    pub(crate) receive_bytes: u32,
    /// Data of one sequence.
    pub(crate) burst_bytes: u32,
    /// Data that come with a command, or behind it, without being asked for.
    pub(crate) first_burst_bytes: u32,
    /// No data come behind a command without being asked for.
    pub(crate) initial_ready: bool,
    /// Data may come with a command.
    pub(crate) immediate_data: bool,
    /// This side has said what it takes itself.
    pub(crate) has_told_receive: bool,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            digests: Digests::default(),
            receive_bytes: 8192,
            burst_bytes: 256 << 10,
            first_burst_bytes: 64 << 10,
            initial_ready: true,
            immediate_data: true,
            has_told_receive: false,
        }
    }
}

impl Params {
    /// Takes what the initiator says of a key; returns what this side says to that, keys and values.
    pub(crate) fn negotiate(&mut self, key: &str, value: &str) -> Vec<(String, String)> {
        let said = |value: &str| vec![(key.to_owned(), value.to_owned())];
        let is_yes = match value {
            "Yes" => Some(true),
            "No" => Some(false),
            _ => None,
        };
        let word = |yes: bool| said(if yes { "Yes" } else { "No" });
        let rejected = || said("Reject");
        let number = number(value);
        let least = |max: u32| number.map_or_else(rejected, |number| said(&number.min(max).to_string()));
        match key {
            "HeaderDigest" | "DataDigest" => {
                let Some(chosen) = value.split(',').find(|sum| ["CRC32C", "None"].contains(sum)) else {
                    return rejected();
                };
                let has = if key == "HeaderDigest" { &mut self.digests.head } else { &mut self.digests.data };
                *has = chosen == "CRC32C";
                said(chosen)
            }
            "MaxRecvDataSegmentLength" => {
                let Some(number) = number.filter(|number| *number >= 512) else { return rejected() };
                self.receive_bytes = number;
                match std::mem::replace(&mut self.has_told_receive, true) {
                    true => Vec::new(),
                    false => said(&DATA_BYTES_MAX.to_string()),
                }
            }
            "MaxBurstLength" | "FirstBurstLength" => {
                let Some(number) = number.filter(|number| *number >= 512) else { return rejected() };
                let (bytes, max) = match key {
                    "MaxBurstLength" => (&mut self.burst_bytes, BURST_BYTES_MAX),
                    _ => (&mut self.first_burst_bytes, FIRST_BURST_BYTES_MAX),
                };
                *bytes = number.min(max);
                said(&bytes.to_string())
            }
            "InitialR2T" => is_yes.map_or_else(rejected, |yes| {
                self.initial_ready = yes;
                word(yes)
            }),
            "ImmediateData" => is_yes.map_or_else(rejected, |yes| {
                self.immediate_data = yes;
                word(yes)
            }),
            "DataPDUInOrder" | "DataSequenceInOrder" => is_yes.map_or_else(rejected, |_| word(true)),
            "MaxConnections" | "MaxOutstandingR2T" => match number {
                Some(0) => rejected(),
                _ => least(1),
            },
            "ErrorRecoveryLevel" | "DefaultTime2Retain" => least(0),
            "DefaultTime2Wait" => least(3600),
            "iSCSIProtocolLevel" => least(1),
            "TaskReporting" => said("RFC3720"),
            "IFMarker" | "OFMarker" => word(false),
            "IFMarkInt" | "OFMarkInt" => rejected(),
            // what only says something
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => Vec::new(),
            _ => said("NotUnderstood"),
        }
    }

    /// What this side says of itself, if nobody has asked for it.
    pub(crate) fn own(&mut self) -> Option<(String, String)> {
        let has_told = std::mem::replace(&mut self.has_told_receive, true);
        (!has_told).then(|| ("MaxRecvDataSegmentLength".to_owned(), DATA_BYTES_MAX.to_string()))
    }
}

fn number(value: &str) -> Option<u32> {
    let parsed = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    parsed.filter(|number| *number <= NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_agreed_on() {
        let mut params = Params::default();
        let mut say = |key: &str, value: &str| {
            let said = params.negotiate(key, value);
            said.first().map(|(_, value)| value.clone()).unwrap_or_default()
        };
        assert_eq!(say("HeaderDigest", "CRC32C,None"), "CRC32C");
        assert_eq!(say("DataDigest", "x,None,CRC32C"), "None");
        assert_eq!(say("DataDigest", "x"), "Reject");
        assert_eq!(say("MaxRecvDataSegmentLength", "0x10000"), DATA_BYTES_MAX.to_string());
        assert_eq!(say("MaxRecvDataSegmentLength", "511"), "Reject");
        assert_eq!(say("MaxRecvDataSegmentLength", "4096"), "", "it is told once");
        assert_eq!(say("MaxBurstLength", "16776192"), BURST_BYTES_MAX.to_string());
        assert_eq!(say("FirstBurstLength", "65536"), "65536");
        assert_eq!(say("InitialR2T", "No"), "No");
        assert_eq!(say("ImmediateData", "maybe"), "Reject");
        assert_eq!(say("MaxConnections", "8"), "1");
        assert_eq!(say("MaxConnections", "0"), "Reject");
        assert_eq!(say("ErrorRecoveryLevel", "2"), "0");
        assert_eq!(say("OFMarker", "Yes"), "No");
        assert_eq!(say("X-com.me", "1"), "NotUnderstood");
        assert_eq!(params.receive_bytes, 4096);
        assert!(params.digests.head && !params.digests.data && !params.initial_ready);
        assert!(params.own().is_none() && Params::default().own().is_some());
    }
}
