//! Being the process of a pool: from a request to import or make it, until it ends.

mod memory;
mod own;
mod stand_in;

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::process::{ChildStdin, ExitCode};
use std::sync::{Arc, mpsc};

use base::{Env, Mutex};
use format::ids::Guid;
use format::uberblock::Uberblock;
use fuse::{Helper, Inheritance, InheritedMount, KeptFiles};
use nix::sys::signal::SigSet;
use pool::{GROUPS_UNDER_WAY, LivePool, Pool};
use protocol::create::CreateRequest;
use protocol::datasets::{DatasetRequest, MountRequest, Response};
use protocol::rundir::{RunDir, RunDirClaim};
use protocol::startup::Notify;
use protocol::{kstat, wire};
use zil::MemoryLog;

use crate::host_state::HostState;
use crate::import::{ImportOptions, acquire};
use crate::listen_helper::ListenHelper;
use crate::live::{self, ServedPool};
use crate::locks::DeviceLocks;
use crate::mount_helper::{self, ENDING};
use crate::mount_plan::MountBounds;
use crate::network_door::NetworkAccess;
use crate::process_end::ProcessEnd;
use crate::report::ProcessFacts;
use crate::revival::Revival;
use crate::served::Served;
use crate::verbs::Host;
use crate::volume_exports::VolumeExports;
use crate::volume_losses::VolumeLosses;
use crate::{confine, descriptors, leftovers, listen_helper, log, panics, revival, server, told, verbs, zedlets};

pub use stand_in::stand_in;

/// Imports a pool, and is its process. With `is_started`, `zpool import` has started it and listens; otherwise a person
/// sees what it says.
pub fn import(options: &ImportOptions, is_started: bool) -> ExitCode {
    let first = || Ok(((), Lasting::of(options)));
    be(Notify::new(is_started), mount_helper_of_its_own, first, |ready, ()| import_and_serve(options, ready))
}

/// Is the process of a pool whose process died, and serves the mounts of that: `begin` and `pool` are what it left with its
/// keeper, which is at standard input.
pub fn revive(begin: &str, pool: &str) -> ExitCode {
    let Some(options) = revival::import_of(begin, pool) else {
        eprintln!("cenote serve --revive: started by the keeper of a pool, not by hand");
        return ExitCode::FAILURE;
    };
    let inherited = || Helper::inherited(std::io::stdin().as_fd().try_clone_to_owned()?);
    let first = || Ok(((), Lasting::of(&options)));
    be(Notify::unheard(), inherited, first, |ready, ()| import_and_serve(&options, ready))
}

fn mount_helper_of_its_own() -> base::Result<(Helper, Inheritance)> {
    Ok((mount_helper::started()?, Inheritance::default()))
}

fn import_and_serve(options: &ImportOptions, ready: &Ready<'_>) -> Result<(), String> {
    let env = environment();
    let lock = ready.inheritance.lock().claim.take().map(File::from);
    let begin_use = |pool: &Pool, newest: &Uberblock| {
        let left = ready.inheritance.lock().memory.take();
        *ready.memory.lock() = left.and_then(|file| memory::take_over(file, newest));
        own::begin_use(&ready.state, pool, newest)
    };
    let Some(acquired) = acquire::acquire(&env, options, ready.notify, lock, &begin_use)? else {
        return ready.notify.ready().map_err(|e| e.to_string());
    };
    let mounts = Mounting { is_wanted: !options.no_mount, options: options.mount_options.as_deref(), verb: "import" };
    let rule = own::of_imported(&ready.state, &acquired, options, ready.notify);
    let bounds = MountBounds::new(options.altroot(), rule, options.mount_options.as_deref());
    let places = HostPlaces { bounds, cachefile: options.cachefile_property(), is_temporary: options.temporary };
    serve(env, acquired.pool, (acquired.locks, acquired.claim), &places, &mounts, ready)
}

