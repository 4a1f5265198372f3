//! Whether a pool is this host's own.

use std::sync::Arc;

use base::{Error, Result};
use format::uberblock::Uberblock;
use pool::Pool;
use protocol::startup::Notify;

use crate::host_rule::{HostRule, root_of};
use crate::host_state::{HostState, PoolIdentity};
use crate::import::ImportOptions;
use crate::import::acquire::Acquired;

type StateFolder = Result<Arc<HostState>>;

/// What counts as set here, of a pool that has been opened: all of it if the host remembers it, and no other had it
/// meanwhile, or if the user takes it in. If not, the user is told how to.
pub(super) fn of_imported(
    state: &StateFolder,
    acquired: &Acquired,
    options: &ImportOptions,
    notify: &Notify,
) -> HostRule {
    let view = acquired.pool.view();
    if options.adopt {
        return take_in(state, &view, notify);
    }
    let (rule, why) = match known(state, &view) {
        Ok((state, pool)) => {
            let is_known = state.is_own(&pool);
            if is_known && acquired.was_here_last {
                return HostRule::of(true, state, &pool);
            }
            // what another host has put there stays there
            if is_known && let Err(error) = state.forget(pool.guid) {
                tracing::warn!("it stays on the list of this host's pools: {error}");
            }
            let why = match is_known {
                true => "another host had it meanwhile",
                // as of every pool that an older version had here
                false if acquired.was_here_last => {
                    "it is not on the list of this host's own pools, which older versions did not keep"
                }
                false => "it is not on the list of this host's own pools",
            };
            (HostRule::of(false, state, &pool), why.to_owned())
        }
        Err(error) => (HostRule::plain(false), error.what().to_owned()),
    };
    let name = view.name();
    tracing::warn!(pool = name, why, "it is taken for a stranger's");
    // below another folder, and without mounts, all is as it was asked for; what is mounted at boot comes from a cache file
    let is_for_now = options.no_mount && options.cachefile.is_none();
    if !is_for_now && options.altroot().is_none_or(|root| root == "/") {
        notify.err(&format!(
            "pool '{name}' is taken for a stranger's, as {why}: its set-id bits, devices, and properties that give \
             something out do not count; if it is yours, export it, and 'zpool import --adopt {name}' takes it in"
        ));
    }
    rule
}

/// A pool is about to be written of which this is the newest root: whether it is as this host left it, if it is the host's
/// own. From now on it is in use.
pub(super) fn begin_use(state: &StateFolder, view: &Pool, newest: &Uberblock) -> bool {
    let Ok((state, pool)) = known(state, view) else { return true };
    if !state.is_own(&pool) {
        return true;
    }
    let is_as_left = state.is_as_left(&pool, &root_of(newest));
    if is_as_left && let Err(error) = state.take_in(&pool) {
        let name = view.name();
        tracing::warn!(pool = name, "it may be taken for a stranger's when it is imported again: {error}");
    }
    is_as_left
}

/// Makes a pool this host's own. That it cannot be is told, and keeps nobody from using it.
pub(super) fn take_in(state: &StateFolder, view: &Pool, notify: &Notify) -> HostRule {
    let taken = known(state, view).and_then(|(state, pool)| state.take_in(&pool).map(|()| (state, pool)));
    match taken {
        Ok((state, pool)) => HostRule::of(true, state, &pool),
        Err(error) => {
            let name = view.name();
            notify.err(&format!("pool '{name}' will be taken for a stranger's when it is imported: {}", error.what()));
            HostRule::plain(true)
        }
    }
}

/// What is remembered, and by what of the pool. Errors: there is no such folder; those of reading the pool.
fn known(state: &StateFolder, view: &Pool) -> Result<(Arc<HostState>, PoolIdentity)> {
    let state = state.as_ref().map_err(|error| Error::new(error.kind(), error.what().to_owned()))?;
    Ok((state.clone(), PoolIdentity { guid: view.guid(), hidden: view.dsl().hidden_numbers()? }))
}
