//! The login: what an initiator and a target agree on.
//!
//! ```text
//!   stage 0   its name, and how it proves that        AuthMethod, CHAP_...
//!   stage 1   all other keys                          may be the first, where nothing is to be proven
//!   stage 3   full feature phase
//! ```
//!
//! A stage ends when the initiator asks for the next one, and nothing is left to be done in it.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use base::{Env, Error, Mutex, Result};
use export::ClientSocket;

use crate::chap::Chap;
use crate::outgoing::write;
use crate::params::Params;
use crate::parts::ServerParts;
use crate::pdu::{CONTINUES, Digests, EARLY_DATA_BYTES_MAX, Pdu, PduHead, opcode};
use crate::scsi::LogicalUnit;
use crate::target::{Lun, Secret, TargetAccess, Targets};
use crate::text;

/// How long a login may take: an initiator that goes on byte by byte has its connection no longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Secrets that one initiator may prove.
const SECRETS_MAX: usize = 64;
/// Messages of one login.
const MESSAGES_MAX: usize = 64;
/// Flag: to the next stage.
const TRANSIT: u8 = 0x80;
/// The stages.
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// Why a login fails: class and detail.
mod failure {
    pub(super) const INITIATOR_ERROR: (u8, u8) = (2, 0);
    pub(super) const NOT_PROVEN: (u8, u8) = (2, 1);
    pub(super) const NOT_ALLOWED: (u8, u8) = (2, 2);
    pub(super) const NO_TARGET: (u8, u8) = (2, 3);
    pub(super) const VERSION: (u8, u8) = (2, 5);
    pub(super) const TOO_MANY_CONNECTIONS: (u8, u8) = (2, 6);
    pub(super) const MISSING_KEY: (u8, u8) = (2, 7);
    pub(super) const SESSION_TYPE: (u8, u8) = (2, 9);
    pub(super) const NO_SESSION: (u8, u8) = (2, 0xa);
    pub(super) const TARGET_ERROR: (u8, u8) = (3, 0);
}

/// What was agreed on.
pub(crate) struct LoggedIn {
    pub(crate) initiator: String,
    /// The secret that the initiator has proven, if any.
    pub(crate) proven: Option<Secret>,
    /// The port of the initiator: its name and the number of its session.
    pub(crate) port: String,
    /// None for discovery.
    pub(crate) unit: Option<Arc<LogicalUnit>>,
    pub(crate) params: Params,
    /// Numbers of the next command and the next answer.
    pub(crate) next_command: u32,
    pub(crate) next_answer: u32,
}

/// What a login needs of the server.
pub(crate) trait Sessions {
    /// The unit of a disk, which all its sessions share.
    fn unit_of(&self, lun: Arc<dyn Lun>) -> Arc<LogicalUnit>;

    /// Ends the session of a port with a unit, if there is one, and gives its successor a number.
    fn begin(&self, port: &str, unit: Option<&LogicalUnit>) -> u16;

    /// Whether there is a session of that number.
    fn has(&self, session: u16) -> bool;
}

/// What a client sends in time.
pub(crate) struct InTime<'a> {
    pub(crate) env: &'a Env,
    pub(crate) socket: &'a ClientSocket,
    pub(crate) until_ns: u64,
}

impl Read for InTime<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let left_ns = self.until_ns.saturating_sub(self.env.ticks_ns());
        if left_ns == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
        self.socket.read(buf)
    }
}

/// A login at work.
struct Login<'a> {
    env: &'a Env,
    targets: &'a dyn Targets,
    looking: &'a Mutex<()>,
    sessions: &'a dyn Sessions,
    params: Params,
    initiator: Option<String>,
    target: Option<String>,
    is_discovery: bool,
    /// Whether the initiator is at this machine.
    is_near: bool,
    /// The unit, once it is known which initiator wants it.
    unit: Option<Arc<LogicalUnit>>,
    /// The secrets that this initiator may prove, each with that of the target.
    secrets: Vec<(Secret, Option<Secret>)>,
    /// Whether one has to be proven.
    has_to_prove: bool,
    is_checked: bool,
    chap: Option<Chap>,
    proven: Option<Secret>,
    has_told_group: bool,
    next_answer: u32,
}

/// An answer to one request.
struct LoginAnswer {
    flags: u8,
    status: (u8, u8),
    text: Vec<u8>,
}

