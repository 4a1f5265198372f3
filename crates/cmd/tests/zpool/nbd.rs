//! Volumes by NBD, by the bytes of the protocol. Other people's clients: `tests/clients/nbd`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::snapshots::Fresh;

const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
const ACK: u32 = 1;
const UNKNOWN: u32 = 0x8000_0006;
const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;
const BLOCK_STATUS: u16 = 7;
const FUA: u16 = 1;

/// A client of the pool `fresh`.
struct NbdClient(UnixStream);

impl NbdClient {
    /// One that knows structured replies.
    fn connect(fresh: &Fresh) -> NbdClient {
        let stream = UnixStream::connect(fresh.world.dir.join("run/nbd/fresh.sock")).unwrap();
        let mut client = NbdClient(stream);
        assert_eq!(client.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        client.0.write_all(&3u32.to_be_bytes()).unwrap();
        assert_eq!(client.option(STRUCTURED_REPLY, &[]), [(ACK, Vec::new())]);
        client
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    /// The answers to an option, up to the last one.
    fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let head = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat();
        self.0.write_all(&head).unwrap();
        let mut answers = Vec::new();
        loop {
            self.take(12);
            let (kind, len) = (self.u32(), self.u32());
            answers.push((kind, self.take(len as usize)));
            if kind == ACK || kind >> 31 == 1 {
                return answers;
            }
        }
    }

    /// Uses a volume, and returns its size, or the error.
    fn go(&mut self, name: &str) -> Result<u64, u32> {
        let named = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
        let context = b"\0\0\0\x01\0\0\0\x0fbase:allocation";
        self.option(SET_META_CONTEXT, &[&named[..], context].concat());
        let answers = self.option(GO, &[&named[..], &[0, 0]].concat());
        match answers.last().unwrap().0 {
            ACK => Ok(u64::from_be_bytes(answers[0].1[2..10].try_into().unwrap())),
            error => Err(error),
        }
    }

    /// The types and payloads of the chunks of an answer.
    fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u32, data: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let cookie = offset ^ 0x5555;
        let mut request = Vec::from(0x2560_9513u32.to_be_bytes());
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request).unwrap();
        let mut chunks = Vec::new();
        loop {
            let head = self.take(20);
            assert_eq!(head[..4], 0x668e_33efu32.to_be_bytes());
            assert_eq!(head[8..16], cookie.to_be_bytes());
            let len = u32::from_be_bytes(head[16..].try_into().unwrap());
            chunks.push((u16::from_be_bytes([head[6], head[7]]), self.take(len as usize)));
            if head[5] & 1 == 1 {
                return chunks;
            }
        }
    }

    /// The error that a request fails with.
    fn error(&mut self, command: u16, offset: u64, len: u32, data: &[u8]) -> u32 {
        let chunks = self.ask(0, command, offset, len, data);
        assert_eq!(chunks[0].0, 0x8001);
        u32::from_be_bytes(chunks[0].1[..4].try_into().unwrap())
    }

    /// Whether the server has hung up.
    fn is_cut_off(&mut self) -> bool {
        self.0.read(&mut [0; 64]).map_or(true, |len| len == 0)
    }
}

