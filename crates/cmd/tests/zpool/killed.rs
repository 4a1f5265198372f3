//! Receives that are killed, the command or the process of the pool, at any moment: what was there before is there, and
//! the rest can be sent for. More of it: `CENOTE_KILLED_RECEIVES=200 CENOTE_KILLED_SEED=7`.

use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::World;
use testkit::corpus;
use testkit::manifest::Manifest;
use testkit::rng::Rng;

/// Kills if nobody asks for more.
const KILLS_QUICK: u64 = 10;
/// How soon it is seen that a command has gone.
const SEEN: Duration = Duration::from_secs(20);

pub(super) fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

impl World {
    fn receiver(&self, line: &str) -> Child {
        let mut command = self.command(env!("CARGO_BIN_EXE_cenote"));
        command.args(["zfs", "receive"]).args(line.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn value(&self, property: &str, name: &str) -> String {
        self.zfs(&format!("get -H -o value {property} {name}")).0.trim().to_owned()
    }

    fn contents(&self, snapshot: &str) -> Manifest {
        let output = self.cenote(&format!("stat -r -j --sha256 -d DIR {snapshot}:/"));
        Manifest::parse(&String::from_utf8(output.stdout).unwrap()).unwrap()
    }
}

/// Feeds a part of a stream in pieces, some of which are on disk before the next one comes.
fn feed(world: &World, rng: &mut Rng, stdin: &mut ChildStdin, stream: &[u8]) {
    let mut rest = &stream[..rng.below(stream.len() as u64 + 1) as usize];
    while !rest.is_empty() {
        let (piece, others) = rest.split_at((rng.below(400_000) as usize + 1).min(rest.len()));
        if stdin.write_all(piece).is_err() {
            return;
        }
        rest = others;
        if rng.below(2) == 0 {
            world.zpool("sync fresh");
        }
    }
    sleep(Duration::from_millis(rng.below(30)));
}

/// What was done until streams were whole.
#[derive(Debug, Default)]
struct Tally {
    commands: u64,
    processes: u64,
    resumed: u64,
    whole: u64,
}

/// Sends a snapshot to `to` until it is there; each receive but the last one is killed.
fn send_until_whole(world: &World, rng: &mut Rng, (send, to): (&str, &str), tally: &mut Tally, kills: u64) {
    let fs = to.split('@').next().unwrap();
    let mut last_kill = Instant::now();
    loop {
        let token = world.value("receive_resume_token", fs);
        let is_left = token.starts_with("1-");
        let line = if is_left { format!("zfs send -t {token}") } else { format!("zfs send {send}") };
        let sent = world.cenote(&line);
        assert!(sent.status.success(), "{line}: {sent:?}");
        tally.resumed += u64::from(is_left);
        let mut child = world.receiver(&format!("-s -u {to}"));
        let mut stdin = child.stdin.take().unwrap();
        let has_enough = tally.commands + tally.processes >= kills;
        if has_enough {
            let _ = stdin.write_all(&sent.stdout);
        } else {
            feed(world, rng, &mut stdin, &sent.stdout);
            match rng.below(2) {
                0 => {
                    tally.commands += 1;
                    child.kill().unwrap();
                }
                _ => {
                    tally.processes += 1;
                    world.kill("fresh");
                }
            }
            last_kill = Instant::now();
        }
        drop(stdin);
        let said = child.wait_with_output().unwrap();
        let is_there = || world.zfs(&format!("list -H -o name {to}")).1 == 0;
        if has_enough {
            // the one that was killed may not have ended
            assert!(said.status.success() || last_kill.elapsed() < SEEN, "{said:?}");
        } else if world.zpool("list fresh").status.code() != Some(0) {
            world.check("import -d DIR fresh", 0, "");
        }
        if is_there() {
            tally.whole += 1;
            return;
        }
    }
}

#[test]
fn receives_that_are_killed_go_on_until_they_are_whole() {
    let kills = number_from("CENOTE_KILLED_RECEIVES").unwrap_or(KILLS_QUICK);
    let mut rng = Rng::new(number_from("CENOTE_KILLED_SEED").unwrap_or(1));
    let world = World::with_pool("killed");
    let stream = |name: &str| corpus::case("send").zstd(&format!("streams/{name}.zst"));
    world.receives("-u fresh/from", &stream("full"));
    world.receives("-u fresh/from", &stream("incremental-bookmark-3"));
    let before = world.zfs("list -Hp -t all -o name,guid,refer -r fresh/from");
    let (mut tally, mut number) = (Tally::default(), 0);
    while tally.commands + tally.processes < kills {
        let to = format!("fresh/to{number}");
        send_until_whole(&world, &mut rng, ("-c fresh/from@1", &format!("{to}@1")), &mut tally, kills);
        send_until_whole(&world, &mut rng, ("-i @1 fresh/from@3", &format!("{to}@3")), &mut tally, kills);
        assert_eq!(world.zfs("list -Hp -t all -o name,guid,refer -r fresh/from"), before);
        for snapshot in ["1", "3"] {
            let guid = |fs: &str| world.value("guid", &format!("{fs}@{snapshot}"));
            assert_eq!(guid(&to), guid("fresh/from"));
        }
        number += 1;
        if number > 2 {
            let (text, code) = world.zfs(&format!("destroy -r fresh/to{}", number - 3));
            assert_eq!((text.as_str(), code), ("", 0));
        }
    }
    println!("{tally:?}");
    world.judged();
    let last = format!("fresh/to{}", number - 1);
    for snapshot in ["1", "3"] {
        let (sent, came) =
            (world.contents(&format!("fresh/from@{snapshot}")), world.contents(&format!("{last}@{snapshot}")));
        assert_eq!(sent.differences(&came), None, "@{snapshot}");
    }
}

/// The other end of its input stays open, as that of a sender that does not know.
#[test]
fn a_receive_ends_with_its_command() {
    let world = World::with_pool("gone");
    let full = corpus::case("send").zstd("streams/full.zst");
    let mut child = world.receiver("-s -u fresh/to");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&full[..full.len() / 2]).unwrap();
    assert_eq!(world.zfs("receive -A fresh/to").1, 1, "it goes on");
    child.kill().unwrap();
    child.wait().unwrap();
    let began = Instant::now();
    loop {
        let (text, code) = world.zfs("receive -A fresh/to");
        if code == 0 {
            break;
        }
        assert!(began.elapsed() < SEEN, "{text}");
        sleep(Duration::from_millis(100));
    }
    assert_eq!(world.zfs("list -H -o name -r fresh"), ("fresh\n".to_owned(), 0));
    drop(stdin);
    world.judged();
}

/// What an interrupted receive has left goes to a third place, and the rest of it comes there, too.
#[test]
fn what_is_left_of_a_receive_is_sent_on() {
    let world = World::with_pool("saved");
    let stream = |name: &str| corpus::case("send").zstd(&format!("streams/{name}.zst"));
    world.receives("-u fresh/from", &stream("full"));
    world.receives("-u fresh/from", &stream("incremental-bookmark-3"));
    let nothing = "saved send failed: 'fresh/from' does not have any resumable receive state\n";
    assert_eq!(world.zfs("send -S fresh/from"), (nothing.to_owned(), 1));
    for (own, line) in [("1", "fresh/from@1"), ("3", "-c -i @1 fresh/from@3")] {
        let whole = world.cenote(&format!("zfs send {line}")).stdout;
        let (text, code) = world.zfs_with("receive -s -u fresh/part", &whole[..whole.len() * 2 / 3]);
        assert!(code == 1 && text.contains("Partially received snapshot is saved"), "{text}");
        let saved = world.cenote("zfs send -S fresh/part");
        assert!(saved.status.success() && saved.stdout.len() < whole.len(), "{saved:?}");
        let (text, code) = world.zfs_with("receive -s -u fresh/third", &saved.stdout);
        assert!(code == 1 && text.contains("Partially received snapshot is saved"), "{text}");
        // both are completed by what the first sender has, and neither is further than the other
        let mut rests = Vec::new();
        for fs in ["fresh/part", "fresh/third"] {
            let token = world.value("receive_resume_token", fs);
            let rest = world.cenote(&format!("zfs send -t {token}")).stdout;
            rests.push(rest.len());
            world.receives(&format!("-s -u {fs}@{own}"), &rest);
        }
        assert!(rests[0] < whole.len() && rests[0] <= rests[1], "{rests:?} of {}", whole.len());
    }
    world.judged();
    for own in ["1", "3"] {
        let wanted = world.contents(&format!("fresh/from@{own}"));
        for fs in ["fresh/part", "fresh/third"] {
            assert_eq!(wanted.differences(&world.contents(&format!("{fs}@{own}"))), None, "{fs}@{own}");
        }
    }
}
