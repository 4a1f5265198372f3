//! Configurations as disks have them, right and wrong.

use format::ids::Guid;
use format::nvlist::Value;

use super::*;

fn nv(pairs: &[(&str, Value)]) -> NvList {
    pairs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

fn leaf(id: u64) -> NvList {
    nv(&[
        ("type", Value::Str("file".into())),
        ("id", Value::U64(id)),
        ("guid", Value::U64(100 + id)),
        ("path", Value::Str(format!("/dev/{id}"))),
        ("offline", Value::U64(id & 1)),
    ])
}

fn raidz() -> NvList {
    nv(&[
        ("type", Value::Str("raidz".into())),
        ("id", Value::U64(0)),
        ("guid", Value::U64(7)),
        ("nparity", Value::U64(2)),
        ("ashift", Value::U64(12)),
        ("asize", Value::U64(1 << 30)),
        ("children", Value::Lists((0..4).map(leaf).collect())),
    ])
}

fn with(mut list: NvList, name: &str, value: Value) -> NvList {
    list.set(name, value);
    list
}

#[test]
fn a_tree() {
    let root = nv(&[("type", Value::Str("root".into())), ("children", Value::Lists(vec![raidz()]))]);
    let root = VdevSpec::parse_root(&root).unwrap();
    let [top] = &root.children[..] else { panic!("one top-level vdev") };
    assert_eq!((top.kind, top.guid.get()), (VdevKind::Raidz { nparity: 2 }, 7));
    assert_eq!(top.top.as_ref().map(|t| (t.ashift, t.asize)), Some((12, 1 << 30)));
    let leaf = top.children[3].leaf.as_ref().unwrap();
    assert_eq!((leaf.path.as_deref(), leaf.offline), (Some("/dev/3"), true));
    assert_eq!(VdevSpec::parse_top(&raidz()).unwrap(), *top);
    assert_eq!(VdevSpec::root_of(Guid::NONE, vec![top.clone()], 1).unwrap().children, root.children);
}

#[test]
fn missing_numbers_are_filled() {
    let three = VdevSpec { id: 3, ..VdevSpec::parse_top(&raidz()).unwrap() };
    let root = VdevSpec::root_of(Guid::new(1), vec![three.clone()], 5).unwrap();
    let kinds: Vec<bool> = root.children.iter().map(|c| c.kind == VdevKind::Missing).collect();
    assert_eq!(kinds, [true, true, true, false, true]);
    assert!(VdevSpec::root_of(Guid::new(1), vec![three.clone(), three], 1).is_err());
    assert!(VdevSpec::root_of(Guid::new(1), vec![], usize::MAX).is_err());
}

#[test]
fn wrong_values_are_errors() {
    let children = |n: usize| Value::Lists((0..n as u64).map(leaf).collect());
    let bad = [
        with(raidz(), "type", Value::Str("raidx".into())),
        with(raidz(), "type", Value::U64(1)),
        with(raidz(), "nparity", Value::U64(0)),
        with(raidz(), "nparity", Value::U64(u64::MAX)),
        with(raidz(), "ashift", Value::U64(8)),
        with(raidz(), "ashift", Value::U64(17)),
        with(raidz(), "metaslab_shift", Value::U64(64)),
        with(raidz(), "metaslab_shift", Value::U64(2)),
        with(with(raidz(), "metaslab_shift", Value::U64(17)), "asize", Value::U64(1 << 38)),
        with(raidz(), "alloc_bias", Value::Str("x".into())),
        with(raidz(), "id", Value::U64(u64::MAX)),
        with(raidz(), "children", children(2)),
        with(raidz(), "children", children(256)),
        with(raidz(), "children", Value::Lists(vec![leaf(0), leaf(1), leaf(1)])),
        with(raidz(), "children", Value::Lists(vec![raidz(), leaf(1), leaf(2)])),
        with(raidz(), "type", Value::Str("disk".into())),
        with(leaf(0), "children", children(1)),
    ];
    for list in bad {
        assert_eq!(VdevSpec::parse_top(&list).unwrap_err().kind(), ErrorKind::Corrupt, "{list:?}");
    }
    assert!(VdevSpec::parse_root(&raidz()).is_err() && VdevSpec::parse_leaf(&raidz()).is_err());
    assert!(VdevSpec::parse_leaf(&leaf(3)).is_ok());
}

#[test]
fn trees_that_nest_too_deep() {
    let mut list = leaf(0);
    for depth in 0..20 {
        let mirror =
            [("type", Value::Str("mirror".into())), ("ashift", Value::U64(9)), ("children", Value::Lists(vec![list]))];
        list = nv(&mirror);
        list.set("id", Value::U64(0));
        assert_eq!(VdevSpec::parse_top(&list).is_ok(), depth < 7, "{depth}");
    }
}

#[test]
fn expansions_are_told_and_leave_enough_children() {
    let expanded = |txgs: &[u64]| VdevSpec::parse_top(&with(raidz(), "raidz_expand_txgs", Value::U64s(txgs.to_vec())));
    let spare = raidz().opt_lists("children").unwrap().len() - 3;
    let most: Vec<u64> = (0..spare as u64).collect();
    let told = expanded(&most).unwrap().top.unwrap().expansion.unwrap().txgs;
    assert!(told.iter().map(|txg| txg.get()).eq(most));
    for impossible in [vec![9, 8], (0..=spare as u64).collect(), vec![0; 1000]] {
        assert_eq!(expanded(&impossible).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let mirror =
        with(nv(&[("type", Value::Str("mirror".into())), ("ashift", Value::U64(9))]), "raidz_expanding", Value::Flag);
    assert!(VdevSpec::parse_top(&mirror).is_err());
}
