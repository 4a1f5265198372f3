//! Text requests, and which targets an initiator is told of.

use std::mem::take;
use std::net::SocketAddr;

use base::Result;
use export::ClientSocket;

use crate::login::{LoggedIn, is_kept, is_near};
use crate::params::Params;
use crate::parts::ServerParts;
use crate::pdu::{CONTINUES, FINAL, NO_TAG, Pdu, PduHead, opcode};
use crate::target::Secret;
use crate::text;

/// The tag by which an initiator asks for the rest of a text.
const TEXT_REST: u32 = 1;
/// Longest answer: beyond that, targets are asked for by their names.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The text requests of one session.
pub(crate) struct Texts {
    pub(crate) params: Params,
    initiator: String,
    proven: Option<Secret>,
    /// The target of the session; none for discovery.
    own: Option<String>,
    address: Option<SocketAddr>,
    is_near: bool,
    /// What is left of an answer that is longer than a message.
    rest: Vec<u8>,
}

impl Texts {
    /// Those of a session that has begun.
    pub(crate) fn new(socket: &ClientSocket, agreed: &LoggedIn) -> Texts {
        Texts {
            params: agreed.params.clone(),
            initiator: agreed.initiator.clone(),
            proven: agreed.proven.clone(),
            own: agreed.unit.as_ref().map(|unit| unit.lun.target_name()),
            address: socket.local_address(),
            is_near: is_near(socket),
            rest: Vec::new(),
        }
    }

    /// The answer to a request, or its next part: each as long as the initiator takes them (RFC 7143, 11.11). `None` for
    /// what cannot be asked. Errors: `Corrupt`; those of reading the pool.
    pub(crate) fn answer(&mut self, shared: &ServerParts, pdu: &Pdu) -> Result<Option<(PduHead, Vec<u8>)>> {
        let rest = take(&mut self.rest);
        let mut out = match pdu.head.u32(20) {
            NO_TAG if pdu.head.is_final() => match self.whole(shared, pdu)? {
                Some(out) => out,
                None => return Ok(None),
            },
            TEXT_REST if !rest.is_empty() && pdu.data.is_empty() => rest,
            // requests in several parts are for logins
            _ => return Ok(None),
        };
        self.rest = out.split_off(out.len().min(self.params.receive_bytes as usize));
        let (flags, tag) = if self.rest.is_empty() { (FINAL, NO_TAG) } else { (CONTINUES, TEXT_REST) };
        let mut answer = PduHead::new(opcode::TEXT_RESPONSE, flags, pdu.head.tag());
        answer.0[8..16].copy_from_slice(&pdu.head.0[8..16]);
        answer.put_u32(20, tag);
        Ok(Some((answer, out)))
    }

    /// The whole answer; `None` if the request is for what cannot be agreed on any more.
    fn whole(&mut self, shared: &ServerParts, pdu: &Pdu) -> Result<Option<Vec<u8>>> {
        let (mut out, mut has_told) = (Vec::new(), false);
        for (key, value) in text::parse(&pdu.data)? {
            match &key[..] {
                // once in a request
                "SendTargets" if is_target(&value) && !std::mem::replace(&mut has_told, true) => {
                    self.send_targets(shared, &value, &mut out)?;
                }
                "MaxRecvDataSegmentLength" => {
                    let said = self.params.negotiate(&key, &value);
                    said.iter().for_each(|(key, value)| text::push(&mut out, key, value));
                }
                // nothing else is agreed on by now
                _ => return Ok(None),
            }
        }
        Ok(Some(out))
    }

    /// The targets that the initiator may use, at the address where it asks. One whose access cannot be read is left out.
    fn send_targets(&self, shared: &ServerParts, which: &str, out: &mut Vec<u8>) -> Result<()> {
        // of a session with a target, without a name: that target
        let wanted = if which.is_empty() { self.own.as_deref().unwrap_or("All") } else { which };
        let _alone = shared.looking.lock();
        for lun in shared.targets.all()? {
            let name = lun.target_name();
            let is_meant = match wanted {
                "All" => self.own.as_ref().is_none_or(|own| *own == name),
                _ => wanted == name,
            };
            if !is_meant {
                continue;
            }
            let access = match shared.targets.access(&*lun) {
                Ok(access) => access,
                Err(error) => {
                    tracing::debug!(target = name, "an initiator of iSCSI is not told of it: {error}");
                    continue;
                }
            };
            if access.admits(&self.initiator, self.proven.as_ref()) && is_kept(&access, self.is_near) {
                let before = out.len();
                text::push(out, "TargetName", &name);
                if let Some(address) = &self.address {
                    text::push(out, "TargetAddress", &format!("{address},1"));
                }
                if out.len() > ANSWER_BYTES_MAX {
                    out.truncate(before);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Whether it says which targets are wanted: all, that of the session, or one by its name.
fn is_target(text: &str) -> bool {
    matches!(text, "" | "All") || ["iqn.", "eui.", "naa."].iter().any(|form| text.starts_with(form))
}
