//! Properties that are kept inside an object set: those of the file system or volume itself.
//!
//! ```text
//!   file system: object 1, the master node: "VERSION", "normalization", "utf8only", "casesensitivity", ...
//!   volume:      object 1, the data: its block size;  object 2: "size"
//! ```

use std::sync::Arc;

use base::{Kind, Result};
use dmu::Objset;
use dmu::zap::Zap;
use format::ids::ObjectId;
use format::volume;

use crate::Property;

/// Object of a file system that leads to all others.
pub(crate) const MASTER_NODE: ObjectId = ObjectId::new(1);
/// The version of a file system that does not tell.
const ZPL_VERSION: u64 = 5;

/// A property of the file system in `objset`; `None` if it is no such property.
pub(crate) fn of_file_system(objset: &Arc<Objset>, property: Property) -> Result<Option<u64>> {
    let (name, default) = match property {
        Property::Version => ("VERSION", ZPL_VERSION),
        Property::Normalization
        | Property::Utf8only
        | Property::Casesensitivity
        | Property::Defaultuserquota
        | Property::Defaultgroupquota
        | Property::Defaultprojectquota
        | Property::Defaultuserobjquota
        | Property::Defaultgroupobjquota
        | Property::Defaultprojectobjquota => (property.name(), 0),
        _ => return Ok(None),
    };
    let number = Zap::open(objset.object(MASTER_NODE)?)?.u64(name)?;
    Ok(Some(number.unwrap_or(default)))
}

/// A property of the volume in `objset`; `None` if it is no such property.
pub(crate) fn of_volume(objset: &Arc<Objset>, property: Property) -> Result<Option<u64>> {
    match property {
        Property::Volsize => Zap::open(objset.object(volume::PROPERTIES)?)?.require_u64(volume::SIZE).map(Some),
        Property::Volblocksize => match objset.object(volume::DATA) {
            Ok(object) => Ok(Some(object.dnode().block_size)),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        },
        _ => Ok(None),
    }
}
