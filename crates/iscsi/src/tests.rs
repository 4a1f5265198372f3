//! A client in memory: logins, commands, and what goes wrong.

mod client;
mod disk;

use std::sync::Arc;
use std::time::Duration;

use base::Env;
use export::{ClientSums, DiskServer};

use crate::pdu::{FINAL, NO_TAG, PduHead, opcode};
use crate::server::IscsiServer;
use crate::target::{ChapSecrets, TargetAccess};
use crate::text;
use client::{Answer, Client, Login};
use disk::{DISK_BYTES, MemoryTargets, TARGET};

/// READ (10) and WRITE (10).
fn read(first: u8, blocks: u8) -> Vec<u8> {
    vec![0x28, 0, 0, 0, 0, first, 0, 0, blocks, 0]
}

fn write(first: u8, blocks: u8) -> Vec<u8> {
    vec![0x2a, 0, 0, 0, 0, first, 0, 0, blocks, 0]
}

/// A server, with a disk that anybody may use.
fn served() -> (Arc<IscsiServer>, Arc<MemoryTargets>) {
    let targets = Arc::new(MemoryTargets::default());
    targets.set_access(TargetAccess { initiators: vec!["any".into()], chap: None });
    (IscsiServer::new(Env::real(), targets.clone()), targets)
}

/// Waits until it is so.
fn until(is_so: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it is not so within 10 s");
}

fn sense(answer: &Answer) -> (u8, u8, u8) {
    assert_eq!(answer.status, 2, "{answer:?}");
    (answer.sense[2], answer.sense[12], answer.sense[13])
}

#[test]
fn what_is_written_is_read() {
    let (server, _) = served();
    let mut client = Client::logged_in(&server, "iqn.a");
    let data: Vec<u8> = (0..200 * 512).map(|at| (at / 512) as u8).collect();
    assert_eq!(client.write(&write(3, 200), &data).status, 0);
    let answer = client.command(&read(3, 200), data.len() as u32);
    assert!(answer.data == data);
    assert_eq!((answer.flags & 6, answer.residual), (0, 0));
    // less than is there, and more
    let answer = client.command(&read(3, 2), 512);
    assert_eq!((answer.data.len(), answer.flags & 6, answer.residual), (512, 4, 512));
    let answer = client.command(&read(3, 1), 1024);
    assert_eq!((answer.data.len(), answer.flags & 6, answer.residual), (512, 2, 512));
    // holes
    assert_eq!(client.command(&read(250, 1), 512).data, [0; 512]);
    assert_eq!(sense(&client.command(&[0x28, 0, 1, 0, 0, 0, 0, 0, 1, 0], 512)), (5, 0x21, 0));
    assert_eq!(sense(&client.command(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0], 512)), (5, 0x24, 0), "no protection");
    assert_eq!(sense(&client.command(&[0xc0, 0, 0, 0, 0, 0], 0)), (5, 0x20, 0));
    let known = server.clients();
    let [one] = &known[..] else { panic!("{known:?}") };
    let operations = [6, 1, one.sums.operations[2]];
    let bytes = [(200 + 1 + 2 + 1 + 1 + 1) * 512, 200 * 512];
    assert_eq!((&*one.disk, one.sums), ("tank/disk", ClientSums { operations, bytes }));
    assert!(one.sums.operations[2] > 0 && one.name.starts_with("iqn.a "), "{one:?}");
    client.leave();
    until(|| !server.has_clients());
    assert!(server.clients().is_empty());
}

#[test]
fn sums_and_small_messages() {
    let (server, _) = served();
    let login = Login {
        keys: &[
            ("HeaderDigest", "CRC32C"),
            ("DataDigest", "CRC32C"),
            ("MaxRecvDataSegmentLength", "512"),
            ("MaxBurstLength", "1024"),
            ("FirstBurstLength", "512"),
            ("InitialR2T", "Yes"),
            ("ImmediateData", "No"),
        ],
        ..Login::of("iqn.a")
    };
    let mut client = Client::connect(&server);
    client.log_in(&login).unwrap();
    let data: Vec<u8> = (0..3000u32 / 512 * 512).map(|at| at as u8 ^ (at >> 8) as u8).collect();
    assert_eq!(client.write(&write(0, 5), &data[..2560]).status, 0);
    assert_eq!(client.command(&read(0, 5), 2560).data, data[..2560]);
    // a wrong sum ends the connection, and nothing of it is done
    client.spoil_next();
    client.send(client::command(&write(0, 1), 9, 512, true), &[]);
    assert!(client.is_cut_off());
}

