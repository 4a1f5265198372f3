//! A connection in its full feature phase.
//!
//! Answers go out outside of the gate: an initiator that does not take them keeps nothing from being frozen. What fails
//! as the pool is suspended is parked, and keeps no thread; a thread of the connection sends its answers later.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Weak};

use base::{Error, Kind, Mutex, Result};
use export::{ClientCounters, ClientSocket, DataBudget, DataGrant, LateAnswers, ServedConnection};

use crate::incoming::{DataAsk, IscsiIncoming, Job, Writes};
use crate::login::LoggedIn;
use crate::outgoing::{CommandAnswer, Outgoing};
use crate::parts::ServerParts;
use crate::pdu::{FINAL, HEAD_BYTES, NO_TAG, Pdu, PduHead, has_ended, opcode};
use crate::scsi::{self, AbortTasks, LogicalUnit, Nexus, Sense};
use crate::tasks::{CommandWindow, Tasks};
use crate::texts::Texts;

/// Why a message is refused.
const NOT_SUPPORTED: u8 = 0x05;
const PROTOCOL_ERROR: u8 = 0x04;
const INVALID_FIELD: u8 = 0x09;

/// A unit, as the session of a connection uses it.
#[derive(Clone)]
struct UsedUnit {
    unit: Arc<LogicalUnit>,
    nexus: Arc<Nexus>,
}

/// An initiator that has logged in.
pub(crate) struct IscsiConnection {
    shared: ServerParts,
    initiator: String,
    used: UsedUnit,
    socket: ClientSocket,
    /// Held by what takes.
    incoming: Mutex<IscsiIncoming>,
    writes: Writes,
    outgoing: Outgoing,
    window: Arc<CommandWindow>,
    tasks: Tasks,
    budget: Arc<DataBudget>,
    counters: Arc<ClientCounters>,
    texts: Mutex<Texts>,
    /// Answers to what was parked.
    late: LateAnswers<(Arc<TakenCommand>, CommandAnswer)>,
}

/// A command with the memory for what it reads.
struct TakenCommand {
    pdu: Pdu,
    _grant: DataGrant,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterJob {
    Goes,
    Ends,
}

impl IscsiConnection {
    /// Of an initiator that uses a unit. Errors: those of the connection.
    pub(crate) fn new(
        shared: ServerParts,
        socket: ClientSocket,
        agreed: LoggedIn,
        unit: Arc<LogicalUnit>,
        counters: Arc<ClientCounters>,
    ) -> Result<Arc<IscsiConnection>> {
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        let window = Arc::new(CommandWindow::new(agreed.next_command));
        let incoming = IscsiIncoming::new(socket.try_clone()?, agreed.params.clone(), window.clone());
        let outgoing = Outgoing::new(socket.try_clone()?, &agreed.params, agreed.next_answer, window.clone());
        let texts = Texts::new(&socket, &agreed);
        let used = UsedUnit { unit, nexus: Arc::new(Nexus::new(agreed.port)) };
        let writes = Writes::new(shared.asked.clone());
        let connection = Arc::new(IscsiConnection {
            shared,
            initiator: agreed.initiator,
            used: used.clone(),
            socket,
            incoming: Mutex::new(incoming),
            writes,
            outgoing,
            window,
            tasks: Tasks::default(),
            budget: Arc::default(),
            counters,
            texts: Mutex::new(texts),
            late: LateAnswers::default(),
        });
        let aborts: Weak<IscsiConnection> = Arc::downgrade(&connection);
        used.unit.enter(&used.nexus, aborts);
        Ok(connection)
    }

    /// Serves the initiator until it leaves, and all that it asked for is done.
    pub(crate) fn run(self: &Arc<Self>) {
        export::serve(&self.shared.env, "iscsi-command", self);
        // what waits for the pool is not for anybody any more
        self.tasks.close();
    }

    fn receive(&self) -> Result<Job> {
        let mut ask = |ask: DataAsk| Ok(self.outgoing.ready(&ask.command, ask.tag, ask.sequence, ask.range)?);
        self.incoming.lock().take(&self.tasks, &self.writes, &mut ask)
    }

