//! Where volumes are given out, for both ends.
//!
//! ```text
//!   RUN/zvol/tank/vm      a file
//!   RUN/nbd/tank.sock     a socket, where NBD has an export of the name tank/vm if property org.cenote:nbd is on
//!   RUN/nbd/tank.addresses    where it is to be had by network, a line each, as the beginning of a URI
//!   RUN/iscsi/tank.addresses  where volumes are targets of iSCSI if property org.cenote:iscsi is on, a line each
//!   RUN/vhost/tank/vm+sock    a socket for a virtual machine, if property org.cenote:vhost is on
//!   /dev/zvol/tank/vm     a block device, where the kernel has the module nbd, if property org.cenote:block lets it be
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};

use format::ids::Guid;

/// The property of a volume by which it is to be had by NBD.
pub const NBD_PROPERTY: &str = "org.cenote:nbd";

/// The property of a pool's root file system with the addresses of the network where volumes are to be had by NBD.
pub const NBD_LISTEN: &str = "org.cenote:nbd_listen";

/// The property of a pool's root file system with the folder of the certificates for NBD by network.
pub const NBD_TLS: &str = "org.cenote:nbd_tls";

/// The property of a volume by which it is a target of iSCSI.
pub const ISCSI_PROPERTY: &str = "org.cenote:iscsi";

/// The property of a volume with the names of initiators that may use it.
pub const ISCSI_INITIATORS: &str = "org.cenote:iscsi_initiators";

/// The property of a volume that says whether it is a block device; without it, volumes of this host's own pools are.
pub const BLOCK_PROPERTY: &str = "org.cenote:block";

/// The number of the value `default` of property `volmode`: a tunable says which it is.
pub const VOLMODE_DEFAULT: u64 = 0;

/// The number of the value `dev` of property `volmode`: the partitions on it are no devices.
pub const VOLMODE_DEV: u64 = 2;

/// The number of the value `none` of property `volmode`.
pub const VOLMODE_NONE: u64 = 3;

/// The number of the value `hidden` of property `snapdev`.
pub const SNAPDEV_HIDDEN: u64 = 0;

/// The property of a volume with the file of secrets of its initiators.
pub const ISCSI_CHAP: &str = "org.cenote:iscsi_chap";

/// The property of a pool's root file system with the addresses of the network where volumes are targets.
pub const ISCSI_LISTEN: &str = "org.cenote:iscsi_listen";

/// The property of a volume with the reservations of its initiators.
pub const ISCSI_RESERVATIONS: &str = "org.cenote:iscsi_reservations";

/// The property of a volume by which it is a disk of a virtual machine, by vhost-user.
pub const VHOST_PROPERTY: &str = "org.cenote:vhost";

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

/// The block device of a volume.
pub fn block_path(volume: &str) -> PathBuf {
    Path::new("/dev/zvol").join(volume)
}

/// The socket of a pool.
pub fn nbd_socket(run: &Path, pool: &str) -> PathBuf {
    nbd_folder(run).join(format!("{pool}.sock"))
}

/// The file with the addresses of the network of a pool.
pub fn nbd_addresses(run: &Path, pool: &str) -> PathBuf {
    nbd_folder(run).join(format!("{pool}.addresses"))
}

/// The address of a volume at one of those.
pub fn nbd_network_uri(address: &str, volume: &str) -> String {
    format!("{address}/{}", escaped(volume))
}

/// The folder of the addresses for iSCSI.
pub fn iscsi_folder(run: &Path) -> PathBuf {
    run.join("iscsi")
}

/// The file with the addresses of a pool for iSCSI.
pub fn iscsi_addresses(run: &Path, pool: &str) -> PathBuf {
    iscsi_folder(run).join(format!("{pool}.addresses"))
}

/// The name of the target that a volume is; its guid alone tells it from others.
pub fn iscsi_target(volume: &str, guid: Guid) -> String {
    // names of targets have small letters, digits, and these
    let word = |byte: char| match byte {
        'a'..='z' | '0'..='9' | '-' | '.' => byte,
        'A'..='Z' => byte.to_ascii_lowercase(),
        '/' => '.',
        _ => '-',
    };
    // a name of a target has 223 bytes at most
    let words: String = volume.chars().map(word).take(150).collect();
    format!("iqn.2025-11.org.cenote:{words}:{guid:016x}")
}

/// The address of a target at one of those, as clients take it.
pub fn iscsi_uri(address: &str, target: &str) -> String {
    format!("iscsi://{address}/{target}/0")
}

/// The folder of the sockets for virtual machines.
pub fn vhost_folder(run: &Path) -> PathBuf {
    run.join("vhost")
}

/// The socket of a volume for a virtual machine. No dataset has a `+` in its name, so no folder of others is in its way.
pub fn vhost_socket(run: &Path, volume: &str) -> PathBuf {
    vhost_folder(run).join(format!("{volume}+sock"))
}

/// What QEMU takes to have that disk, beside memory that can be shared. It connects again when the process of the pool was
/// killed and the pool is imported; versions before 9.2 know `reconnect`, in seconds, only.
pub fn qemu_arguments(socket: &Path, volume: &str) -> String {
    let id: String =
        volume.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' }).collect();
    // commas are doubled there
    let path = socket.to_string_lossy().replace(',', ",,");
    format!(
        "-m 1G -object memory-backend-memfd,id=ram,size=1G,share=on -machine memory-backend=ram \
         -chardev socket,id=c.{id},path={path},reconnect=1 -device vhost-user-blk-pci,chardev=c.{id}"
    )
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
        assert_eq!(nbd_network_uri("nbds://127.0.0.1:10809", "t/v"), "nbds://127.0.0.1:10809/t/v");
        assert_eq!(iscsi_target("t/V a", Guid::new(255)), "iqn.2025-11.org.cenote:t.v-a:00000000000000ff");
        assert!(iscsi_target(&"x".repeat(255), Guid::NONE).len() <= 223);
        let socket = vhost_socket(run, "tank/a b");
        assert_eq!(socket, Path::new("/run/cenote/vhost/tank/a b+sock"));
        let arguments = qemu_arguments(Path::new("/a,b.sock"), "tank/a b");
        assert!(
            arguments
                .ends_with("id=c.tank_a_b,path=/a,,b.sock,reconnect=1 -device vhost-user-blk-pci,chardev=c.tank_a_b")
        );
        assert_eq!(file_of(run, "tank/v@s"), Path::new("/run/cenote/zvol/tank/v@s"));
    }
}