#[test]
fn nobody_may_unless_it_is_said() {
    let (server, targets) = served();
    let fails = |login: &Login<'_>| Client::connect(&server).log_in(login).unwrap_err();
    targets.set_access(TargetAccess::default());
    assert_eq!(fails(&Login::of("iqn.a")), (2, 2));
    targets.set_access(TargetAccess { initiators: vec!["iqn.b".into()], chap: None });
    assert_eq!(fails(&Login::of("iqn.a")), (2, 2));
    assert_eq!(fails(&Login { target: "iqn.none", ..Login::of("iqn.b") }), (2, 3));
    Client::logged_in(&server, "iqn.b");
    let chap = ChapSecrets::parse("initiator me 123456789012\ntarget you 210987654321").unwrap();
    targets.set_access(TargetAccess { initiators: vec!["iqn.b".into()], chap: Some(chap) });
    assert_eq!(fails(&Login::of("iqn.b")), (2, 1));
    assert_eq!(fails(&Login { skips_security: true, ..Login::of("iqn.b") }), (2, 1));
    assert_eq!(fails(&Login { secret: Some(("me", "210987654321")), ..Login::of("iqn.b") }), (2, 1));
    assert_eq!(fails(&Login { secret: Some(("you", "210987654321")), ..Login::of("iqn.b") }), (2, 1));
    let mut client = Client::connect(&server);
    client.log_in(&Login { secret: Some(("me", "123456789012")), ..Login::of("iqn.b") }).unwrap();
    assert_eq!(client.command(&[0; 6], 0).status, 0);
    // the target proves it, too
    let mut client = Client::connect(&server);
    let both =
        Login { secret: Some(("me", "123456789012")), back: Some(("you", "210987654321")), ..Login::of("iqn.b") };
    client.log_in(&both).unwrap();
}

#[test]
fn targets_are_found() {
    let (server, targets) = served();
    let mut client = Client::connect(&server);
    client.log_in(&Login { target: "", ..Login::of("iqn.a") }).unwrap();
    assert_eq!(client.text("SendTargets", "All"), [("TargetName".to_owned(), TARGET.to_owned())]);
    targets.set_access(TargetAccess { initiators: vec!["iqn.b".into()], chap: None });
    assert!(client.text("SendTargets", "All").is_empty());
    assert!(!server.has_clients());
}

#[test]
fn a_secret_is_that_of_one_initiator() {
    let (server, targets) = served();
    let chap = ChapSecrets::parse("initiator iqn.alice 123456789012\ninitiator iqn.bob bob 210987654321").unwrap();
    let log_in = |initiator: &str, secret: (&str, &str)| {
        Client::connect(&server).log_in(&Login { secret: Some(secret), ..Login::of(initiator) })
    };
    for initiators in
        [vec!["iqn.bob".to_owned()], vec!["iqn.bob".to_owned(), "iqn.alice".to_owned()], vec!["any".to_owned()]]
    {
        targets.set_access(TargetAccess { initiators: initiators.clone(), chap: Some(chap.clone()) });
        assert_eq!(log_in("iqn.bob", ("iqn.alice", "123456789012")), Err((2, 1)), "alice is not bob: {initiators:?}");
        assert_eq!(log_in("iqn.bob", ("bob", "210987654321")), Ok(()), "{initiators:?}");
        assert!(log_in("iqn.alice", ("bob", "210987654321")).is_err(), "{initiators:?}");
    }
}

#[test]
fn targets_with_secrets_are_told_to_those_that_know_them() {
    let (server, targets) = served();
    let chap = ChapSecrets::parse("initiator iqn.a 123456789012\ninitiator iqn.b 123456789013").unwrap();
    targets.set_access(TargetAccess { initiators: vec!["any".into()], chap: Some(chap) });
    let told = |initiator: &str, secret: Option<(&str, &str)>| {
        let mut client = Client::connect(&server);
        client.log_in(&Login { target: "", secret, ..Login::of(initiator) })?;
        Ok(client.text("SendTargets", "All").len())
    };
    assert_eq!(told("iqn.a", None), Ok(0), "it proves nothing");
    assert_eq!(told("iqn.a", Some(("iqn.a", "123456789012"))), Ok(1));
    assert_eq!(told("iqn.a", Some(("iqn.a", "123456789013"))), Err((2, 1)));
    assert_eq!(told("iqn.b", Some(("iqn.a", "123456789012"))), Err((2, 1)));
}

