//! `cenote volumes`: how programs get at the volumes of imported pools.

use std::ffi::OsString;
use std::process::ExitCode;

use base::{Error, Kind, Result};
use format::ids::Guid;
use protocol::client;
use protocol::datasets::{CellValue, DatasetRequest, DatasetRow, Response, Select, Types, WantedProperty};
use protocol::rundir::RunDir;
use protocol::volumes::{
    ISCSI_PROPERTY, NBD_PROPERTY, VHOST_PROPERTY, block_path, file_of, iscsi_addresses, iscsi_target, iscsi_uri,
    nbd_addresses, nbd_network_uri, nbd_socket, nbd_uri, qemu_arguments, vhost_socket,
};

use crate::output;

/// What is said of an address without TLS, which is one of loopback.
const NBD_OPEN: &str = "open to every user of this machine, unless the pool's org.cenote:nbd_tls is set";

/// Show how programs get at volumes: a line for each way, with the volume, the way, and the address
///
/// Volumes are files, and may be given out in other ways, unless their property volmode is none, and by properties that
/// were set here: what a stream has brought gives out nothing. Where the kernel has the module nbd, volumes of this host's own
/// pools are block devices, unless their property org.cenote:block is off; others if it is on. By NBD those are to be had whose property org.cenote:nbd is on, at a socket, and at the addresses of property org.cenote:nbd_listen of the pool; targets of iSCSI are those
/// whose property org.cenote:iscsi is on, at the addresses of org.cenote:iscsi_listen. Those whose property
/// org.cenote:vhost is on have a socket for a virtual machine each; what QEMU takes to use it is shown behind that
/// (reconnect-ms=1000 is the newer name of reconnect=1, since QEMU 9.2).
#[derive(clap::Parser)]
#[command(name = "cenote volumes", no_binary_name = true)]
struct VolumesArgs {
    /// Only these volumes, or those below these file systems
    names: Vec<String>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: VolumesArgs = match output::parse_args(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    match list(&args.names) {
        Ok((text, is_all)) => {
            print!("{text}");
            if is_all { ExitCode::SUCCESS } else { output::FAILED.into() }
        }
        Err(error) => {
            output::complain("volumes", error);
            output::FAILED.into()
        }
    }
}

/// The lines, and whether all pools have answered that were asked.
fn list(names: &[String]) -> Result<(String, bool)> {
    let Some(run) = RunDir::find()? else { return Ok((String::new(), true)) };
    let (mut text, mut found, mut is_all) = (String::new(), Vec::new(), true);
    let pools = client::survey()?;
    for (pool, why) in &pools.silent {
        let asked = names.iter().filter(|name| name.split(['/', '@']).next() == Some(pool)).cloned();
        let before = found.len();
        found.extend(asked);
        if names.is_empty() || found.len() > before {
            output::complain("volumes", why.what());
            is_all = false;
        }
    }
    for hello in pools.hellos {
        let pool = hello.pool;
        let roots: Vec<String> =
            names.iter().filter(|name| name.split(['/', '@']).next() == Some(&pool)).cloned().collect();
        if roots.is_empty() && !names.is_empty() {
            continue;
        }
        found.extend(roots.iter().cloned());
        for row in volumes(&pool, roots)? {
            let file = file_of(run.path(), &row.name);
            if file.exists() {
                text += &format!("{}\tfile\t{}\n", row.name, file.display());
            }
            let device = block_path(&row.name);
            if device.exists() {
                text += &format!("{}\tblock\t{}\n", row.name, device.display());
            }
            let cell = |at: usize| row.cells.get(at).and_then(Option::as_ref).map(|cell| &cell.value);
            let offers = |at: usize| cell(at).is_some();
            if let Some(CellValue::Text(why)) = cell(1) {
                output::complain("volumes", format_args!("{}: iscsi: {why}", row.name));
            }
            if let (true, Some(CellValue::Number(guid))) = (offers(1), cell(2)) {
                for address in std::fs::read_to_string(iscsi_addresses(run.path(), &pool)).unwrap_or_default().lines() {
                    let target = iscsi_uri(address, &iscsi_target(&row.name, Guid::new(*guid)));
                    text += &format!("{}\tiscsi\t{target}\n", row.name);
                }
            }
            let socket = vhost_socket(run.path(), &row.name);
            if offers(3) && socket.exists() {
                text += &format!("{}\tvhost\t{}\t{}\n", row.name, socket.display(), qemu_arguments(&socket, &row.name));
            }
            if offers(0) && nbd_socket(run.path(), &pool).exists() {
                text += &format!("{}\tnbd\t{}\n", row.name, nbd_uri(run.path(), &row.name));
                // there is none if it listens nowhere
                for address in std::fs::read_to_string(nbd_addresses(run.path(), &pool)).unwrap_or_default().lines() {
                    text += &format!("{}\tnbd\t{}\n", row.name, nbd_network_uri(address, &row.name));
                    if address.starts_with("nbd://") {
                        output::complain("volumes", format_args!("{}: nbd: {address} is {NBD_OPEN}", row.name));
                    }
                }
            }
        }
    }
    match names.iter().find(|name| !found.contains(name)) {
        Some(name) => Err(Error::new(Kind::NotFound, format!("cannot open '{name}': no such pool"))),
        None => Ok((text, is_all)),
    }
}

/// The volumes of a pool, by name.
fn volumes(pool: &str, roots: Vec<String>) -> Result<Vec<DatasetRow>> {
    let select = Select {
        roots,
        root_types: Types::DATASETS,
        types: Types::VOLUMES,
        properties: vec![
            WantedProperty::Offered(NBD_PROPERTY.to_owned()),
            WantedProperty::Offered(ISCSI_PROPERTY.to_owned()),
            WantedProperty::Native("guid".to_owned()),
            WantedProperty::Offered(VHOST_PROPERTY.to_owned()),
        ],
        ..Select::default()
    };
    let gone = || Error::new(Kind::NotFound, "the pool is not imported").in_pool(pool);
    match client::connect(pool)?.ok_or_else(gone)?.zfs(&DatasetRequest::Datasets(select))? {
        Response::Datasets(mut found) => {
            if let Some(failure) = found.failures.first() {
                return Err(Error::new(Kind::NotFound, failure.line.clone()));
            }
            found.rows.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(found.rows)
        }
        _ => Err(Error::new(Kind::Unsupported, "its process answers something else than was asked").in_pool(pool)),
    }
}
