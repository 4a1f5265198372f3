//! What is found when a case is over.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base::Env;
use device::Device;
use dmu::Mode;
use pool::Pool;
use pool::check::{CheckOptions, Observer, Verify};
use testkit::survey::{self, Survey};
use zpl::{FileKind, Zpl};

use super::base_pools::{BasePool, WITNESS};
use super::finding::{CaseOutcome, Finding, Reach};

/// Where pools are imported, as far as the plan of mounts goes.
const ROOT: &str = "/fuzz-root";
/// File systems and folders that are looked at.
const SETS_MAX: usize = 12;
const DIRS_MAX: usize = 30;

/// Nobody listens.
struct Deaf;
impl Observer for Deaf {}

pub(super) fn judge(env: &Env, base: &BasePool, devices: &[Arc<dyn Device>], reach: Reach, outcome: &mut CaseOutcome) {
    let mut wrong = |key: &str, what: String| outcome.findings.push(Finding::new(key, what));
    let pool = match survey::open(devices, env) {
        Ok(pool) => pool,
        Err(error) => {
            if reach < Reach::Anything {
                wrong("a whole pool cannot be opened any more", error.to_string());
            }
            return;
        }
    };
    match cmd::fuzzing::mountpoints(&pool, ROOT) {
        Ok(plan) => {
            for (dataset, point) in &plan {
                let link = link_on_the_way(&pool, &plan, point);
                if (link.is_none() && is_beneath(point)) || mounted_outside(dataset, point, link.as_deref()).is_none() {
                    continue;
                }
                let is_named_so = dataset.split('/').any(|part| matches!(part, "" | "." | ".."));
                let key = match link {
                    Some(_) => "a mount through a symbolic link",
                    None if is_named_so => "a dataset whose name leads outside of the root",
                    None => "a mountpoint outside of the root",
                };
                wrong(key, format!("{dataset} at {} {link:?}", point.display()));
            }
        }
        Err(error) if reach == Reach::Nothing => wrong("no plan of mounts", error.to_string()),
        Err(_) => {}
    }
    for (key, what) in listed(&pool) {
        wrong(key, what);
    }
    told_of_the_pool(&pool);
    let options = CheckOptions { verify: Verify::Metadata, space: true };
    match pool.check(options, &mut Deaf) {
        Ok(report) if reach < Reach::Anything && base.is_writable => {
            if !report.leaks.is_empty() || report.unallocated_blocks > 0 {
                let what = format!("{:?}, {} not allocated", report.leaks, report.unallocated_blocks);
                wrong("space maps are wrong", what);
            }
            if !report.lost_blocks.is_empty() || report.damaged_blocks > 0 || report.lost_parts > 0 {
                wrong("blocks are lost", format!("{:?} {}", report.lost_blocks, report.lost_parts));
            }
        }
        Err(error) if reach < Reach::Anything => wrong("no check", error.to_string()),
        _ => {}
    }
    if reach < Reach::Anything {
        let now = Survey::of_those(&pool, &|dataset| dataset == WITNESS);
        if let Some((what, _)) =
            base.truth.found.iter().find(|(what, was)| !what.starts_with("tree") && now.found.get(*what) != Some(was))
        {
            wrong("an untouched dataset is damaged", format!("{what}: {:?}", now.found.get(what)));
        }
    }
}

/// What commands would show beside files: that it ends is enough.
fn told_of_the_pool(pool: &Pool) {
    let _ = (pool.history().is_ok(), pool.damaged_objects().is_ok(), pool.dedup().is_ok(), pool.clones().is_ok());
    let _ = (pool.space().is_ok(), pool.status().is_ok());
    let dsl = pool.dsl();
    for dir in dsl.walk().unwrap_or_default().iter().take(SETS_MAX) {
        let _ = dsl.levels(dir).map(|levels| levels.user_properties());
        if let Ok(head) = dsl.head(dir) {
            let _ = (dsl.snapshots(&head).is_ok(), dsl.bookmarks(&head).is_ok(), dsl.resume_token(dir, &head).is_ok());
        }
    }
}

fn is_beneath(point: &Path) -> bool {
    let mut parts = point.components();
    point.starts_with(ROOT) && parts.all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// The symbolic link that lies on the way to a mountpoint, in the file system that is mounted above it.
fn link_on_the_way(pool: &Pool, plan: &[(String, PathBuf)], point: &Path) -> Option<PathBuf> {
    let is_above = |(_, above): &&(String, PathBuf)| point != above && point.starts_with(above);
    let (above, at) = plan.iter().filter(is_above).max_by_key(|(_, above)| above.components().count())?;
    let dataset = pool.dsl().find(above).ok()?;
    let zpl = Zpl::open(pool.dsl().objset(&dataset, Mode::Plain).ok()?).ok()?;
    let (mut folder, mut way) = (zpl.root(), at.clone());
    for part in point.strip_prefix(at).ok()?.components() {
        way.push(part);
        folder = zpl.lookup(folder, part.as_os_str().as_bytes()).ok()?;
        if zpl.stat(folder).ok()?.kind == FileKind::Symlink {
            return Some(way);
        }
    }
    None
}

/// Where it would be mounted that is outside of the root, if a link on the way led there.
fn mounted_outside(dataset: &str, point: &Path, link: Option<&Path>) -> Option<PathBuf> {
    let top = std::env::temp_dir().join(format!("fuzz-pools-{}", std::process::id()));
    // deep enough for every `..` that there may be
    let (root, victim) = (top.join("1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/root"), top.join("victim"));
    let inside = |path: &Path| Some(PathBuf::from(format!("{}{}", root.display(), path.to_str()?.strip_prefix(ROOT)?)));
    let tried = || {
        std::fs::create_dir_all(&root).ok()?;
        match link {
            Some(link) => {
                std::fs::create_dir_all(victim.join(point.strip_prefix(link).ok()?)).ok()?;
                std::fs::create_dir_all(inside(link)?.parent()?).ok()?;
                std::os::unix::fs::symlink(&victim, inside(link)?).ok()?;
            }
            None => std::fs::create_dir_all(inside(point)?).ok()?,
        }
        cmd::fuzzing::folder_to_mount_at(dataset, &root, &inside(point)?).ok()
    };
    let folder = tried();
    let _ = std::fs::remove_dir_all(&top);
    folder.filter(|folder| !folder.starts_with(&root))
}

/// What a copy of each folder would make: no name twice, and none that leads elsewhere.
fn listed(pool: &Pool) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let heads = pool.dsl().walk().unwrap_or_default();
    for dir in heads.iter().take(SETS_MAX) {
        let objset = pool.dsl().head(dir).and_then(|head| pool.dsl().objset(&head, Mode::Plain));
        let Ok(zpl) = objset.and_then(Zpl::open) else { continue };
        let mut pending = vec![zpl.root()];
        let mut seen = 0;
        while let Some(folder) = pending.pop().filter(|_| seen < DIRS_MAX) {
            seen += 1;
            let (mut names, _) = cmd::fuzzing::names_copied(&zpl, folder);
            for name in &names {
                if matches!(&name[..], b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
                    wrong.push(("a name that leads elsewhere", format!("{}: {}", dir.name, name.escape_ascii())));
                }
                if let Ok(ino) = zpl.lookup(folder, name)
                    && zpl.stat(ino).is_ok_and(|stat| stat.kind == FileKind::Directory)
                {
                    pending.push(ino);
                }
            }
            names.sort();
            if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                wrong.push(("a name twice in a folder", format!("{}: {}", dir.name, pair[0].escape_ascii())));
            }
        }
    }
    wrong
}
