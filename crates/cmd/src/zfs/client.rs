//! The client's side of `zfs`: which pools there are, and asking them.
//!
//! A name begins with that of its pool, so that each root of a request goes to the process of one pool;
//! without roots, all are asked. Paths stand for the file system that is mounted there.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::path::Path;

use base::{Error, Kind, Result};
use dsl::NameKinds;
use protocol::client;
use protocol::datasets::{
    DatasetRequest, DatasetRow, DatasetType, Failure, FoundDatasets, Mounted, Response, Select, Types,
};
use protocol::lists;
use protocol::streams::StreamNote;

use crate::patience::real_path;

/// The imported pools.
pub trait Pools {
    /// Their names, sorted.
    fn names(&self) -> Result<Vec<String>>;
    /// Whether that pool is imported. Errors: its process does not answer.
    fn has(&self, pool: &str) -> Result<bool> {
        Ok(self.names()?.iter().any(|imported| imported == pool))
    }
    /// The names of those that do not answer, each with why.
    fn silent(&self) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }
    /// The answer of one of them.
    fn ask(&self, pool: &str, request: &DatasetRequest) -> Result<Response>;
    /// The same; the process reads or writes a stream through a descriptor, and `note` gets what it tells meanwhile.
    fn stream(
        &self,
        pool: &str,
        request: &DatasetRequest,
        _descriptor: BorrowedFd<'_>,
        _note: &mut dyn FnMut(StreamNote),
    ) -> Result<Response> {
        self.ask(pool, request)
    }
}

/// The pools whose processes listen on this machine.
pub(super) struct Sockets;

impl Pools for Sockets {
    fn names(&self) -> Result<Vec<String>> {
        Ok(client::survey()?.hellos.into_iter().map(|hello| hello.pool).collect())
    }

    fn has(&self, pool: &str) -> Result<bool> {
        Ok(client::connect(pool)?.is_some())
    }

    fn silent(&self) -> Result<Vec<(String, String)>> {
        Ok(client::survey()?.silent.into_iter().map(|(name, why)| (name, why.what().to_owned())).collect())
    }

    fn ask(&self, pool: &str, request: &DatasetRequest) -> Result<Response> {
        let gone = || Error::new(Kind::NotFound, "the pool is not imported").in_pool(pool);
        client::connect(pool)?.ok_or_else(gone)?.zfs(request)
    }

    fn stream(
        &self,
        pool: &str,
        request: &DatasetRequest,
        descriptor: BorrowedFd<'_>,
        note: &mut dyn FnMut(StreamNote),
    ) -> Result<Response> {
        let gone = || Error::new(Kind::NotFound, "the pool is not imported").in_pool(pool);
        client::connect(pool)?.ok_or_else(gone)?.zfs_with(request, &[descriptor], note)
    }
}

/// Asks for datasets of all pools that `select`'s roots are in; of all pools if there are none.
///
/// Rows come once each, in no order, failures in the order of the roots.
pub(super) fn datasets(pools: &dyn Pools, select: &Select) -> Result<FoundDatasets> {
    let mut found = FoundDatasets::default();
    if select.roots.is_empty() {
        for pool in pools.names()? {
            add(&mut found, ask_datasets(pools, &pool, select.clone())?);
        }
        found.failures.extend(silent(pools)?);
        return Ok(found);
    }
    let mut roots = Vec::new();
    for root in &select.roots {
        if is_path(root) {
            match mounted_at(pools, root.as_ref())? {
                Ok(mounted) => roots.push((mounted.dataset, Types::FILE_SYSTEMS)),
                Err(line) => found.failures.push(Failure { about: root.clone(), line }),
            }
        } else if let Err(why) = check_name(root, select.root_types) {
            let line = format!("cannot open '{root}': {why}");
            found.failures.push(Failure { about: root.clone(), line });
        } else {
            match why_not_there(pools, root) {
                Some(why) => {
                    let line = format!("cannot open '{root}': {why}");
                    found.failures.push(Failure { about: root.clone(), line });
                }
                None => roots.push((root.clone(), select.root_types)),
            }
        }
    }
    for together in roots.chunk_by(|one, next| pool_of(&one.0) == pool_of(&next.0) && one.1 == next.1) {
        let [(first, root_types), ..] = together else { continue };
        let roots = together.iter().map(|(root, _)| root.clone()).collect();
        let asked = Select { roots, root_types: *root_types, ..select.clone() };
        add(&mut found, ask_datasets(pools, pool_of(first), asked)?);
    }
    let position = |failure: &Failure| select.roots.iter().position(|root| *root == failure.about);
    found.failures.sort_by_key(position);
    Ok(found)
}