#[test]
fn volumes_by_nbd() {
    let fresh = Fresh::new("nbd");
    fresh.does("create -s -V 8M fresh/a/v");
    fresh.does("create -s -V 8M fresh/closed");
    let socket = fresh.world.dir.join("run/nbd/fresh.sock");
    assert!(!socket.exists(), "nobody has asked for it");
    fresh.does("set org.cenote:nbd=on fresh/a");
    let shown = fresh.world.cenote("volumes fresh/a");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("fresh/a/v\tnbd\tnbd+unix:///fresh/a/v?socket={}\n", socket.display())), "{shown}");

    let mut client = NbdClient::connect(&fresh);
    assert_eq!(client.go("fresh/closed"), Err(UNKNOWN));
    assert_eq!(client.go("fresh/a"), Err(UNKNOWN));
    assert_eq!(client.go("fresh/none"), Err(UNKNOWN));
    assert_eq!(client.go("fresh/a/v"), Ok(8 << 20));
    assert_eq!(client.ask(0, WRITE, 10_000, 5000, &[7; 5000]), [(0, Vec::new())]);
    let data = [&9999u64.to_be_bytes()[..], &[0], &[7; 5000], &[0]].concat();
    assert_eq!(client.ask(0, READ, 9999, 5002, &[]), [(1, data)]);
    // a whole block is let go, and said to be a hole
    assert_eq!(client.ask(0, WRITE, 32 << 10, 40 << 10, &[8; 40 << 10]), [(0, Vec::new())]);
    assert_eq!(client.ask(0, TRIM, 40 << 10, 24 << 10, &[]), [(0, Vec::new())]);
    let states = [(16u32 << 10, 0u32), (16 << 10, 3), (16 << 10, 0)];
    let states: Vec<u8> =
        states.iter().flat_map(|(len, state)| [len.to_be_bytes(), state.to_be_bytes()].concat()).collect();
    let told = client.ask(0, BLOCK_STATUS, 0, 64 << 10, &[]);
    assert_eq!(told[0].0, 5);
    assert_eq!(told[0].1[4..4 + 24], states[..24], "{told:?}");

    // what cannot be, and what makes no sense
    assert_eq!(client.error(WRITE, (8 << 20) - 1, 2, &[1; 2]), 28);
    assert_eq!(client.error(READ, 8 << 20, 1, &[]), 22);
    assert_eq!(client.error(READ, u64::MAX, 2, &[]), 22);
    assert_eq!(client.error(99, 0, 0, &[]), 22);
    let mut other = NbdClient::connect(&fresh);
    other.0.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(other.is_cut_off());
    let mut other = NbdClient::connect(&fresh);
    other.0.write_all(&[&b"IHAVEOPT"[..], &GO.to_be_bytes(), &u32::MAX.to_be_bytes()].concat()).unwrap();
    other.take(20);
    assert!(other.is_cut_off());
    let mut other = NbdClient::connect(&fresh);
    other.go("fresh/a/v").unwrap();
    other.0.write_all(&[0; 28]).unwrap();
    assert!(other.is_cut_off());

    fresh.fails("destroy fresh/a/v", "cannot destroy 'fresh/a/v': dataset is busy\n");
    assert_eq!(client.ask(FUA, WRITE, 1 << 20, 512, &[6; 512]), [(0, Vec::new())]);
    assert_eq!(client.ask(FUA, WRITE, 2 << 20, 512, &[5; 512]), [(0, Vec::new())]);
    fresh.world.kill("fresh");
    fresh.world.check("import -N -d DIR fresh", 0, "");
    // on again
    let mut client = NbdClient::connect(&fresh);
    assert_eq!(client.go("fresh/a/v"), Ok(8 << 20));
    for (at, byte) in [(1u64 << 20, 6), (2 << 20, 5)] {
        assert_eq!(client.ask(0, READ, at, 512, &[])[0].1[8..], [byte; 512]);
    }
    drop(client);
    fresh.does("destroy fresh/a/v");
    fresh.judge();
    // with the pool it goes
    assert!(!socket.exists());
}

#[test]
fn a_client_that_takes_no_answers_holds_up_nothing() {
    let fresh = Fresh::new("nbd-stuck");
    fresh.does("create -s -V 64M fresh/v");
    fresh.does("snapshot fresh/v@a");
    fresh.does("set org.cenote:nbd=on fresh");
    let mut client = NbdClient::connect(&fresh);
    client.go("fresh/v").unwrap();
    let mut other = NbdClient::connect(&fresh);
    other.go("fresh/v").unwrap();
    // far more than the socket takes
    for number in 0..24u64 {
        let flags_and_command = [0, 1 << 2, 0, 0];
        let request =
            [&0x2560_9513u32.to_be_bytes()[..], &flags_and_command, &number.to_be_bytes(), &0u64.to_be_bytes()];
        client.0.write_all(&[&request.concat()[..], &(1u32 << 20).to_be_bytes()].concat()).unwrap();
    }
    assert_eq!(other.ask(0, WRITE, 0, 512, &[7; 512]), [(0, Vec::new())]);
    fresh.does("rollback fresh/v@a");
    assert_eq!(other.ask(0, READ, 0, 512, &[])[0].1[8..], [0; 512]);
    drop((client, other));
    fresh.judge();
}