#[test]
fn discovery_shuts_nobody_out() {
    let (server, targets) = served();
    targets.set_access(TargetAccess { initiators: vec!["iqn.good".into()], chap: None });
    let mut good = Client::logged_in(&server, "iqn.good");
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut client = Client::connect(&server);
        client.log_in(&Login { target: "", ..Login::of("iqn.evil") }).unwrap();
        held.push(client);
    }
    assert!(held[0].is_cut_off() && held[160].is_cut_off(), "the oldest go");
    assert!(held[199].text("SendTargets", "All").is_empty());
    // its session goes on, and it can begin others
    assert_eq!(good.command(&[0; 6], 0).status, 0);
    let mut again = Client::logged_in(&server, "iqn.good");
    assert_eq!(again.command(&[0; 6], 0).status, 0);
}

#[test]
fn discovery_takes_only_what_it_needs() {
    let (server, targets) = served();
    let discovery = || {
        let mut client = Client::connect(&server);
        client.log_in(&Login { target: "", ..Login::of("iqn.a") }).unwrap();
        client
    };
    let mut client = discovery();
    let mut ping = PduHead::new(opcode::NOP_OUT, FINAL, 9);
    ping.put_u32(20, NO_TAG);
    client.send(ping, b"hello");
    assert_eq!((client.take().data, client.text("SendTargets", "All").len()), (b"hello".to_vec(), 1));
    client.leave();
    // neither commands nor their data
    let mut client = discovery();
    client.send(client::command(&write(0, 200), 5, 200 * 512, true), &[0; 4096]);
    assert_eq!(client.take().head.opcode(), opcode::REJECT);
    assert!(client.is_cut_off());
    let mut client = discovery();
    client.send_as_it_is(PduHead::new(opcode::DATA_OUT | 0x40, FINAL, 5), &[0; 512]);
    assert_eq!(client.take().head.opcode(), opcode::REJECT);
    assert!(client.is_cut_off());
    // nor much at a time, which holds for logins, too
    for mut client in [discovery(), Client::connect(&server)] {
        client.send(PduHead::new(opcode::TEXT, FINAL, 5), &[b'x'; 8193]);
        assert!(client.is_cut_off());
    }
    // what is told is bounded
    targets.set_twins(50_000);
    assert!((1000..50_000).contains(&discovery().text_of("SendTargets", "All", 8192).len()));
}

#[test]
fn many_targets_are_found_in_parts() {
    let (server, targets) = served();
    let mut client = Client::connect(&server);
    client.log_in(&Login { target: "", ..Login::of("iqn.a") }).unwrap();
    client.text("MaxRecvDataSegmentLength", "512");
    targets.set_twins(100);
    assert_eq!(client.text("SendTargets", "All"), vec![("TargetName".to_owned(), TARGET.to_owned()); 101]);
    // one whose secrets cannot be read keeps the others from nobody
    targets.close();
    assert_eq!(client.text("SendTargets", "All").len(), 100);
    // there is no rest
    let mut more = PduHead::new(opcode::TEXT, FINAL, 3);
    more.put_u32(20, 1);
    client.send(more, &[]);
    assert_eq!(client.take().head.opcode(), opcode::REJECT);
}

#[test]
fn commands_of_all_kinds() {
    let (server, targets) = served();
    let mut client = Client::logged_in(&server, "iqn.a");
    client.write(&write(0, 2), &[7; 1024]);
    // COMPARE AND WRITE
    let compare = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let differs = client.write(&compare, &[&[7; 300][..], &[8; 724]].concat());
    assert_eq!((sense(&differs), &differs.sense[3..7]), ((0xe, 0x1d, 0), &[0, 0, 1, 44][..]));
    assert_eq!(client.write(&compare, &[[7; 512], [9; 512]].concat()).status, 0);
    assert_eq!(client.command(&read(0, 2), 1024).data, [[9; 512], [7; 512]].concat());
    // ORWRITE, WRITE SAME with a pattern, and without data
    let or = [0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    assert_eq!(client.write(&or, &[6; 512]).status, 0);
    assert_eq!(client.command(&read(0, 1), 512).data, [15; 512]);
    assert_eq!(client.write(&[0x41, 0, 0, 0, 0, 1, 0, 0, 3, 0], &[5; 512]).status, 0);
    assert_eq!(client.command(&read(1, 4), 2048).data, [&[5; 1536][..], &[0; 512]].concat());
    assert_eq!(sense(&client.write(&[0x41, 0, 0, 0, 0, 1, 0, 0, 3, 0], &[5; 256])), (5, 0x24, 0));
    let same = [0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0];
    assert_eq!(client.command(&same, 0).status, 0);
    // UNMAP, and what it leaves
    let list = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0]].concat();
    assert_eq!(client.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).status, 0);
    let status = client.command(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], 64);
    assert_eq!(status.data[3], 20, "one hole: {status:?}");
    assert_eq!(status.data[20], 1);
    // what it says of itself
    let capacity = client.command(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32);
    assert_eq!(capacity.data[..8], (DISK_BYTES / 512 - 1).to_be_bytes());
    for page in [0, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2] {
        let inquiry = client.command(&[0x12, 1, page, 0, 255, 0], 255);
        assert_eq!((inquiry.data[1], inquiry.data.len() - 4), (page, inquiry.data[3].into()));
    }
    assert_eq!(sense(&client.command(&[0x12, 1, 0x99, 0, 255, 0], 255)), (5, 0x24, 0));
    let all = client.command(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0], 2048).data;
    let told = all[4..].chunks(8).map(|row| row[0]).collect::<Vec<_>>();
    assert!(told.contains(&0x89) && told.len() == usize::from(all[2]) * 32 + usize::from(all[3]) / 8, "{told:?}");
    // another unit
    let mut other = client::command(&[0; 6], 77, 0, false);
    other.0[9] = 1;
    assert_eq!(sense(&client.ask(other, &[])), (5, 0x25, 0));
    targets.disk().set_read_only(true);
    assert_eq!(sense(&client.command(&[0; 6], 0)), (6, 0x2a, 1));
    assert_eq!(sense(&client.write(&write(0, 1), &[1; 512])), (7, 0x27, 0));
    targets.disk().set_size(DISK_BYTES / 2);
    assert_eq!(sense(&client.command(&[0; 6], 0)), (6, 0x2a, 9));
    assert_eq!(client.command(&[0; 6], 0).status, 0);
}

