//! `cenote advise layout` beside pools that are made as it says.

use serde_json::Value;

use super::World;

/// Number of disks, their size, and the binary logarithm of their sectors.
const DISKS: [(usize, &str, u32); 6] =
    [(12, "8G", 9), (12, "8G", 12), (12, "8G", 14), (6, "100G", 12), (3, "500G", 12), (8, "2T", 12)];

/// The space that `zfs list` shows of a new pool is what was foretold: of one layout of each set of disks, or of all with
/// `CENOTE_LAYOUTS=all`.
#[test]
fn space_is_as_foretold() {
    let step = if std::env::var_os("CENOTE_LAYOUTS").is_some() { 1 } else { 64 };
    let world = World::new("layouts", &[]);
    let (mut count, mut worst) = (0, 0.0f64);
    for (disks, size, ashift) in DISKS {
        for disk in 1..=disks {
            let file = std::fs::File::create(world.dir.join(format!("d{disk}"))).unwrap();
            let bytes = size[..size.len() - 1].parse::<u64>().unwrap() << if size.ends_with('T') { 40 } else { 30 };
            file.set_len(bytes).unwrap();
        }
        let (told, code) = world.told(&format!("advise layout --json --all --ashift {ashift} {disks}x{size}"));
        assert_eq!(code, 0, "{told}");
        let layouts: Vec<Value> = serde_json::from_str(&told).unwrap();
        for layout in layouts.iter().skip(count % 3).step_by(step) {
            let words = layout["create"].as_str().unwrap().replace("DISK", "DIR/d");
            world.check(&format!("create -f -o ashift={ashift} -O mountpoint=none tank {words}"), 0, "");
            let (available, _) = world.zfs("list -Hpo available tank");
            let available: f64 = available.trim().parse().unwrap();
            let error = (layout["available_bytes"].as_f64().unwrap() / available - 1.0).abs();
            assert!(error <= 0.003, "{disks} of {size}, ashift {ashift}, {}: {error}", layout["layout"]);
            (count, worst) = (count + 1, worst.max(error));
            world.check("destroy tank", 0, "");
        }
    }
    println!("{count} pools, at most {:.4} % off", worst * 100.0);
    assert!(count >= 6);
}
