//! Why a command fails.

use base::{Error, Kind};

/// Status CHECK CONDITION and RESERVATION CONFLICT.
pub(crate) const CHECK_CONDITION: u8 = 0x02;
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;

/// Sense data of the fixed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sense {
    key: u8,
    code: u8,
    qualifier: u8,
    /// Where data differ.
    information: Option<u32>,
}

impl Sense {
    pub(crate) const NONE: Sense = Sense::new(0x0, 0x00, 0x00);
    pub(crate) const READ_ERROR: Sense = Sense::new(0x3, 0x11, 0x00);
    pub(crate) const INVALID_OPCODE: Sense = Sense::new(0x5, 0x20, 0x00);
    pub(crate) const INVALID_FIELD: Sense = Sense::new(0x5, 0x24, 0x00);
    pub(crate) const INVALID_PARAMETER: Sense = Sense::new(0x5, 0x26, 0x00);
    pub(crate) const INVALID_RELEASE: Sense = Sense::new(0x5, 0x26, 0x04);
    pub(crate) const PARAMETER_LENGTH: Sense = Sense::new(0x5, 0x1a, 0x00);
    pub(crate) const OUT_OF_RANGE: Sense = Sense::new(0x5, 0x21, 0x00);
    pub(crate) const NO_UNIT: Sense = Sense::new(0x5, 0x25, 0x00);
    pub(crate) const INVALID_MESSAGE: Sense = Sense::new(0x5, 0x49, 0x00);
    pub(crate) const TOO_MANY_REGISTRATIONS: Sense = Sense::new(0x5, 0x55, 0x04);
    pub(crate) const WRITE_PROTECTED: Sense = Sense::new(0x7, 0x27, 0x00);
    pub(crate) const NO_SPACE: Sense = Sense::new(0x7, 0x27, 0x07);
    pub(crate) const DATA_PHASE: Sense = Sense::new(0xb, 0x4b, 0x00);
    pub(crate) const TARGET_FAILURE: Sense = Sense::new(0x4, 0x44, 0x00);
    /// Attentions.
    pub(crate) const RESET: (u8, u8) = (0x29, 0x03);
    pub(crate) const MODE_CHANGED: (u8, u8) = (0x2a, 0x01);
    pub(crate) const CAPACITY_CHANGED: (u8, u8) = (0x2a, 0x09);
    pub(crate) const RESERVATIONS_PREEMPTED: (u8, u8) = (0x2a, 0x03);
    pub(crate) const RESERVATIONS_RELEASED: (u8, u8) = (0x2a, 0x04);
    pub(crate) const REGISTRATIONS_PREEMPTED: (u8, u8) = (0x2a, 0x05);

    const fn new(key: u8, code: u8, qualifier: u8) -> Sense {
        Sense { key, code, qualifier, information: None }
    }

    /// What has happened to the unit since the initiator last asked.
    pub(crate) const fn attention((code, qualifier): (u8, u8)) -> Sense {
        Sense::new(0x6, code, qualifier)
    }

    /// Data differ, from that byte on.
    pub(crate) fn miscompare(at: usize) -> Sense {
        Sense { information: u32::try_from(at).ok(), ..Sense::new(0xe, 0x1d, 0x00) }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; 18];
        bytes[0] = 0x70 | if self.information.is_some() { 0x80 } else { 0 };
        bytes[2] = self.key;
        bytes[3..7].copy_from_slice(&self.information.unwrap_or(0).to_be_bytes());
        bytes[7] = 10;
        (bytes[12], bytes[13]) = (self.code, self.qualifier);
        bytes
    }
}

/// How a command ends that does not succeed.
#[derive(Debug)]
pub(crate) enum ScsiFailure {
    Sense(Sense),
    Conflict,
    /// It is to be done again when the pool goes on.
    Suspended(Error),
}

impl From<Sense> for ScsiFailure {
    fn from(sense: Sense) -> ScsiFailure {
        ScsiFailure::Sense(sense)
    }
}

impl From<Error> for ScsiFailure {
    fn from(error: Error) -> ScsiFailure {
        let sense = match error.kind() {
            Kind::Suspended => return ScsiFailure::Suspended(error),
            Kind::NoSpace | Kind::Quota => Sense::NO_SPACE,
            Kind::ReadOnly | Kind::Permission => Sense::WRITE_PROTECTED,
            Kind::NotFound => Sense::NO_UNIT,
            Kind::Io | Kind::Corrupt | Kind::Missing => Sense::READ_ERROR,
            _ => Sense::TARGET_FAILURE,
        };
        tracing::warn!("a command of iSCSI failed: {error}");
        sense.into()
    }
}
