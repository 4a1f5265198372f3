//! Files that are written in every way there is, beside the same in memory: by write(2), mappings, O_DIRECT,
//! copy_file_range(2), `cenote reflink`, fallocate(2) and truncate(2), in every way that contents take through the kernel,
//! with snapshots, rollbacks, clones and kills in between. More of it: `CENOTE_WAYS_STEPS=100000 CENOTE_WAYS_SEED=7`.

mod file;

use std::fs;
use std::path::PathBuf;

use testkit::rng::Rng;

use super::killed::number_from;
use super::opens::{MODES, does, mounted};
use super::{World, can_mount};
use file::Written;

/// Steps, if nobody asks for more.
const STEPS_QUICK: u64 = 500;
/// Files of each file system.
const FILES: [&str; 2] = ["one", "two"];

/// What there is of one file system beside its files.
struct FileSystem {
    dataset: String,
    mount: PathBuf,
    files: Vec<Written>,
    /// The files' contents in the snapshot.
    snapshot: Option<Vec<Vec<u8>>>,
}

impl FileSystem {
    fn new(world: &World, mode: &str) -> FileSystem {
        let dataset = format!("fresh/{mode}");
        let mount = world.dir.join("mnt").join(&dataset);
        let files = FILES.iter().map(|name| Written::create(mount.join(name), mode)).collect();
        fs::File::open(&mount).unwrap().sync_all().unwrap();
        FileSystem { dataset, mount, files, snapshot: None }
    }

    fn snapshot(&mut self, world: &World) {
        if self.snapshot.is_some() {
            does(world, &format!("destroy {}@s", self.dataset));
        }
        does(world, &format!("snapshot {}@s", self.dataset));
        self.snapshot = Some(self.files.iter().map(|file| file.contents().to_vec()).collect());
    }

    /// What is in the snapshot, or a clone of it, at a place.
    fn check_snapshot(&self, place: PathBuf, told: &str) {
        for (name, expect) in FILES.iter().zip(self.snapshot.iter().flatten()) {
            let found = fs::read(place.join(name)).unwrap_or_else(|error| panic!("{told}: {name}: {error}"));
            file::is_same(&found, expect, &format!("{told}: {name} of {}", place.display()));
        }
    }

    fn check_clone(&self, world: &World, told: &str) {
        if self.snapshot.is_none() {
            return;
        }
        does(world, &format!("clone {}@s fresh/clone", self.dataset));
        self.check_snapshot(world.dir.join("mnt/fresh/clone"), told);
        does(world, "destroy fresh/clone");
    }

    fn rollback(&mut self, world: &World, closes: bool) {
        let Some(snapshot) = &self.snapshot else { return };
        if closes {
            self.files.iter_mut().for_each(Written::close);
        }
        does(world, &format!("rollback {}@s", self.dataset));
        self.files.iter_mut().zip(snapshot).for_each(|(file, bytes)| file.is_again(bytes.clone()));
    }
}

/// All file systems.
struct Model<'a> {
    world: &'a World,
    file_systems: Vec<FileSystem>,
    rng: Rng,
    steps: Vec<String>,
    kills: u64,
}

