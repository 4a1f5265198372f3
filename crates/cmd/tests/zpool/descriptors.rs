//! Descriptors of a pool's process: beside requests to it, and of those that call the command that starts it.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use protocol::wire::{self, Answer, Hello, PoolReply, Request};
use protocol::{beside, wire::REPLY_BYTES_MAX};

use super::World;

#[test]
fn what_nobody_expects_is_closed() {
    let world = World::new("descriptors", &["single"]);
    world.check("import -N -d DIR/single t_single", 0, "");
    let mut stream = UnixStream::connect(world.dir.join("run/t_single.sock")).unwrap();
    let hello: Hello = wire::receive(&mut stream, REPLY_BYTES_MAX).unwrap().unwrap();
    assert_eq!(hello.pool, "t_single");
    let (mut reader, writer) = std::io::pipe().unwrap();
    beside::send(&stream, &Request::Io, &[writer.as_fd()]).unwrap();
    drop(writer);
    let answer: Answer = wire::receive(&mut stream, REPLY_BYTES_MAX).unwrap().unwrap();
    let why = "1 descriptors came with a request that takes 0".to_owned();
    assert_eq!(answer, Answer::Failed { errno: libc::EINVAL, why });
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the process has closed it");
    // and the connection goes on
    wire::send(&mut stream, &Request::Io).unwrap();
    let answer: Answer = wire::receive(&mut stream, REPLY_BYTES_MAX).unwrap().unwrap();
    assert!(matches!(answer, Answer::Done(PoolReply::Io(_))), "{answer:?}");
    world.check("export t_single", 0, "");
}

/// A script that holds a lock, say, would keep it for as long as the pool is there.
#[test]
fn what_the_caller_has_open_is_not_kept() {
    let world = World::new("callers", &["single"]);
    let lock = world.dir.join("lock");
    let script = "exec 9>\"$1\" && flock -n 9 && \"$0\" zpool import -N -d \"$2/single\" t_single";
    let mut command = world.command("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_cenote")).arg(&lock).arg(&world.dir);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::File::open(&lock).unwrap().try_lock().expect("nobody has it any more");
    world.check("export t_single", 0, "");
}
