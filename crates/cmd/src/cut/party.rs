//! What takes the steps of a cut: the process of a pool here, or the helper of another host.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use base::Kind;
use protocol::client::{self, Connection};
use protocol::cut::{CUT_BYTES_MAX, CUT_PROPERTY, CutOrder, CutStage, CutStep, HostOrder, HostTold};
use protocol::datasets::{
    Cell, CellValue, ChangeRequest, DatasetRequest, DestroySnapshots, Response, Select, SnapshotRequest, Types,
};
use protocol::wire;

use crate::via;

/// How long a helper may take to end.
const END_TIME: Duration = Duration::from_secs(2);

/// One that takes the steps.
pub(super) struct Party {
    /// What it is called in messages.
    name: String,
    order: CutOrder,
    place: PartyPlace,
    told: Receiver<Result<CutStage, String>>,
    /// It has been told to take snapshots.
    may_have_taken: bool,
}

enum PartyPlace {
    Here { steps: Option<UnixStream> },
    There { via: String, child: Child, steps: Option<UnixStream> },
}

/// The pool that a dataset is in.
pub(super) fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@']).next().unwrap_or_default()
}

/// One for each pool of this host that is named.
pub(super) fn here(order: CutOrder) -> Vec<Party> {
    let of_pool = |name: &String| Party::here(CutOrder { names: vec![name.clone()], ..order.clone() });
    order.names.iter().map(of_pool).collect()
}

impl Party {
    fn here(order: CutOrder) -> Party {
        let pool = order.names.first().map(|name| pool_of(name).to_owned()).unwrap_or_default();
        let (tell, told) = mpsc::channel();
        let name = format!("pool '{pool}'");
        let steps = match UnixStream::pair() {
            Ok((steps, theirs)) => {
                let order = order.clone();
                std::thread::spawn(move || ask_pool(&pool, &order, &theirs, &tell));
                Some(steps)
            }
            Err(e) => {
                let _ = tell.send(Err(e.to_string()));
                None
            }
        };
        Party { name, order, place: PartyPlace::Here { steps }, told, may_have_taken: false }
    }

