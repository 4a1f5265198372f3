//! For a fuzzer: what is parsed here of what users and disks say.

use crate::posix_acl::PosixAcl;

/// Takes `bytes` as a POSIX ACL, and as a table of the domains that users are of.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(Some(acl)) = PosixAcl::parse(bytes) {
        assert_eq!(PosixAcl::parse(&acl.bytes()).expect("it was written here"), Some(acl));
    }
    let _ = crate::fuid::named_domains(bytes);
}
