//! Users, groups and projects: from names to numbers, and back.

use nix::unistd::{Gid, Group, Uid, User};

use crate::datasets::{Owner, WantedProperty};

/// What `userused@alice` and the like ask for.
///
/// Behind the `@` is a name, a number, or for those from Windows a SID: `S-1-123-456-789`.
pub fn wanted(name: &str) -> WantedProperty {
    let Some((property, who)) = name.split_once('@') else { return WantedProperty::Nothing };
    let number = match () {
        () if property.starts_with("user") => User::from_name(who).ok().flatten().map(|user| user.uid.as_raw()),
        () if property.starts_with("group") => Group::from_name(who).ok().flatten().map(|group| group.gid.as_raw()),
        () => None,
    };
    let account = |id: u64, domain: &str| WantedProperty::Account {
        property: property.to_owned(),
        id,
        domain: domain.to_owned(),
    };
    if let Some(number) = number {
        return account(number.into(), "");
    }
    if let Some((domain, id)) = who.rsplit_once('-').filter(|_| who.starts_with("S-1-")) {
        return id.parse().map_or(WantedProperty::Nothing, |id| account(id, domain));
    }
    who.parse().map_or(WantedProperty::Nothing, |id: u32| account(id.into(), ""))
}

/// The name of a user or group of this machine; `None` if it has none. Projects have none.
pub fn name_of(owner: Owner, id: u64) -> Option<String> {
    let id = u32::try_from(id).ok()?;
    match owner {
        Owner::User => User::from_uid(Uid::from_raw(id)).ok().flatten().map(|user| user.name),
        Owner::Group => Group::from_gid(Gid::from_raw(id)).ok().flatten().map(|group| group.name),
        Owner::Project => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_meant() {
        let account = |property: &str, id, domain: &str| WantedProperty::Account {
            property: property.to_owned(),
            id,
            domain: domain.to_owned(),
        };
        assert_eq!(wanted("userused@root"), account("userused", 0, ""));
        assert_eq!(wanted("groupquota@root"), account("groupquota", 0, ""));
        assert_eq!(wanted("userobjused@126829"), account("userobjused", 126_829, ""));
        assert_eq!(wanted("projectused@7"), account("projectused", 7, ""));
        assert_eq!(wanted("userquota@S-1-5-21-9-1001"), account("userquota", 1001, "S-1-5-21-9"));
        assert_eq!(wanted("projectused@root"), WantedProperty::Nothing);
        assert_eq!(wanted("userused@no such user"), WantedProperty::Nothing);
        assert_eq!(name_of(Owner::User, 0).as_deref(), Some("root"));
        assert_eq!(name_of(Owner::Project, 0), None);
    }
}
