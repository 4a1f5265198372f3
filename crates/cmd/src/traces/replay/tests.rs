use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use trace::{TraceRecorder, TraceRequest};

use super::*;

fn request(ms: u64, op: TraceOp, object: u64, (offset, bytes): (u64, u64)) -> TraceRequest {
    TraceRequest { time_ns: Some(ms * 1_000_000), op, stream: 54, object, offset, bytes }
}

/// Two files, 400 ms.
fn trace_in(dir: &Path) -> PathBuf {
    let path = dir.join("a.trace");
    let mut recorder = TraceRecorder::create(&path).unwrap();
    let requests: Vec<TraceRequest> = (0..20)
        .flat_map(|n| {
            let at = n * 20;
            [
                request(at, TraceOp::Write, 7, (n * 4096, 4096)),
                request(at, TraceOp::Read, 8, (n * 8192 + 100, 3000)),
                request(at + 10, TraceOp::Sync, 7, (0, 0)),
                request(at + 10, TraceOp::Sync, 0, (0, 0)),
            ]
        })
        .collect();
    recorder.write(&requests).unwrap();
    recorder.finish().unwrap();
    path
}

fn args(file: &Path, at: &Path, speed: f64) -> ReplayTraceArgs {
    ReplayTraceArgs { file: file.into(), at: at.into(), speed, threads: 4, format: None, json: false }
}

/// What came of a replay there.
fn replay_at(file: &Path, at: &Path, speed: f64) -> ReplaySums {
    let is_interrupted = AtomicBool::new(false);
    let plan = ReplayPlan::of(open(file, None).unwrap()).unwrap();
    let place = ReplayPlace::prepare(at, &plan, &is_interrupted).unwrap();
    let pace = ReplayPace { speed, threads: 4, is_interrupted: &is_interrupted };
    play(open(file, None).unwrap(), &place, pace).unwrap()
}

#[test]
fn a_trace_is_replayed_at_its_pace() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace_in(dir.path());
    for (name, speed, most_ms) in [("slow", 1.0, 390), ("fast", 100.0, 3)] {
        let at = dir.path().join(name);
        fs::create_dir(&at).unwrap();
        let replayed = replay_at(&file, &at, speed);
        let sums = replayed.ops.each_ref().map(|sum| (sum.count, sum.bytes));
        assert_eq!(sums, [(20, 60_000), (20, 81_920), (40, 0), (0, 0)], "reads, writes, syncs");
        assert_eq!((replayed.failed, replayed.late_ns.len()), (0, 80), "{:?}", replayed.first_error);
        assert!(replayed.elapsed_ns >= most_ms * 1_000_000 && replayed.due_ns == (390.0e6 / speed) as u64);
        assert!(replayed.late_ns.is_sorted() && replayed.ops.iter().all(|sum| sum.sorted_ns.is_sorted()));
        let written = fs::read(at.join("54-7")).unwrap();
        assert!(written.len() == 81_920 && written.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
        let read = fs::read(at.join("54-8")).unwrap();
        assert_eq!(read.len(), 19 * 8192 + 3100);
        assert!(read[100..3100].iter().any(|byte| *byte != 0), "what is read was written before");
        let json = json_of(&replayed);
        assert_eq!((&json["reads"]["count"], &json["writes"]["bytes"]), (&20.into(), &81_920.into()));
        assert!(text_of(&replayed).contains("read         20"), "{}", text_of(&replayed));
    }
}

#[test]
fn nothing_that_exists_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace_in(dir.path());
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    fs::write(at.join("54-8"), "mine").unwrap();
    let error = run(&args(&file, &at, 1.0)).unwrap_err();
    assert!(error.ends_with("there is a file 54-8 already, which is not touched"), "{error}");
    assert_eq!((fs::read(at.join("54-8")).unwrap(), at.join("54-7").exists()), (b"mine".to_vec(), false));
    let disk = dir.path().join("disk");
    fs::write(&disk, vec![1; 8 << 20]).unwrap();
    let error = run(&args(&file, &disk, 1.0)).unwrap_err();
    assert!(error.contains("is not touched: there are data on it"), "{error}");
    // a blank one is written over, as far as it is large enough
    fs::write(&disk, vec![0; 8 << 20]).unwrap();
    assert_eq!(run(&args(&file, &disk, 100.0)), Ok(()));
    let bytes = fs::read(&disk).unwrap();
    assert!(bytes[..4096].iter().any(|byte| *byte != 0) && bytes[1 << 20..(1 << 20) + 4096].iter().any(|b| *b != 0));
    assert!(bytes[81_920..1 << 20].iter().all(|byte| *byte == 0), "the files do not overlap");
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let error = run(&args(&file, &disk, 1.0)).unwrap_err();
    assert!(error.ends_with("the trace needs 2097152 bytes, and there are 1048576"), "{error}");
}

#[test]
fn traces_that_cannot_be_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        run(&args(&path, dir.path(), 1.0)).unwrap_err()
    };
    assert!(of("keys", "17\n18\n").contains("it has keys"));
    assert!(of("far", "1,R,9223372036854775800,4096,1000000\n").contains("where no file can"));
    assert!(of("bad", "1,R,0,4096,1000000\n1,R,x,4096,1\n").contains("line 2"));
    assert!(run(&args(Path::new("-"), dir.path(), 1.0)).unwrap_err().contains("standard input"));
    let mut plan = ReplayPlan::default();
    let many = (0..70_000).map(|n| Ok(request(0, TraceOp::Write, n, (0, 1))));
    assert!(ReplayPlan::of(many).unwrap_err().to_string().contains("more than 65536 files"));
    plan.read = [((1, 2), 0), ((1, 2), 3)].into();
    plan.ends = [((1, 2), 3 * plan::PART_BYTES + 5)].into();
    assert_eq!(plan.parts(), [((1, 2), 0, plan::PART_BYTES), ((1, 2), 3 * plan::PART_BYTES, 5)]);
}