/// Makes the pool that is described on standard input, and is its process.
pub fn create(is_started: bool) -> ExitCode {
    let read_request = || {
        let request: CreateRequest = serde_json::from_reader(std::io::stdin().lock().take(REQUEST_BYTES_MAX))
            .map_err(|e| format!("cannot create: standard input describes no pool: {e}"))?;
        let cachefile = request.pool.properties.iter().find(|(name, _)| name == "cachefile");
        let cachefile = cachefile.map(|(_, file)| file.clone());
        let begin = revival::begin(&as_import(&request));
        Ok((request, Lasting { cachefile, begin }))
    };
    be(Notify::new(is_started), mount_helper_of_its_own, read_request, |ready, request| {
        let (env, new) = (environment(), &request.pool);
        let failed = |why: &str| format!("cannot create '{}': {why}", new.name);
        let name = new.temporary_name.as_deref().unwrap_or(&new.name);
        let claim = listen_helper::claim(name, None).map_err(|e| failed(e.what()))?;
        VolumeExports::check_new(&new.fs_properties).map_err(|e| failed(e.what()))?;
        let (pool, locks) = live::create(&env, new).map_err(|why| failed(&why))?;
        let mounts = Mounting { is_wanted: true, options: None, verb: "create" };
        let cachefile = new.properties.iter().find(|(name, _)| name == "cachefile").map(|(_, file)| file.as_str());
        // nobody else has put anything there
        let rule = own::take_in(&ready.state, &pool.view(), ready.notify);
        let bounds = MountBounds::new(request.altroot.as_deref(), rule, None);
        let bounds = MountBounds { setuid: true, devices: true, ..bounds };
        let places = HostPlaces { bounds, cachefile, is_temporary: new.temporary_name.is_some() };
        serve(env, pool, (locks, claim), &places, &mounts, ready)
    })
}

/// How a pool that is just made is imported later.
fn as_import(request: &CreateRequest) -> ImportOptions {
    let altroot = request.altroot.iter().map(|root| ("altroot".to_owned(), root.clone()));
    ImportOptions {
        props: request.pool.properties.iter().cloned().chain(altroot).collect(),
        temporary: request.pool.temporary_name.is_some(),
        ..ImportOptions::default()
    }
}

/// The real environment. In a debug build, `CENOTE_FAIL=THREAD/PLACE/N` makes it fail when threads with names that
/// begin so pass that failpoint for the Nth time, counted from 1.
fn environment() -> Env {
    let env = Env::real();
    #[cfg(debug_assertions)]
    if let Ok(wish) = std::env::var("CENOTE_FAIL")
        && let [thread, place, n] = wish.split('/').collect::<Vec<_>>()[..]
        && let Ok(n) = n.parse::<u64>()
    {
        use std::sync::atomic::{AtomicU64, Ordering};
        let (thread, wanted, passed) = (thread.to_owned(), place.to_owned(), AtomicU64::new(0));
        return env.with_failpoints(move |place| {
            let is_meant =
                place == wanted && std::thread::current().name().is_some_and(|name| name.starts_with(&thread));
            is_meant && passed.fetch_add(1, Ordering::Relaxed) + 1 == n
        });
    }
    env
}

/// Longest description of a new pool, in bytes.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// What makes a process ready to be a pool's.
struct Ready<'a> {
    notify: &'a Notify,
    /// Those that end it in order; they are blocked.
    signals: SigSet,
    helper: Helper,
    /// Where events go, if there are scripts for them.
    zedlets: Mutex<Option<ChildStdin>>,
    listen_helper: Mutex<Option<ListenHelper>>,
    /// What this host knows of pools, or why nothing.
    state: base::Result<Arc<HostState>>,
    /// What a process before left.
    inheritance: Mutex<Inheritance>,
    /// Its log in memory, once that was taken over.
    memory: Mutex<Option<MemoryLog>>,
}

/// What holds on this host as long as the pool is in use.
struct Lasting {
    /// The cache file that may be made.
    cachefile: Option<String>,
    /// As [`revival::begin`] has it.
    begin: String,
}

impl Lasting {
    fn of(options: &ImportOptions) -> Lasting {
        let cachefile = options.cachefile_property().map(str::to_owned);
        Lasting { cachefile, begin: revival::begin(options) }
    }
}