/// Why the pool that a name begins with cannot be asked for it, if so.
pub(super) fn why_not_there(pools: &dyn Pools, name: &str) -> Option<String> {
    match pools.has(pool_of(name)) {
        Ok(true) => None,
        Ok(false) => Some("dataset does not exist".to_owned()),
        Err(error) => Some(error.what().to_owned()),
    }
}

/// The pools that do not answer.
pub(super) fn silent(pools: &dyn Pools) -> Result<Vec<Failure>> {
    let failure = |(about, why): (String, String)| Failure { line: format!("cannot open '{about}': {why}"), about };
    Ok(pools.silent()?.into_iter().map(failure).collect())
}

/// The file systems of all pools that are mounted, by path.
pub(super) fn mounts(pools: &dyn Pools) -> Result<Vec<Mounted>> {
    let imported = pools.names()?;
    mounts_of(pools, &imported)
}

/// The file system that the file or directory `path` is in; in its place, a line that says why none.
pub(super) fn mounted_at(pools: &dyn Pools, path: &Path) -> Result<Result<Mounted, String>> {
    let imported = pools.names()?;
    let real = match real_path(path) {
        Ok(real) => real,
        Err(e) => return Ok(Err(format!("cannot open '{}': {}", path.display(), why(&e)))),
    };
    let above = mounts_of(pools, &imported)?.into_iter().filter(|mounted| real.starts_with(&mounted.path));
    let nearest = above.max_by_key(|mounted| mounted.path.len());
    if nearest.is_none()
        && let Some((_, why)) = pools.silent()?.into_iter().next()
    {
        return Ok(Err(format!("cannot open '{}': {why}", path.display())));
    }
    Ok(nearest.ok_or_else(|| format!("'{}': not a ZFS filesystem", path.display())))
}

/// Whether an argument is a path, and not a name.
pub(super) fn is_path(argument: &str) -> bool {
    argument.starts_with('/') || argument.starts_with("./")
}

/// The name of the pool in that of a dataset.
pub(super) fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

/// Whether `name` could be that of one of `types`; or else what is wrong with it.
pub(super) fn check_name(name: &str, types: Types) -> Result<(), String> {
    dsl::check_name(name, kinds(types)).map_err(|e| e.what().to_owned())
}

/// Whether something new of one of `types` may be called so; or else what is wrong with that.
pub(super) fn check_new_name(name: &str, types: Types) -> Result<(), String> {
    dsl::check_new_name(name, kinds(types)).map_err(|e| e.what().to_owned())
}

/// Whether something of one of `types` may come to be called so; or else what is wrong with that.
pub(super) fn check_moved_name(name: &str, types: Types) -> Result<(), String> {
    dsl::check_moved_name(name, kinds(types)).map_err(|e| e.what().to_owned())
}

fn kinds(types: Types) -> NameKinds {
    let Types { file_systems, volumes, snapshots, bookmarks } = types;
    NameKinds { heads: file_systems || volumes, snapshots, bookmarks }
}

