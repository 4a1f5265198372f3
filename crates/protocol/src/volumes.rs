//! Where volumes are given out, for both ends.
//!
//! ```text
//!   RUN/zvol/tank/vm      a file
//!   RUN/nbd/tank.sock     a socket, where NBD has an export of the name tank/vm if property org.cenote:nbd is on
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The property of a volume by which it is to be had by NBD.
pub const NBD_PROPERTY: &str = "org.cenote:nbd";

/// What that says.
pub fn is_on(value: &str) -> bool {
    value == "on"
}

/// The folder of the volumes of all pools.
pub fn folder(run: &Path) -> PathBuf {
    run.join("zvol")
}

/// The folder of the sockets of NBD.
pub fn nbd_folder(run: &Path) -> PathBuf {
    run.join("nbd")
}

/// The file of a volume.
pub fn file_of(run: &Path, volume: &str) -> PathBuf {
    folder(run).join(volume)
}

/// The socket of a pool.
pub fn nbd_socket(run: &Path, pool: &str) -> PathBuf {
    nbd_folder(run).join(format!("{pool}.sock"))
}

/// The address of a volume, as clients of NBD take it.
pub fn nbd_uri(run: &Path, volume: &str) -> String {
    let pool = volume.split(['/', '@']).next().unwrap_or_default();
    let socket = nbd_socket(run, pool);
    format!("nbd+unix:///{}?socket={}", escaped(volume), escaped(&socket.to_string_lossy()))
}

/// As it is written in a URI; a slash stays.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            // writing to a string does not fail
            _ => drop(write!(out, "%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let run = Path::new("/run/cenote");
        assert_eq!(nbd_uri(run, "tank/a b"), "nbd+unix:///tank/a%20b?socket=/run/cenote/nbd/tank.sock");
        assert_eq!(file_of(run, "tank/v@s"), Path::new("/run/cenote/zvol/tank/v@s"));
    }
}
