//! The challenge handshake: each side proves that it knows a secret without saying it.
//!
//! ```text
//!   initiator   AuthMethod=CHAP,...      target   AuthMethod=CHAP
//!               CHAP_A=5,7                        CHAP_A, CHAP_I, CHAP_C     the challenge
//!               CHAP_N, CHAP_R                    nothing                    a name, and what follows from its secret
//!               CHAP_I, CHAP_C                    CHAP_N, CHAP_R             and the other way round
//! ```

use base::Env;
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::target::Secret;
use crate::text::{binary, to_hex};

/// Longest challenge.
const CHALLENGE_BYTES_MAX: usize = 1024;

/// The sums that both sides know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChapSum {
    Md5,
    Sha256,
}

/// A handshake under way.
pub(crate) struct Chap {
    sum: ChapSum,
    id: u8,
    challenge: Vec<u8>,
}

impl Chap {
    /// One with the best sum of those that an initiator knows; `None` if there is none.
    pub(crate) fn begin(env: &Env, sums: &str) -> Option<Chap> {
        let knows = |number: &str| sums.split(',').any(|sum| sum == number);
        let sum = if knows("7") {
            ChapSum::Sha256
        } else if knows("5") {
            ChapSum::Md5
        } else {
            return None;
        };
        // its length is that of the sum
        let words = if sum == ChapSum::Sha256 { 4 } else { 2 };
        let challenge = (0..words).flat_map(|_| env.random().to_be_bytes()).collect();
        Some(Chap { sum, id: env.random() as u8, challenge })
    }

    /// The keys by which the initiator learns of it.
    pub(crate) fn keys(&self) -> [(&'static str, String); 3] {
        let sum = if self.sum == ChapSum::Sha256 { "7" } else { "5" };
        [("CHAP_A", sum.into()), ("CHAP_I", self.id.to_string()), ("CHAP_C", to_hex(&self.challenge))]
    }

    /// Whether the initiator that answers under that name knows a secret.
    pub(crate) fn is_proven(&self, known: &Secret, name: &str, response: &str) -> bool {
        let is_known =
            |response: Vec<u8>| is_same(&self.sum.response(self.id, &known.secret, &self.challenge), &response);
        known.name == name && binary(response).is_some_and(is_known)
    }

    /// The target's own proof; `None` if what was asked makes no sense.
    pub(crate) fn prove(&self, own: &Secret, id: &str, challenge: &str) -> Option<[(&'static str, String); 2]> {
        let (id, challenge) = (id.parse::<u8>().ok()?, binary(challenge)?);
        // an answer to our own challenge could be given back to us
        if challenge.is_empty() || challenge.len() > CHALLENGE_BYTES_MAX || challenge == self.challenge {
            return None;
        }
        let response = to_hex(&self.sum.response(id, &own.secret, &challenge));
        Some([("CHAP_N", own.name.clone()), ("CHAP_R", response)])
    }
}

impl ChapSum {
    fn response(self, id: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
        let of = [&[id], secret.as_bytes(), challenge].concat();
        match self {
            ChapSum::Md5 => Md5::digest(of).to_vec(),
            ChapSum::Sha256 => Sha256::digest(of).to_vec(),
        }
    }
}

/// In a time that tells nothing of where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_proven() {
        let secrets = crate::target::ChapSecrets::parse("initiator me 123456789012\ntarget you 210987654321").unwrap();
        let env = Env::fixed(0);
        assert!(Chap::begin(&env, "1,2").is_none());
        let chap = Chap::begin(&env, "5,6,7").unwrap();
        assert_eq!((chap.sum, chap.challenge.len()), (ChapSum::Sha256, 32));
        let chap = Chap { sum: ChapSum::Md5, id: 9, challenge: vec![1, 2, 3] };
        // md5 of 09 "123456789012" 010203
        let right = to_hex(&Md5::digest(b"\x09123456789012\x01\x02\x03"));
        let (own, of_target) = (&secrets.initiators[0], secrets.target.as_ref().unwrap());
        assert!(chap.is_proven(own, "me", &right));
        assert!(!chap.is_proven(own, "you", &right) && !chap.is_proven(own, "me", "0x00"));
        assert!(!chap.is_proven(of_target, "you", &right));
        let proof = chap.prove(of_target, "4", "0x0405").unwrap();
        assert_eq!(proof[0].1, "you");
        assert_eq!(proof[1].1, to_hex(&Md5::digest(b"\x04210987654321\x04\x05")));
        assert!(chap.prove(of_target, "4", "0x010203").is_none(), "our own challenge");
    }
}
