use std::io::Cursor;

use arc::miniature::{ForetoldDevice, ForetoldRam, HitShare};
use serde_json::json;

use super::answer::LiveSeen;
use super::verdict::{Pays, verdict};
use super::*;

fn share(value: f64) -> HitShare {
    HitShare { value, low: value - 0.01, high: value + 0.01 }
}

/// An answer with 100 MiB of RAM now, and with such hits of other sizes.
fn answer(rams: &[(u64, f64)], devices: &[(u64, f64)]) -> CacheAnswer {
    let ram = |&(mib, hits): &(u64, f64)| ForetoldRam { bytes: mib << 20, hits: share(hits), lru_hits: share(hits) };
    let device = |&(mib, hits): &(u64, f64)| {
        let bytes = mib << 20;
        ForetoldDevice { bytes, hits: share(hits), written: bytes / 4, index: bytes / 500 }
    };
    let foretold = Foretold {
        reads: 1_000_000,
        drawn_reads: 100_000,
        drawn_blocks: 40_000,
        drawn_part: 0.25,
        elapsed_ns: 1000 * SECOND_NS,
        endless: share(0.9),
        rams: rams.iter().map(ram).collect(),
        devices: devices.iter().map(device).collect(),
    };
    CacheAnswer { ram: 100 << 20, foretold, assumed_rate: None, live: None }
}

#[test]
fn verdicts() {
    let both = answer(&[(50, 0.4), (100, 0.5), (200, 0.52), (800, 0.7)], &[(200, 0.6), (400, 0.69), (800, 0.7)]);
    let words = verdict(&both);
    assert_eq!((words.device, words.ram), (Pays::Buy(400 << 20), Pays::Buy(800 << 20)));
    let text = words.sentences.join("\n");
    assert!(text.contains("A cache device of 400M would serve 19.0 % more: 310 of 500 reads a second"), "{text}");
    // 100 MiB in 1,000 s are 8.4 GiB a day
    assert!(text.contains("written 8.44G a day") && text.contains("21.6 times its size a day"), "{text}");
    let none = verdict(&answer(&[(100, 0.5), (800, 0.51)], &[(200, 0.505), (800, 0.515)]));
    assert_eq!((none.device, none.ram), (Pays::DoNotBuy, Pays::DoNotBuy));
    let text = none.sentences.join("\n");
    assert!(text.contains("Do not buy a cache device: even one of 800M") && text.contains("Do not buy RAM"), "{text}");
    let ram = verdict(&answer(&[(100, 0.5), (200, 0.8)], &[(400, 0.75)]));
    assert!(ram.sentences.join("\n").contains("200M of RAM do as much as the device"));
    let mut little = both;
    little.foretold.reads = 9999;
    assert_eq!(verdict(&little).device, Pays::Unknown);
}

#[test]
fn json_has_all_sizes() {
    let value = answer(&[(100, 0.5), (800, 0.7)], &[(200, 0.6)]).json();
    assert_eq!(value["rams"][0]["bytes"], 100 << 20);
    assert_eq!(value["rams"][1]["disk_reads_per_s"].as_f64().unwrap().round(), 300.0);
    for key in ["hits", "hits_low", "hits_high", "lru_hits"] {
        assert!(value["rams"][0][key].is_f64(), "{key}: {value}");
    }
    for key in ["bytes", "written_bytes_per_day", "index_bytes"] {
        assert!(value["devices"][0][key].is_u64(), "{key}: {value}");
    }
    assert_eq!(value["verdict"]["device"], "buy");
    assert_eq!((&value["reads"], &value["seconds"]), (&json!(1_000_000), &json!(1000.0)));
    let text = answer(&[(100, 0.5), (800, 0.7)], &[(200, 0.6)]).text();
    assert!(text.contains("100M now") && text.contains("59.0 to 61.0"), "{text}");
}

