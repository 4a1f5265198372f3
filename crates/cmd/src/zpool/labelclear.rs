//! `zpool labelclear`: takes the labels off a device that belonged to a pool.

use std::ffi::OsString;
use std::fs::File;

use device::{FileDevice, OpenMode};
use format::nvlist::NvList;
use protocol::client;
use protocol::pool_report::{VdevReport, VdevState};
use protocol::wire::{Hello, PoolReply, Request};
use protocol::words::of_system;

use super::command::{CommandResult, Stop};
use super::create::{MemberState, Membership, label_of};
use super::names::DEVICE_FOLDERS;
use super::pools;
use crate::getopt::{self, Opt};

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "f", &[]);
    let mut force = false;
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('f') => force = true,
            other => return Err(Stop::bad_option(other)),
        }
    }
    let word = match &parsed.operands[..] {
        [] => return Err(Stop::usage("missing vdev name")),
        [word] => word,
        _ => return Err(Stop::usage("too many arguments")),
    };
    let imported = pools::imported()?;
    clear(&find(word).map_err(Stop::Failed)?, force, &imported).map_err(Stop::Failed)?;
    Ok(true)
}

/// The path of the device.
fn find(word: &str) -> Result<String, String> {
    let open = |path: &str| File::options().read(true).write(true).open(path);
    match open(word) {
        Ok(_) => return Ok(word.to_owned()),
        Err(e) if word.starts_with('/') => return Err(format!("failed to open {word}: {}", of_system(&e))),
        Err(_) => {}
    }
    let mut paths = DEVICE_FOLDERS.iter().map(|folder| format!("{folder}{word}"));
    let Some(path) = paths.find(|path| std::path::Path::new(path).exists()) else {
        return Err(format!("failed to find device {word}, try specifying absolute path instead"));
    };
    open(&path).map_err(|e| format!("failed to open {path}: {}", of_system(&e)))?;
    Ok(path)
}

fn clear(path: &str, force: bool, imported: &[Hello]) -> Result<(), String> {
    let config = label_of(path).ok_or_else(|| format!("failed to read label from {path}"))?;
    let member = Membership::of(&config, imported);
    if let Some(member) = &member {
        let pool = &member.pool;
        let (word, is_firm) = match member.state {
            MemberState::Active => ("ACTIVE", true),
            MemberState::Spare => ("SPARE", true),
            MemberState::Cache => ("L2CACHE", true),
            MemberState::Exported => ("exported", false),
            MemberState::PotentiallyActive => ("potentially active", false),
        };
        if member.state == MemberState::Active && force && is_used(pool, &config) {
            let how = "Offline the disk first to clear its label.";
            return Err(format!("{path} is a member ({word}) of pool \"{pool}\". {how}"));
        }
        if !force || is_firm && member.state != MemberState::Active {
            return Err(match member.state {
                MemberState::Exported | MemberState::PotentiallyActive => {
                    format!("use '-f' to override the following error:\n{path} is a member of {word} pool \"{pool}\"")
                }
                _ => format!("{path} is a member ({word}) of pool \"{pool}\""),
            });
        }
    }
    let failed = |e: base::Error| format!("failed to clear label for {path}: {}", e.what());
    let device = FileDevice::open(path, OpenMode::ReadWrite).map_err(failed)?;
    // a pool that does not use its device keeps its lock all the same
    if member.is_none_or(|member| member.state != MemberState::Active) {
        device.lock(true).map_err(failed)?;
    }
    vdev::label::clear_sound(&device).map_err(failed)
}

/// Whether an imported pool reads the device with that label: not after it was taken offline, or given up. A pool that
/// does not answer may.
fn is_used(pool: &str, config: &NvList) -> bool {
    let Ok(Some(mut connection)) = client::connect(pool) else { return true };
    let Ok(PoolReply::Report(report)) = connection.ask(&Request::Report) else { return true };
    let is_it = |vdev: &&VdevReport| config.opt_guid("guid") == Some(vdev.guid);
    report.root.all().into_iter().find(is_it).is_none_or(|vdev| vdev.state >= VdevState::Degraded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_go_when_nobody_needs_them() {
        let folder = std::env::temp_dir().join(format!("cenote-labelclear-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let case = testkit::corpus::case("ashift12");
        let image = case.extract(&folder).unwrap()[0].to_str().unwrap().to_owned();
        let label = label_of(&image).unwrap();
        let (guid, vdevs) = (label.opt_guid("pool_guid").unwrap(), vec![label.opt_guid("guid").unwrap()]);
        let imported = [Hello { pool: case.pool.clone(), guid, vdevs, aux: Vec::new(), protocol: 0, pid: 0 }];
        let pool = &case.pool;
        for (force, imported, why) in [
            (
                false,
                &[][..],
                format!("use '-f' to override the following error:\n{image} is a member of exported pool \"{pool}\""),
            ),
            (false, &imported[..], format!("{image} is a member (ACTIVE) of pool \"{pool}\"")),
            (
                true,
                &imported[..],
                format!("{image} is a member (ACTIVE) of pool \"{pool}\". Offline the disk first to clear its label."),
            ),
        ] {
            assert_eq!(clear(&image, force, imported), Err(why));
        }
        assert_eq!(clear(&image, true, &[]), Ok(()));
        assert!(label_of(&image).is_none());
        assert_eq!(clear(&image, true, &[]), Err(format!("failed to read label from {image}")));
        let gone = folder.join("gone").to_str().unwrap().to_owned();
        assert_eq!(find(&gone), Err(format!("failed to open {gone}: No such file or directory")));
        let nowhere = "failed to find device no-such-disk, try specifying absolute path instead";
        assert_eq!(find("no-such-disk"), Err(nowhere.into()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