/// Runs `main` in a process that is ready for it, with what `first` gives while the process is not confined yet.
fn be<T>(
    notify: Notify,
    helper: impl FnOnce() -> base::Result<(Helper, Inheritance)>,
    first: impl FnOnce() -> Result<(T, Lasting), String>,
    main: impl FnOnce(&Ready<'_>, T) -> Result<(), String>,
) -> ExitCode {
    notify.detach();
    log::start(notify.is_for_programs());
    descriptors::raise_limit();
    // threads inherit this, so that the one thread that waits for signals gets them
    let signals = SigSet::from_iter(ENDING);
    if let Err(e) = signals.thread_block() {
        tracing::warn!("signals end the process at once: {e}");
    }
    // before any other thread is there
    let helper = helper().map_err(|e| e.to_string());
    let zedlets = Mutex::new(zedlets::started());
    let confined = helper.and_then(|(helper, inheritance)| {
        pool::check_memory().map_err(|e| e.to_string())?;
        let (given, lasting) = first()?;
        helper.begin_revival(&lasting.begin).map_err(|e| e.to_string())?;
        let listen_helper = ListenHelper::started(lasting.cachefile.as_deref());
        listen_helper.serve_process();
        let state = HostState::open().map(Arc::new);
        // where there is none, what needs it says why
        let run = RunDir::make().ok();
        let written = run.as_ref().map(RunDir::path).into_iter().chain(state.iter().map(|state| state.folder()));
        confine::confine(&written.collect::<Vec<_>>())?;
        Ok((helper, given, Mutex::new(Some(listen_helper)), (state, Mutex::new(inheritance))))
    });
    let done = confined.and_then(|(helper, given, listen_helper, (state, inheritance))| {
        let memory = Mutex::default();
        main(&Ready { notify: &notify, signals, helper, zedlets, listen_helper, state, inheritance, memory }, given)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            notify.err(&text);
            notify.failed();
            ExitCode::FAILURE
        }
    }
}

/// Where on this machine things are.
struct HostPlaces<'a> {
    /// Where file systems are mounted.
    bounds: MountBounds,
    /// Property `cachefile`.
    cachefile: Option<&'a str>,
    /// It has a name that its labels do not have.
    is_temporary: bool,
}

/// What is mounted at once.
#[derive(Clone, Copy)]
struct Mounting<'a> {
    /// Whether anything is.
    is_wanted: bool,
    /// Mount options, with commas.
    options: Option<&'a str>,
    /// What is being done, for messages.
    verb: &'static str,
}

/// Is the process, until it ends. Errors: why it is none, for the user.
fn serve(
    env: Env,
    pool: ServedPool,
    (locks, mut claim): (DeviceLocks, RunDirClaim),
    places: &HostPlaces<'_>,
    mounts: &Mounting<'_>,
    ready: &Ready<'_>,
) -> Result<(), String> {
    let Ready { notify, signals, helper, .. } = ready;
    let (name, guid) = (pool.view().name().to_owned(), pool.view().guid());
    panics::in_pool(&name);
    let failed = |e: base::Error| format!("cannot {} '{name}': {}", mounts.verb, e.what());
    descriptors::check_room(0).map_err(failed)?;
    let kept = ready.inheritance.lock().listener.take();
    let listener = listen_helper::listen(&mut claim, kept).map_err(failed)?;
    let dir = claim.dir();
    notify.log_to(&dir.log(&name).map_err(failed)?, &dir.log_of(&name)).map_err(failed)?;
    log::begin();
    let kept = kept_files(&claim, &listener).map_err(failed)?;
    let revival = Revival::new(helper.clone(), kept, places.is_temporary);

    let taken = ready.memory.lock().take();
    let memory = memory::begin(&pool, taken, helper, &env);
    pass_lost_groups(&pool, &ready.inheritance.lock().mounts).map_err(failed)?;
    let (end, ended) = mpsc::channel();
    let session = facts_of(&pool, places, &env);
    let hello = hello(&name, guid);
    let listen_helper = ready.listen_helper.lock().take().unwrap_or_default();
    let before = ready.inheritance.lock().volumes.take();
    let (had_volumes, losses) = (before.is_some(), VolumeLosses::new(helper.clone(), before));
    let helpers = (helper.clone(), Arc::new(NetworkAccess::new(listen_helper, places.bounds.rule.clone())), losses);
    let watched = pool.live().ok().cloned();
    let served = Arc::new(Served::new(env, pool, locks, session, helpers, dir.path(), end.clone()));
    let failed_file = places.cachefile.and_then(|file| served.begin_cachefile(file).err());
    failed_file.iter().for_each(|e| notify.err(e.what()));
    give_out(&served, &name, mounts, (ready, had_volumes), memory.as_deref()).map_err(failed)?;
    // not before: a program that cannot do all this is not started again
    served.keep_revival(revival);
    let counters = Arc::new(Mutex::new(counter_files(&served, dir, &name)));
    let (waiting, answering, signals) = (served.clone(), served.clone(), *signals);
    let (counted, written) = (served.clone(), counters.clone());
    let begun = || {
        spawn("accept", move || server::listen(&listener, &answering, &hello))?;
        spawn("signals", move || {
            let waited = signals.wait();
            tracing::info!("ends because of a signal: {waited:?}");
            // the main thread may be ending already
            let _ = end.send(ProcessEnd::Signal);
        })?;
        if waiting.is_writable() {
            // it may be suspended when somebody asks for the first time
            spawn("report", move || drop(waiting.report()))?;
        }
        begin_scripts(&counted, ready)?;
        begin_watching(watched.clone(), move || write_counters(&counted, watched.as_deref(), &written))?;
        notify.ready()
    };
    let begun = begun().map_err(failed);
    let why = match begun {
        Ok(()) => {
            tracing::info!(pool = name, "imported");
            ended.recv().unwrap_or(ProcessEnd::Signal)
        }
        Err(_) => ProcessEnd::Signal,
    };
    // nobody writes them any more
    drop(counters.lock().take());
    finish(&served, why, claim);
    begun
}

