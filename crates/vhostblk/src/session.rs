//! What the messages of a monitor do.
//!
//! ```text
//!   features, memory, for each ring: size, places, base, kick, call ─▶ enabled: the ring runs
//!   GET_VRING_BASE: it stops, and nothing of it is under way any more
//!   GET_INFLIGHT_FD: memory that the monitor keeps; SET_INFLIGHT_FD: rings go on with what it says
//! ```

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Env, Error, Kind, Mutex, Result};
use export::{Gate, Parking, ServedClient, process_name};
use rustix::net::{SendFlags, send};

use crate::channel::{MonitorChannel, ReceivedMessage};
use crate::config::{self, RINGS_MAX};
use crate::device::GuestDevice;
use crate::disk::VhostDisk;
use crate::event::MonitorEvent;
use crate::inflight::InflightRegion;
use crate::memory::GuestRam;
use crate::message::{self, ConfigRange, InflightPlace, VhostMessage, protocol_feature};
use crate::ring::{RingSetup, RunningRing};

/// Features of the device, as bits.
pub(crate) mod feature {
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    /// There are features of the protocol.
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

const FEATURES: u64 = feature::SEG_MAX
    | feature::BLK_SIZE
    | feature::FLUSH
    | feature::TOPOLOGY
    | feature::MQ
    | feature::INDIRECT_DESC
    | feature::EVENT_IDX
    | feature::PROTOCOL
    | feature::VERSION_1;
const CHANGING_FEATURES: u64 = feature::DISCARD | feature::WRITE_ZEROES;
const PROTOCOL_FEATURES: u64 = protocol_feature::MQ
    | protocol_feature::REPLY_ACK
    | protocol_feature::BACKEND_REQ
    | protocol_feature::CONFIG
    | protocol_feature::INFLIGHT_SHMFD;

/// A monitor that is connected, with its guest.
pub(crate) struct VhostSession {
    device: Arc<GuestDevice>,
    channel: MonitorChannel,
    /// Where the monitor is told that the configuration is another, if it has said where.
    to_monitor: Mutex<Option<UnixStream>>,
    /// The size that the monitor knows.
    told_size: AtomicU64,
    /// Its process.
    name: String,
    /// Another one for each session of a volume.
    number: u64,
}

/// What a monitor has said up to now.
#[derive(Default)]
struct VhostSetup {
    features: u64,
    protocol_features: u64,
    /// What rings have in flight, if the monitor keeps that.
    inflight: Option<Arc<InflightRegion>>,
    rings: Vec<RingPlan>,
}

/// A ring, and whether it runs.
#[derive(Default)]
struct RingPlan {
    setup: RingSetup,
    running: Option<Arc<RunningRing>>,
}

/// What follows a message.
enum VhostReply {
    /// This answer.
    Payload(Vec<u8>),
    /// This answer, with a descriptor beside it.
    Descriptor(Vec<u8>, OwnedFd),
    /// None, unless one is asked for.
    Done,
}

impl VhostSession {
    /// `life` is a number that no other process has, nor another volume. Errors: there are too many open files; those of
    /// reading the volume.
    pub(crate) fn new(
        (env, life): (Env, u64),
        socket: UnixStream,
        disk: Arc<dyn VhostDisk>,
        parts: (Arc<Gate>, Arc<Parking>),
        number: u64,
    ) -> Result<Arc<VhostSession>> {
        let name = process_name(&socket);
        let told_size = AtomicU64::new(disk.volume()?.size());
        let device = GuestDevice::new((env, life), disk, parts)?;
        Ok(Arc::new(VhostSession {
            device,
            channel: MonitorChannel::new(socket),
            to_monitor: Mutex::default(),
            told_size,
            name,
            number,
        }))
    }

    /// The monitor, and what its guest has asked for.
    pub(crate) fn client(&self) -> ServedClient<()> {
        ServedClient { number: self.number, name: self.name.clone(), disk: (), sums: self.device.sums() }
    }

    /// Serves the monitor until it leaves; nothing of its guest is under way any more then. Errors: why it was cut off.
    pub(crate) fn run(&self) -> Result<()> {
        let mut setup = VhostSetup::default();
        setup.rings.resize_with(RINGS_MAX, RingPlan::default);
        let served = match self.device.start() {
            true => self.converse(&mut setup),
            false => Err(Error::new(Kind::Io, "the system gives no more threads")),
        };
        self.cut_off();
        setup.rings.iter_mut().for_each(|plan| self.stop(plan));
        self.device.cache().settle(self.device.disk());
        served
    }

    /// The monitor is not served any more.
    pub(crate) fn cut_off(&self) {
        self.device.end();
        self.channel.cut_off();
    }

