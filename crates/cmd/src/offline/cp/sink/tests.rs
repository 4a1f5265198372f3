//! Copies into a folder of the machine's own file system.

use std::os::unix::fs::MetadataExt;

use super::*;

struct Temp(PathBuf);

impl Temp {
    fn new(name: &str) -> Temp {
        let path = std::env::temp_dir().join(format!("cenote-sink-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Temp(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn attributes() -> FileMetadata {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    FileMetadata { mode: 0o640, uid, gid, atime: (1, 2), mtime: (3, 4), xattrs: Vec::new() }
}

#[test]
fn files_with_holes_and_their_times() {
    let temp = Temp::new("files");
    let folder = TargetFolder::open(&temp.0).unwrap();
    for _ in 0..2 {
        let mut sink = folder.open_file(b"f").unwrap();
        sink.skip_to(1 << 20).unwrap();
        sink.write(1 << 20, b"data").unwrap();
        sink.set_size(2 << 20).unwrap();
        sink.set_attributes(&attributes(), &mut LeftOut::default()).unwrap();
    }
    let meta = std::fs::metadata(temp.0.join("f")).unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o7777), (2 << 20, 0o640));
    assert_eq!((meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec()), (1, 2, 3, 4));
    assert!(meta.blocks() * 512 < 1 << 20, "the hole takes no space");
    folder.link((&folder, b"f"), b"g").unwrap();
    assert_eq!(std::fs::metadata(temp.0.join("g")).unwrap().ino(), meta.ino());
}

#[test]
fn no_link_leads_out_of_the_folder() {
    let temp = Temp::new("links");
    let outside = Temp::new("outside");
    std::fs::write(outside.0.join("file"), "kept").unwrap();
    let folder = TargetFolder::open(&temp.0).unwrap();
    folder.create_link(b"dir", outside.0.as_os_str().as_bytes()).unwrap();
    assert!(folder.enter(b"dir").is_err() && folder.create_folder(b"dir").is_err());
    folder.create_link(b"file", outside.0.join("file").as_os_str().as_bytes()).unwrap();
    assert!(folder.create_file(b"file").is_err() && folder.open_file(b"file").is_err());
    folder.set_attributes(b"file", &FileMetadata { mode: 0o777, ..attributes() }, &mut LeftOut::default()).unwrap();
    let meta = std::fs::metadata(outside.0.join("file")).unwrap();
    assert_ne!((meta.mtime(), meta.mode() & 0o777), (3, 0o777));
}

#[test]
fn what_is_there_stays_as_it_is() {
    let temp = Temp::new("there");
    let folder = TargetFolder::open(&temp.0).unwrap();
    std::fs::write(temp.0.join("file"), "kept").unwrap();
    let sub = folder.create_folder(b"sub").unwrap();
    assert!(folder.create_file(b"file").is_err() && folder.create_link(b"file", b"x").is_err());
    assert!(folder.create_folder(b"sub").is_err() && folder.link((&folder, b"file"), b"sub").is_err());
    sub.create_file(b"new").unwrap();
    assert_eq!(std::fs::read(temp.0.join("file")).unwrap(), b"kept");
}

#[test]
fn what_is_left_out_is_told() {
    let mut left_out = LeftOut::default();
    assert!(left_out.to_text().is_none() && !left_out.has_files());
    left_out.count("owners");
    left_out.count("owners");
    assert!(left_out.to_text().unwrap().ends_with(": owners (2)"));
    assert_eq!(mode(&FileMetadata { mode: 0o6755, ..attributes() }, false).as_raw_mode(), 0o755);
}