/// What is told of this process.
fn facts_of(pool: &ServedPool, places: &HostPlaces<'_>, env: &Env) -> ProcessFacts {
    ProcessFacts {
        load_guid: Guid::new(env.random()),
        bounds: places.bounds.clone(),
        is_writable: pool.is_writable(),
        opened_s: env.now_s(),
    }
}

/// What the next process has of this one, beside its mounts.
fn kept_files(claim: &RunDirClaim, listener: &UnixListener) -> base::Result<KeptFiles> {
    let (listener, log) = (listener.as_fd().try_clone_to_owned()?, std::io::stderr().as_fd().try_clone_to_owned()?);
    Ok(KeptFiles { claim: claim.lock()?, listener, log })
}

/// What a client is told first.
fn hello(name: &str, guid: Guid) -> wire::Hello {
    wire::Hello { protocol: wire::PROTOCOL, pool: name.to_owned(), guid, pid: std::process::id(), ..Default::default() }
}

/// Starts the threads that look after the pool, and tell of it.
fn begin_watching(pool: Option<Arc<LivePool>>, counting: impl FnOnce() + Send + 'static) -> base::Result<()> {
    if let Some(pool) = pool {
        spawn("deadman", move || pool.watch_for_hangs())?;
    }
    spawn("kstat", counting)
}