#[test]
fn reservations_keep_others_out_and_last() {
    let (server, targets) = served();
    let (mut a, mut b) = (Client::logged_in(&server, "iqn.a"), Client::logged_in(&server, "iqn.b"));
    let out = |action: u8, kind: u8, key: u64, other: u64, flags: u8| {
        let mut data = [&key.to_be_bytes()[..], &other.to_be_bytes(), &[0; 8]].concat();
        data[20] = flags;
        (vec![0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], data)
    };
    let say = |client: &mut Client, (cdb, data): (Vec<u8>, Vec<u8>)| client.write(&cdb, &data).status;
    assert_eq!(say(&mut a, out(1, 3, 1, 0, 0)), 0x18, "it is not registered");
    assert_eq!(say(&mut a, out(0, 0, 0, 1, 1)), 0);
    assert_eq!(say(&mut a, out(1, 3, 1, 0, 0)), 0);
    assert_eq!(b.command(&read(0, 1), 512).status, 0x18);
    assert_eq!(b.command(&[0; 6], 0).status, 0);
    assert_eq!(a.command(&read(0, 1), 512).status, 0);
    assert!(targets.disk().kept().unwrap().contains("iqn.a"));
    drop((a, b));

    // another process
    let server = IscsiServer::new(Env::real(), targets.clone());
    let (mut a, mut b) = (Client::logged_in(&server, "iqn.a"), Client::logged_in(&server, "iqn.b"));
    assert_eq!(b.write(&write(0, 1), &[1; 512]).status, 0x18);
    let keys = b.command(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], 64);
    assert_eq!(keys.data[4..16], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(say(&mut b, out(0, 0, 0, 2, 0)), 0);
    assert_eq!(say(&mut b, out(5, 3, 2, 1, 0)), 0, "preempted");
    assert_eq!(sense(&a.command(&[0; 6], 0)), (6, 0x2a, 5));
    assert_eq!(a.command(&read(0, 1), 512).status, 0x18);
    assert_eq!(say(&mut b, out(2, 3, 2, 0, 0)), 0);
    assert_eq!(a.command(&read(0, 1), 512).status, 0);
}

#[test]
fn a_suspended_pool_holds_up_only_what_changes() {
    let (server, targets) = served();
    let mut client = Client::logged_in(&server, "iqn.a");
    targets.disk().set_suspended(true);
    client.send(client::command(&write(0, 1), 5, 512, true), &[1; 512]);
    assert_eq!(client.command(&read(0, 1), 512).data, [0; 512]);
    // one that waits is aborted, and never done
    client.send(client::command(&write(1, 1), 6, 512, true), &[2; 512]);
    let abort = client.manage(1, 6);
    assert_eq!(abort, 0);
    assert_eq!(client.manage(1, 1234), 1, "there is no such task");
    targets.disk().set_suspended(false);
    assert_eq!(client.answer_to(5).status, 0);
    assert_eq!(client.command(&read(0, 2), 1024).data, [[1; 512], [0; 512]].concat());
}

