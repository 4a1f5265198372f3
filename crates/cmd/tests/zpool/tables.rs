//! `zpool ddtprune` and `prefetch`, and pools with flat dedup tables.

use super::World;

const POOL: &str = "t_fastdedup";

#[test]
fn dedup_tables_are_pruned_and_read_ahead() {
    let world = World::new("tables", &["fastdedup"]);
    world.check(&format!("import -N -d DIR/fastdedup {POOL}"), 0, "");
    for what in ["", "-t ddt ", "-t brt "] {
        world.check(&format!("prefetch {what}{POOL}"), 0, "");
    }
    // as with OpenZFS, this property is shown where it is asked for only
    let (cached, code) = world.told(&format!("zpool get -Hpo value dedupcached {POOL}"));
    assert!(code == 0 && cached.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0), "{cached}");
    assert_eq!(world.told(&format!("zpool list -Hpo dedupcached {POOL}")), (cached, 0));
    assert!(!world.told(&format!("zpool get all {POOL}")).0.contains("dedupcached"));
    let usage = "usage:\n\tprefetch [-t <type>] <pool>\n";
    world.check(&format!("prefetch -t all {POOL}"), 2, &format!("unsupported prefetch type\n{usage}"));
    world.check("prefetch", 2, &format!("missing pool name argument\n{usage}"));
    let usage = "usage:\n\tddtprune -d|-p <amount> <pool>\n";
    for (args, why) in [
        (POOL, "missing amount option (-d|-p <value>)"),
        ("-p 5", "missing pool argument"),
        ("-p 0 a", "invalid percentage value"),
        ("-p 101 a", "invalid percentage value"),
        ("-d 0 a", "invalid days value"),
        ("-d 99999999999999999999 a", "invalid days value"),
        ("-p 1 -d 1 a", "-d cannot be combined with -p option"),
        ("-d 1 -p 1 a", "-p cannot be combined with -d option"),
    ] {
        world.check(&format!("ddtprune {args}"), 2, &format!("{why}\n{usage}"));
    }
    let why = format!("cannot prune dedup table on '{POOL}': invalid argument for this pool operation\n");
    world.check(&format!("ddtprune -d 10000000 {POOL}"), 1, &why);
    let table = format!("get -H -o value dedupratio,feature@fast_dedup {POOL}");
    world.check(&table, 0, "2.50x\nactive\n");
    // all blocks have several pointers
    world.check(&format!("ddtprune -p 100 {POOL}"), 0, "");
    world.check(&format!("ddtprune -d 1 {POOL}"), 0, "");
    world.check(&table, 0, "2.50x\nactive\n");
    let history = String::from_utf8(world.zpool(&format!("history {POOL}")).stdout).unwrap();
    assert!(history.contains(&format!("zpool ddtprune -p 100 {POOL}\n")), "{history}");
    world.check(&format!("export {POOL}"), 0, "");
    world.check(&format!("import -N -o readonly=on -d DIR/fastdedup {POOL}"), 0, "");
    world.check(&format!("prefetch {POOL}"), 0, "");
    let refused = world.zpool(&format!("ddtprune -p 1 {POOL}"));
    assert_eq!(refused.status.code(), Some(1));
    world.check(&format!("export {POOL}"), 0, "");
}

#[test]
fn new_pools_get_flat_tables_if_all_is_allowed() {
    let world = World::new("flat", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(128 << 20).unwrap();
    for (flags, state) in [("-o compatibility=off ", "enabled"), ("", "disabled")] {
        world.check(&format!("create {flags}-O mountpoint=none flat DIR/a"), 0, "");
        world.check("get -H -o value feature@fast_dedup flat", 0, &format!("{state}\n"));
        world.check("set feature@fast_dedup=enabled flat", 0, "");
        world.check("get -H -o value feature@fast_dedup flat", 0, "enabled\n");
        world.check("destroy flat", 0, "");
    }
}