/// Serves what is to be served at once: the mounts of the process before, or file systems, if that is wanted; and volumes.
/// `had_volumes`: there was a process before, and programs may have used volumes of its; `left` is its log in memory. Errors: it
/// cannot be found out what is mounted.
fn give_out(
    served: &Served,
    name: &str,
    mounts: &Mounting<'_>,
    (ready, had_volumes): (&Ready<'_>, bool),
    left: Option<&MemoryLog>,
) -> base::Result<()> {
    let inherited = std::mem::take(&mut ready.inheritance.lock().mounts);
    let is_new = inherited.is_empty() && !had_volumes;
    served.adopt(inherited);
    served.take_up_volumes(left);
    // those of the process before that nobody kept
    let were_dead = leftovers::clear_mounts(&ready.helper, name)? > 0;
    served.destroy_leftovers();
    if mounts.is_wanted && (is_new || were_dead) {
        mount_all(served, mounts, ready.notify);
    }
    served.give_out_volumes();
    Ok(())
}

/// Begins behind the groups that the process before had under way, if files were made in them: the kernel knows such a file by
/// its number and, as its generation, the number of that group, so a new file must not have both.
fn pass_lost_groups(pool: &ServedPool, inherited: &[InheritedMount]) -> base::Result<()> {
    if inherited.iter().any(InheritedMount::may_have_lost_files) {
        for _ in 0..GROUPS_UNDER_WAY {
            pool.sync(true)?;
        }
    }
    Ok(())
}

/// Mounts what an import mounts; what cannot be is told, and is no reason not to import.
fn mount_all(served: &Served, mounts: &Mounting<'_>, notify: &Notify) {
    let options = mounts.options.map_or(Vec::new(), |list| list.split(',').map(str::to_owned).collect());
    let request = DatasetRequest::Mount(MountRequest { options, ..MountRequest::default() });
    let (failures, notes) = match verbs::answer(served, &request, Vec::new(), &mut |_| Ok(())) {
        Ok(Response::Done { failures, notes }) => (failures.into_iter().map(|failure| failure.line).collect(), notes),
        Ok(_) => (Vec::new(), Vec::new()),
        Err(e) => (vec![format!("cannot mount: {e}")], Vec::new()),
    };
    notes.iter().chain(&failures).for_each(|line| notify.err(line));
    // a process that takes over is heard by its log alone
    failures.iter().for_each(|line| tracing::warn!("{line}"));
    if !failures.is_empty() && mounts.verb == "import" {
        notify.err("Import was successful, but unable to mount some datasets");
    }
}

/// The files of counters and of tunables, written for the first time.
fn counter_files(served: &Served, dir: &RunDir, name: &str) -> Option<kstat::KstatFiles> {
    let made = kstat::KstatFiles::new(dir.path(), name).and_then(|mut files| {
        files.write_tunables(served.tunables())?;
        // they are there when the import ends
        let [own, shared] = served.kstats();
        files.write(&own, &shared, served.now_ns())?;
        Ok(files)
    });
    made.inspect_err(|e| tracing::warn!("no counters are written: {e}")).ok()
}

/// Writes counters to files until these are gone, the less often the less is done. While nothing is done, memory is given back.
fn write_counters(served: &Served, live: Option<&LivePool>, files: &Mutex<Option<kstat::KstatFiles>>) {
    loop {
        // before they are locked: the pool may keep it waiting
        let [own, shared] = served.kstats();
        let was_used = {
            let mut files = files.lock();
            let Some(files) = &mut *files else { return };
            let written = files.write(&own, &shared, served.now_ns());
            let tunables = files.write_tunables(served.tunables());
            if tunables.as_ref().is_ok_and(|are_new| *are_new) {
                served.follow_tunables();
            }
            written.and_then(|was_used| tunables.map(|_| was_used)).unwrap_or_else(|e| {
                tracing::debug!("counters are not written: {e}");
                false
            })
        };
        if !was_used {
            live.iter().for_each(|live| live.trim_memory());
        }
        std::thread::sleep(if was_used { kstat::PERIOD } else { kstat::QUIET_PERIOD });
    }
}

/// Has scripts run for what happens to the pool, if there are any.
fn begin_scripts(served: &Served, ready: &Ready<'_>) -> base::Result<()> {
    match (ready.zedlets.lock().take(), served.events()) {
        (Some(helper), Some(events)) => spawn("zedlets", move || zedlets::feed(&events, helper)),
        _ => Ok(()),
    }
}

fn spawn(name: &str, task: impl FnOnce() + Send + 'static) -> base::Result<()> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(task);
    spawned.map(drop).map_err(|e| base::Error::new(base::Kind::Io, format!("the system gives no more threads: {e}")))
}

/// Stops all exports, if need be by force, and gives up the pool's place.
fn finish(served: &Served, why: ProcessEnd, claim: RunDirClaim) {
    if why == ProcessEnd::HandedOver {
        tracing::info!("hands over to another process");
        served.events().iter().for_each(|events| told::keep(events, &claim));
        // with mounts, locks and the claim as they are: the next process has them
        std::process::exit(0);
    }
    served.end_revival();
    if why == ProcessEnd::Signal {
        served.abandon_if_suspended();
    }
    if why == ProcessEnd::Signal
        && let Err((place, e)) = served.exports().stop_all(false)
    {
        tracing::warn!(place, "stopped by force: {e}");
        if let Err((place, e)) = served.exports().stop_all(true) {
            tracing::error!(place, "not stopped: {e}");
        }
    }
    if why == ProcessEnd::Signal
        && let Err(e) = served.close()
    {
        tracing::error!("the last changes are lost: {e}");
    }
    served.events().iter().for_each(|events| told::keep(events, &claim));
    // in this order: a process that waits for the pool's place may open the devices next
    served.release_devices();
    drop(claim);
    tracing::info!("ended");
}