#[test]
fn a_reset_is_told_to_others() {
    let (server, _) = served();
    let (mut a, mut b) = (Client::logged_in(&server, "iqn.a"), Client::logged_in(&server, "iqn.b"));
    assert_eq!(a.command(&[0; 6], 0).status, 0);
    // data that never come
    b.send(client::command(&write(0, 200), 5, 200 * 512, true), &[]);
    b.ready();
    assert_eq!(a.manage(5, NO_TAG), 0);
    assert_eq!(a.command(&[0; 6], 0).status, 0);
    assert_eq!(sense(&b.command(&[0; 6], 0)), (6, 0x29, 3));
    assert_eq!(b.command(&[0; 6], 0).status, 0);
}

#[test]
fn a_successor_ends_the_session_before_it() {
    let (server, targets) = served();
    let mut old = Client::logged_in(&server, "iqn.a");
    targets.disk().set_suspended(true);
    old.send(client::command(&write(0, 1), 5, 512, true), &[1; 512]);
    old.command(&[0; 6], 0);
    let mut new = Client::logged_in(&server, "iqn.a");
    assert!(old.is_cut_off());
    targets.disk().set_suspended(false);
    assert_eq!(new.write(&write(0, 1), &[2; 512]).status, 0);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(new.command(&read(0, 1), 512).data, [2; 512], "what the old one left is not done");
}

#[test]
fn the_order_of_commands() {
    let (server, _) = served();
    let mut client = Client::logged_in(&server, "iqn.a");
    let numbered = |client: &Client, tag: u32, ahead: u32| {
        let mut head = client::command(&[0; 6], tag, 0, false);
        head.put_u32(24, client.next_command().wrapping_add(ahead));
        head
    };
    // the second comes first; one that may not come is ignored
    let (first, second) = (numbered(&client, 1, 0), numbered(&client, 2, 1));
    let (beyond, before) = (numbered(&client, 3, 1000), numbered(&client, 4, u32::MAX));
    for head in [second, beyond, before, first] {
        client.send_as_it_is(head, &[]);
    }
    assert_eq!((client.answer_to(1).status, client.answer_to(2).status), (0, 0));
    client.skip_commands(2);
    assert_eq!(client.command(&[0; 6], 0).status, 0);
    // what is in no order
    let mut ping = PduHead::new(opcode::NOP_OUT | 0x40, FINAL, 9);
    ping.put_u32(20, NO_TAG);
    ping.put_u32(24, client.next_command());
    client.send_as_it_is(ping, b"hello");
    let pong = client.take();
    assert_eq!((pong.head.opcode(), &pong.data[..]), (opcode::NOP_IN, &b"hello"[..]));
}

#[test]
fn what_makes_no_sense_ends_one_connection_only() {
    let (server, _) = served();
    let mut well = Client::logged_in(&server, "iqn.well");
    let mut twice = client::command(&write(0, 200), 5, 200 * 512, true);
    twice.0[1] |= FINAL;
    let mut second = Client::logged_in(&server, "iqn.a");
    second.send(twice, &[]);
    second.send(twice, &[]);
    assert!(second.is_cut_off(), "a tag that is in use");
    let mut large = Client::logged_in(&server, "iqn.a");
    let mut head = client::command(&write(0, 1), 5, 512, true);
    head.put_data_len(1 << 23);
    large.send_raw(&head.0);
    assert!(large.is_cut_off());
    let mut more = Client::logged_in(&server, "iqn.a");
    more.send(client::command(&write(0, 1), 5, 512, true), &[0; 1024]);
    assert!(more.is_cut_off(), "more data than it wants to write");
    let mut stranger = Client::connect(&server);
    stranger.send_raw(&[b'G'; 200]);
    assert!(stranger.is_cut_off());
    let mut keys = Client::connect(&server);
    let mut text = Vec::new();
    text::push(&mut text, "InitiatorName", &"x".repeat(300));
    assert_eq!(keys.log_in_with(&text), Err((2, 0)));
    assert_eq!(sense(&well.command(&[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0], 0)), (5, 0x21, 0));
    assert_eq!(well.command(&read(0, 1), 512).status, 0);
}

#[test]
fn those_that_go_are_no_more_in_use() {
    let (server, targets) = served();
    let mut client = Client::logged_in(&server, "iqn.a");
    client.command(&[0; 6], 0);
    assert!(server.is_in_use(targets.guid()) && !server.is_in_use(7));
    server.freeze();
    client.send(client::command(&read(0, 1), 5, 512, false), &[]);
    server.thaw();
    assert_eq!(client.answer_to(5).status, 0);
    server.disconnect_all();
    assert!(client.is_cut_off());
    until(|| !server.is_in_use(targets.guid()));
}
