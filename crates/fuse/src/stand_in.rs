//! Standing in for a process that does not serve its mounts for the time being: programs get EIO, and not ENOTCONN, which
//! many of them take for the end of the file system.

use std::path::PathBuf;
use std::sync::Arc;

use base::{Env, Error, Kind, Result};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, poll};

use crate::channel::{Channel, Inbox};
use crate::helper::Helper;
use crate::keeper::InheritedMount;
use crate::lobby::no_thread;
use crate::options::Unmount;
use crate::reply::{Reply, ReplyWay};
use crate::wire::opcode;

/// Mounts whose requests all fail, until another process serves them.
pub struct StandIn {
    /// Where each is, and its device number.
    places: Vec<(PathBuf, String)>,
}

impl StandIn {
    /// Fails all requests of these mounts from now on, on a thread of its own, also those that the process before had not
    /// answered. Errors: there is no thread.
    pub fn begin(mounts: Vec<InheritedMount>, env: &Env) -> Result<StandIn> {
        let place = |mount: &InheritedMount| (mount.kept.point.clone(), mount.kept.dev.clone());
        let places = mounts.iter().map(place).collect();
        let channels: Vec<_> = mounts.into_iter().map(|mount| Arc::new(Channel::kept(mount.connection))).collect();
        for channel in &channels {
            channel.make_eager()?;
            channel.resend()?;
        }
        env.spawn("stand-in", move || fail_all(channels)).then_some(StandIn { places }).ok_or_else(no_thread)
    }

    /// Unmounts them, those within others first. Errors: `Busy`, and which, unless `how` is by force; the others stay.
    pub fn unmount(&self, helper: &Helper, how: Unmount) -> Result<()> {
        for (point, dev) in self.places.iter().rev() {
            helper.detach(point, dev, how).map_err(|e| match e.kind() {
                Kind::Busy => {
                    Error::new(Kind::Busy, format!("cannot unmount '{}': pool or dataset is busy", point.display()))
                }
                _ => e,
            })?;
        }
        Ok(())
    }
}

/// Answers the requests of all, as long as any is mounted.
fn fail_all(mut channels: Vec<Arc<Channel>>) {
    let mut inbox = Inbox::new();
    while !channels.is_empty() {
        let mut asked: Vec<_> = channels.iter().map(|channel| PollFd::new(&**channel, PollFlags::IN)).collect();
        if let Err(errno) = poll(&mut asked, None)
            && errno != rustix::io::Errno::INTR
        {
            tracing::error!("requests of mounts wait for another process: {errno}");
            return;
        }
        let is_asked: Vec<bool> = asked.iter().map(|channel| !channel.revents().is_empty()).collect();
        let mut is_asked = is_asked.into_iter();
        channels.retain(|channel| !is_asked.next().unwrap_or(false) || fail_one(channel, &mut inbox));
    }
}

/// Answers one request, if there is one. False if nothing is mounted there any more.
fn fail_one(channel: &Arc<Channel>, inbox: &mut Inbox) -> bool {
    match inbox.receive(channel) {
        Err(Errno::ENODEV) => return false,
        // it was interrupted
        Err(_) => return true,
        Ok(()) => {}
    }
    if let Ok(request) = inbox.request()
        && ![opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT].contains(&request.header.opcode)
    {
        Reply::new(request.header.unique, ReplyWay::Device(channel.clone())).error(libc::EIO);
    }
    true
}
