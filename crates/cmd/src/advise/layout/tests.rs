use super::*;

fn args(words: &[&str]) -> LayoutArgs {
    clap::Parser::try_parse_from(words).unwrap()
}

fn row(words: &[&str], layout: &str) -> LayoutRow {
    let args = args(words);
    let found = disks::parse(&args.disks).unwrap();
    let load =
        PoolLoad { record_bytes: args.recordsize, block_bytes: args.volblocksize, full: 0.7, replaced_in_s: 86_400.0 };
    let layout = candidates(found.sizes.len()).into_iter().find(|found| found.words() == layout).unwrap();
    let space = try_out(&layout, &found.sizes, args.ashift, &load).unwrap();
    let estimate = estimate(&layout, &found.sizes, &found.kind.disk(), args.ashift, &load);
    LayoutRow { layout, space, estimate }
}

#[test]
fn room_of_pools() {
    let mirror = row(&["4x1T"], "2 x mirror of 2").space;
    // two vdevs of 1 TiB, of which a 32nd, labels and a metaslab each for the intent log are kept back
    let whole = 2.0 * (1u64 << 40) as f64;
    assert!((0.955..31.0 / 32.0).contains(&(mirror.available_bytes as f64 / whole)), "{mirror:?}");
    assert!((mirror.volume_bytes / mirror.available_bytes as f64 - 1.0).abs() < 1e-9);
    // blocks of 16 KiB on a raidz2 of 6 with sectors of 4 KiB take 6 sectors: no more than records do
    let six = row(&["6x1T"], "1 x raidz2 of 6").space;
    assert!((six.volume_bytes / six.record_bytes - 1.0).abs() < 0.01, "{six:?}");
    // of 8 KiB they take 6 sectors for 2 of data
    let small = row(&["--volblocksize", "8K", "6x1T"], "1 x raidz2 of 6").space;
    assert!((small.volume_bytes / small.record_bytes - 0.5).abs() < 0.01, "{small:?}");
}

#[test]
fn what_is_beaten_in_everything_is_left_out() {
    let all = |words| row(&["6x1T"], words);
    let kept = worth_showing(vec![all("3 x mirror of 2"), all("1 x raidz2 of 6"), all("6 disks, no redundancy")]);
    assert_eq!(kept.len(), 3);
    let (better, mut worse) = (all("1 x raidz2 of 6"), all("1 x raidz2 of 6"));
    // two trials may differ by a group more or less
    let room = better.space.available_bytes;
    worse.space = LayoutSpace { available_bytes: room - 1, ..better.space };
    let kept = worth_showing(vec![worse, better]);
    assert_eq!((kept.len(), kept[0].space.available_bytes), (1, room));
}

#[test]
fn a_verdict_warns() {
    let rows = [row(&["6x1T"], "6 disks, no redundancy"), row(&["6x1T"], "1 x raidz2 of 6")];
    let text = verdict(&rows, &args(&["6x1T"]));
    assert!(text.contains("Do not put there what you cannot lose") && text.contains("1 x raidz2 of 6"), "{text}");
    let rows = [row(&["--volblocksize", "4K", "6x1T"], "1 x raidz2 of 6")];
    let text = verdict(&rows, &args(&["--volblocksize", "4K", "6x1T"]));
    assert!(text.contains("Volumes with blocks of 4K lose"), "{text}");
}

#[test]
fn tables_and_json_have_all_rows() {
    let rows = vec![row(&["3x1T"], "1 x raidz1 of 3"), row(&["3x1T"], "3 disks, no redundancy")];
    let text = table(&rows);
    assert_eq!(text.lines().count(), 3);
    let json = json_of(&rows);
    assert_eq!(json[0]["layout"], "1 x raidz1 of 3");
    assert!(json[0]["available_bytes"].as_u64() < json[1]["available_bytes"].as_u64());
    assert_eq!((odds(0.5).as_str(), odds(0.012).as_str(), odds(2e-7).as_str()), ("50 %", "1.20 %", "1:5e6"));
}

#[test]
fn wrong_arguments() {
    let refused = |words: &[&str]| <LayoutArgs as clap::Parser>::try_parse_from(words).is_err();
    assert!(refused(&[]) && refused(&["--ashift", "8", "1T"]) && refused(&["--afr", "101", "1T"]));
    assert!(refused(&["--recordsize", "100K", "1T"]) && refused(&["--iops", "0", "1T"]));
    assert!(!refused(&["--formulas"]));
}
