//! Programs of others that are asked about devices, and may be missing or hang.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time between two looks whether a program has ended.
const POLL_TIME: Duration = Duration::from_millis(2);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Where programs are beside the folders of PATH.
const FOLDERS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Where programs are looked for.
fn folders() -> String {
    std::env::var("PATH").map_or_else(|_| FOLDERS.to_owned(), |path| format!("{path}:{FOLDERS}"))
}

/// Whether there is a program of that name.
pub fn is_installed(name: &str) -> bool {
    find(name).is_some()
}

/// Where the program of that name is.
pub fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&folders()).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// How a program ended, and what it printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub text: String,
}

/// Asks a program. Errors: `NotFound` if it is not installed, `TimedOut` if it does not end in time.
pub fn ask(name: &str, args: &[&str], time: Duration) -> io::Result<ToolAnswer> {
    let began = Instant::now();
    ask_while(name, args, || began.elapsed() < time)
}

/// The same for as long as `goes_on` says so. Errors: `TimedOut` if it does not.
pub fn ask_while(name: &str, args: &[&str], goes_on: impl Fn() -> bool) -> io::Result<ToolAnswer> {
    let mut command = Command::new(name);
    command.args(args).env("PATH", folders()).env("LC_ALL", "C");
    command.env_remove("LIBBLKID_DEBUG").env_remove("BLKID_DEBUG");
    // SIGINT of a terminal is for this program, which ends it in order
    command.process_group(0);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // what cannot be read is missing in the answer
        let _ = stdout.map(|stdout| stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut text));
        text
    });
    // one that waits for a dead device cannot be killed, and its pipe stays open: neither is waited for
    let Some(status) = ended(&mut child, goes_on)? else { return Err(io::ErrorKind::TimedOut.into()) };
    let text = reader.join().unwrap_or_default();
    Ok(ToolAnswer { code: status.code(), text: String::from_utf8_lossy(&text).into_owned() })
}

/// How a program ended; if it has not as long as `goes_on` says so, it is killed, and `None`.
fn ended(child: &mut Child, goes_on: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if !goes_on() {
            child.kill()?;
            return Ok(None);
        }
        std::thread::sleep(POLL_TIME);
    }
}

/// Asks a process to end by SIGTERM, and kills it if it has not after so long. Errors: those of waiting for it.
pub fn end(child: &mut Child, most: Duration) -> io::Result<()> {
    let began = Instant::now();
    if child.try_wait()?.is_none()
        && let Some(pid) = Pid::from_raw(child.id().cast_signed())
    {
        // it may end by itself just now
        let _ = kill_process(pid, Signal::TERM);
    }
    ended(child, || began.elapsed() < most)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_not_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let began = Instant::now();
        assert!(ended(&mut child, || began.elapsed() < Duration::from_millis(20)).unwrap().is_none());
        child.wait().unwrap();
    }

    #[test]
    fn missing_programs_are_told_from_those_that_fail() {
        let time = Duration::from_secs(20);
        let missing = ask("cenote-no-such-program", &[], time).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(!is_installed("cenote-no-such-program") && is_installed("sh"));
        let failed = ask("sh", &["-c", "echo a; exit 3"], time).unwrap();
        assert_eq!(failed, ToolAnswer { code: Some(3), text: "a\n".into() });
    }
}
