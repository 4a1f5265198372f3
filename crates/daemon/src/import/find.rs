//! Looking for pools that could be imported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::{Env, Kind};
use format::ids::Guid;
use format::nvlist::NvList;
use pool::{Candidate, discover};
use protocol::client;
use protocol::words::of_system;

use super::ImportOptions;
use crate::cachefile;

/// Where disks are, unless the user knows better.
const SYSTEM_FOLDERS: [&str; 2] = ["/dev", "/dev/mapper"];

/// The pools on the devices that the command line names, or else on the system's; without those that
/// are imported.
pub fn find(env: &Env, args: &ImportOptions) -> Result<Vec<Candidate>, String> {
    let failed = |e: base::Error| e.to_string();
    let cached = match &args.cachefile {
        Some(file) => Some(read_cachefile(file)?),
        None => None,
    };
    let paths = match &cached {
        Some(cached) => cached.paths.clone(),
        None => places(args)?,
    };
    let found = discover(env, &paths).map_err(failed)?;
    let imported = client::hellos().map_err(failed)?;
    let is_free = |candidate: &Candidate| {
        let is_listed = cached.as_ref().is_none_or(|cached| cached.guids.contains(&candidate.guid));
        is_listed && !imported.iter().any(|hello| hello.guid == candidate.guid)
    };
    let mut candidates = Candidate::all(&found);
    candidates.retain(is_free);
    let is_forbidden = |(_, e): &(String, base::Error)| e.kind() == Kind::Permission;
    if candidates.is_empty() && !nix::unistd::geteuid().is_root() && found.failed.iter().any(is_forbidden) {
        // there may be pools
        return Err("cannot discover pools: permission denied".to_owned());
    }
    Ok(candidates)
}

/// What the command line names, or the environment, or the system's folders. What is not there is
/// passed over.
fn places(args: &ImportOptions) -> Result<Vec<PathBuf>, String> {
    let from_env = std::env::var_os("ZPOOL_IMPORT_PATH").map(|list| std::env::split_paths(&list).collect());
    let wanted = match (args.search.is_empty(), from_env) {
        (false, _) => args.search.clone(),
        (true, Some(list)) => list,
        (true, None) => SYSTEM_FOLDERS.map(PathBuf::from).to_vec(),
    };
    let mut there = Vec::new();
    for path in wanted {
        match path.metadata() {
            Ok(_) => there.push(path),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("cannot resolve path '{}': {e}", path.display())),
        }
    }
    Ok(there)
}

/// What a cache file tells: OpenZFS writes one list with the configuration of every imported pool.
struct Cached {
    guids: Vec<Guid>,
    /// Devices that are there, and the folders where devices are or were: they may have got other names since, and
    /// others may have come to the pool.
    paths: Vec<PathBuf>,
}

fn read_cachefile(file: &Path) -> Result<Cached, String> {
    let failed = |why: String| format!("failed to open cache file: {why}");
    file.metadata().map_err(|e| failed(of_system(&e)))?;
    let pools = cachefile::read(file)
        .map_err(|e| format!("invalid or corrupt cache file contents: invalid or missing cache file ({e})"))?;
    let mut cached = Cached { guids: Vec::new(), paths: Vec::new() };
    for (_, value) in pools.iter() {
        let format::nvlist::Value::List(config) = value else { continue };
        cached.guids.extend(config.opt_guid("pool_guid"));
        if let Some(tree) = config.opt_list("vdev_tree") {
            leaf_paths(tree, &mut cached.paths);
        }
    }
    let folders: BTreeSet<PathBuf> = cached.paths.iter().filter_map(|path| Some(path.parent()?.to_owned())).collect();
    cached.paths.extend(folders);
    cached.paths.retain(|path| path.exists());
    Ok(cached)
}

fn leaf_paths(vdev: &NvList, out: &mut Vec<PathBuf>) {
    out.extend(vdev.opt_str("path").map(PathBuf::from));
    for name in ["children", "spares", "l2cache"] {
        vdev.opt_lists(name).unwrap_or_default().iter().for_each(|child| leaf_paths(child, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::nvlist::Value;

    fn list(pairs: Vec<(&str, Value)>) -> NvList {
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn cache_files() {
        let leaf = list(vec![("path", Value::Str("/dev/null".into()))]);
        let gone = list(vec![("path", Value::Str("/no/such/device".into()))]);
        let tree = list(vec![("children", Value::Lists(vec![leaf, gone]))]);
        let config = list(vec![("pool_guid", Value::U64(7)), ("vdev_tree", Value::List(tree))]);
        let packed = list(vec![("tank", Value::List(config))]).pack();
        let file = std::env::temp_dir().join(format!("cenote-cachefile-{}", std::process::id()));
        std::fs::write(&file, &packed).unwrap();
        let cached = read_cachefile(&file).unwrap();
        let paths = ["/dev/null", "/dev"].map(PathBuf::from).to_vec();
        assert_eq!((cached.guids, cached.paths), (vec![Guid::new(7)], paths));
        std::fs::write(&file, &packed[..40]).unwrap();
        assert!(read_cachefile(&file).is_err());
        std::fs::remove_file(&file).unwrap();
        let missing = read_cachefile(&file).err().unwrap();
        assert_eq!(missing, "failed to open cache file: No such file or directory");
    }
}
