//! Which initiators of iSCSI may use a volume, by its properties.

use std::path::Path;

use base::{Error, Kind, Result};
use dsl::{PropertyValue, Subject};
use export::{FileRights, read_host_file};
use iscsi::{ANY_INITIATOR, ChapSecrets, TargetAccess};
use protocol::volumes::{ISCSI_CHAP, ISCSI_INITIATORS};

use crate::host_files::in_time;
use crate::host_rule::HostRule;
use crate::network_door::is_none;

/// Longest file of secrets, in bytes.
const SECRETS_BYTES_MAX: u64 = 64 << 10;

/// What may use a volume: names and secrets that were set on this host. Errors: of a file with secrets.
pub fn access_to(rule: &HostRule, subject: &Subject) -> Result<TargetAccess> {
    let value = |name: &str| rule.value(subject.levels(), name).and_then(text).filter(|text| !is_none(text));
    let initiators = value(ISCSI_INITIATORS);
    let initiators = initiators_in(&initiators.unwrap_or_default()).map(str::to_owned).collect();
    let chap = value(ISCSI_CHAP);
    Ok(TargetAccess { initiators, chap: chap.map(|file| secrets_in(Path::new(&file))).transpose()? })
}

/// Why nobody may use a volume that is a target, or not everywhere where it seems so.
pub fn why_closed(rule: &HostRule, subject: &Subject) -> Option<String> {
    match access_to(rule, subject) {
        Ok(access) if access.initiators.is_empty() => Some(format!("'{ISCSI_INITIATORS}' names nobody")),
        Ok(access) if access.is_for_all() => Some(format!(
            "'{ISCSI_INITIATORS}=any' without '{ISCSI_CHAP}' is for every user of this machine, and nobody may use it at \
             an address that is not loopback"
        )),
        Ok(access) => {
            access.initiators.iter().all(|name| access.chap.is_some() && !has_secret(&access, name)).then(|| {
                format!("'{ISCSI_CHAP}': no secret belongs to one of '{ISCSI_INITIATORS}': initiator IQN SECRET")
            })
        }
        Err(error) => Some(format!("'{ISCSI_CHAP}': {}", error.what())),
    }
}

/// Whether an initiator of a list can prove a secret.
fn has_secret(access: &TargetAccess, name: &str) -> bool {
    let of_anybody = || access.chap.iter().flat_map(|chap| &chap.initiators).filter_map(|one| one.initiator.as_deref());
    let is_any = name == ANY_INITIATOR;
    access.secrets_of(name).next().is_some() || is_any && of_anybody().next().is_some()
}

/// The names in a list, with commas or blanks between them.
pub fn initiators_in(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ', '\t']).filter(|name| !name.is_empty())
}

/// Whether an initiator can be called so (RFC 7143, 4.2.7), or it stands for all of them.
pub fn is_initiator(name: &str) -> bool {
    name == ANY_INITIATOR || ["iqn.", "eui.", "naa."].iter().any(|kind| name.to_ascii_lowercase().starts_with(kind))
}

/// What initiators have to prove that they know. Errors: `Invalid`, also for a file that others may read, or that
/// somebody else has made; as of [`in_time`].
pub fn secrets_in(path: &Path) -> Result<ChapSecrets> {
    let wrong = |what: &str| Error::new(Kind::Invalid, format!("{}: {what}", path.display()));
    let bytes = in_time(path, |path| Ok(read_host_file(path, FileRights::Secret, SECRETS_BYTES_MAX)))?;
    let bytes = bytes.map_err(|error| wrong(&error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text"))?;
    ChapSecrets::parse(&text).map_err(|error| wrong(error.what()))
}

/// A value that is a text.
pub fn text(value: PropertyValue) -> Option<String> {
    match value {
        PropertyValue::Text(text) => Some(text),
        PropertyValue::Number(_) => None,
    }
}
