//! What a file's bonus buffer holds: system attributes, znodes, ACLs, extended attributes.
#![no_main]

use format::object_type::ObjectType;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    format::sa::fuzz(bytes);
    format::xattr::fuzz(bytes);
    for kind in [ObjectType::NONE, ObjectType::ZNODE, ObjectType::ACL, ObjectType::OLD_ACL] {
        let mut turned = bytes.to_vec();
        format::swap::block(kind, &mut turned);
        format::znode::fuzz(&turned);
        format::acl::fuzz(&turned);
    }
});
