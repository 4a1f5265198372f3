//! The words of `mount -o`, for `zfs mount` and mount(8): each has its effect, or is refused by its name.

use fuse::MountOptions;

/// Sets options as the words say; of those that contradict each other, the last one counts. With `sloppy`, unknown ones
/// are passed over. Errors: which word is refused, and why.
pub(super) fn apply(options: &mut MountOptions, words: &[String], sloppy: bool) -> Result<(), String> {
    for word in words {
        match set(options, word) {
            Err(None) if sloppy => {}
            Err(None) => return Err(format!("invalid mount option '{word}'")),
            Err(Some(why)) => return Err(format!("mount option '{word}' is not supported: {why}")),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Sets one option. Errors: why it is refused; `None` if there is none of that name.
fn set(options: &mut MountOptions, word: &str) -> Result<(), Option<&'static str>> {
    match word {
        "ro" => options.read_only = true,
        // of a pool that is read-only, the mount is, too
        "rw" => options.read_only = false,
        "atime" => options.atime = true,
        "noatime" => options.atime = false,
        "relatime" | "nostrictatime" => options.relatime = true,
        "norelatime" | "strictatime" => options.relatime = false,
        "diratime" => options.dir_atime = true,
        "nodiratime" => options.dir_atime = false,
        // to have all on disk at once is more than to have names there
        "sync" | "dirsync" => options.sync = true,
        "async" => options.sync = false,
        "exec" => options.exec = true,
        "noexec" => options.exec = false,
        "dev" | "devices" => options.devices = true,
        "nodev" | "nodevices" => options.devices = false,
        "suid" | "setuid" => options.setuid = true,
        "nosuid" | "nosetuid" => options.setuid = false,
        "xattr" => options.xattrs = true,
        "noxattr" => options.xattrs = false,
        "acl" | "posixacl" => options.posix_acl = true,
        "noacl" => options.posix_acl = false,
        // how it is anyway
        "defaults" | "nomand" | "nonbmand" | "nolazytime" => {}
        // looked at before
        "remount" | "zfsutil" => {}
        // between mount(8), systemd and those that use them
        "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "nouser" | "owner" | "group" => {}
        "mand" | "nbmand" => return Err(Some("Linux has no mandatory locks any more")),
        "lazytime" => return Err(Some("times are written with what changed them")),
        _ => match word.split_once('=').map_or(word, |(name, _)| name) {
            "comment" => {}
            // what the kernel says of any such mount, and mount(8) hands back to change something
            "user_id" | "group_id" | "default_permissions" | "allow_other" => {}
            name if name.starts_with("x-") || name.starts_with("X-") => {}
            "context" | "fscontext" | "defcontext" | "rootcontext" => {
                return Err(Some("there are no SELinux contexts"));
            }
            _ => return Err(None),
        },
    }
    Ok(())
}

/// Whether one of the words is that one.
pub(super) fn has(words: &[String], wanted: &str) -> bool {
    words.iter().any(|word| word == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(list: &str, sloppy: bool) -> Result<MountOptions, String> {
        let words: Vec<String> = list.split(',').map(str::to_owned).collect();
        let mut options = MountOptions::new("tank", "/tank");
        apply(&mut options, &words, sloppy).map(|()| options)
    }

    #[test]
    fn words() {
        let options = applied("noatime,noexec,nosuid,nodev,noxattr,ro,nodiratime,sync,posixacl", false).unwrap();
        assert!(!options.atime && !options.exec && !options.setuid && !options.devices && !options.xattrs);
        assert!(options.read_only && !options.dir_atime && options.sync && options.posix_acl);
        let options =
            applied("user_id=0,allow_other,noexec,exec,defaults,noauto,x-systemd.requires=a.service,comment=b", false)
                .unwrap();
        assert!(options.exec);
        assert_eq!(applied("ro,fast", false).unwrap_err(), "invalid mount option 'fast'");
        assert!(applied("ro,fast", true).unwrap().read_only);
        for refused in ["mand", "nbmand", "lazytime", "context=a:b:c"] {
            let why = applied(refused, true).unwrap_err();
            assert!(why.starts_with(&format!("mount option '{refused}' is not supported: ")), "{why}");
        }
    }
}
