//! Command lines of `zpool create`, up to where a device would be written.

use std::fs::File;
use std::path::PathBuf;

use format::ids::Guid;
use format::nvlist::{NvList, Value};
use pool::{NewLeaf, NewVdev, NewVdevShape};
use protocol::wire::Hello;
use vdev::spec::Bias;

use super::in_use::{MemberState, Membership};
use super::spec::NewPoolSpec;
use super::{CreateArgs, check, check_pool, layout, new_pool, replication};

/// A folder with sparse files.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("cenote-create-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = Files { folder };
        "abcdefgh".chars().for_each(|name| files.make(&name.to_string(), 64 << 20));
        files
    }

    fn make(&self, name: &str, size: u64) {
        File::create(self.folder.join(name)).unwrap().set_len(size).unwrap();
    }

    /// A command line in which `%` stands for the folder.
    fn args(&self, line: &str) -> CreateArgs {
        let line = line.replace('%', self.folder.to_str().unwrap());
        let args: Vec<std::ffi::OsString> = line.split_whitespace().map(Into::into).collect();
        CreateArgs::parse(&args).unwrap()
    }

    fn spec(&self, line: &str) -> Result<NewPoolSpec, String> {
        check(&self.args(line), &[]).map_err(|why| why.replace(self.folder.to_str().unwrap(), "%"))
    }

    fn create(&self, line: &str) -> Result<(), String> {
        let args = self.args(line);
        let spec = check(&args, &[])?;
        let new = new_pool(&args, spec, String::new())?;
        check_pool(&args, &new, &imported("taken", Guid::new(7), Vec::new(), Vec::new()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

#[test]
fn words_become_vdevs() {
    let files = Files::new("words");
    let line = "tank mirror %/a %/b %/c mirror %/d %/e %/f log mirror %/a %/b special %/c dedup raidz2 %/d %/e %/f \
                cache %/g spare %/h";
    let spec = files.spec(&format!("-f {line}")).unwrap();
    let shapes: Vec<(NewVdevShape, Option<Bias>, usize)> =
        spec.vdevs.iter().map(|v| (v.shape, v.bias, v.leaves.len())).collect();
    assert_eq!(
        shapes,
        [
            (NewVdevShape::Mirror, None, 3),
            (NewVdevShape::Mirror, None, 3),
            (NewVdevShape::Mirror, Some(Bias::Log), 2),
            (NewVdevShape::Single, Some(Bias::Special), 1),
            (NewVdevShape::Raidz(2), Some(Bias::Dedup), 3),
        ]
    );
    assert_eq!((spec.caches.len(), spec.spares.len()), (1, 1));
    assert!(spec.leaves().all(|leaf| leaf.is_file));
}

#[test]
fn words_that_make_no_sense() {
    let files = Files::new("wrong");
    for (line, why) in [
        ("mirror %/a", "invalid vdev specification: mirror requires at least 2 devices"),
        ("raidz2 %/a %/b", "invalid vdev specification: raidz2 requires at least 3 devices"),
        ("raidz %/a", "invalid vdev specification: raidz requires at least 2 devices"),
        ("%/a spare", "invalid vdev specification: spare requires at least 1 devices"),
        ("%/a log", "invalid vdev specification: log requires at least 1 device"),
        ("%/a log %/b log %/c", "invalid vdev specification: 'log' can be specified only once"),
        ("%/a spare %/b spare %/c", "invalid vdev specification: 'spare' can be specified only once"),
        ("%/a cache %/b cache %/c", "invalid vdev specification: 'cache' can be specified only once"),
        ("%/a log raidz %/b %/c", "invalid vdev specification: unsupported 'log' device: raidz"),
        ("spare %/a", "invalid vdev specification: at least one toplevel vdev must be specified"),
        ("log %/a", "invalid vdev specification: at least one toplevel vdev must be specified"),
        ("draid2:4d %/a", "invalid vdev specification: draid2:4d requires at least 3 devices"),
        (
            "draid:3d %/a %/b",
            "requested number of dRAID data disks per group 3 is too high,\nat most 1 disks are available for data",
        ),
        ("%/a log draid %/b %/c", "invalid vdev specification: unsupported 'log' device: draid"),
        ("%/none", "cannot resolve path '%/none'"),
        ("raidz4 %/a", "cannot open 'raidz4': no such device in /dev\nmust be a full path or shorthand device name"),
        ("%", "cannot use '%': must be a block device or regular file"),
        ("null", "cannot use '/dev/null': must be a block device or regular file"),
    ] {
        assert_eq!(files.spec(&format!("tank {line}")), Err(why.to_owned()), "{line}");
    }
}

#[test]
fn mountpoints_and_roots() {
    let files = Files::new("points");
    std::fs::create_dir(files.folder.join("empty")).unwrap();
    let other = "use '-m' option to provide a different default";
    for (line, why) in [
        ("-m mnt tank %/a", "invalid mountpoint 'mnt': must be an absolute path, 'legacy', or 'none'".to_owned()),
        ("-m % tank %/a", format!("mountpoint '%' exists and is not empty\n{other}")),
        ("-m %/a tank %/b", format!("mountpoint '%/a' : Not a directory\n{other}")),
        ("-o altroot=mnt tank %/a", "invalid alternate root 'mnt': must be an absolute path".to_owned()),
        ("-o ashift=20 tank %/a", "invalid 'ashift=20' property: only values between 9 and 16 are allowed.".to_owned()),
        (
            "tank/fs %/a",
            "cannot create 'tank/fs': invalid character '/' in pool name\nuse 'zfs create' to create a dataset"
                .to_owned(),
        ),
    ] {
        assert_eq!(files.spec(line), Err(why), "{line}");
    }
    for line in ["-m none tank %/a", "-m %/empty tank %/a", "-R % empty %/a", "-m %/new tank %/a"] {
        assert!(files.spec(line).is_ok(), "{line}");
    }
}

#[test]
fn uneven_vdevs_are_refused() {
    let files = Files::new("uneven");
    files.make("big", 128 << 20);
    let head = "invalid vdev specification\nuse '-f' to override the following errors:\n";
    let level = "mismatched replication level";
    for (line, why) in [
        ("%/a mirror %/b %/c", format!("{level}: both file and mirror vdevs are present")),
        (
            "mirror %/a %/b raidz2 %/c %/d %/e",
            format!("{level}: raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present"),
        ),
        (
            "raidz %/a %/b raidz2 %/c %/d %/e",
            format!("{level}: raidz and raidz vdevs with different redundancy, 1 vs. 2 are present"),
        ),
        ("mirror %/a %/b mirror %/c %/d %/e", format!("{level}: both 2-way and 3-way mirror vdevs are present")),
        ("mirror %/a %/big", "mirror contains devices of different sizes".to_owned()),
        ("mirror %/a %/b special %/c", format!("{level}: both mirror and file vdevs are present")),
    ] {
        assert_eq!(files.spec(&format!("tank {line}")), Err(format!("{head}{why}")), "{line}");
        assert!(files.spec(&format!("-f tank {line}")).is_ok(), "{line}");
    }
    for line in [
        "raidz %/a %/b raidz %/c %/d %/e",
        "mirror %/a %/b raidz1 %/c %/d %/e",
        "mirror %/a %/b log %/c cache %/big",
        "%/a %/big",
    ] {
        assert!(files.spec(&format!("tank {line}")).is_ok(), "{line}");
    }
}

#[test]
fn files_and_disks_do_not_mix() {
    let leaf = |path: &str, is_file| NewLeaf { path: path.into(), is_file };
    let mirror =
        NewVdev { shape: NewVdevShape::Mirror, bias: None, leaves: vec![leaf("/a", true), leaf("/dev/b", false)] };
    let single = |is_file| NewVdev { shape: NewVdevShape::Single, bias: None, leaves: vec![leaf("/c", is_file)] };
    let check = |vdevs: &[NewVdev]| replication::complaints(vdevs, &|_| Some(1 << 30));
    assert_eq!(check(&[mirror]), ["mismatched replication level: mirror contains both files and devices"]);
    let both = "mismatched replication level: both file and disk vdevs are present";
    assert_eq!(check(&[single(true), single(false)]), [both]);
}

#[test]
fn new_vdevs_are_as_redundant_as_those_that_are_there() {
    let vdev = |shape, bias, leaves: usize| {
        let leaf = |n: usize| NewLeaf { path: format!("/{n}"), is_file: true };
        NewVdev { shape, bias, leaves: (0..leaves).map(leaf).collect() }
    };
    let mirror = |leaves| vdev(NewVdevShape::Mirror, None, leaves);
    let raidz = |parity, leaves| vdev(NewVdevShape::Raidz(parity), None, leaves);
    let single = vdev(NewVdevShape::Single, None, 1);
    let log = vdev(NewVdevShape::Single, Some(Bias::Log), 1);
    let check = |pool: &[NewVdev], new: &[NewVdev]| {
        let lines = replication::mismatches(pool, new, &|_| Some(1 << 30));
        lines.concat().replace("mismatched replication level: ", "")
    };
    for (pool, new, why) in [
        (mirror(2), single.clone(), "pool uses mirror and new vdev is file"),
        (mirror(2), mirror(3), "pool uses 2-way mirror and new vdev uses 3-way mirror"),
        (raidz(1, 3), raidz(2, 4), "pool and new vdev with different redundancy, raidz and raidz vdevs, 1 vs. 2"),
        (raidz(1, 3), raidz(1, 5), ""),
        (
            raidz(2, 4),
            mirror(2),
            "pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)",
        ),
        (raidz(1, 3), mirror(2), ""),
        (mirror(2), mirror(2), ""),
        (mirror(2), log.clone(), ""),
    ] {
        let (pool, new) = ([pool], [new]);
        assert_eq!(check(&pool, &new), why, "{pool:?} {new:?}");
    }
    assert_eq!(check(&[mirror(2), single.clone()], &[raidz(1, 3)]), "", "a pool that is uneven may have anything");
    assert_eq!(check(&[log], &[single]), "", "there is nothing to compare with");
}

#[test]
fn layouts() {
    let files = Files::new("layout");
    let line = "-fn tank mirror %/a %/b raidz2 %/c %/d %/e log %/f special mirror %/a %/b cache %/g spare %/h %/a";
    let text = layout::text("tank", &check(&files.args(line), &[]).unwrap());
    let expect = "would create 'tank' with the following layout:\n\n\ttank\n\t  mirror\n\t    %/a\n\t    %/b\n\t  raidz2\n\
                  \t    %/c\n\t    %/d\n\t    %/e\n\tspecial\n\t  mirror\n\t    %/a\n\t    %/b\n\tlogs\n\t  %/f\n\
                  \tcache\n\t  %/g\n\tspares\n\t  %/h\n\t  %/a\n";
    assert_eq!(text.replace(files.folder.to_str().unwrap(), "%"), expect);
    let disk = NewLeaf { path: "/dev/disk/by-id/wwn-1".into(), is_file: false };
    let vdevs = vec![NewVdev { shape: NewVdevShape::Single, bias: None, leaves: vec![disk] }];
    assert!(layout::text("tank", &NewPoolSpec { vdevs, ..NewPoolSpec::default() }).ends_with("\ttank\n\t  wwn-1\n"));
}

#[test]
fn what_is_checked_before_the_pool_is_made() {
    let files = Files::new("pool");
    files.make("small", (64 << 20) - 1);
    let omitted = "\npool name may have been omitted";
    for (line, why) in [
        ("mirrored %/a", format!("cannot create 'mirrored': name is reserved{omitted}")),
        ("log %/a %/b", format!("cannot create 'log': name is reserved{omitted}")),
        ("1tank %/a", format!("cannot create '1tank': name must begin with a letter{omitted}")),
        ("ta*nk %/a", format!("cannot create 'ta*nk': invalid character '*' in pool name{omitted}")),
        ("taken %/a", "cannot create 'taken': pool already exists".to_owned()),
        ("-t taken tank %/a", "cannot create 'tank': pool already exists".to_owned()),
        (
            "tank %/a %/./a",
            "cannot create 'tank': one or more vdevs refer to the same device, or one of\n\
             the devices is part of an active md or lvm device"
                .to_owned(),
        ),
        ("tank %/small", "cannot create 'tank': one or more devices is less than the minimum size (64M)".to_owned()),
        ("-o failmode=x tank %/a", "cannot create 'tank': 'failmode' must be one of 'wait | continue | panic'".into()),
        ("-o compatibility=nope tank %/a", "Error: could not read/parse feature file(s): nope ".into()),
    ] {
        assert_eq!(files.create(line), Err(why), "{line}");
    }
    assert_eq!(files.create("-o comment=x -o ashift=0 -O atime=off -m none tank mirror %/a %/b"), Ok(()));
}

fn imported(pool: &str, guid: Guid, vdevs: Vec<Guid>, aux: Vec<Guid>) -> [Hello; 1] {
    [Hello { protocol: 0, pool: pool.to_owned(), guid, vdevs, aux, pid: 0 }]
}

#[test]
fn what_labels_say() {
    let label_of = |state: u64, txg: u64| {
        let numbers = [("pool_guid", 7), ("guid", 8), ("state", state), ("txg", txg)];
        let numbers = numbers.map(|(name, n)| (name.to_owned(), Value::U64(n)));
        numbers.into_iter().chain([("name".to_owned(), Value::Str("tank".into()))]).collect::<NvList>()
    };
    let of = |state, imported: &[Hello]| Membership::of(&label_of(state, 4), imported).map(|member| member.state);
    let tank = imported("tank", Guid::new(7), vec![Guid::new(8)], Vec::new());
    assert_eq!(of(0, &[]), Some(MemberState::PotentiallyActive));
    assert_eq!(of(1, &[]), Some(MemberState::Exported));
    assert_eq!((of(0, &tank), of(1, &tank)), (Some(MemberState::Active), Some(MemberState::Active)));
    assert_eq!(Membership::of(&label_of(0, 0), &tank).map(|member| member.state), None, "it has left the pool");
    let without = imported("tank", Guid::new(7), vec![Guid::new(5)], Vec::new());
    assert_eq!([of(0, &without), of(1, &without)], [None; 2], "it is not in the pool");
    // a spare may serve many pools, and those that are not imported do not count
    assert_eq!([2, 3, 4].map(|state| of(state, &tank)), [None; 3]);
    let owner = imported("tank", Guid::new(9), Vec::new(), vec![Guid::new(1), Guid::new(8)]);
    assert_eq!([2, 3, 4].map(|state| of(state, &owner)), [None, Some(MemberState::Spare), Some(MemberState::Cache)]);
}

#[test]
fn devices_of_other_pools_are_refused() {
    let files = Files::new("taken");
    let case = testkit::corpus::case("ashift12");
    let extracted = case.extract(&files.folder).unwrap();
    std::fs::rename(&extracted[0], files.folder.join("x")).unwrap();
    let name = &case.pool;
    let head = "invalid vdev specification\nuse '-f' to override the following errors:\n";
    let why = format!("{head}%/x is part of exported pool '{name}'");
    assert_eq!(files.spec("tank %/x"), Err(why));
    assert!(files.spec("-f tank %/x").is_ok());
    let mut ext4 = vec![0; 4096];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    // extents make it ext4, and not ext2
    ext4[1120] = 0x40;
    std::fs::write(files.folder.join("e"), ext4).unwrap();
    assert_eq!(files.spec("tank %/e"), Err(format!("{head}%/e contains a filesystem of type 'ext4'")));
}
