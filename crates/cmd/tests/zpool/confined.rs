//! What a pool's process gave up, as the kernel tells it.

use super::World;

/// The only capability that root's process keeps: CAP_DAC_OVERRIDE, number 1.
const KEPT: u64 = 1 << 1;

#[test]
fn no_thread_can_do_more_than_it_needs() {
    let world = World::new("confined", &["single"]);
    world.check("import -N -d DIR/single t_single", 0, "");
    let tasks = format!("/proc/{}/task", world.process_of("t_single"));
    let mut count = 0;
    for task in std::fs::read_dir(&tasks).unwrap() {
        // one that has just ended
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let set = |name: &str| u64::from_str_radix(&line(name), 16).unwrap();
        for name in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(set(name) & !KEPT, 0, "{name} {status}");
        }
        if nix::unistd::geteuid().is_root() {
            assert_eq!((set("CapBnd:"), set("CapEff:")), (KEPT, KEPT), "{status}");
        }
        assert_eq!((line("NoNewPrivs:").as_str(), line("Seccomp:").as_str()), ("1", "2"), "{status}");
        count += 1;
    }
    assert!(count > 3, "of all threads");
    world.check("export t_single", 0, "");
}
