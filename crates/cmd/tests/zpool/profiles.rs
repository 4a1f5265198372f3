//! `cenote where`: where the time of pools in use goes.

use std::path::Path;

use serde_json::Value;

use super::World;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_time_of_a_pool_is_told_while_a_command_runs() {
    let world = World::new("where", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED where: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "b"]);
    world.check("create -O compression=gzip-9 -R DIR/mnt tank mirror DIR/a DIR/b", 0, "");
    let file = world.dir.join("mnt/tank/file");
    let load = format!(
        "for n in 1 2 3; do seq 2000000 | dd of={} bs=64k iflag=fullblock conv=fsync,notrunc status=none; done; sleep 1.2; exit 3",
        file.display()
    );
    let flame = world.dir.join("flame.svg");
    let mut command = world.command(env!("CARGO_BIN_EXE_cenote"));
    command.args(["where", "--json", "--flame"]).arg(&flame).args(["tank", "--", "sh", "-c", &load]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let pool = &told["pools"][0];
    let (row, devices) = (&pool["pool"]["row"], pool["pool"]["vdevs"].as_array().unwrap());
    assert_eq!((row["pool"].as_str(), devices.len()), (Some("tank"), 3));
    assert!(number(&row["written_bytes_per_s"]) > 0.0 && number(&row["cpu"]) > 0.0, "{row}");
    assert!(devices.iter().all(|vdev| number(&vdev["written_bytes_per_s"]) > 0.0), "{devices:?}");
    let requests = pool["pool"]["requests"].as_array().unwrap();
    let count = |kind: &str| {
        requests.iter().find(|request| request[0] == kind).map_or(0, |request| request[1].as_u64().unwrap())
    };
    assert!(count("WRITE") >= 30 && count("FSYNC") == 3, "{requests:?}");
    let copied = pool["pool"]["copied_bytes"].as_array().unwrap();
    let bytes_of = |kind: &str| copied.iter().find(|row| row[0] == kind).map_or(0, |row| row[1].as_u64().unwrap());
    // each write came from the kernel, and went into blocks or became some
    assert!(bytes_of("requests, by the kernel") > 30 * 4096, "{copied:?}");
    assert!(!told["seconds"].as_array().unwrap().is_empty());
    if pool["processor"].is_null() {
        eprintln!("SKIPPED where: processors cannot be sampled here");
        return;
    }
    let of = |activity: &str| {
        pool["processor"]["activities"][activity].as_object().map_or(0.0, |phases| phases.values().map(number).sum())
    };
    // deflate at its highest level is most of such a load
    assert!(of("compression") > 0.3 * number(&pool["processor"]["seconds"]), "{}", pool["processor"]);
    let svg = std::fs::read_to_string(flame).unwrap();
    assert!(svg.contains("codec::compress") && svg.len() < 2 << 20, "{} bytes", svg.len());
}

#[test]
fn what_cannot_be_watched_is_said() {
    let world = World::new("nowhere", &[]);
    let (said, code) = world.told("where --for 0.1 tank");
    assert!(said.ends_with("cenote where: no such pool is in use\n") && code == 1, "{said}");
    let (said, code) = world.told("where -- /no/such/program");
    assert!(said.contains("cenote where: running /no/such/program: ") && code == 1, "{said}");
    let (said, code) = world.told("where --for 0.3 -- sleep 600");
    assert!(said.starts_with("  TIME  POOL ") && !said.contains("processors of") && code == 0, "{said}");
}
