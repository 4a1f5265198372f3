//! The helper: runs the scripts that are meant for an event.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::unistd::geteuid;
use protocol::rundir::RunDir;

use super::environment::subclass;
use super::{Message, folder};
use crate::mount_helper::ENDING;

/// Scripts that run at a time.
const RUNNING_MAX: usize = 16;
/// A script that runs longer is killed.
const TIME_MAX: Duration = Duration::from_secs(300);
/// How often scripts are looked at that are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Is the helper: runs scripts for the events on standard input, until its end.
pub fn run() -> ExitCode {
    // what ends the pool's process in order is an event, too
    if SigSet::from_iter(ENDING).thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    let Some(folder) = folder() else { return ExitCode::FAILURE };
    let mut programs = None;
    let mut scripts = Scripts { running: Vec::new() };
    let mut input = BufReader::new(std::io::stdin());
    loop {
        let mut line = Vec::new();
        // an event may not come for days
        base::give_program_back();
        let mut bounded = std::io::Read::take(&mut input, LINE_BYTES_MAX);
        match bounded.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let Ok((class, variables)) = serde_json::from_slice::<Message>(&line) else { break };
        // the folder of the pool's process may come after this one
        programs = programs.or_else(find_programs);
        for script in meant_for(&class, &folder) {
            scripts.start(&script, &folder, &variables, programs.as_deref());
        }
    }
    scripts.wait_until(0);
    ExitCode::SUCCESS
}

struct Scripts {
    running: Vec<(Child, Instant)>,
}

impl Scripts {
    fn start(&mut self, script: &Path, folder: &Path, variables: &[(String, String)], programs: Option<&Path>) {
        self.wait_until(RUNNING_MAX - 1);
        let mut command = Command::new(script);
        command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("SHELL", "/bin/sh");
        for name in ["TZ", "CENOTE_RUN"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("ZED_PID", std::process::id().to_string()).env("ZED_ZEDLET_DIR", folder);
        for name in ["zpool", "zfs", "zdb"] {
            let program = programs.map_or_else(|| PathBuf::from(name), |programs| programs.join(name));
            command.env(name.to_uppercase(), program);
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if let Ok(child) = command.spawn() {
            self.running.push((child, Instant::now()));
        }
        let is_sync = script.file_name().is_some_and(|name| name.to_string_lossy().contains("-sync-"));
        if is_sync {
            self.wait_until(0);
        }
    }

    /// Waits until so many run at most.
    fn wait_until(&mut self, most: usize) {
        loop {
            self.running.retain_mut(|(child, begun)| {
                if begun.elapsed() > TIME_MAX {
                    // it may have ended by itself
                    drop(child.kill());
                }
                matches!(child.try_wait(), Ok(None))
            });
            if self.running.len() <= most {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The scripts for events of a class, in the order of their names: those whose name begins with the class, what is
/// behind its third point, or `all`, and goes on with no letter.
fn meant_for(class: &str, folder: &Path) -> Vec<PathBuf> {
    let mut scripts: Vec<PathBuf> =
        folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    scripts.sort();
    let is_meant = |script: &PathBuf| {
        let name = script.file_name().unwrap_or_default().to_string_lossy();
        let begins = |prefix: &str| {
            name.strip_prefix(prefix).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
        };
        [class, subclass(class), "all"].into_iter().any(begins)
    };
    scripts.retain(|script| is_meant(script) && is_safe(script));
    scripts
}

/// Whether nobody but root, and the user of this process, can have written the script.
fn is_safe(script: &Path) -> bool {
    fs::metadata(script).is_ok_and(|metadata| {
        let mode = metadata.permissions().mode();
        let is_ours = [0, geteuid().as_raw()].contains(&metadata.uid());
        metadata.is_file() && is_ours && mode & 0o100 != 0 && mode & 0o022 == 0
    })
}

/// A folder in which this program has the names of OpenZFS's.
fn find_programs() -> Option<PathBuf> {
    let program = fs::read_link("/proc/self/exe").ok()?;
    let folder = RunDir::find().ok()??.path().join("bin");
    fs::create_dir_all(&folder).ok()?;
    for name in ["zpool", "zfs", "zdb"] {
        let link = folder.join(name);
        if fs::read_link(&link).ok().as_ref() != Some(&program) {
            // another one may make it at the same time
            drop(fs::remove_file(&link));
            drop(symlink(&program, &link));
        }
    }
    Some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_by_class() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [
            ("scrub_finish-notify.sh", 0o755),
            ("scrub.sh", 0o755),
            ("all-log.sh", 0o755),
            ("allow.sh", 0o755),
            ("sysevent.fs.zfs.scrub_finish-x", 0o755),
            ("scrub_finish-open.sh", 0o777),
            ("scrub_finish-text", 0o644),
            ("zed.rc", 0o644),
        ] {
            fs::write(folder.path().join(name), "").unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let names = |class: &str| -> Vec<String> {
            let scripts = meant_for(class, folder.path());
            scripts.iter().map(|script| script.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        let meant = ["all-log.sh", "scrub_finish-notify.sh", "sysevent.fs.zfs.scrub_finish-x"];
        assert_eq!(names("sysevent.fs.zfs.scrub_finish"), meant);
        assert_eq!(names("sysevent.fs.zfs.scrub_start"), ["all-log.sh"]);
    }
}
