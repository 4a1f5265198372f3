//! What the kernel keeps of a mount is what the pool has: after random operations of 33 kinds, in every way that contents
//! take through the kernel, all that can be seen is the same when the kernel has dropped what it had. More of it:
//! `CENOTE_CACHES_BATCHES=200 CENOTE_CACHES_SEED=7`.

mod seen;
mod steps;

use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use rustix::fs::StatVfsMountFlags;
use testkit::rng::Rng;

use super::killed::number_from;
use super::opens::{MODES, does, mounted};
use super::{World, can_mount};
use seen::Seen;
use steps::{KINDS, Kind, Steps};

/// Batches of steps in each mode, if nobody asks for more.
const BATCHES_QUICK: u64 = 4;
/// Steps in one.
const STEPS: u64 = 60;

/// Has the kernel drop all that it keeps of a mount and nobody uses: it does so to each that is remounted.
pub(super) fn drop_caches(mount: &Path) {
    let flags = rustix::fs::statvfs(mount).unwrap().f_flag;
    let of = |given: StatVfsMountFlags, flag: MsFlags| if flags.contains(given) { flag } else { MsFlags::empty() };
    let kept = of(StatVfsMountFlags::NOSUID, MsFlags::MS_NOSUID)
        | of(StatVfsMountFlags::NODEV, MsFlags::MS_NODEV)
        | of(StatVfsMountFlags::NOATIME, MsFlags::MS_NOATIME)
        | of(StatVfsMountFlags::RELATIME, MsFlags::MS_RELATIME);
    let none = None::<&str>;
    nix::mount::mount(none, mount, none, MsFlags::MS_REMOUNT | kept, none).unwrap();
}

/// One file system and the steps that are taken in it.
struct Compared<'a> {
    world: &'a World,
    dataset: String,
    mount: PathBuf,
    steps: Steps<'a>,
    /// The kernel keeps the times of regular files.
    keeps_times: bool,
}

impl Compared<'_> {
    /// The same is seen before and after the kernel sends what it keeps, and after it drops all.
    fn compare(&mut self, place: &str) {
        let warm = Seen::of(&self.mount);
        let stored = self.steps.take_stored();
        rustix::fs::syncfs(std::fs::File::open(&self.mount).unwrap()).unwrap();
        self.world.check("sync fresh", 0, "");
        let sent = Seen::of(&self.mount);
        let steps = format!("the last steps: {:#?}", self.steps.last());
        warm.settled(&stored).is_that_of(
            &sent.settled(&stored),
            &format!("{place}: the kernel's own changes what is seen when it is sent; {steps}"),
        );
        self.steps.close_all();
        drop_caches(&self.mount);
        let cold = Seen::of(&self.mount);
        // with write-back the kernel goes by its own times, also where it changed nothing itself: fallocate(2), copies
        let sent = if self.keeps_times { sent.with_later_times(&cold) } else { sent };
        // and of a file that is open while the root is replaced it has that time as the time of change
        let is_rolled_back =
            self.steps.last().iter().any(|step| step.starts_with("Rollback") && step.ends_with("Ok(())"));
        let sent = if self.keeps_times && is_rolled_back { sent.with_changes_of(&cold) } else { sent };
        sent.is_that_of(&cold, &format!("{place}: the kernel kept other things than are there; {steps}"));
    }
}

#[test]
fn what_the_kernel_keeps_is_what_is_there() {
    if !can_mount("caches") {
        return;
    }
    let Some(world) = mounted("caches") else { return };
    let batches = number_from("CENOTE_CACHES_BATCHES").unwrap_or(BATCHES_QUICK);
    let seed = number_from("CENOTE_CACHES_SEED").unwrap_or(1);
    let mut done = [0; KINDS];
    for (number, (mode, _)) in MODES.into_iter().enumerate() {
        let dataset = format!("fresh/{mode}");
        does(&world, &format!("set acltype=posix {dataset}"));
        let mount = world.dir.join("mnt").join(&dataset);
        let rng = Rng::new(seed + ((number as u64) << 32));
        let steps = Steps::new(&world, &dataset, &mount, rng);
        let mut compared = Compared {
            world: &world,
            dataset,
            mount,
            steps,
            keeps_times: matches!(mode, "default" | "writeback" | "metadata"),
        };
        compared.steps.prepare();
        for batch in 0..batches {
            for _ in 0..STEPS {
                compared.steps.take();
            }
            compared.compare(&format!("seed {seed}, {}, batch {batch}", compared.dataset));
        }
        compared.steps.close_all();
        done.iter_mut().zip(compared.steps.done()).for_each(|(sum, done)| *sum += done);
    }
    let never: Vec<Kind> = Kind::all().filter(|kind| done[*kind as usize] == 0).collect();
    println!("{batches} batches of {STEPS} steps in each mode: {done:?}");
    // which steps succeed in a short run is a matter of luck
    assert!(never.len() <= 3 && (never.is_empty() || batches <= BATCHES_QUICK), "these never succeeded: {never:?}");
    world.check("destroy fresh", 0, "");
}
