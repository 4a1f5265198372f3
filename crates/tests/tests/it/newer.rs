//! Pools of OpenZFS 2.4 with features that Cenote does not know, or of which it cannot read all: it says which.

use std::sync::Arc;

use base::{Env, Kind};
use device::Device;
use dmu::zap::ZapValue;
use pool::{Candidate, Discovery, FoundDevice, LivePool, OpenOptions, Pool, PoolState};
use testkit::corpus;
use testkit::program;
use testkit::workload::candidate;

use crate::dedup::sparse;

#[test]
fn features_that_forbid_writing_are_named() {
    let device: Arc<dyn Device> = Arc::new(sparse("single"));
    let import = || {
        let candidate = candidate(std::slice::from_ref(&device)).unwrap();
        LivePool::import(&Env::real(), &candidate, &OpenOptions::default(), (7, "here".to_owned()))
    };
    let pool = import().unwrap();
    let enabled = pool.run(|context| {
        let change = &context.change;
        change.set(change.in_directory("features_for_write")?, "com.example:future", &ZapValue::one(1))
    });
    enabled.unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let Err(error) = import() else { panic!("it was imported for writing") };
    assert_eq!(error.kind(), Kind::ReadOnly, "{error}");
    assert!(error.to_string().contains("com.example:future"), "{error}");
}

/// The logs of a fast dedup table are read once, however often somebody asks.
#[test]
fn what_is_known_of_dedup_tables_is_kept() {
    let devices = corpus::as_devices(&corpus::case("fastdedup").load());
    let found = devices.iter().flat_map(|device| FoundDevice::examine(device.path(), device.clone()).unwrap());
    let found = Discovery { devices: found.collect(), failed: Vec::new() };
    let candidate = Candidate::all(&found).remove(0);
    let pool = Pool::open(&Env::real(), &candidate, &OpenOptions::default()).unwrap();
    let first = pool.dedup().unwrap();
    let asked = || pool.cache().stats().hits + pool.cache().stats().misses;
    let before = asked();
    assert_eq!((pool.dedup().unwrap(), asked()), (first.clone(), before));
    assert!(first.entries > 0 && first.total().blocks > 0);
}

/// What its sender left out is a hole in what was received: OpenZFS keeps no other mark of it. All else is there, but is
/// only read by wish.
#[test]
fn what_was_redacted_is_a_hole() {
    let case = corpus::case("redaction");
    let dir = tempfile::tempdir().unwrap();
    case.extract(dir.path()).unwrap();
    let cat = |place: &str| {
        let place = format!("t_redaction/{place}");
        program::run(["cat".as_ref(), "--redacted".as_ref(), "-d".as_ref(), dir.path().as_os_str(), place.as_ref()])
            .well()
            .unwrap()
    };
    for command in ["cat", "cp", "stat", "ls"] {
        let source = "t_redaction/received:/text-4096";
        let target = dir.path().join("copy");
        let more = if command == "cp" { Some(target.as_os_str()) } else { None };
        let args = [command.as_ref(), "-d".as_ref(), dir.path().as_os_str(), source.as_ref()];
        let refused = program::run(args.into_iter().chain(more));
        assert_eq!(refused.code(), Some(1), "{command}");
        assert!(refused.out().is_empty() && refused.complaints().contains("redacted"), "{}", refused.complaints());
        assert!(!target.exists());
    }
    let pair = |file: &str| (cat(&format!("fs:/{file}")), cat(&format!("received:/{file}")));
    let (sent, received) = pair("text-4096");
    assert_eq!(sent, received);
    // 3000 bytes at 20000 were overwritten in every clone, in blocks of 512
    let (sent, received) = pair("text-400000");
    let redacted = 20_000 / 512 * 512..23_000_usize.next_multiple_of(512);
    assert_eq!(received[redacted.clone()], "\0".repeat(redacted.len()));
    assert!(received[..redacted.start] == sent[..redacted.start] && received[redacted.end..] == sent[redacted.end..]);
    let (sent, received) = pair("text-131071");
    assert_eq!(received, "\0".repeat(sent.len()));
}
