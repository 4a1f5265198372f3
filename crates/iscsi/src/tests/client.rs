//! An initiator.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use md5::{Digest, Md5};

use super::disk::TARGET;
use crate::outgoing;
use crate::pdu::{CONTINUES, Digests, FINAL, NO_TAG, Pdu, PduHead, opcode};
use crate::server::IscsiServer;
use crate::text;

/// How a client logs in.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    pub(super) initiator: &'a str,
    /// Empty: discovery.
    pub(super) target: &'a str,
    pub(super) keys: &'a [(&'a str, &'a str)],
    /// What it proves, and what it wants to have proven.
    pub(super) secret: Option<(&'a str, &'a str)>,
    pub(super) back: Option<(&'a str, &'a str)>,
    pub(super) skips_security: bool,
}

impl Login<'_> {
    pub(super) fn of(initiator: &str) -> Login<'_> {
        Login { initiator, target: TARGET, keys: &[], secret: None, back: None, skips_security: false }
    }
}

/// What came of a command.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u8,
    pub(super) flags: u8,
    pub(super) residual: u32,
    pub(super) data: Vec<u8>,
    pub(super) sense: Vec<u8>,
}

pub(super) struct Client {
    stream: UnixStream,
    digests: Digests,
    immediate: usize,
    next_command: u32,
    next_answer: u32,
    tag: u32,
    spoils: bool,
    /// What came while something else was waited for.
    kept: Vec<Pdu>,
}

/// A command without its number.
pub(super) fn command(cdb: &[u8], tag: u32, expected: u32, writes: bool) -> PduHead {
    let way = if expected == 0 {
        0
    } else if writes {
        0x20
    } else {
        0x40
    };
    let mut head = PduHead::new(opcode::COMMAND, FINAL | way | 1, tag);
    head.put_u32(20, expected);
    head.0[32..32 + cdb.len()].copy_from_slice(cdb);
    head
}

impl Client {
    pub(super) fn connect(server: &Arc<IscsiServer>) -> Client {
        let (ours, stream) = UnixStream::pair().unwrap();
        server.serve(ours);
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client {
            stream,
            digests: Digests::default(),
            immediate: 64 << 10,
            next_command: 100,
            next_answer: 1,
            tag: 1000,
            spoils: false,
            kept: Vec::new(),
        }
    }

    pub(super) fn logged_in(server: &Arc<IscsiServer>, initiator: &str) -> Client {
        let mut client = Client::connect(server);
        client.log_in(&Login::of(initiator)).unwrap();
        client
    }

    /// Errors: class and detail.
    pub(super) fn log_in(&mut self, login: &Login<'_>) -> Result<(), (u8, u8)> {
        let mut names = Vec::new();
        text::push(&mut names, "InitiatorName", login.initiator);
        match login.target {
            "" => text::push(&mut names, "SessionType", "Discovery"),
            target => text::push(&mut names, "TargetName", target),
        }
        if !login.skips_security {
            let methods = if login.secret.is_some() { "CHAP,None" } else { "None" };
            text::push(&mut names, "AuthMethod", methods);
            let transit = if login.secret.is_some() { 0 } else { 0x81 };
            self.stage(transit, &std::mem::take(&mut names))?;
            if let Some(secret) = login.secret {
                self.prove(secret, login.back)?;
            }
        }
        for (key, value) in login.keys {
            text::push(&mut names, key, value);
        }
        self.stage(0x80 | 4 | 3, &names)?;
        let says = |key: &str, value: &str| login.keys.contains(&(key, value));
        self.digests = Digests { head: says("HeaderDigest", "CRC32C"), data: says("DataDigest", "CRC32C") };
        if says("ImmediateData", "No") {
            self.immediate = 0;
        }
        Ok(())
    }

    /// One login of these keys in the first stage.
    pub(super) fn log_in_with(&mut self, text: &[u8]) -> Result<(), (u8, u8)> {
        self.stage(0x81, text).map(drop)
    }

