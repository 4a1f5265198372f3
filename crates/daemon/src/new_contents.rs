//! What is in a dataset that has just been made.

use std::sync::Arc;

use base::{Env, Result};
use dmu::{Objset, Tx};
use dsl::Property;
use dsl::write::Created;
use zpl::{CaseMode, NewFs};
use zvol::{NewVolume, create_volume};

/// What makes the first objects of a new file system, owned by the user of this process.
pub fn of_file_system(env: &Env) -> impl FnOnce(&Arc<Objset>, &Tx<'_>, &Created) -> Result<()> + Send + 'static {
    let (now, salt) = ((env.now_s(), 0), env.random());
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    move |objset, tx, created| {
        let mut new = NewFs { uid, gid, now, salt, ..NewFs::default() };
        for (property, value) in &created.contents {
            match property {
                Property::Version => new.version = *value,
                Property::Utf8only => new.utf8only = *value != 0,
                Property::Normalization => new.normalization = *value,
                Property::Casesensitivity => {
                    new.case = match value {
                        1 => CaseMode::Insensitive,
                        2 => CaseMode::Mixed,
                        _ => CaseMode::Sensitive,
                    }
                }
                _ => {}
            }
        }
        zpl::create_fs(objset, tx, &new)
    }
}

/// What makes the objects of a new volume.
pub fn of_volume(env: &Env) -> impl FnOnce(&Arc<Objset>, &Tx<'_>, &Created) -> Result<()> + Send + 'static {
    let salt = env.random();
    move |objset, tx, created| {
        let number =
            |property| created.contents.iter().find(|(of, _)| *of == property).map_or(0, |(_, number)| *number);
        let (size, block_size) = (number(Property::Volsize), number(Property::Volblocksize));
        create_volume(objset, tx, &NewVolume { size, block_size, salt })
    }
}
