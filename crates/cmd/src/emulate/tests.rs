use std::ops::ControlFlow;

use device::MemDevice;
use device::emulated::DeviceSays;
use fuse::{FileTree, Source, TreeFile};

use super::*;

fn file(name: &str, kind: EmulatedKind) -> EmulatedFile {
    let below = Arc::new(MemDevice::new(name, vec![0; 1 << 20]));
    EmulatedFile { name: name.into(), kind, device: Arc::new(EmulatedDevice::new(below, kind, 1, Env::fixed(0))) }
}

#[test]
fn devices_of_the_command_line() {
    let ssd = WantedDevice { kind: EmulatedKind::SsdPlp, path: "/a/b=c".into() };
    assert_eq!(wanted("ssd-plp=/a/b=c"), Ok(ssd));
    assert!(wanted("floppy=/a").is_err_and(|why| why.contains("hdd7200, hdd10k") && why.contains("floppy")));
    assert!(["ssd", "ssd=", "=/a"].iter().all(|text| wanted(text).is_err()));
    assert_eq!(size("64M"), Ok(64 << 20));
    assert!(["0", "4097", "x", "16E"].iter().all(|text| size(text).is_err()));
}

#[test]
fn a_folder_has_the_files() {
    let folder =
        EmulatedFolder::new(vec![file("disk", EmulatedKind::Hdd7200), file("ssd", EmulatedKind::Ssd)]).unwrap();
    let tree = folder.tree();
    let mut names = Vec::new();
    let mut from = |cookie: u64| {
        names.clear();
        let mut each = |entry: zpl::DirEntry| {
            names.push(String::from_utf8(entry.name).unwrap());
            ControlFlow::Continue(())
        };
        tree.readdir(tree.root(), cookie, &mut each).unwrap();
        names.clone()
    };
    assert_eq!(from(0), [".", "..", "disk", "ssd"]);
    assert_eq!(from(4), ["ssd"]);
    let ssd = tree.lookup(tree.root(), b"ssd").unwrap();
    assert_eq!(tree.stat(ssd).unwrap().size, 1 << 20);
    let says = tree.xattr(ssd, b"user.cenote.says").unwrap();
    assert_eq!(DeviceSays::parse(&String::from_utf8(says).unwrap()), EmulatedKind::Ssd.says());
    assert!(tree.lookup(tree.root(), b"none").is_err() && tree.xattr(tree.root(), b"user.cenote.says").is_err());
    let twice = EmulatedFolder::new(vec![file("a", EmulatedKind::Ssd), file("a", EmulatedKind::Nvme)]);
    assert!(twice.err().is_some_and(|why| why.contains("'a'")));
}

#[test]
fn a_file_ends_where_its_device_ends() {
    let folder = EmulatedFolder::new(vec![file("ssd", EmulatedKind::Ssd)]).unwrap();
    let tree = folder.tree();
    let open = tree.open_file(tree.lookup(tree.root(), b"ssd").unwrap()).unwrap();
    let end = (1 << 20) - 10;
    assert_eq!(open.write(end, vec![5; 100].as_slice().into()).unwrap(), 10);
    assert!(
        open.write(1 << 20, [1].as_slice().into()).is_err() && open.write(u64::MAX, [1].as_slice().into()).is_err()
    );
    let mut read = [0; 100];
    assert_eq!((open.read(end, &mut read).unwrap(), read[9], read[10]), (10, 5, 0));
    assert_eq!(open.read(u64::MAX, &mut read).unwrap(), 0);
    assert_eq!((open.seek_data(7).unwrap(), open.seek_hole(7).unwrap()), (Some(7), Some(1 << 20)));
}