    fn prove(&mut self, (name, secret): (&str, &str), back: Option<(&str, &str)>) -> Result<(), (u8, u8)> {
        let challenge = self.stage(0, b"CHAP_A=5\0")?;
        let find = |pairs: &[(String, String)], key: &str| pairs.iter().find(|(one, _)| one == key).unwrap().1.clone();
        let sum = |id: u8, secret: &str, challenge: &[u8]| {
            text::to_hex(&Md5::digest([&[id], secret.as_bytes(), challenge].concat()))
        };
        let of_target = text::binary(&find(&challenge, "CHAP_C")).unwrap();
        let mut out = Vec::new();
        text::push(&mut out, "CHAP_N", name);
        text::push(&mut out, "CHAP_R", &sum(find(&challenge, "CHAP_I").parse().unwrap(), secret, &of_target));
        if back.is_some() {
            text::push(&mut out, "CHAP_I", "7");
            text::push(&mut out, "CHAP_C", "0x010203");
        }
        let said = self.stage(0x81, &out)?;
        if let Some((name, secret)) = back {
            assert_eq!((find(&said, "CHAP_N").as_str(), find(&said, "CHAP_R")), (name, sum(7, secret, &[1, 2, 3])));
        }
        Ok(())
    }

    fn stage(&mut self, flags: u8, text: &[u8]) -> Result<Vec<(String, String)>, (u8, u8)> {
        let mut head = PduHead::new(opcode::LOGIN | 0x40, flags, 1);
        head.0[8..14].copy_from_slice(&[0x40, 0, 0, 0, 0, 1]);
        head.put_u32(24, self.next_command);
        head.put_u32(28, self.next_answer);
        self.send_as_it_is(head, text);
        let answer = self.take();
        assert_eq!(answer.head.opcode(), opcode::LOGIN_RESPONSE);
        match (answer.head.0[36], answer.head.0[37]) {
            (0, 0) => {
                assert_eq!(answer.head.flags() & 0x80, flags & 0x80);
                Ok(text::parse(&answer.data).unwrap())
            }
            failed => Err(failed),
        }
    }

    pub(super) fn next_command(&self) -> u32 {
        self.next_command
    }

    pub(super) fn skip_commands(&mut self, count: u32) {
        self.next_command += count;
    }

