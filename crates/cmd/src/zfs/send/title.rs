//! The title of the process, as `ps` shows it.
//!
//! ```text
//!   arg_start ─▶ arguments │ environment ─▶ env_end      /proc/self/stat, fields 48 to 51
//!                title ................ 0
//! ```
//!
//! Linux shows what is in the place of the arguments, on into that of the environment if the last byte of the arguments
//! is not zero. The program has read its arguments when it has a title; of its environment, the variables under a long
//! title are lost. Source: proc(5) and `setproctitle` as other systems have it.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;

/// Fields of `/proc/self/stat` behind the name, from the state on, which is the third of all.
const ARG_START: usize = 48 - 3;
const ARG_END: usize = 49 - 3;
const ENV_END: usize = 51 - 3;

/// Writes the title of this process.
pub(super) struct ProcessTitle {
    memory: File,
    start: u64,
    /// Bytes of arguments.
    args: usize,
    /// Bytes of arguments and environment.
    room: usize,
}

impl ProcessTitle {
    /// Finds the place of the title. Errors: `/proc` does not tell.
    pub(super) fn open() -> Result<ProcessTitle> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let places = places(&stat).ok_or_else(|| Error::new(ErrorKind::InvalidData, "/proc/self/stat"))?;
        let (start, args, room) = places;
        let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
        Ok(ProcessTitle { memory, start, args, room })
    }

    /// Sets the title; what is too long is cut.
    pub(super) fn set(&self, title: &str) -> Result<()> {
        self.memory.write_all_at(&title_bytes(title, self.args, self.room), self.start)
    }
}

/// Where arguments begin, their length, and that with the environment.
fn places(stat: &str) -> Option<(u64, usize, usize)> {
    // the name may have spaces and brackets
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let (start, args_end, env_end) = (number(ARG_START)?, number(ARG_END)?, number(ENV_END)?);
    let is_known = 0 < start && start < args_end && args_end <= env_end;
    is_known.then_some((start, usize::try_from(args_end - start).ok()?, usize::try_from(env_end - start).ok()?))
}

/// What is written: at least all of the arguments' place, and a zero at the end.
fn title_bytes(title: &str, args: usize, room: usize) -> Vec<u8> {
    let mut bytes = title.as_bytes()[..title.len().min(room - 1)].to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().max(args), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_title_is() {
        let mut fields = vec!["0"; 50];
        (fields[0], fields[ARG_START], fields[ARG_END], fields[ENV_END]) = ("R", "1000", "1030", "1100");
        let stat = |fields: &[&str]| format!("77 (a) b) {}\n", fields.join(" "));
        assert_eq!(places(&stat(&fields)), Some((1000, 30, 100)));
        fields[ARG_START] = "0";
        assert_eq!(places(&stat(&fields)), None, "the kernel does not tell");
        assert_eq!(places("77 (a) R 1 2\n"), None);
    }

    #[test]
    fn a_title_fits() {
        assert_eq!(title_bytes("abc", 6, 20), b"abc\0\0\0");
        // one that is longer than the arguments has no zero at their end
        assert_eq!(title_bytes("abcdefgh", 6, 20), b"abcdefgh\0");
        assert_eq!(title_bytes("abcdefgh", 6, 7), b"abcdef\0");
    }
}
