//! The requests of one client.
//!
//! Answers go out in the order in which requests are done, and outside of the gate: a client that does not take them
//! keeps nothing from being frozen. What fails as the pool is suspended is parked, and keeps no thread; a thread of the
//! connection sends its answers later.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::Arc;

use base::{Env, Error, Kind, Mutex, Result};
use export::{ClientCounters, DataBudget, DataGrant, Gate, LateAnswers, Parking, ServedConnection};

use crate::commands;
use crate::handshake::{ALLOCATION_ID, Agreed};
use crate::reply::{self, NbdAnswer};
use crate::stream::ClientStream;
use crate::wire::{DATA_BYTES_MAX, NbdCommand, NbdRequest, REQUEST_HEAD_BYTES_MAX, errno};

/// Memory that each request counts for at least.
const REQUEST_BYTES: u64 = 4096;

/// A client that has chosen its disk.
pub(crate) struct NbdConnection {
    env: Env,
    agreed: Agreed,
    gate: Arc<Gate>,
    parking: Arc<Parking>,
    budget: Arc<DataBudget>,
    counters: Arc<ClientCounters>,
    stream: ClientStream,
    /// Locked by what takes a request, as `outgoing` is by what sends an answer.
    incoming: Mutex<ClientState>,
    outgoing: Mutex<()>,
    /// Answers to what was parked.
    late: LateAnswers<(Arc<TakenRequest>, NbdAnswer)>,
}

/// Whether more is to be done for a client.
#[derive(Default, PartialEq, Eq)]
enum ClientState {
    #[default]
    Asks,
    /// It has said that it leaves: what stands behind that is not done.
    HasLeft,
}

/// A request with its data.
pub(crate) struct TakenRequest {
    request: NbdRequest,
    data: Vec<u8>,
    _grant: DataGrant,
}

impl NbdConnection {
    /// Errors: those of the connection.
    pub(crate) fn new(
        env: Env,
        stream: ClientStream,
        agreed: Agreed,
        (gate, parking, budget, counters): (Arc<Gate>, Arc<Parking>, Arc<DataBudget>, Arc<ClientCounters>),
    ) -> Result<Arc<NbdConnection>> {
        stream.set_write_timeout(None)?;
        let (incoming, outgoing, late) = (Mutex::default(), Mutex::default(), LateAnswers::default());
        Ok(Arc::new(NbdConnection { env, agreed, gate, parking, budget, counters, stream, incoming, outgoing, late }))
    }

    /// Serves the client until it leaves, and all that it asked for is done.
    pub(crate) fn run(self: &Arc<Self>) {
        export::serve(&self.env, "nbd-request", self);
    }

    /// The next request; `None` if the client leaves. Errors: `Corrupt`; those of the connection.
    fn receive(&self) -> Result<Option<TakenRequest>> {
        let mut state = self.incoming.lock();
        if *state == ClientState::HasLeft {
            return Ok(None);
        }
        let mut incoming = &self.stream;
        let mut head = [0; REQUEST_HEAD_BYTES_MAX];
        let head = &mut head[..self.agreed.framing.request_head_bytes()];
        match incoming.read_exact(head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let request = NbdRequest::parse(head, self.agreed.framing)?;
        if request.command == NbdCommand::Disconnect {
            // what stands behind it, and was received already, is not done; other threads see the end of the stream
            *state = ClientState::HasLeft;
            let _ = self.stream.shutdown(Shutdown::Read);
            return Ok(None);
        }
        if request.data_len > DATA_BYTES_MAX.into() {
            return Err(Error::corrupt(format!("a request with {} bytes", request.data_len)));
        }
        let memory =
            if request.command == NbdCommand::Read { request.len.min(DATA_BYTES_MAX.into()) } else { request.data_len };
        let grant = self.budget.take(memory.max(REQUEST_BYTES));
        let mut data = vec![0; request.data_len as usize];
        incoming.read_exact(&mut data)?;
        Ok(Some(TakenRequest { request, data, _grant: grant }))
    }

    fn answer(self: &Arc<Self>, taken: TakenRequest) {
        match taken.request.command {
            NbdCommand::Read => self.counters.read(taken.request.len),
            NbdCommand::Write => self.counters.write(taken.request.data_len),
            _ => self.counters.other(),
        }
        let taken = Arc::new(taken);
        let passage = self.gate.pass();
        match self.perform(&taken) {
            Err(error) if error.kind() == Kind::Suspended => {
                let (again, this) = (taken.clone(), self.clone());
                let work = move |connection: &NbdConnection| connection.perform(&again);
                self.parking.park(self, work, move |_, done| this.send_later(taken, answer_of(done)));
            }
            done => {
                drop(passage);
                self.send(&taken.request, &answer_of(done));
            }
        }
    }

    /// Errors: `Suspended`: it is to be done again.
    fn perform(&self, taken: &TakenRequest) -> Result<NbdAnswer> {
        commands::run(&self.agreed, &taken.request, &taken.data)
    }

    fn send_later(self: &Arc<Self>, taken: Arc<TakenRequest>, answer: NbdAnswer) {
        let connection = self.clone();
        let send = move || {
            while let Some((taken, answer)) = connection.late.next() {
                connection.send(&taken.request, &answer);
            }
        };
        if !self.late.push(&self.env, "nbd-answers", (taken, answer), send) {
            self.cut_off();
        }
    }

    fn send(&self, request: &NbdRequest, answer: &NbdAnswer) {
        let _outgoing = self.outgoing.lock();
        let written = reply::write(&mut &self.stream, self.agreed.framing, request, answer, ALLOCATION_ID);
        if let Err(error) = written {
            tracing::debug!("a client of NBD does not take its answers: {error}");
            self.cut_off();
        }
    }

    fn cut_off(&self) {
        // it may have left already
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl ServedConnection for NbdConnection {
    type Request = TakenRequest;

    fn take(&self) -> Option<TakenRequest> {
        self.receive().unwrap_or_else(|error| {
            tracing::debug!("a client of NBD is cut off: {error}");
            self.cut_off();
            None
        })
    }

    fn has_more(&self) -> bool {
        self.stream.has_input()
    }

    fn act(self: &Arc<Self>, request: TakenRequest) -> bool {
        self.answer(request);
        true
    }
}

fn answer_of(done: Result<NbdAnswer>) -> NbdAnswer {
    done.unwrap_or(NbdAnswer::Done(Err(errno::ESHUTDOWN)))
}
