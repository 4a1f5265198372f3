//! What the history of a pool tells of commands.

use super::snapshots::Fresh;

impl Fresh {
    fn history(&self, flags: &str) -> String {
        let output = self.world.zpool(&format!("history {flags} fresh"));
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn requests_and_their_users_are_told() {
    let fresh = Fresh::new("told");
    fresh.does("snapshot -r fresh@one");
    fresh.does("hold keep fresh@one");
    fresh.does("release keep fresh@one");
    fresh.does("destroy -r fresh@one");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    let long = fresh.history("-l");
    let ends = long.lines().filter(|line| line.ends_with(&format!("[user 0 (root) on {host}:linux]"))).count();
    assert_eq!(ends, long.lines().filter(|line| line.contains(" zfs ") || line.contains(" zpool ")).count(), "{long}");
    let all = fresh.history("-i");
    for name in ["fresh@one", "fresh/a@one", "fresh/a/b@one", "fresh/c@one"] {
        assert_eq!(all.lines().filter(|line| line.trim_start() == name).count(), 2, "{name}: {all}");
    }
    for title in ["ioctl snapshot", "ioctl hold", "ioctl destroy_snaps"] {
        assert!(all.lines().any(|line| line.ends_with(title)), "{title}: {all}");
    }
    // an export, too
    fresh.world.check("export fresh", 0, "");
    fresh.world.check("import -d DIR fresh", 0, "");
    let short = fresh.history("");
    let last: Vec<&str> = short.lines().filter_map(|line| line.split_once(' ')).map(|(_, command)| command).collect();
    assert!(last.contains(&"zpool export fresh"), "{short}");
    fresh.judge();
}

/// Commands that run at the same time do not meet halves of each other.
#[test]
fn file_systems_come_and_go_while_properties_are_set() {
    let fresh = Fresh::new("meanwhile");
    fresh.does("set mountpoint=none fresh");
    let before = fresh.history("").lines().count();
    const ROUNDS: usize = 12;
    std::thread::scope(|scope| {
        for name in ["fresh/x", "fresh/y", "fresh/z"] {
            let fresh = &fresh;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    fresh.does(&format!("create {name}"));
                    fresh.does(&format!("snapshot {name}@s"));
                    fresh.does(&format!("destroy -r {name}"));
                }
            });
        }
        for line in ["set compression=off fresh/a", "set atime=off fresh/a"] {
            let fresh = &fresh;
            scope.spawn(move || (0..3 * ROUNDS).for_each(|_| fresh.does(line)));
        }
    });
    assert_eq!(fresh.history("").lines().count() - before, 3 * 3 * ROUNDS + 2 * 3 * ROUNDS);
}