    /// The helper of the host that `via` reaches. Errors: it cannot be started.
    pub(super) fn there(via: &str, order: CutOrder) -> Result<Party, String> {
        let (mut child, steps) = start(via)?;
        let answers = child.stdout.take();
        let (tell, told) = mpsc::channel();
        let name = format!("host of '{via}'");
        let mut party = Party {
            name,
            order: order.clone(),
            place: PartyPlace::There { via: via.to_owned(), child, steps: Some(steps) },
            told,
            may_have_taken: false,
        };
        if let Some(mut answers) = answers {
            std::thread::spawn(move || read_host(&mut answers, &tell));
        }
        // what has ended already says why by what it answers
        let _ = party.write(|mut steps| wire::send(&mut steps, &HostOrder::Cut(order)));
        Ok(party)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn write(&mut self, message: impl FnOnce(&mut dyn Write) -> base::Result<()>) -> base::Result<()> {
        match &mut self.place {
            PartyPlace::Here { steps: Some(steps) } | PartyPlace::There { steps: Some(steps), .. } => message(steps),
            _ => Ok(()),
        }
    }

    /// Tells it the next step.
    pub(super) fn tell(&mut self, step: CutStep) {
        self.may_have_taken |= step == CutStep::Take;
        // one that is gone shows in its answer
        let _ = self.write(|mut steps| wire::send(&mut steps, &step));
    }

    /// What it has done. Errors: why it ends; that it does not answer until then.
    pub(super) fn answer(&mut self, until: Instant) -> Result<CutStage, String> {
        match self.told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Ok(stage)) => Ok(stage),
            Ok(Err(why)) => Err(format!("{}: {why}", self.name)),
            Err(RecvTimeoutError::Timeout) => Err(format!("{} does not answer in time", self.name)),
            Err(RecvTimeoutError::Disconnected) => Err(format!("{}: the connection has ended", self.name)),
        }
    }

    /// Has it let go, and destroy what it took.
    pub(super) fn let_go(&mut self) {
        match &mut self.place {
            PartyPlace::Here { steps } | PartyPlace::There { steps, .. } => drop(steps.take()),
        }
    }

    /// After [`Party::let_go`], waits until it has. Errors: what may be left.
    pub(super) fn ended(mut self, until: Instant) -> Result<(), String> {
        let is_gone = loop {
            match self.told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Ok(_)) => {}
                // that is how it ends when it is let go, and when its process died
                Ok(Err(_)) => {}
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        let undone = match (&self.place, self.may_have_taken) {
            (_, false) => Ok(()),
            (PartyPlace::Here { .. }, true) if is_gone => undo(&self.order),
            (PartyPlace::There { via, .. }, true) if is_gone => undo_there(via, &self.order, until),
            _ => Err("it does not answer".to_owned()),
        };
        self.end_child();
        undone.map_err(|why| format!("snapshots '{}' may be left: {why}", self.order.names.join("', '")))
    }

    fn end_child(&mut self) {
        let PartyPlace::There { child, steps, .. } = &mut self.place else { return };
        drop(steps.take());
        let began = Instant::now();
        while began.elapsed() < END_TIME {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // it has not ended by itself, and is not to outlive this command
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Asks the process of a pool, and tells what it does.
fn ask_pool(pool: &str, order: &CutOrder, steps: &UnixStream, tell: &Sender<Result<CutStage, String>>) {
    let tell_stage = |stage| {
        let _ = tell.send(Ok(stage));
    };
    let cut = |mut connection: Connection| connection.cut(order, steps.as_fd(), &mut |stage| tell_stage(stage));
    let outcome = match client::connect(pool) {
        Ok(Some(connection)) => cut(connection).map_err(|e| e.what().to_owned()),
        Ok(None) => Err("it is not imported".to_owned()),
        Err(e) => Err(e.what().to_owned()),
    };
    if let Err(why) = outcome {
        let _ = tell.send(Err(why));
    }
}

fn start(via: &str) -> Result<(Child, UnixStream), String> {
    via::start(via, "cut-hold")
}

/// Tells what a host's helper says.
fn read_host(answers: &mut impl std::io::Read, tell: &Sender<Result<CutStage, String>>) {
    loop {
        let told = match wire::receive::<HostTold>(answers, CUT_BYTES_MAX) {
            Ok(Some(HostTold::Stage(stage))) => Ok(stage),
            Ok(Some(HostTold::Failed(why))) => Err(why),
            Ok(None) => return,
            Err(e) => Err(format!("it answers something else than 'cenote cut-hold' does: {}", e.what())),
        };
        let is_end = told.is_err();
        if tell.send(told).is_err() || is_end {
            return;
        }
    }
}

/// Destroys what a cut left in the pools of this host. Errors: what cannot be destroyed.
pub(super) fn undo(order: &CutOrder) -> Result<(), String> {
    order.names.iter().try_for_each(|name| undo_one(name, order))
}

fn undo_one(name: &str, order: &CutOrder) -> Result<(), String> {
    let pool = pool_of(name);
    let mut connection = match client::connect(pool) {
        Ok(Some(connection)) => connection,
        Ok(None) => return Err(format!("pool '{pool}' is not imported")),
        Err(e) => return Err(e.what().to_owned()),
    };
    // one of that name that is not of this cut was there before, or came after
    if !is_of_cut(&mut connection, name, &order.id).map_err(|e| e.what().to_owned())? {
        return Ok(());
    }
    let (dataset, own) = name.split_once('@').unwrap_or((name, ""));
    let destroy = DestroySnapshots {
        dataset: dataset.to_owned(),
        spec: own.to_owned(),
        recursive: order.recursive,
        ..DestroySnapshots::default()
    };
    let change = ChangeRequest::Snapshots(SnapshotRequest::Destroy(destroy));
    match connection.zfs(&DatasetRequest::Change { change, history: None }) {
        Ok(Response::Changed { failures, .. }) => match failures.into_iter().next() {
            Some(failure) => Err(failure.line),
            None => Ok(()),
        },
        Ok(_) => Err(client::off_topic().what().to_owned()),
        Err(e) if e.kind() == Kind::NotFound => Ok(()),
        Err(e) => Err(e.what().to_owned()),
    }
}

/// Whether there is a snapshot of that cut.
fn is_of_cut(connection: &mut Connection, name: &str, id: &str) -> base::Result<bool> {
    let select = Select {
        roots: vec![name.to_owned()],
        root_types: Types::SNAPSHOTS,
        depth: Some(0),
        types: Types::SNAPSHOTS,
        user_properties: true,
        ..Select::default()
    };
    let Response::Datasets(found) = connection.zfs(&DatasetRequest::Datasets(select))? else {
        return Err(client::off_topic());
    };
    let is_set = |(property, cell): &(String, Cell)| {
        property == CUT_PROPERTY && matches!(&cell.value, CellValue::Text(text) if text == id)
    };
    Ok(found.rows.iter().any(|row| row.user.iter().any(is_set)))
}

/// The same on another host.
fn undo_there(via: &str, order: &CutOrder, until: Instant) -> Result<(), String> {
    let (mut child, mut steps) = start(via)?;
    // what cannot be written shows in the answer
    let _ = wire::send(&mut steps, &HostOrder::Undo(order.clone()));
    drop(steps);
    let (tell, told) = mpsc::channel();
    if let Some(mut answers) = child.stdout.take() {
        std::thread::spawn(move || read_host(&mut answers, &tell));
    }
    let left = until.saturating_duration_since(Instant::now()).max(END_TIME);
    let outcome = match told.recv_timeout(left) {
        Ok(told) => told.map(drop),
        Err(_) => Err("it does not answer".to_owned()),
    };
    let _ = child.kill();
    let _ = child.wait();
    outcome
}