    fn attend(self: &Arc<Self>, job: Job) -> Result<AfterJob> {
        match job {
            Job::Command(pdu) => self.command(pdu),
            Job::BadData(head) => self.answer_command(&head, scsi::refused(Sense::DATA_PHASE))?,
            Job::TooMuch(head) => self.answer_command(&head, scsi::refused(Sense::INVALID_FIELD))?,
            Job::Other(pdu) => return self.other(&pdu),
        }
        Ok(AfterJob::Goes)
    }

    fn command(self: &Arc<Self>, pdu: Pdu) {
        scsi::count(&self.counters, &pdu);
        let grant = self.budget.take(scsi::memory_of(&pdu));
        let taken = Arc::new(TakenCommand { pdu, _grant: grant });
        let passage = self.shared.gate.pass();
        match self.perform(&taken.pdu) {
            Err(error) if error.kind() == Kind::Suspended => {
                let (again, this) = (taken.clone(), self.clone());
                let work = move |connection: &IscsiConnection| connection.perform(&again.pdu);
                self.shared.parking.park(self, work, move |_, done| this.send_later(taken, answer_of(done)));
            }
            done => {
                drop(passage);
                self.send(&taken.pdu, answer_of(done));
            }
        }
    }

    /// Errors: `Suspended`: it is to be done again.
    fn perform(&self, pdu: &Pdu) -> Result<CommandAnswer> {
        let tag = pdu.head.tag();
        // it was aborted: nobody waits for an answer
        if !self.tasks.work(tag) {
            return Ok(CommandAnswer::default());
        }
        let UsedUnit { unit, nexus } = &self.used;
        let done = scsi::perform(unit, nexus, pdu);
        // it changes nothing any more
        self.tasks.rest(tag);
        if let Ok(answer) = &done
            && !answer.aborts.is_empty()
        {
            unit.abort(|port| answer.aborts.iter().any(|one| one == port));
        }
        done
    }

    fn send_later(self: &Arc<Self>, taken: Arc<TakenCommand>, answer: CommandAnswer) {
        let connection = self.clone();
        let send = move || {
            while let Some((taken, answer)) = connection.late.next() {
                connection.send(&taken.pdu, answer);
            }
        };
        if !self.late.push(&self.shared.env, "iscsi-answers", (taken, answer), send) {
            self.cut_off();
        }
    }

    fn send(&self, pdu: &Pdu, answer: CommandAnswer) {
        if let Err(error) = self.answer_command(&pdu.head, answer) {
            tracing::debug!(initiator = self.initiator, "an initiator of iSCSI does not take its answers: {error}");
            self.cut_off();
        }
    }

    /// Answers a command, unless it was aborted, and asks for what there is room for now.
    fn answer_command(&self, head: &PduHead, answer: CommandAnswer) -> Result<()> {
        let tag = head.tag();
        let asks = self.writes.end(tag);
        let expected = if head.flags() & 0x60 != 0 { head.u32(20) } else { 0 };
        self.outgoing.respond(head, expected, &answer, || self.tasks.end(tag, &self.window))?;
        for ask in asks {
            self.outgoing.ready(&ask.command, ask.tag, ask.sequence, ask.range)?;
        }
        Ok(())
    }

    fn other(self: &Arc<Self>, pdu: &Pdu) -> Result<AfterJob> {
        let head = &pdu.head;
        match head.opcode() {
            opcode::NOP_OUT if head.tag() == NO_TAG => {}
            opcode::NOP_OUT => {
                let mut answer = PduHead::new(opcode::NOP_IN, FINAL, head.tag());
                answer.0[8..16].copy_from_slice(&head.0[8..16]);
                answer.put_u32(20, NO_TAG);
                let most = pdu.data.len().min(self.texts.lock().params.receive_bytes as usize);
                self.outgoing.answer(answer, &pdu.data[..most])?;
            }
            opcode::TASK_MANAGEMENT => return self.manage(head),
            opcode::TEXT => self.text(pdu)?,
            opcode::LOGOUT => {
                let mut answer = PduHead::new(opcode::LOGOUT_RESPONSE, FINAL, head.tag());
                // closing the session, or this connection of it; recovery is none of level 0
                answer.0[2] = if head.flags() & 0x7f <= 1 { 0 } else { 2 };
                self.outgoing.answer(answer, &[])?;
                return Ok(AfterJob::Ends);
            }
            opcode::LOGIN => {
                self.reject(head, PROTOCOL_ERROR)?;
                return Ok(AfterJob::Ends);
            }
            _ => self.reject(head, NOT_SUPPORTED)?,
        }
        Ok(AfterJob::Goes)
    }