/// From bytes of a trace to words.
#[test]
fn a_loop_that_just_does_not_fit() {
    let lines: String = (0..200_000).map(|n| format!("{} 1 0 0\n", n % 4000)).collect();
    let args = |ram: Option<u64>, trace: PathBuf| CacheArgs {
        pool: None,
        time: None,
        trace: Some(trace),
        format: None,
        ram,
        block: 4096,
        rate: 1000,
        blocks: 1 << 16,
        json: false,
    };
    let mut reader = TraceReader::new(Box::new(Cursor::new(lines.clone())), None).unwrap();
    let plan = MiniaturePlan::around(2000 * 4096);
    let foretold = foretell(Path::new("loop"), &mut reader, &args(None, "loop".into()), plan).unwrap();
    let answer = CacheAnswer { ram: 2000 * 4096, foretold, assumed_rate: Some(1000), live: None };
    let words = verdict(&answer);
    assert!(matches!(words.ram, Pays::Buy(bytes) if bytes >= 3500 * 4096), "{}", answer.text());
    assert!(matches!(words.device, Pays::Buy(_)), "{}", answer.text());
    assert!(answer.text().contains("1000 requests a second are assumed"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("loop.lis");
    std::fs::write(&path, lines).unwrap();
    assert_eq!(touched(&path, &args(None, path.clone())), Ok(4000 * 4096));
    std::fs::write(&path, "1 1 0 0\n2 x 0 0\n").unwrap();
    let error = run(&args(None, path)).unwrap_err();
    assert!(error.ends_with("line 2: the blocks is no number below 2^64: x"), "{error}");
    assert!(run(&args(None, "-".into())).unwrap_err().contains("--ram"));
}

fn seen() -> LiveSeen {
    LiveSeen {
        seconds: 90.0,
        warm_up_s: 40.0,
        warm_bytes: 300 << 20,
        warm_in_s: Some(600.0),
        is_settled: false,
        hits: Some(0.512),
        lost: 0,
        read_bytes: 0,
        page_cache_bytes: 0,
    }
}

/// Of a pool in use, nothing is certain of sizes that less was seen than they hold.
#[test]
fn a_pool_that_was_watched_too_shortly() {
    let mut short = answer(&[(100, 0.5), (200, 0.505), (800, 0.51)], &[(400, 0.505)]);
    short.foretold.rams[2].hits.high = 0.8;
    short.foretold.devices[0].hits.high = 0.8;
    short.live = Some(seen());
    let words = verdict(&short);
    assert_eq!((words.device, words.ram), (Pays::Unknown, Pays::Unknown), "{:?}", words.sentences);
    short.live = Some(LiveSeen { is_settled: true, warm_in_s: None, ..seen() });
    let words = verdict(&short);
    assert_eq!((words.device, words.ram), (Pays::DoNotBuy, Pays::DoNotBuy), "{:?}", words.sentences);
    short.live = Some(LiveSeen { warm_bytes: 50 << 20, ..seen() });
    assert!(verdict(&short).sentences[0].starts_with("Not enough seen yet: a cache of 100M is not full"));
}

#[test]
fn whose_answer_it_is() {
    let mut watched = answer(&[(100, 0.5)], &[(400, 0.505)]);
    watched.live = Some(seen());
    let text = watched.text();
    assert!(text.contains("RAM really served 51.2 % of the reads; of its size, the simulation says 50.0 %"), "{text}");
    assert!(text.contains("more than 300M were not full") && text.contains("about 10 min more"), "{text}");
    assert!(text.contains("This is the answer of the ARC. No file system"), "{text}");
    watched.live = Some(LiveSeen { read_bytes: 3 << 20, page_cache_bytes: 2 << 20, lost: 5, ..seen() });
    let text = watched.text();
    assert!(text.contains("not of all RAM: of 3M that programs read of file systems here, 2M went"), "{text}");
    assert!(text.contains("5 accesses were lost"), "{text}");
    assert_eq!(watched.json()["live"]["page_cache_fill_bytes"], 2 << 20);
}