    /// The volume may have another size.
    pub(crate) fn changed(&self) -> Result<()> {
        let size = self.device.disk().volume()?.size();
        if self.told_size.swap(size, Ordering::SeqCst) != size
            && let Some(socket) = &*self.to_monitor.lock()
        {
            // one that does not read it holds up nobody
            let _ = send(socket, &message::config_changed(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        Ok(())
    }

    fn converse(&self, setup: &mut VhostSetup) -> Result<()> {
        while let Some(received) = self.channel.receive()? {
            let ReceivedMessage { head, payload, descriptors } = received;
            let has_acks = setup.protocol_features & protocol_feature::REPLY_ACK != 0;
            let done =
                VhostMessage::parse(head.request, &payload).and_then(|message| self.obey(setup, message, descriptors));
            match done {
                Ok(VhostReply::Payload(payload)) => self.channel.reply(head.request, &payload)?,
                Ok(VhostReply::Descriptor(payload, file)) => self.channel.reply_with(head.request, &payload, &file)?,
                Ok(VhostReply::Done) if has_acks && head.wants_reply => {
                    self.channel.reply(head.request, &0u64.to_le_bytes())?;
                }
                Ok(VhostReply::Done) => {}
                Err(error) if has_acks && head.wants_reply => {
                    tracing::warn!(message = head.request, "a monitor asks for what cannot be: {error}");
                    self.channel.reply(head.request, &1u64.to_le_bytes())?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn obey(&self, setup: &mut VhostSetup, message: VhostMessage, descriptors: Vec<OwnedFd>) -> Result<VhostReply> {
        let number = |number: u64| Ok(VhostReply::Payload(number.to_le_bytes().to_vec()));
        match message {
            VhostMessage::GetFeatures => return number(self.features()?),
            VhostMessage::GetProtocolFeatures => return number(PROTOCOL_FEATURES),
            VhostMessage::GetQueueNum => return number(RINGS_MAX as u64),
            VhostMessage::GetRingBase(ring) => {
                let plan = setup.plan(ring)?;
                self.stop(plan);
                (plan.setup.kick, plan.setup.call) = (None, None);
                return Ok(VhostReply::Payload([ring, plan.setup.base.into()].map(u32::to_le_bytes).concat()));
            }
            VhostMessage::GetConfig(range) => return self.config(range).map(VhostReply::Payload),
            // there is nothing that a guest may set
            VhostMessage::SetConfig(..) | VhostMessage::SetOwner => {}
            VhostMessage::SetFeatures(features) => self.agree(setup, features)?,
            VhostMessage::SetProtocolFeatures(features) => setup.protocol_features = features & PROTOCOL_FEATURES,
            VhostMessage::Reset => {
                setup.rings.iter_mut().for_each(|plan| self.stop(plan));
                setup.rings.clear();
                setup.rings.resize_with(RINGS_MAX, RingPlan::default);
                setup.inflight = None;
                self.device.cache().forget();
            }
            VhostMessage::GetInflight(place) => return Ok(new_inflight(&place)),
            VhostMessage::SetInflight(place) => self.go_on(setup, &place, descriptors)?,
            VhostMessage::SetMemTable(places) => self.device.set_ram(GuestRam::map(places, descriptors)?),
            VhostMessage::SetBackendChannel => {
                *self.to_monitor.lock() = Some(only(descriptors)?.into());
            }
            VhostMessage::SetRingCall(ring, has) => {
                let call = event(has, descriptors)?;
                let plan = setup.plan(ring)?;
                plan.setup.call.clone_from(&call);
                plan.running.iter().for_each(|running| running.set_call(call.clone()));
            }
            VhostMessage::SetRingError(ring, has) => {
                let error = event(has, descriptors)?;
                let plan = setup.plan(ring)?;
                plan.setup.error.clone_from(&error);
                plan.running.iter().for_each(|running| running.set_error(error.clone()));
            }
            other => self.set_ring(setup, other, descriptors)?,
        }
        Ok(VhostReply::Done)
    }

    /// Does what makes a ring stop, and start anew if it can.
    fn set_ring(&self, setup: &mut VhostSetup, message: VhostMessage, descriptors: Vec<OwnedFd>) -> Result<()> {
        let ring = match &message {
            VhostMessage::SetRingSize(ring, _)
            | VhostMessage::SetRingPlaces(ring, _)
            | VhostMessage::SetRingBase(ring, _)
            | VhostMessage::SetRingKick(ring, _)
            | VhostMessage::EnableRing(ring, _) => *ring,
            other => return Err(Error::new(Kind::Unsupported, format!("{other:?} is no message about a ring"))),
        };
        let plan = setup.plan(ring)?;
        self.stop(plan);
        match message {
            VhostMessage::SetRingSize(_, entries) => plan.setup.entries = small(entries)?,
            VhostMessage::SetRingBase(_, base) => plan.setup.base = small(base)?,
            VhostMessage::SetRingPlaces(_, places) => {
                let ram = self.device.ram();
                let guest = |address| ram.guest_address(address);
                plan.setup.places = Some([guest(places.descriptors)?, guest(places.used)?, guest(places.available)?]);
            }
            VhostMessage::SetRingKick(_, has) => {
                plan.setup.kick = event(has, descriptors)?;
                if plan.setup.kick.is_none() {
                    return Err(Error::new(Kind::Unsupported, "a ring without a kick, to be polled"));
                }
            }
            VhostMessage::EnableRing(_, is_enabled) => plan.setup.is_enabled = is_enabled,
            _ => {}
        }
        let has = |feature| setup.features & feature != 0;
        let (has_enables, has_event_idx) = (has(feature::PROTOCOL), has(feature::EVENT_IDX));
        let inflight = setup.inflight.clone();
        let plan = setup.plan(ring)?;
        let RingSetup { entries, places, kick, is_enabled, .. } = &plan.setup;
        if *entries > 0 && places.is_some() && kick.is_some() && (*is_enabled || !has_enables) {
            let parts = (&*self.device.ram(), inflight.as_ref());
            let running = RunningRing::start(ring as usize, &plan.setup, parts, has_event_idx)?;
            let running = Arc::new(running);
            plan.running = Some(running.clone());
            self.device.add_ring(running);
        }
        Ok(())
    }

    /// Rings that start from now on have in flight what the monitor kept. Errors: `Invalid` if one runs, and for what cannot
    /// be mapped; those of opening the volume.
    fn go_on(&self, setup: &mut VhostSetup, place: &InflightPlace, descriptors: Vec<OwnedFd>) -> Result<()> {
        if setup.rings.iter().any(|plan| plan.running.is_some()) {
            return Err(Error::new(Kind::Invalid, "what is in flight, while rings run"));
        }
        let region = Arc::new(InflightRegion::map(place, only(descriptors)?)?);
        self.device.cache().go_on(region.clone(), self.device.disk())?;
        setup.inflight = Some(region);
        Ok(())
    }

    fn stop(&self, plan: &mut RingPlan) {
        if let Some(running) = plan.running.take() {
            plan.setup.base = self.device.stop_ring(&running);
        }
    }

    fn features(&self) -> Result<u64> {
        Ok(match self.device.disk().volume()?.is_read_only() {
            true => FEATURES | feature::READ_ONLY,
            false => FEATURES | CHANGING_FEATURES,
        })
    }

    fn agree(&self, setup: &mut VhostSetup, features: u64) -> Result<()> {
        if features & !(FEATURES | CHANGING_FEATURES | feature::READ_ONLY) != 0 {
            return Err(Error::new(Kind::Invalid, format!("features {features:#x}, of which some were not offered")));
        }
        // a driver that cannot flush gets nothing that would need it
        self.device.cache().set_write_back(features & feature::FLUSH != 0);
        setup.features = features;
        Ok(())
    }

    fn config(&self, range: ConfigRange) -> Result<Vec<u8>> {
        let volume = self.device.disk().volume()?;
        let head = [range.offset, range.size, range.flags].map(u32::to_le_bytes).concat();
        Ok([head, config::part(&volume, range)].concat())
    }
}

impl VhostSetup {
    /// Errors: `Invalid` for a ring that there is not.
    fn plan(&mut self, ring: u32) -> Result<&mut RingPlan> {
        let plan = self.rings.get_mut(ring as usize);
        plan.ok_or_else(|| Error::new(Kind::Invalid, format!("there is no ring {ring}")))
    }
}

/// A new place for what is in flight; one of no bytes says that there is none.
fn new_inflight(place: &InflightPlace) -> VhostReply {
    match InflightRegion::create(place) {
        Ok((place, file)) => VhostReply::Descriptor(place.to_bytes(), file),
        Err(error) => {
            tracing::warn!("a machine will not go on when this process is killed: {error}");
            VhostReply::Payload(InflightPlace { bytes: 0, ..*place }.to_bytes())
        }
    }
}

fn small(number: u32) -> Result<u16> {
    u16::try_from(number).map_err(|_| Error::new(Kind::Invalid, format!("{number} entries of a ring")))
}

/// Errors: `Invalid` if there is none, or more than one.
fn only(mut descriptors: Vec<OwnedFd>) -> Result<OwnedFd> {
    match descriptors.pop() {
        Some(descriptor) if descriptors.is_empty() => Ok(descriptor),
        _ => Err(Error::new(Kind::Invalid, "one descriptor belongs to this message")),
    }
}

/// The event that comes beside a message, if one is to.
fn event(has: bool, descriptors: Vec<OwnedFd>) -> Result<Option<Arc<MonitorEvent>>> {
    match has {
        true => MonitorEvent::new(only(descriptors)?).map(|event| Some(Arc::new(event))),
        false => Ok(None),
    }
}
