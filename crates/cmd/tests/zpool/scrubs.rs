//! Scrubs as a user sees them: begun, waited for, what they mended and what they could not.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::World;
use super::suspended::{noise, write};

/// Bytes in front of what addresses of a device count from, and behind.
const FRONT: u64 = 4 << 20;
const BACK: u64 = 512 << 10;

impl World {
    pub fn text(&self, line: &str) -> String {
        let output = self.zpool(line);
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        text.replace(self.dir.to_str().unwrap(), "DIR")
    }

    /// The line `scan:` of a pool, without its date.
    pub fn scan(&self, pool: &str) -> String {
        let text = self.text(&format!("status {pool}"));
        let line = text.lines().find(|line| line.starts_with("  scan: ")).expect("there was a scan").to_owned();
        line.split(" on ").next().unwrap().to_owned()
    }
}

fn overwrite(disk: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(disk).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn scrubs_mend_and_tell() {
    let world = World::new("scrub", &[]);
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED scrub: nothing can be mounted here");
        return;
    }
    world.disks(&["a", "b"]);
    world.check("create -O compression=off -O recordsize=128k -R DIR/mnt tank mirror DIR/a DIR/b", 0, "");
    let file = world.dir.join("mnt/tank/file");
    let bytes = noise(4 << 20, 9);
    write(&file, &bytes).unwrap();
    world.check("scrub -s tank", 1, "cannot cancel scrubbing tank: there is no active scrub\n");
    world.check("scrub -p tank", 1, "cannot pause scrubbing tank: there is no active scrub\n");
    let refused = "cannot scrub tank: operation not supported on this type of pool\n";
    world.check("scrub -e tank", 1, refused);
    world.check("set feature@head_errlog=enabled tank", 0, "");
    world.check("scrub -e tank", 0, "");
    world.check("wait -t scrub tank", 0, "");
    world.check("scrub -w tank", 0, "");
    let scan = world.scan("tank");
    assert!(scan.starts_with("  scan: scrub repaired 0B in 00:00:") && scan.ends_with(" with 0 errors"), "{scan}");

    let size = fs::metadata(world.dir.join("a")).unwrap().len();
    overwrite(&world.dir.join("a"), FRONT, &vec![0xa5; (size - FRONT - BACK) as usize]);
    world.check("scrub tank", 0, "");
    world.check("wait tank", 0, "");
    let (scan, status) = (world.scan("tank"), world.text("status tank"));
    assert!(!scan.contains("repaired 0B") && scan.ends_with(" with 0 errors"), "{scan}");
    assert!(status.ends_with("errors: No known data errors\n"), "{status}");
    let errors_of = |disk: &str| -> u64 {
        let status = world.text("status -p tank");
        let row = status.lines().find(|line| line.trim_start().starts_with(disk)).unwrap();
        row.split_whitespace().nth(4).unwrap().parse().unwrap()
    };
    assert!(errors_of("DIR/a") > 10 && errors_of("DIR/b") == 0, "{status}");
    world.check("clear tank", 0, "");
    world.check("scrub -w -a", 0, "");
    assert!(world.scan("tank").starts_with("  scan: scrub repaired 0B in"));
    assert_eq!(errors_of("DIR/a"), 0);

    // a block of the file on both sides
    let image = fs::read(world.dir.join("b")).unwrap();
    let block = &bytes[3 << 17..4 << 17];
    let at = image.chunks(512).position(|chunk| *chunk == block[..512]).expect("the block is there") as u64 * 512;
    ["a", "b"].iter().for_each(|disk| overwrite(&world.dir.join(disk), at, &[0x5a; 512]));
    world.check("scrub -w tank", 0, "");
    let status = world.text("status -v tank");
    assert!(world.scan("tank").ends_with(" with 1 errors"), "{status}");
    assert!(status.contains("Permanent errors") && status.contains("mnt/tank/file\n"), "{status}");
    let json = world.text("status -j tank");
    assert!(json.contains(r#""function":"SCRUB""#) && json.contains(r#""state":"FINISHED""#), "{json}");

    // it outlives an export; and is forgotten when it is gone
    world.check("export tank", 0, "");
    world.check("import -d DIR -R DIR/mnt tank", 0, "");
    assert!(world.text("status -v tank").contains("mnt/tank/file\n"));
    fs::remove_file(&file).unwrap();
    world.check("scrub -w tank", 0, "");
    assert!(world.text("status tank").ends_with("errors: No known data errors\n"));
    let history = world.text("history -i tank");
    assert!(history.contains("scan setup") && history.contains("scan done") && history.contains("zpool scrub -w tank"));
}
