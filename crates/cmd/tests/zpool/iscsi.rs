//! Volumes by iSCSI, by the bytes of the protocol. Other people's initiators: `tests/clients/iscsi`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::snapshots::Fresh;

/// An initiator of one command at a time, whose data come with the command.
pub(super) struct Initiator {
    stream: TcpStream,
    number: u32,
}

impl Initiator {
    /// Errors: class and detail of the login's failure.
    pub(super) fn log_in(address: SocketAddr, name: &str, target: &str) -> Result<Initiator, (u8, u8)> {
        let stream = TcpStream::connect(address).unwrap();
        let mut initiator = Initiator { stream, number: 1 };
        let text = format!("InitiatorName={name}\0TargetName={target}\0InitialR2T=Yes\0");
        let mut head = [0; 48];
        // from the second stage to the last one
        (head[0], head[1], head[8], head[13]) = (0x43, 0x87, 0x40, 1);
        head[24..28].copy_from_slice(&1u32.to_be_bytes());
        initiator.send(&mut head, text.as_bytes());
        let (head, _) = initiator.take();
        match (head[36], head[37]) {
            (0, 0) => Ok(initiator),
            failed => Err(failed),
        }
    }

    fn send(&mut self, head: &mut [u8; 48], data: &[u8]) {
        head[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let padding = vec![0; data.len().wrapping_neg() % 4];
        self.stream.write_all(&[&head[..], data, &padding].concat()).unwrap();
    }

    fn take(&mut self) -> ([u8; 48], Vec<u8>) {
        let mut head = [0; 48];
        self.stream.read_exact(&mut head).unwrap();
        let len = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let mut data = vec![0; len.next_multiple_of(4)];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(len);
        (head, data)
    }

    /// The status of a command, and what it has read, or its sense.
    fn command(&mut self, cdb: &[u8], reads: u32, data: &[u8]) -> (u8, Vec<u8>) {
        let mut head = [0; 48];
        (head[0], head[1]) = (0x01, 0x81 | if reads > 0 { 0x40 } else { 0 } | if data.is_empty() { 0 } else { 0x20 });
        head[16..20].copy_from_slice(&self.number.to_be_bytes());
        head[20..24].copy_from_slice(&reads.max(data.len() as u32).to_be_bytes());
        head[24..28].copy_from_slice(&self.number.to_be_bytes());
        head[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        self.send(&mut head, data);
        let mut read = Vec::new();
        loop {
            let (head, data) = self.take();
            match head[0] {
                0x25 => {
                    read.extend(data);
                    if head[1] & 1 == 1 {
                        return (head[3], read);
                    }
                }
                0x21 => return (head[3], data),
                other => panic!("{other:#x}"),
            }
        }
    }

    /// PERSISTENT RESERVE OUT; keys of registrations are kept.
    fn reserve(&mut self, action: u8, key: u64, new: u64) -> u8 {
        let mut data = [&key.to_be_bytes()[..], &new.to_be_bytes(), &[0; 8]].concat();
        data[20] = u8::from(action == 0);
        self.command(&[0x5f, action, if action == 0 { 0 } else { 3 }, 0, 0, 0, 0, 0, 24, 0], 0, &data).0
    }
}

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 9, 0, 0, 8, 0];
const WRITE_THAT_LASTS: [u8; 10] = [0x2a, 8, 0, 0, 0, 9, 0, 0, 8, 0];
const READY: [u8; 6] = [0; 6];

#[test]
fn volumes_by_iscsi() {
    let fresh = Fresh::new("iscsi");
    fresh.does("create -s -V 8M fresh/a/v");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fresh.fails(
        "set org.cenote:iscsi_listen=127.0.0.1:1 fresh/a",
        "cannot set property for 'fresh/a': 'org.cenote:iscsi_listen' is set on the pool's root file system only\n",
    );
    fresh.does(&format!("set org.cenote:iscsi_listen={address} fresh"));
    assert!(TcpStream::connect(address).is_err(), "no volume is a target");
    fresh.fails(
        "set org.cenote:iscsi=yes fresh/a/v",
        "cannot set property for 'fresh/a/v': 'org.cenote:iscsi' must be one of 'on | off'\n",
    );
    fresh.does("set org.cenote:iscsi=on fresh/a/v");
    let shown = String::from_utf8(fresh.world.cenote("volumes fresh/a").stdout).unwrap();
    let uri = shown.lines().find_map(|line| line.strip_prefix("fresh/a/v\tiscsi\t")).unwrap();
    let target = uri.strip_prefix(&format!("iscsi://{address}/")).unwrap().strip_suffix("/0").unwrap().to_owned();

    let log_in = |name: &str| Initiator::log_in(address, name, &target);
    assert_eq!(log_in("iqn.a").err(), Some((2, 2)), "closed unless somebody says otherwise");
    fresh.fails(
        "set org.cenote:iscsi_initiators=iqn.a,all fresh/a/v",
        "cannot set property for 'fresh/a/v': 'org.cenote:iscsi_initiators': 'all' is no name of an initiator \
         (iqn., eui. or naa.)\n",
    );
    fresh.does("set org.cenote:iscsi_initiators=iqn.a,iqn.b fresh/a/v");
    assert_eq!(log_in("iqn.c").err(), Some((2, 2)));
    assert_eq!(Initiator::log_in(address, "iqn.a", "iqn.none").err(), Some((2, 3)));
    let (mut a, mut b) = (log_in("iqn.a").unwrap(), log_in("iqn.b").unwrap());
    assert_eq!(a.command(&WRITE_THAT_LASTS, 0, &[7; 4096]).0, 0);
    assert_eq!(b.command(&READ, 4096, &[]), (0, vec![7; 4096]));
    fresh.fails("destroy fresh/a/v", "cannot destroy 'fresh/a/v': dataset is busy\n");
    fresh.does("set volsize=16M fresh/a/v");
    let (status, sense) = a.command(&READY, 0, &[]);
    assert_eq!((status, sense[4], sense[14], sense[15]), (2, 6, 0x2a, 9));

    // who has reserved it has it still after a crash
    assert_eq!((a.reserve(0, 0, 1), a.reserve(1, 1, 0)), (0, 0));
    assert_eq!(a.command(&WRITE_THAT_LASTS, 0, &[8; 4096]).0, 0);
    fresh.world.kill("fresh");
    fresh.world.check("import -N -d DIR fresh", 0, "");
    let (mut a, mut b) = (log_in("iqn.a").unwrap(), log_in("iqn.b").unwrap());
    assert_eq!(b.command(&READ, 4096, &[]).0, 0x18);
    assert_eq!(a.command(&READ, 4096, &[]), (0, vec![8; 4096]));
    drop((a, b));

    let secrets = fresh.world.dir.join("secrets");
    std::fs::write(&secrets, "initiator me 123456789012\n").unwrap();
    let refused = format!("set org.cenote:iscsi_chap={} fresh/a/v", secrets.display());
    let why = "a secret is for its owner only, and others have rights to it (chmod 600)";
    fresh.fails(&refused, &format!("cannot set property for 'fresh/a/v': DIR/secrets: {why}\n"));
    std::fs::set_permissions(&secrets, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fresh.does(&refused);
    assert_eq!(log_in("iqn.a").err(), Some((2, 1)), "it proves nothing");
    fresh.does("destroy fresh/a/v");
    assert_eq!(log_in("iqn.a").err(), Some((2, 3)));
    fresh.judge();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn reservations_are_not_for_administrators() {
    let fresh = Fresh::new("iscsikept");
    fresh.does("create -s -V 8M fresh/v");
    let why = "'org.cenote:iscsi_reservations' is set by initiators only";
    for (command, what) in [
        ("set org.cenote:iscsi_reservations=x", "set property"),
        ("inherit org.cenote:iscsi_reservations", "inherit org.cenote:iscsi_reservations"),
    ] {
        fresh.fails(&format!("{command} fresh/v"), &format!("cannot {what} for 'fresh/v': {why}\n"));
    }
}
