//! Pools that lack devices, or have noise in their place: everything is still there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Env;
use device::{Device, FaultyDevice, MemDevice};
use testkit::corpus;
use testkit::survey::{self, Survey};

/// All ways to choose `k` of `n`.
fn choices(n: usize, k: usize) -> Vec<Vec<usize>> {
    (0u32..1 << n)
        .filter(|set| set.count_ones() as usize == k)
        .map(|set| (0..n).filter(|i| set >> i & 1 == 1).collect())
        .collect()
}

/// Every choice of `loss` of the devices `of` in case `name`, gone and overwritten.
fn survives(name: &str, of: std::ops::Range<usize>, loss: usize) {
    let images = corpus::case(name).load();
    let env = Env::real();
    let whole: Vec<Arc<dyn Device>> = corpus::as_devices(&images);
    let truth = Survey::of(&survey::open(&whole, &env).unwrap());
    assert!(truth.found.values().all(Result::is_ok), "{name} is not whole");
    let mut errors = 0;
    for choice in choices(of.len(), loss) {
        let lost: Vec<usize> = choice.iter().map(|i| of.start + i).collect();
        let gone: Vec<Arc<dyn Device>> =
            (0..images.len()).filter(|i| !lost.contains(i)).map(|i| whole[i].clone()).collect();
        check(&format!("{name} without {lost:?}"), &gone, &env, &truth);

        // noise in the data, as a failing disk has it: labels are whole, so the device is trusted at first
        let noisy: Vec<Arc<dyn Device>> =
            images.iter().enumerate().map(|(i, image)| noisy(image, lost.contains(&i), 4 << 20)).collect();
        let pool = check(&format!("{name} with noise on {lost:?}"), &noisy, &env, &truth);
        for &i in &lost {
            let leaf = pool.tree().iter().find(|v| v.device().is_some_and(|d| d.path() == whole[i].path())).unwrap();
            // a side of a mirror, or the spare of a draid, need not be read at all
            let was_read = leaf.stats().reads.load(Ordering::Relaxed) > 0;
            assert_eq!(leaf.stats().errors()[2] > 0, was_read, "{name}: errors counted on {}", leaf.name());
            errors += leaf.stats().errors()[2];
        }
        let innocent = pool
            .tree()
            .iter()
            .filter(|v| v.device().is_some_and(|d| lost.iter().all(|&i| d.path() != whole[i].path())));
        for leaf in innocent {
            assert_eq!(leaf.stats().errors(), [0; 3], "{name}: {} is charged for another's errors", leaf.name());
        }

        // all of the device overwritten, labels too
        let overwritten: Vec<Arc<dyn Device>> =
            images.iter().enumerate().map(|(i, image)| noisy_from(image, lost.contains(&i))).collect();
        check(&format!("{name} with {lost:?} overwritten"), &overwritten, &env, &truth);
    }
    assert!(errors > 0, "{name}: none of the noise was met");
}

fn noisy(image: &Arc<MemDevice>, is_noisy: bool, from: u64) -> Arc<dyn Device> {
    let device = FaultyDevice::new(image.clone(), 9);
    if is_noisy {
        device.noise(from..image.size() - (512 << 10));
    }
    Arc::new(device)
}

fn noisy_from(image: &Arc<MemDevice>, is_noisy: bool) -> Arc<dyn Device> {
    let device = FaultyDevice::new(image.clone(), 9);
    if is_noisy {
        device.noise(0..image.size());
    }
    Arc::new(device)
}

fn check(what: &str, devices: &[Arc<dyn Device>], env: &Env, truth: &Survey) -> pool::Pool {
    let pool = survey::open(devices, env).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = Survey::of(&pool);
    assert_eq!(found.errors(truth), [], "{what}");
    assert_eq!(found.lies(truth), [""; 0], "{what}");
    assert_eq!(found.found.len(), truth.found.len(), "{what}");
    pool
}

#[test]
fn mirror_bears_the_loss_of_one() {
    survives("mirror", 0..2, 1);
}

#[test]
fn stripe_of_mirrors_bears_the_loss_of_one() {
    survives("raid10", 0..4, 1);
}

#[test]
fn raidz1_bears_the_loss_of_one() {
    survives("raidz1", 0..3, 1);
}

#[test]
fn raidz2_bears_the_loss_of_two() {
    survives("raidz2", 0..4, 2);
}

#[test]
fn raidz3_bears_the_loss_of_three() {
    survives("raidz3", 0..5, 3);
}

#[test]
fn draid1_bears_the_loss_of_one() {
    survives("draid", 0..5, 1);
}

#[test]
fn expanded_raidz1_bears_the_loss_of_one() {
    survives("expanded", 0..4, 1);
}

#[test]
fn raidz1_under_expansion_bears_the_loss_of_one() {
    survives("expanding", 0..4, 1);
}

#[test]
fn special_mirror_bears_the_loss_of_one() {
    survives("special", 1..3, 1);
}
