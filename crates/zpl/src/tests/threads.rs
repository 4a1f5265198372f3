//! Many threads in the same few directories.

use super::*;

#[test]
fn nothing_is_lost_and_nobody_waits_for_ever() {
    let fs = fs();
    let dirs: Vec<ObjectId> = (0..3).map(|n| fs.dir(fs.root, &format!("d{n}"))).collect();
    let (fs, dirs) = (&fs, &dirs);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            scope.spawn(move || {
                let mut seed = thread as u64;
                for _ in 0..1500 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let pick = |shift: u32, of: u64| (seed >> shift) % of;
                    let (one, two) = (dirs[pick(20, 3) as usize], dirs[pick(24, 3) as usize]);
                    let (a, b) = (format!("n{}", pick(28, 8)), format!("n{}", pick(32, 8)));
                    let (a, b) = (a.as_bytes(), b.as_bytes());
                    // any of these may fail, as others do the same
                    let _ = match pick(40, 8) {
                        0 => fs.zpl.create(one, a, &new(NewKind::File, 0o644)).map(drop),
                        1 => fs.zpl.create(one, a, &new(NewKind::Directory, 0o755)).map(drop),
                        2 => fs.zpl.unlink(one, a).and_then(|ino| ino.map_or(Ok(()), |ino| fs.zpl.reclaim(ino))),
                        3 => fs.zpl.rmdir(one, a).and_then(|ino| fs.zpl.reclaim(ino)),
                        4 => fs.zpl.rename((one, a), (two, b), RenameMode::Exchange).map(drop),
                        5 => fs.zpl.lookup(one, a).and_then(|ino| fs.zpl.link(ino, two, b)).map(drop),
                        6 => fs.zpl.lookup(one, a).and_then(|ino| fs.zpl.open_file(ino)?.append(b"x")).map(drop),
                        _ => fs.zpl.rename((one, a), (two, b), RenameMode::Replace).map(|ino| {
                            ino.map_or(Ok(()), |ino| fs.zpl.reclaim(ino)).unwrap();
                        }),
                    };
                }
            });
        }
    });
    for &dir in dirs {
        let names = fs.names(dir);
        let inos: Vec<ObjectId> = names.iter().map(|name| fs.zpl.lookup(dir, name.as_bytes()).unwrap()).collect();
        let subdirectories = inos.iter().filter(|&&ino| fs.stat(ino).kind == FileKind::Directory).count();
        assert_eq!(fs.stat(dir).size as usize, names.len() + 2);
        assert_eq!(fs.stat(dir).nlink as usize, subdirectories + 2);
        for ino in inos {
            let links = dirs.iter().flat_map(|&dir| fs.names(dir).into_iter().map(move |name| (dir, name)));
            let links = links.filter(|(dir, name)| fs.zpl.lookup(*dir, name.as_bytes()).unwrap() == ino).count();
            if fs.stat(ino).kind == FileKind::File {
                assert_eq!(fs.stat(ino).nlink as usize, links);
            }
        }
    }
    assert_eq!(fs.queued(), 0);
}