    /// The next message has a wrong sum.
    pub(super) fn spoil_next(&mut self) {
        self.spoils = true;
    }

    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        // it may have been cut off already
        let _ = self.stream.write_all(bytes);
    }

    pub(super) fn send_as_it_is(&mut self, mut head: PduHead, data: &[u8]) {
        head.put_data_len(data.len());
        let mut bytes = Vec::new();
        outgoing::write(&mut bytes, self.digests, &head, &[data]).unwrap();
        if std::mem::take(&mut self.spoils) {
            bytes[50] ^= 1;
        }
        self.send_raw(&bytes);
    }

    /// Sends a message with the next number.
    pub(super) fn send(&mut self, mut head: PduHead, data: &[u8]) {
        head.put_u32(24, self.next_command);
        self.next_command += 1;
        self.send_as_it_is(head, data);
    }

    pub(super) fn take(&mut self) -> Pdu {
        Pdu::read(&mut self.stream, self.digests).unwrap()
    }

    /// What came of a command that reads so many bytes.
    pub(super) fn command(&mut self, cdb: &[u8], expected: u32) -> Answer {
        self.tag += 1;
        self.ask(command(cdb, self.tag, expected, false), &[])
    }

    /// What came of a command that writes.
    pub(super) fn write(&mut self, cdb: &[u8], data: &[u8]) -> Answer {
        self.tag += 1;
        self.ask(command(cdb, self.tag, data.len() as u32, true), data)
    }

    pub(super) fn ask(&mut self, head: PduHead, data: &[u8]) -> Answer {
        let at_once = data.len().min(self.immediate);
        self.send(head, &data[..at_once]);
        self.finish(head.tag(), data)
    }

    pub(super) fn answer_to(&mut self, tag: u32) -> Answer {
        self.finish(tag, &[])
    }

    fn finish(&mut self, tag: u32, data: &[u8]) -> Answer {
        let mut answer = Answer::default();
        loop {
            let kept = self.kept.iter().position(|pdu| pdu.head.tag() == tag);
            let pdu = kept.map(|at| self.kept.remove(at)).unwrap_or_else(|| self.take());
            if pdu.head.tag() != tag {
                self.kept.push(pdu);
                continue;
            }
            (answer.flags, answer.residual) = (pdu.head.flags(), pdu.head.u32(44));
            match pdu.head.opcode() {
                opcode::DATA_IN => {
                    assert_eq!(pdu.head.u32(40) as usize, answer.data.len());
                    answer.data.extend(&pdu.data);
                    if pdu.head.flags() & 1 != 0 {
                        return answer;
                    }
                }
                opcode::READY => {
                    let (at, len) = (pdu.head.u32(40) as usize, pdu.head.u32(44) as usize);
                    let parts: Vec<&[u8]> = data[at..at + len].chunks(700).collect();
                    for (number, part) in parts.iter().enumerate() {
                        let is_last = number + 1 == parts.len();
                        let mut head = PduHead::new(opcode::DATA_OUT, if is_last { FINAL } else { 0 }, tag);
                        head.put_u32(20, pdu.head.u32(20));
                        head.put_u32(36, number as u32);
                        head.put_u32(40, (at + number * 700) as u32);
                        self.send_as_it_is(head, part);
                    }
                }
                opcode::RESPONSE => {
                    answer.status = pdu.head.0[3];
                    answer.sense = pdu.data.get(2..).unwrap_or_default().to_vec();
                    return answer;
                }
                other => panic!("{other:#x}"),
            }
        }
    }

    /// Waits until data are asked for.
    pub(super) fn ready(&mut self) {
        assert_eq!(self.take().head.opcode(), opcode::READY);
    }

    /// What comes of managing tasks.
    pub(super) fn manage(&mut self, function: u8, of: u32) -> u8 {
        self.tag += 1;
        let mut head = PduHead::new(opcode::TASK_MANAGEMENT | 0x40, FINAL | function, self.tag);
        head.put_u32(20, of);
        head.put_u32(24, self.next_command);
        self.send_as_it_is(head, &[]);
        loop {
            let pdu = self.take();
            if pdu.head.opcode() == opcode::TASK_MANAGEMENT_RESPONSE {
                return pdu.head.0[2];
            }
            self.kept.push(pdu);
        }
    }

    /// What is said to a text request.
    pub(super) fn text(&mut self, key: &str, value: &str) -> Vec<(String, String)> {
        self.text_of(key, value, 512)
    }

    /// What is said to a text request, in parts of so many bytes.
    pub(super) fn text_of(&mut self, key: &str, value: &str, part: usize) -> Vec<(String, String)> {
        let mut out = Vec::new();
        text::push(&mut out, key, value);
        let mut head = PduHead::new(opcode::TEXT, FINAL, 3);
        head.put_u32(20, NO_TAG);
        self.send(head, &out);
        let mut told = Vec::new();
        loop {
            let answer = self.take();
            assert_eq!(answer.head.opcode(), opcode::TEXT_RESPONSE);
            told.extend(&answer.data);
            if answer.head.is_final() {
                assert_eq!((answer.head.flags(), answer.head.u32(20)), (FINAL, NO_TAG));
                let pairs = told.split(|byte| *byte == 0).filter(|one| !one.is_empty());
                return pairs.flat_map(|one| text::parse(one).unwrap()).collect();
            }
            assert_eq!((answer.head.flags(), answer.data.len()), (CONTINUES, part), "as long as it may be");
            let mut more = PduHead::new(opcode::TEXT, FINAL, 3);
            more.put_u32(20, answer.head.u32(20));
            self.send(more, &[]);
        }
    }

    pub(super) fn leave(mut self) {
        self.send(PduHead::new(opcode::LOGOUT, FINAL, 8), &[]);
        assert_eq!(self.take().head.opcode(), opcode::LOGOUT_RESPONSE);
        assert!(self.is_cut_off());
    }

    /// Whether the server hangs up.
    pub(super) fn is_cut_off(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
