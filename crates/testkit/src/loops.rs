//! Loop devices: disks of the kernel over files, where the machine has such.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk over a file, which is detached when this is dropped.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Over that file; `options` are further ones of losetup(8). `None` if there can be none.
    pub fn over(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        let made = Command::new("losetup").args(["-f", "--show"]).args(options).arg(file).output().ok()?;
        let path = String::from_utf8(made.stdout).ok()?;
        made.status.success().then(|| LoopDevice(path.trim_end().into()))
    }

    /// The path of the device.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The same as text.
    pub fn name(&self) -> &str {
        self.0.to_str().expect("losetup names devices in ASCII")
    }

    /// Lets the device have so many bytes; 0 for all of its file. What is beyond is as that of a disk that was pulled.
    ///
    /// # Panics
    ///
    /// If the kernel refuses it.
    pub fn resize(&self, bytes: u64) {
        const GET_STATUS: libc::Ioctl = 0x4c05;
        const SET_STATUS: libc::Ioctl = 0x4c04;
        /// Bytes of a `loop_info64`, in which the limit stands at byte 32.
        const STATUS_SIZE: usize = 232;
        let device = File::options().read(true).write(true).open(&self.0).expect("the device is there");
        let mut status = [0u8; STATUS_SIZE];
        // SAFETY: the kernel writes 232 bytes.
        assert_eq!(unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS, status.as_mut_ptr()) }, 0);
        status[32..40].copy_from_slice(&bytes.to_ne_bytes());
        // SAFETY: the kernel reads 232 bytes.
        assert_eq!(unsafe { libc::ioctl(device.as_raw_fd(), SET_STATUS, status.as_ptr()) }, 0);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // one that is in use is detached when it no longer is
        drop(Command::new("losetup").arg("-d").arg(&self.0).status());
    }
}
