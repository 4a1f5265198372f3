//! A fresh ext4, which knows projects if the kernel does.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// Bytes of its image.
const IMAGE_SIZE: u64 = 256 << 20;

/// A mounted one.
pub struct Ext4 {
    /// Its root directory.
    pub root: PathBuf,
    pub has_projects: bool,
    _dir: TempDir,
}

impl Ext4 {
    /// `None`, loudly, where there can be none.
    pub fn new() -> Option<Ext4> {
        let dir = tempfile::tempdir().unwrap();
        let (image, root) = (dir.path().join("image"), dir.path().join("root"));
        File::create(&image).unwrap().set_len(IMAGE_SIZE).unwrap();
        std::fs::create_dir(&root).unwrap();
        let does = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
        let mount = |features| {
            does(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-O", features]).arg(&image))
                && does(Command::new("mount").args(["-o", "loop"]).args([&image, &root]))
        };
        let has_projects = mount("project,quota");
        if !has_projects && !mount("^project,^quota") {
            eprintln!("SKIPPED {}: no ext4 can be mounted", file!());
            return None;
        }
        std::fs::remove_dir(root.join("lost+found")).unwrap();
        Some(Ext4 { root, has_projects, _dir: dir })
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.root).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|done| done.success()));
    }
}