impl Model<'_> {
    fn file(&mut self, (fs, file): (usize, usize)) -> &mut Written {
        &mut self.file_systems[fs].files[file]
    }

    fn place(&mut self) -> (usize, usize) {
        (self.rng.below(MODES.len() as u64) as usize, self.rng.below(FILES.len() as u64) as usize)
    }

    fn told(&self, number: u64) -> String {
        let from = self.steps.len().saturating_sub(60);
        format!("step {number}, after {:#?}", &self.steps[from..])
    }

    fn step(&mut self, number: u64) {
        let at = self.place();
        let told = self.told(number);
        let what = match self.rng.below(300) {
            0..2 => {
                self.kill(&told);
                "kill".to_owned()
            }
            2..8 => {
                self.file_systems[at.0].snapshot(self.world);
                "snapshot".to_owned()
            }
            8..12 => {
                // of files with dirty pages in the kernel, all of it has to be closed there
                let closes = self.file_systems[at.0].dataset.ends_with("writeback") || self.rng.below(2) > 0;
                self.file_systems[at.0].rollback(self.world, closes);
                format!("rollback, {}", if closes { "closed" } else { "open" })
            }
            12..16 => {
                self.file_systems[at.0].check_clone(self.world, &told);
                "clone".to_owned()
            }
            16..24 => {
                let fs = &self.file_systems[at.0];
                if fs.snapshot.is_some() {
                    fs.check_snapshot(fs.mount.join(".zfs/snapshot/s"), &told);
                }
                "look at the snapshot".to_owned()
            }
            24..54 => self.copy(at),
            _ => {
                let Model { file_systems, rng, .. } = self;
                file_systems[at.0].files[at.1].change(rng)
            }
        };
        self.steps.push(format!("{} {}: {what}", MODES[at.0].0, FILES[at.1]));
        let told = self.told(number);
        if self.rng.below(3) == 0 {
            let Model { file_systems, rng, .. } = self;
            file_systems[at.0].files[at.1].check(rng, &told);
        }
    }

    /// Copies between files, also of two file systems: a part by copy_file_range(2), or all of it by the command.
    fn copy(&mut self, to: (usize, usize)) -> String {
        let from = self.place();
        if from == to {
            return "no copy".to_owned();
        }
        let source = self.file(from).contents().to_vec();
        let named = format!("{} {}", MODES[from.0].0, FILES[from.1]);
        if self.rng.below(3) == 0 {
            let [old, new] = [from, to].map(|at| self.file(at).path().display().to_string());
            let output = self.world.cenote(&format!("reflink {old} {new}"));
            assert!(output.status.success(), "{output:?}");
            self.file(to).replaced(source);
            return format!("reflink of {named}");
        }
        let (offset, len) = (self.rng.below(source.len() as u64 + 1), self.rng.below(300_000));
        let target = self.rng.below(400_000);
        // whole blocks are shared
        let aligned = if self.rng.below(2) == 0 { 16 << 10 } else { 1 };
        let (offset, len, target) = (offset / aligned * aligned, len / aligned * aligned, target / aligned * aligned);
        let opened = self.file(from).open().try_clone().unwrap();
        self.file(to).copied(&opened, (offset, len), target, &source);
        format!("{len} bytes at {target} from {offset} of {named}")
    }

    /// Ends the pool's process without a word, and imports the pool again.
    fn kill(&mut self, told: &str) {
        self.file_systems.iter_mut().flat_map(|fs| &mut fs.files).for_each(Written::close);
        self.world.kill("fresh");
        self.world.check("import -o cachefile=none -d DIR -R DIR/mnt fresh", 0, "");
        for file in self.file_systems.iter_mut().flat_map(|fs| &mut fs.files) {
            file.is_what_was_promised(told);
        }
        self.kills += 1;
    }
}

#[test]
fn files_hold_what_was_written_in_any_way() {
    if !can_mount("ways to write") {
        return;
    }
    let Some(world) = mounted("ways") else { return };
    world.check("set feature@block_cloning=enabled fresh", 0, "");
    does(&world, "set recordsize=16k fresh");
    let steps = number_from("CENOTE_WAYS_STEPS").unwrap_or(STEPS_QUICK);
    let seed = number_from("CENOTE_WAYS_SEED").unwrap_or(1);
    let file_systems = MODES.iter().map(|(mode, _)| FileSystem::new(&world, mode)).collect();
    let mut model = Model { world: &world, file_systems, rng: Rng::new(seed), steps: Vec::new(), kills: 0 };
    for number in 0..steps {
        model.step(number);
    }
    model.kill(&format!("seed {seed}, at the end"));
    let Model { mut file_systems, kills, .. } = model;
    println!("{steps} steps of seed {seed}, {kills} kills");
    file_systems.iter_mut().flat_map(|fs| &mut fs.files).for_each(Written::close);
    world.check("export fresh", 0, "");
    let output = world.cenote("zdb -e -p DIR -bcc fresh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("No leaks"), "{text}");
}
