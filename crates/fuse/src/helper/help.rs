//! Being a mount helper: what is asked for is done, one thing at a time.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;

use base::{Error, Kind, Result};

use super::{HelperAnswer, HelperRequest, spawn};
use crate::keeper::Keeper;
use crate::messages::{makes_no_sense, receive, send};
use crate::options::Unmount;
use crate::{device, mountinfo, point, visit};

/// Is a helper: does what is asked for on `socket` until its other end is closed.
///
/// Errors: `socket` is none. A request that it does not know is refused.
pub fn help(socket: BorrowedFd<'_>) -> Result<()> {
    let (mut keeper, mut children) = (Keeper::new(), Vec::new());
    let mut outcome = help_one(socket, &mut keeper, &mut children);
    while let Some(next) = keeper.revive() {
        outcome = help_one(next.as_fd(), &mut keeper, &mut children);
    }
    outcome
}

/// The same for one process.
fn help_one(socket: BorrowedFd<'_>, keeper: &mut Keeper, children: &mut Vec<Child>) -> Result<()> {
    let wait = || {
        // that may take days
        base::give_program_back();
        receive(socket)
    };
    loop {
        let answered = match wait() {
            Ok(Some((request, fd))) => answer(request, fd, keeper, children),
            Ok(None) => return Ok(()),
            // of a newer program, which took the pool over from the one that started this process
            Err(error) if error.kind() == Kind::Corrupt => Err(error),
            Err(error) => return Err(error),
        };
        let (answer, connection) = match answered {
            Ok((answer, connection)) => (answer, connection),
            Err(error) => (HelperAnswer::failed(&error), None),
        };
        let sent = send(socket, &answer, connection.as_ref().map(AsFd::as_fd));
        drop(connection);
        if let (Err(_), HelperAnswer::Attached { point, dev }) = (&sent, &answer) {
            // it was mounted for a process that is dead by now; if this fails, the next import finds it
            drop(device::detach_device(Path::new(point), dev, Unmount::Lazy));
        }
        sent?;
    }
}

fn answer(
    request: HelperRequest,
    fd: Option<OwnedFd>,
    keeper: &mut Keeper,
    children: &mut Vec<Child>,
) -> Result<(HelperAnswer, Option<OwnedFd>)> {
    let answer = match request {
        HelperRequest::MakeFolders(options) => HelperAnswer::Count(point::make_folders(&options)?),
        HelperRequest::RemoveFolders(options, count) => {
            point::remove_folders(&options, count);
            HelperAnswer::Done
        }
        HelperRequest::ClearDead { point, subtype } => {
            HelperAnswer::Count(device::clear_dead(Path::new(&point), &subtype)?)
        }
        HelperRequest::Attach(options) => {
            let folder = point::find(&options)?;
            let point = folder.real_path()?;
            let connection = device::attach(&folder, &point, &options)?;
            // the descriptor would keep the mount in use
            drop(folder);
            let mount = mountinfo::at(&point)?.filter(|mount| mount.fs_type.starts_with("fuse"));
            let dev =
                mount.ok_or_else(|| Error::new(Kind::Missing, format!("{} was unmounted at once", point.display())))?;
            return Ok((HelperAnswer::Attached { point: point.into(), dev: dev.dev }, Some(connection)));
        }
        HelperRequest::SetFlags { point, options } => {
            device::set_flags(Path::new(&point), &options)?;
            HelperAnswer::Done
        }
        HelperRequest::Detach { point, dev, how } => {
            device::detach_device(Path::new(&point), &dev, how)?;
            HelperAnswer::Done
        }
        HelperRequest::Look(point) => {
            HelperAnswer::Device(mountinfo::dev_text(std::fs::symlink_metadata(point)?.dev()))
        }
        HelperRequest::MayVisit => HelperAnswer::Count(usize::from(visit::may_visit())),
        HelperRequest::Visit { point, dev, visit } => {
            HelperAnswer::Count(visit::visit(Path::new(&point), &dev, &visit)?)
        }
        HelperRequest::Another => {
            children.retain_mut(|child: &mut Child| matches!(child.try_wait(), Ok(None)));
            let args: Vec<OsString> = std::env::args_os().skip(1).collect();
            let (child, socket) = spawn(Path::new("/proc/self/exe"), &args)?;
            let pid = child.id().cast_signed();
            children.push(child);
            return Ok((HelperAnswer::Started { pid }, Some(socket)));
        }
        HelperRequest::Keep(request) => match keeper.answer(request, fd)? {
            Some((thing, fd)) => return Ok((HelperAnswer::Kept(thing), Some(fd))),
            None => HelperAnswer::Done,
        },
        HelperRequest::Tell(messages) => {
            let connection = fd.ok_or_else(makes_no_sense)?;
            for message in messages {
                // what the kernel does not keep it need not forget
                let _ = nix::unistd::write(&connection, &message);
            }
            HelperAnswer::Done
        }
        HelperRequest::End(pid) => {
            let child = children.iter_mut().find(|child| child.id().cast_signed() == pid);
            child.map_or(Ok(()), Child::kill)?;
            HelperAnswer::Done
        }
    };
    Ok((answer, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::socket_pair;

    #[test]
    fn an_unknown_request_is_refused_and_the_next_one_is_done() {
        let (socket, its) = socket_pair().unwrap();
        let helper = std::thread::spawn(move || help(its.as_fd()));
        let ask = |request: &str| {
            let request: serde_json::Value = serde_json::from_str(request).unwrap();
            send(socket.as_fd(), &request, None).unwrap();
            receive::<HelperAnswer>(socket.as_fd()).unwrap().unwrap().0
        };
        let HelperAnswer::Failed { what, .. } = ask(r#"{"Keep": "WhatComesLater"}"#) else { panic!("it is refused") };
        assert!(what.contains("makes no sense"), "{what}");
        assert!(matches!(ask(r#"{"Look": {"Unix": [47]}}"#), HelperAnswer::Device(_)));
        drop(socket);
        helper.join().unwrap().unwrap();
    }
}
