//! Volumes by NBD, by the bytes of the protocol. Other people's clients: `tests/clients/nbd`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::World;
use super::snapshots::Fresh;

const LIST: u32 = 3;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
const ACK: u32 = 1;
const UNKNOWN: u32 = 0x8000_0006;
pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
pub(super) const TRIM: u16 = 4;
const BLOCK_STATUS: u16 = 7;
pub(super) const FLUSH: u16 = 3;
const FUA: u16 = 1;

/// A client of the pool `fresh`.
pub(super) struct NbdClient(UnixStream);

impl NbdClient {
    /// One that knows structured replies.
    pub(super) fn connect(fresh: &Fresh) -> NbdClient {
        NbdClient::connect_at(&fresh.world.dir.join("run/nbd/fresh.sock"))
    }

    /// One of the pool whose socket this is.
    pub(super) fn connect_at(socket: &Path) -> NbdClient {
        let stream = UnixStream::connect(socket).unwrap();
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

    /// What it is shown.
    fn list(&mut self) -> Vec<String> {
        let mut answers = self.option(LIST, &[]);
        assert_eq!(answers.pop().unwrap().0, ACK);
        answers.into_iter().map(|(_, entry)| String::from_utf8(entry[4..].to_vec()).unwrap()).collect()
    }

    /// Uses a volume, and returns its size, or the error.
    pub(super) fn go(&mut self, name: &str) -> Result<u64, u32> {
        let named = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes()].concat();
        let context = b"\0\0\0\x01\0\0\0\x0fbase:allocation";
        self.option(SET_META_CONTEXT, &[&named[..], context].concat());
        let answers = self.option(GO, &[&named[..], &[0, 0]].concat());
        match answers.last().unwrap().0 {
            ACK => Ok(u64::from_be_bytes(answers[0].1[2..10].try_into().unwrap())),
            error => Err(error),
        }
    }