    fn reject(&self, head: &PduHead, why: u8) -> io::Result<()> {
        let mut answer = PduHead::new(opcode::REJECT, FINAL, NO_TAG);
        answer.0[2] = why;
        self.outgoing.answer(answer, &head.0[..HEAD_BYTES])
    }

    /// Aborts tasks, or resets the unit.
    fn manage(&self, head: &PduHead) -> Result<AfterJob> {
        const DONE: u8 = 0;
        const NO_TASK: u8 = 1;
        const NO_UNIT: u8 = 2;
        const NOT_SUPPORTED: u8 = 5;
        let (function, mut then) = (head.flags() & 0x7f, AfterJob::Goes);
        let used = Some(&self.used).filter(|_| head.lun() == Some(0) || matches!(function, 6 | 7));
        let outcome = match (function, used) {
            (1..=2 | 4..=7, None) => NO_UNIT,
            (1, _) if self.abort(Some(head.u32(20))) => DONE,
            // it is done, or has never come
            (1, _) => NO_TASK,
            // ABORT TASK SET
            (2, _) => {
                self.abort(None);
                DONE
            }
            // CLEAR TASK SET, and resets
            (4..=7, Some(UsedUnit { unit, nexus })) => {
                unit.reset(nexus);
                // a cold reset ends the sessions: this one here
                if function == 7 {
                    then = AfterJob::Ends;
                }
                DONE
            }
            _ => NOT_SUPPORTED,
        };
        let mut answer = PduHead::new(opcode::TASK_MANAGEMENT_RESPONSE, FINAL, head.tag());
        answer.0[2] = outcome;
        self.outgoing.answer(answer, &[])?;
        Ok(then)
    }

    /// Aborts a command, or all, and returns when none of them changes anything any more; false if there is none.
    fn abort(&self, tag: Option<u32>) -> bool {
        let found = self.tasks.abort(tag);
        // their data may never come
        for pending in self.writes.pending().into_iter().filter(|pending| tag.is_none_or(|tag| tag == *pending)) {
            let asks = self.writes.end(pending);
            self.tasks.end(pending, &self.window);
            for ask in asks {
                // its own thread sees that the connection has failed
                let _ = self.outgoing.ready(&ask.command, ask.tag, ask.sequence, ask.range);
            }
        }
        found
    }

    /// Answers a text request, or goes on with an answer.
    fn text(&self, pdu: &Pdu) -> Result<()> {
        let mut texts = self.texts.lock();
        let Some((answer, out)) = texts.answer(&self.shared, pdu)? else {
            return Ok(self.reject(&pdu.head, INVALID_FIELD)?);
        };
        self.outgoing.set_receive_bytes(texts.params.receive_bytes);
        Ok(self.outgoing.answer(answer, &out)?)
    }

    /// Ends the connection.
    pub(crate) fn cut_off(&self) {
        // it may have left already
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl IscsiConnection {
    /// Cuts the connection off, and says why unless the initiator has.
    fn fail(&self, error: &Error) {
        if !has_ended(error) {
            tracing::debug!(initiator = self.initiator, "an initiator of iSCSI is cut off: {error}");
        }
        self.cut_off();
    }
}

impl ServedConnection for IscsiConnection {
    type Request = Job;

    fn take(&self) -> Option<Job> {
        self.receive().inspect_err(|error| self.fail(error)).ok()
    }

    fn has_more(&self) -> bool {
        // held by another thread that takes: what comes is for that one
        self.incoming.try_lock().is_some_and(|incoming| incoming.has_more())
    }

    fn act(self: &Arc<Self>, job: Job) -> bool {
        match self.attend(job) {
            Ok(AfterJob::Goes) => return true,
            Ok(AfterJob::Ends) => self.cut_off(),
            Err(error) => self.fail(&error),
        }
        false
    }
}

impl AbortTasks for IscsiConnection {
    fn abort_all(&self) {
        self.abort(None);
    }

    fn end(&self) {
        self.cut_off();
        self.tasks.close();
    }
}

fn answer_of(done: Result<CommandAnswer>) -> CommandAnswer {
    done.unwrap_or_else(|error: Error| {
        tracing::debug!("a command of iSCSI is not done: {error}");
        scsi::refused(Sense::TARGET_FAILURE)
    })
}