/// A system error in the system's words, without its number.
pub(super) fn why(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The order in which `zfs` lists: by name, snapshots behind what they are of, oldest first.
pub(super) fn by_name(a: &DatasetRow, b: &DatasetRow) -> std::cmp::Ordering {
    let of = |row: &DatasetRow| row.name.split('@').next().unwrap_or_default().to_owned();
    let is_snapshot = |row: &DatasetRow| row.kind == DatasetType::Snapshot;
    of(a).cmp(&of(b)).then(is_snapshot(a).cmp(&is_snapshot(b))).then(a.createtxg.cmp(&b.createtxg))
}

fn ask_datasets(pools: &dyn Pools, pool: &str, mut select: Select) -> Result<FoundDatasets> {
    let (properties, places) = lists::distinct(&select.properties);
    let repeats = places.len() > properties.len();
    select.properties = properties;
    match pools.ask(pool, &DatasetRequest::Datasets(select))? {
        Response::Datasets(mut found) => {
            for row in found.rows.iter_mut().filter(|_| repeats) {
                row.cells = places.iter().map(|&at| row.cells.get(at).cloned().flatten()).collect();
            }
            Ok(found)
        }
        _ => Err(unexpected(pool)),
    }
}

fn mounts_of(pools: &dyn Pools, imported: &[String]) -> Result<Vec<Mounted>> {
    let mut all = Vec::new();
    for pool in imported {
        match pools.ask(pool, &DatasetRequest::Mounts)? {
            Response::Mounts(mounts) => all.extend(mounts),
            _ => return Err(unexpected(pool)),
        }
    }
    all.sort_by_cached_key(|mounted| daemon::mount_plan::path_order(&mounted.path));
    Ok(all)
}

pub(super) fn unexpected(pool: &str) -> Error {
    Error::new(Kind::Unsupported, "its process answers something else than was asked").in_pool(pool)
}

fn add(found: &mut FoundDatasets, more: FoundDatasets) {
    let known: HashSet<String> = found.rows.iter().map(|row| row.name.clone()).collect();
    found.rows.extend(more.rows.into_iter().filter(|row| !known.contains(&row.name)));
    found.failures.extend(more.failures);
}

/// Lets a pipe that a stream goes through take more at once, so that both of its ends wait less often. What is no pipe,
/// or may not be larger, stays as it is.
pub(super) fn widen(stream: BorrowedFd<'_>) {
    const BYTES: i32 = 1 << 20;
    // a stream goes through a narrow one, too
    let _ = nix::fcntl::fcntl(stream, nix::fcntl::FcntlArg::F_SETPIPE_SZ(BYTES));
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn pools_by_name() {
        assert_eq!(
            (pool_of("tank/a@s"), pool_of("tank@s"), pool_of("tank#b"), pool_of("tank")),
            ("tank", "tank", "tank", "tank")
        );
    }

    /// Two pools in which everything is there; what they were asked.
    struct Asked(RefCell<Vec<(String, usize)>>);

    impl Pools for Asked {
        fn names(&self) -> Result<Vec<String>> {
            Ok(vec!["dozer".to_owned(), "tank".to_owned()])
        }

        fn ask(&self, pool: &str, request: &DatasetRequest) -> Result<Response> {
            let DatasetRequest::Datasets(select) = request else {
                self.0.borrow_mut().push((format!("{pool}: a change"), 1));
                return Ok(Response::Changed { out: String::new(), notes: Vec::new(), failures: Vec::new() });
            };
            self.0.borrow_mut().push((pool.to_owned(), select.roots.len()));
            let missing = select.roots.iter().filter(|root| root.ends_with("none"));
            let failures = missing.map(|root| Failure { about: root.clone(), line: format!("cannot open '{root}'") });
            Ok(Response::Datasets(FoundDatasets { failures: failures.collect(), ..FoundDatasets::default() }))
        }
    }

    #[test]
    fn what_is_named_together_is_asked_for_together() {
        let pools = Asked(RefCell::default());
        let asked = || std::mem::take(&mut *pools.0.borrow_mut());
        let run = |words: &[String]| {
            let args: Vec<_> = words.iter().map(Into::into).collect();
            let outcome = crate::zfs::execute(&pools, &args);
            (outcome.err, outcome.code)
        };
        let mut words: Vec<String> = (0..400).map(|number| format!("tank/{number}@s")).collect();
        words.insert(0, "snapshot".to_owned());
        assert_eq!(run(&words), (String::new(), 0));
        assert_eq!(asked(), [("tank".to_owned(), 400), ("tank: a change".to_owned(), 1)]);
        // the first that is wrong is told, and what is behind a name that is none is not looked at
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        let told = |line: &str| run(&words(line)).0.lines().next().unwrap_or_default().to_owned();
        assert_eq!(told("snapshot tank/a@s tank/none@s tank/b@s tank/@s"), "cannot open 'tank/none'");
        assert_eq!(asked(), [("tank".to_owned(), 3)]);
        assert_eq!(told("snapshot tank/a@s tank/@s tank/none@s"), "cannot open 'tank/': trailing slash in name");
        assert_eq!(told("snapshot tank/a@s other/b@s"), "cannot open 'other/b': dataset does not exist");
        assert_eq!(told("snapshot tank/a@s none tank/none@s"), "usage:");
        asked();
        assert_eq!(run(&words("list -H dozer/a dozer/b tank/a tank/b dozer/c")), (String::new(), 0));
        assert_eq!(asked(), [("dozer", 2), ("tank", 2), ("dozer", 1)].map(|(pool, count)| (pool.to_owned(), count)));
    }
}
