//! Blocks of dnodes and heads of object sets, in both byte orders.
#![no_main]

use format::dnode::{Dnode, SLOT_SIZE};
use format::object_type::ObjectType;
use format::objset::ObjsetPhys;
use format::swap;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for class in [ObjectType::DNODE, ObjectType::OBJSET] {
        let mut turned = bytes.to_vec();
        swap::block(class, &mut turned);
        for bytes in [bytes, &turned] {
            let _ = ObjsetPhys::parse(bytes);
            for slot in (0..bytes.len()).step_by(SLOT_SIZE) {
                if let Ok(Some(dnode)) = Dnode::parse(&bytes[slot..]) {
                    dnode.size_max();
                    let _ = format!("{dnode:?}");
                }
            }
        }
    }
});
