//! `userquota@alice=10G` and the like: whom they name, and what they say.

use base::{Error, Kind, Result};
use dsl::accounting::{Counted, Owner, OwnerId};
use dsl::property::{DatasetKind, rules};
use protocol::datasets::WantedProperty;
use protocol::owners;

/// The limit of a user, group or project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Which kind of owner.
    pub owner: Owner,
    /// What is limited.
    pub counted: Counted,
    /// The user, group or project.
    pub who: OwnerId,
    /// Bytes or objects; 0 is no limit.
    pub limit: u64,
}

/// Reads `NAME=VALUE` for a dataset of that kind; `None` if it is another property. Errors: why it cannot be set.
pub(super) fn parse(name: &str, value: &str, kind: DatasetKind) -> Option<Result<Limit>> {
    let (property, _) = name.split_once('@')?;
    let (owner, counted, is_limit) = account_of(property)?;
    Some(match is_limit {
        true => limit(name, value, kind, (owner, counted)),
        false => Err(invalid(format!("'{name}' is readonly"))),
    })
}

/// Properties and their values, as somebody gives them.
type GivenProperties = Vec<(String, String)>;

/// Those among the properties that are given for a new dataset of that kind, and the others. Errors: why one cannot be
/// set.
pub(super) fn taken_out(given: &[(String, String)], kind: DatasetKind) -> Result<(Vec<Limit>, GivenProperties)> {
    let (mut limits, mut others) = (Vec::new(), Vec::new());
    for (name, value) in given {
        match parse(name, value, kind) {
            Some(limit) => limits.push(limit?),
            None => others.push((name.clone(), value.clone())),
        }
    }
    Ok((limits, others))
}

/// Whose account a property such as `userobjquota` tells, of what, and whether the limit.
pub(super) fn account_of(property: &str) -> Option<(Owner, Counted, bool)> {
    let owners = [("user", Owner::User), ("group", Owner::Group), ("project", Owner::Project)];
    let (rest, owner) = owners.iter().find_map(|(name, owner)| Some((property.strip_prefix(name)?, *owner)))?;
    match rest {
        "used" => Some((owner, Counted::Bytes, false)),
        "quota" => Some((owner, Counted::Bytes, true)),
        "objused" => Some((owner, Counted::Objects, false)),
        "objquota" => Some((owner, Counted::Objects, true)),
        _ => None,
    }
}

fn limit(name: &str, value: &str, kind: DatasetKind, (owner, counted): (Owner, Counted)) -> Result<Limit> {
    if kind != DatasetKind::FileSystem {
        return Err(invalid(format!("'{name}' does not apply to datasets of this type")));
    }
    let WantedProperty::Account { id, domain, .. } = owners::wanted(name) else {
        return Err(invalid(format!("'{name}' has an invalid user/group name")));
    };
    let limit = if value == "none" { 0 } else { rules::parse_number(value)? };
    Ok(Limit { owner, counted, who: (domain, id), limit })
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_use_how_much() {
        let one = |name, value| parse(name, value, DatasetKind::FileSystem);
        let limit = |owner, counted, id, limit| Limit { owner, counted, who: (String::new(), id), limit };
        assert!(one("quota", "1G").is_none() && one("org.me:quota@x", "1G").is_none());
        let good = |name, value| one(name, value).unwrap().unwrap();
        assert_eq!(good("userquota@root", "10M"), limit(Owner::User, Counted::Bytes, 0, 10 << 20));
        assert_eq!(good("groupobjquota@12345", "none"), limit(Owner::Group, Counted::Objects, 12345, 0));
        assert_eq!(good("projectquota@7", "0"), limit(Owner::Project, Counted::Bytes, 7, 0));
        let why = |name, value, kind| parse(name, value, kind).unwrap().unwrap_err().what().to_owned();
        assert_eq!(why("userused@root", "1", DatasetKind::FileSystem), "'userused@root' is readonly");
        assert_eq!(
            why("userquota@no such user", "1", DatasetKind::FileSystem),
            "'userquota@no such user' has an invalid user/group name"
        );
        assert_eq!(why("userquota@0", "x", DatasetKind::FileSystem), "bad numeric value 'x'");
        assert_eq!(
            why("userquota@0", "1", DatasetKind::Snapshot),
            "'userquota@0' does not apply to datasets of this type"
        );
    }

    #[test]
    fn accounts_by_name() {
        assert_eq!(account_of("userused"), Some((Owner::User, Counted::Bytes, false)));
        assert_eq!(account_of("projectobjquota"), Some((Owner::Project, Counted::Objects, true)));
        assert_eq!(account_of("groupobjused"), Some((Owner::Group, Counted::Objects, false)));
        assert_eq!((account_of("user"), account_of("userspace"), account_of("quota")), (None, None, None));
    }
}