    /// A request, whose cookie is made of its offset.
    fn request((flags, command): (u16, u16), offset: u64, len: u32, data: &[u8]) -> Vec<u8> {
        let mut request = Vec::from(0x2560_9513u32.to_be_bytes());
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend((offset ^ 0x5555).to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        request
    }

    /// The types and payloads of the chunks of an answer.
    pub(super) fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u32, data: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let cookie = offset ^ 0x5555;
        self.0.write_all(&NbdClient::request((flags, command), offset, len, data)).unwrap();
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

const BUSY: &str = "cannot export 'fresh': pool is busy (clients of DIR/run/nbd/fresh.sock)\n";

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

    // those that choose nothing keep nobody out
    let _idle: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(NbdClient::connect(&fresh).go("fresh/a/v"), Ok(8 << 20));

    fresh.fails("destroy fresh/a/v", "cannot destroy 'fresh/a/v': dataset is busy\n");
    fresh.world.check("export fresh", 1, BUSY);
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
    fresh.does("set volmode=none fresh/a/v");
    assert_eq!(fresh.world.cenote("volumes fresh/a").stdout, b"");
    fresh.does("destroy fresh/a/v");
    fresh.judge();
    // with the pool it goes
    assert!(!socket.exists());
}

#[test]
fn snapshots_that_are_shown_are_listed() {
    let fresh = Fresh::new("nbd_listed");
    for name in ["a/v", "a/w", "closed"] {
        fresh.does(&format!("create -s -V 8M fresh/{name}"));
    }
    fresh.does("set org.cenote:nbd=on fresh/a");
    fresh.does("snapshot fresh/a/v@s fresh/a/w@s fresh/closed@s");
    fresh.does("snapshot fresh/a/v@t");
    let mut client = NbdClient::connect(&fresh);
    assert_eq!(client.list(), ["fresh/a/v", "fresh/a/w"]);
    assert_eq!(client.go("fresh/a/v@s"), Err(UNKNOWN));
    fresh.does("set snapdev=visible fresh/a/v");
    assert_eq!(client.list(), ["fresh/a/v", "fresh/a/v@s", "fresh/a/v@t", "fresh/a/w"]);
    assert_eq!(client.go("fresh/a/v@s"), Ok(8 << 20));
    drop(client);
    fresh.judge();
}

#[test]
fn what_a_stream_brings_gives_out_nothing() {
    let fresh = Fresh::new("nbd_received");
    fresh.does("create -s -V 8M fresh/v");
    for property in ["nbd=on", "iscsi=on", "iscsi_initiators=iqn.a"] {
        fresh.does(&format!("set org.cenote:{property} fresh/v"));
    }
    fresh.does("snapshot fresh/v@s");
    fresh.world.receives("fresh/backup", &fresh.world.cenote("zfs send -p fresh/v@s").stdout);
    fresh.says("get -H -o value,source org.cenote:nbd fresh/backup", "on\treceived\n");
    let mut client = NbdClient::connect(&fresh);
    assert_eq!((client.list(), client.go("fresh/backup")), (vec!["fresh/v".to_owned()], Err(UNKNOWN)));
    let volumes = || {
        let shown = fresh.world.cenote("volumes fresh/backup");
        [shown.stdout, shown.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    assert!(!volumes()[0].contains("\tnbd\t"));
    assert_eq!(volumes()[1], "");
    fresh.does("set org.cenote:nbd=on fresh/backup");
    assert_eq!((client.list().len(), client.go("fresh/backup")), (2, Ok(8 << 20)));
    assert!(volumes()[0].contains("fresh/backup\tnbd\tnbd+unix:"));
    // who may use it is not for the stream to say either
    fresh.does("set org.cenote:iscsi=on fresh/backup");
    assert_eq!(volumes()[1], "cenote volumes: fresh/backup: iscsi: 'org.cenote:iscsi_initiators' names nobody\n");
    drop(client);
    fresh.judge();
}

#[test]
fn a_client_that_leaves_asks_for_nothing_more() {
    let fresh = Fresh::new("nbd_leaves");
    fresh.does("create -s -V 8M fresh/a/v");
    fresh.does("set org.cenote:nbd=on fresh/a");
    let mut client = NbdClient::connect(&fresh);
    client.go("fresh/a/v").unwrap();
    let leaves = NbdClient::request((0, DISCONNECT), 0, 0, &[]);
    let writes = NbdClient::request((0, WRITE), 3 << 20, 512, &[9; 512]);
    client.0.write_all(&[leaves, writes].concat()).unwrap();
    assert!(client.is_cut_off());
    let mut client = NbdClient::connect(&fresh);
    client.go("fresh/a/v").unwrap();
    assert_eq!(client.ask(0, READ, 3 << 20, 512, &[])[0].1[8..], [0; 512]);
    fresh.world.check("destroy fresh", 1, &BUSY.replace("export", "destroy"));
    drop(client);
    fresh.judge();
}

#[test]
fn lengths_of_64_bits_by_network() {
    let fresh = Fresh::new("nbd-network");
    fresh.does("create -s -V 16G fresh/v");
    fresh.does("set org.cenote:nbd=on fresh/v");
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let set = |value: &str| format!("set org.cenote:nbd_listen={value} fresh");
    let refused = |value: &str, why: &str| {
        fresh.fails(&set(value), &format!("cannot set property for 'fresh': {why}\n"));
    };
    refused("nonsense", "'nonsense' is no address with a port, as 127.0.0.1:10809");
    refused(
        "0.0.0.0:10809",
        "0.0.0.0:10809 is no loopback address: 'org.cenote:nbd_tls' has to name a folder with certificates, \
         ca-cert.pem among them",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap();
    refused(&place.to_string(), &format!("cannot listen at {place}: Address already in use (os error 98)"));
    let told = format!(
        "Warning: at {address}, volumes with 'org.cenote:nbd' are open to every user of this machine,\n\
         unless 'org.cenote:nbd_tls' is set. The socket that 'cenote volumes' shows has rights.\n"
    );
    fresh.says(&set(&address.to_string()), &told);
    let shown = String::from_utf8(fresh.world.cenote("volumes fresh/v").stdout).unwrap();
    assert!(shown.contains(&format!("fresh/v\tnbd\tnbd://{address}/fresh/v\n")), "{shown}");

    let mut client = ExtendedClient::connect(address);
    // the whole of it, in one request each
    assert_eq!(client.ask(0, TRIM, 0, 16 << 30, &[]).0, 0);
    assert_eq!(client.ask(1 << 5, WRITE, 8 << 30, 4096, &[3; 4096]).0, 0);
    let (kind, states) = client.ask(0, BLOCK_STATUS, 0, 16 << 30, &[]);
    let of = |number: u64| number.to_be_bytes();
    let expected: Vec<u8> = [(8u64 << 30, 3u64), (16 << 10, 0), ((8 << 30) - (16 << 10), 3)]
        .iter()
        .flat_map(|(len, state)| [of(*len), of(*state)].concat())
        .collect();
    assert_eq!((kind, &states[4..8], &states[8..]), (6, &[0, 0, 0, 3][..], &expected[..]));
    // a range in the data, and the numbers of contexts that are asked for
    let asked = |context: u32| [&of(4096)[..], &context.to_be_bytes()].concat();
    let (kind, states) = client.ask(1 << 5, BLOCK_STATUS, 0, 12, &asked(1));
    assert_eq!((kind, &states[8..]), (6, &[of(4096), of(3)].concat()[..]));
    assert_eq!(client.ask(1 << 5, BLOCK_STATUS, 0, 12, &asked(2)), (0x8001, vec![0, 0, 0, 22, 0, 0]));
    // data that nobody asked for are skipped
    assert_eq!(client.ask(1 << 5, TRIM, 0, 3, b"abc").0, 0x8001);
    assert_eq!(client.ask(0, READ, 8 << 30, 2, &[]).1[8..], [3, 3]);

    fresh.does(&set("none"));
    assert!(std::net::TcpStream::connect(address).is_err());
    assert_eq!(client.ask(0, READ, 8 << 30, 1, &[]).1[8..], [3], "what is connected stays so");
    drop(client);
    fresh.says(&set(&address.to_string()), &told);
    fresh.world.check("export fresh", 0, "");
    assert!(std::net::TcpStream::connect(address).is_err());
    fresh.world.check("import -N -d DIR fresh", 0, "");
    drop(ExtendedClient::connect(address));
    fresh.judge();
}

/// A client by network that has agreed on extended headers.
struct ExtendedClient(std::net::TcpStream);

impl ExtendedClient {
    fn connect(address: std::net::SocketAddr) -> ExtendedClient {
        let mut client = ExtendedClient(std::net::TcpStream::connect(address).unwrap());
        client.take(18);
        client.0.write_all(&3u32.to_be_bytes()).unwrap();
        client.option(11, &[]);
        client.option(SET_META_CONTEXT, b"\0\0\0\x07fresh/v\0\0\0\x01\0\0\0\x0fbase:allocation");
        client.option(GO, b"\0\0\0\x07fresh/v\0\0");
        client
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        let head = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat();
        self.0.write_all(&head).unwrap();
        loop {
            let answer = self.take(20);
            let number = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
            self.take(number(16) as usize);
            match number(12) {
                ACK => return,
                error => assert!(error >> 31 == 0, "{option}: {error:#x}"),
            }
        }
    }

    /// The type and payload of the one chunk of an answer.
    fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u64, data: &[u8]) -> (u16, Vec<u8>) {
        let numbers = [7, offset, len].map(u64::to_be_bytes).concat();
        let head = [&0x21e4_1c71u32.to_be_bytes()[..], &flags.to_be_bytes(), &command.to_be_bytes(), &numbers].concat();
        self.0.write_all(&[&head[..], data].concat()).unwrap();
        let head = self.take(32);
        assert_eq!((&head[..4], &head[8..24]), (&0x6e8a_278cu32.to_be_bytes()[..], &numbers[..16]));
        assert_eq!(head[5] & 1, 1);
        let len = u64::from_be_bytes(head[24..].try_into().unwrap());
        (u16::from_be_bytes([head[6], head[7]]), self.take(len as usize))
    }
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

/// What exports could not follow is refused before anything is written.
#[test]
fn no_pool_is_made_with_wrong_exports() {
    let world = World::new("wrongly", &[]);
    world.disks(&["a"]);
    let disk = world.dir.join("a");
    for (wrong, why) in [
        ("nbd=yes", "'org.cenote:nbd' must be one of 'on | off'"),
        ("vhost=yes", "'org.cenote:vhost' must be one of 'on | off'"),
        ("block=yes", "'org.cenote:block' must be one of 'on | off'"),
        ("iscsi=yes", "'org.cenote:iscsi' must be one of 'on | off'"),
        ("iscsi_reservations=x", "'org.cenote:iscsi_reservations' is set by initiators only"),
        ("nbd_listen=here", "'here' is no address with a port, as 127.0.0.1:10809"),
        ("iscsi_listen=here", "'here' is no address with a port, as 127.0.0.1:10809"),
    ] {
        let create = format!("create -O mountpoint=none -O org.cenote:{wrong} wrongly DIR/a");
        world.check(&create, 1, &format!("cannot create 'wrongly': {why}\n"));
        assert!(std::fs::read(&disk).unwrap().iter().all(|byte| *byte == 0), "{wrong}: something was written");
    }
    world.check("create -O mountpoint=none -O org.cenote:nbd=on wrongly DIR/a", 0, "");
    world.check("export wrongly", 0, "");
}