/// Logs an initiator in. `None` if it fails, which it has been told. Errors: `Corrupt` for what makes no sense; those of
/// the connection.
pub(crate) fn log_in(shared: &ServerParts, socket: &ClientSocket, sessions: &dyn Sessions) -> Result<Option<LoggedIn>> {
    let env = &shared.env;
    let until_ns = env.ticks_ns().saturating_add(PATIENCE.as_nanos() as u64);
    let mut incoming = InTime { env, socket, until_ns };
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut login = Login {
        env,
        targets: &*shared.targets,
        looking: &shared.looking,
        sessions,
        params: Params::default(),
        initiator: None,
        target: None,
        is_discovery: false,
        is_near: is_near(socket),
        unit: None,
        secrets: Vec::new(),
        has_to_prove: false,
        is_checked: false,
        chap: None,
        proven: None,
        has_told_group: false,
        next_answer: 0,
    };
    let (mut text, mut is_first) = (Vec::new(), true);
    for _ in 0..MESSAGES_MAX {
        let pdu = Pdu::read_within(&mut incoming, Digests::default(), EARLY_DATA_BYTES_MAX)?;
        if pdu.head.opcode() != opcode::LOGIN {
            return Err(Error::corrupt("a message before the login"));
        }
        if std::mem::replace(&mut is_first, false) {
            login.next_answer = pdu.head.u32(28);
        }
        text.extend(&pdu.data);
        if text.len() > text::TEXT_BYTES_MAX {
            return Err(Error::corrupt("a login with too much text"));
        }
        let continues = pdu.head.flags() & CONTINUES != 0;
        let answer = match continues {
            true => LoginAnswer { flags: pdu.head.flags() & 0x0c, status: (0, 0), text: Vec::new() },
            false => login.request(&pdu.head, &std::mem::take(&mut text)),
        };
        let is_done = answer.flags & TRANSIT != 0 && answer.flags & 3 == FULL_FEATURE;
        let session = if is_done { login.begin(&pdu.head) } else { pdu.head.u16(14) };
        login.send(socket, &pdu.head, session, &answer)?;
        if answer.status.0 != 0 {
            tracing::debug!(initiator = login.initiator, status = ?answer.status, "a login of iSCSI failed");
            return Ok(None);
        }
        if is_done {
            return Ok(Some(login.done(&pdu.head)));
        }
    }
    Err(Error::corrupt("a login without an end"))
}

impl Login<'_> {
    fn request(&mut self, head: &PduHead, text: &[u8]) -> LoginAnswer {
        self.try_request(head, text).unwrap_or_else(|status| LoginAnswer { flags: 0, status, text: Vec::new() })
    }

    fn try_request(&mut self, head: &PduHead, text: &[u8]) -> Result<LoginAnswer, (u8, u8)> {
        let (stage, next) = (head.flags() >> 2 & 3, head.flags() & 3);
        let wants_next = head.flags() & TRANSIT != 0;
        // the least version that it speaks
        if head.0[3] != 0 {
            return Err(failure::VERSION);
        }
        let goes_on = next > stage && matches!(next, OPERATIONAL | FULL_FEATURE);
        if stage > OPERATIONAL || wants_next && !goes_on {
            return Err(failure::INITIATOR_ERROR);
        }
        let pairs = text::parse(text).map_err(|_| failure::INITIATOR_ERROR)?;
        self.take_names(&pairs)?;
        self.check(head)?;
        let mut out = Vec::new();
        if stage == SECURITY {
            self.security(&pairs, &mut out)?;
        }
        if self.has_to_prove && self.proven.is_none() && stage != SECURITY {
            return Err(failure::NOT_PROVEN);
        }
        if !self.has_told_group && !self.is_discovery {
            self.has_told_group = true;
            text::push(&mut out, "TargetPortalGroupTag", "1");
        }
        let is_ready = stage == OPERATIONAL || !self.has_to_prove || self.proven.is_some();
        if stage == OPERATIONAL {
            for (key, value) in &pairs {
                self.params.negotiate(key, value).iter().for_each(|(key, value)| text::push(&mut out, key, value));
            }
        }
        if stage == OPERATIONAL
            && let Some((key, value)) = self.params.own()
        {
            text::push(&mut out, &key, &value);
        }
        let flags = stage << 2 | if wants_next && is_ready { TRANSIT | next } else { 0 };
        Ok(LoginAnswer { flags, status: (0, 0), text: out })
    }

    /// Its name, and what it wants: said once.
    fn take_names(&mut self, pairs: &[(String, String)]) -> Result<(), (u8, u8)> {
        for (key, value) in pairs {
            match &key[..] {
                "InitiatorName" if self.initiator.is_none() && is_name(value) => self.initiator = Some(value.clone()),
                "TargetName" if self.target.is_none() && is_name(value) => self.target = Some(value.clone()),
                "InitiatorName" if self.initiator.as_ref() != Some(value) => return Err(failure::INITIATOR_ERROR),
                "TargetName" if self.target.as_ref() != Some(value) => return Err(failure::INITIATOR_ERROR),
                "SessionType" if self.is_checked => return Err(failure::INITIATOR_ERROR),
                "SessionType" => match &value[..] {
                    "Discovery" => self.is_discovery = true,
                    "Normal" => {}
                    _ => return Err(failure::SESSION_TYPE),
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the initiator may use the target, and what it has to prove.
    fn check(&mut self, head: &PduHead) -> Result<(), (u8, u8)> {
        if std::mem::replace(&mut self.is_checked, true) {
            return Ok(());
        }
        let session = head.u16(14);
        if session != 0 {
            let known = self.sessions.has(session);
            return Err(if known { failure::TOO_MANY_CONNECTIONS } else { failure::NO_SESSION });
        }
        let initiator = self.initiator.as_ref().ok_or(failure::MISSING_KEY)?;
        if self.is_discovery {
            return self.find_secrets(&initiator.clone());
        }
        let target = self.target.as_ref().ok_or(failure::MISSING_KEY)?;
        let failed = |error: Error| {
            tracing::debug!(target, "an initiator of iSCSI cannot use it: {error}");
            failure::TARGET_ERROR
        };
        let lun = self.targets.find(target).map_err(failed)?.ok_or(failure::NO_TARGET)?;
        let access = self.targets.access(&*lun).map_err(failed)?;
        if !access.names(initiator) || !is_kept(&access, self.is_near) {
            return Err(failure::NOT_ALLOWED);
        }
        self.has_to_prove = access.chap.is_some();
        add_secrets(&mut self.secrets, &access, initiator);
        self.unit = Some(self.sessions.unit_of(lun));
        Ok(())
    }

    /// What an initiator may prove in discovery, so that it is told of the targets that ask for that.
    fn find_secrets(&mut self, initiator: &str) -> Result<(), (u8, u8)> {
        let failed = |error: Error| {
            tracing::debug!("targets of iSCSI cannot be read: {error}");
            failure::TARGET_ERROR
        };
        let _alone = self.looking.lock();
        for lun in self.targets.all().map_err(failed)? {
            // one whose secrets cannot be read keeps the others from nobody
            if let Ok(access) = self.targets.access(&*lun) {
                add_secrets(&mut self.secrets, &access, initiator);
            }
        }
        Ok(())
    }

    fn security(&mut self, pairs: &[(String, String)], out: &mut Vec<u8>) -> Result<(), (u8, u8)> {
        let find = |wanted: &str| pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| &value[..]);
        if let Some(methods) = find("AuthMethod") {
            let knows = |wanted: &str| methods.split(',').any(|method| method == wanted);
            // for discovery, an initiator proves what it can
            self.has_to_prove |= self.is_discovery && knows("CHAP") && !(self.secrets.is_empty() && knows("None"));
            let wanted = if self.has_to_prove { "CHAP" } else { "None" };
            text::push(out, "AuthMethod", if knows(wanted) { wanted } else { return Err(failure::NOT_PROVEN) });
        }
        if !self.has_to_prove {
            return Ok(());
        }
        if let Some(sums) = find("CHAP_A") {
            let chap = Chap::begin(self.env, sums).ok_or(failure::NOT_PROVEN)?;
            chap.keys().iter().for_each(|(key, value)| text::push(out, key, value));
            self.chap = Some(chap);
        } else if let (Some(name), Some(response)) = (find("CHAP_N"), find("CHAP_R")) {
            // each challenge is for one answer
            let chap = self.chap.take().ok_or(failure::NOT_PROVEN)?;
            let known = self.secrets.iter().find(|(secret, _)| chap.is_proven(secret, name, response));
            let (secret, own) = known.ok_or(failure::NOT_PROVEN)?;
            if let (Some(id), Some(challenge)) = (find("CHAP_I"), find("CHAP_C")) {
                let proof = own.as_ref().and_then(|own| chap.prove(own, id, challenge));
                proof.ok_or(failure::NOT_PROVEN)?.iter().for_each(|(key, value)| text::push(out, key, value));
            }
            self.proven = Some(secret.clone());
        }
        Ok(())
    }

    /// The port of the initiator.
    fn port(&self, head: &PduHead) -> String {
        let session: String = head.0[8..14].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{},i,0x{session}", self.initiator.as_deref().unwrap_or_default())
    }

    fn begin(&self, head: &PduHead) -> u16 {
        self.sessions.begin(&self.port(head), self.unit.as_deref())
    }

    fn send(&mut self, socket: &ClientSocket, head: &PduHead, session: u16, answer: &LoginAnswer) -> Result<()> {
        let mut reply = PduHead::new(opcode::LOGIN_RESPONSE, answer.flags, head.tag());
        reply.0[8..14].copy_from_slice(&head.0[8..14]);
        reply.0[14..16].copy_from_slice(&session.to_be_bytes());
        reply.put_u32(24, self.next_answer);
        self.next_answer = self.next_answer.wrapping_add(1);
        // the number that the first command will have
        reply.put_u32(28, head.number());
        reply.put_u32(32, head.number());
        (reply.0[36], reply.0[37]) = answer.status;
        reply.put_data_len(answer.text.len());
        Ok(write(&mut &*socket, Digests::default(), &reply, &[&answer.text])?)
    }

    fn done(self, head: &PduHead) -> LoggedIn {
        LoggedIn {
            port: self.port(head),
            proven: self.proven,
            initiator: self.initiator.unwrap_or_default(),
            unit: self.unit,
            params: self.params,
            next_command: head.number(),
            next_answer: self.next_answer,
        }
    }
}

/// Whether the other side of a connection is at this machine.
pub(crate) fn is_near(socket: &ClientSocket) -> bool {
    socket.local_address().is_none_or(|address| address.ip().to_canonical().is_loopback())
}

/// Whether a disk is kept from strangers: whatever its properties say, at an address of the network none is given out to
/// all that reach it.
pub(crate) fn is_kept(access: &TargetAccess, is_near: bool) -> bool {
    is_near || !access.is_for_all()
}

/// Adds the secrets of an initiator, as those of a target have them.
fn add_secrets(secrets: &mut Vec<(Secret, Option<Secret>)>, access: &TargetAccess, initiator: &str) {
    let own = access.chap.as_ref().and_then(|chap| chap.target.clone());
    for secret in access.secrets_of(initiator) {
        let one = (secret.clone(), own.clone());
        // most targets share a file
        if secrets.len() < SECRETS_MAX && !secrets.contains(&one) {
            secrets.push(one);
        }
    }
}

/// Whether it can be the name of a node.
fn is_name(text: &str) -> bool {
    // those between names where several are written
    let is_of_name = |byte: u8| byte.is_ascii_graphic() && !b",;=".contains(&byte);
    (1..=223).contains(&text.len()) && text.bytes().all(is_of_name)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::target::ChapSecrets;

    /// At an address that is not loopback, nothing is given out without a secret or a list, whatever properties say.
    #[test]
    fn what_is_for_all_is_for_this_machine_only() {
        let of = |names: &[&str], chap: Option<&str>| TargetAccess {
            initiators: names.iter().map(|name| (*name).into()).collect(),
            chap: chap.map(|text| ChapSecrets::parse(text).unwrap()),
        };
        let secret = Some("initiator iqn.a aaaaaaaaaaaa");
        assert!(!is_kept(&of(&["any"], None), false) && !is_kept(&of(&["iqn.a", "any"], None), false));
        assert!(is_kept(&of(&["iqn.a"], None), false) && is_kept(&of(&["any"], secret), false));
        assert!(is_kept(&of(&["any"], None), true));
        for at in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
            let Ok(listener) = TcpListener::bind(format!("{at}:0")) else { continue };
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            assert!(is_near(&ClientSocket::from(socket)), "{at}");
        }
    }
}
