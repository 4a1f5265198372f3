//! Records of every type, written and read again; any bytes, read in both byte orders.

use format::ids::Txg;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The parts that records are made of.
#[derive(Clone, Debug)]
struct Parts {
    words: [u64; 12],
    names: [Vec<u8>; 3],
    data: Vec<u8>,
    domains: Vec<Vec<u8>>,
    born: Born,
    extra: Option<Extra>,
    acl: LoggedAcl,
    options: [bool; 8],
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255u8, 0..40)
}

fn borns() -> impl Strategy<Value = Born> {
    (0..1u64 << 48, 1..=255u8, any::<[u64; 5]>(), any::<[u32; 2]>()).prop_map(|(object, slots, words, ids)| Born {
        object: ObjectId::new(object),
        slots,
        mode: words[0],
        uid: ids[0].into(),
        gid: ids[1].into(),
        generation: words[1],
        crtime: [words[2], words[3]],
        rdev: words[4],
    })
}

fn extras() -> impl Strategy<Value = Extra> {
    (any::<u32>(), any::<[u64; 4]>(), any::<[u8; 32]>()).prop_map(|(which, words, stamp)| {
        let has_project = which & Extra::PROJECT != 0;
        Extra {
            which,
            values: words[0],
            crtime: [words[1], words[2]],
            stamp: if has_project { [0; 32] } else { stamp },
            project: if has_project { words[3] } else { 0 },
        }
    })
}

fn acls() -> impl Strategy<Value = LoggedAcl> {
    let entry =
        (any::<[u32; 2]>(), any::<u16>(), 0..10u16, any::<[u8; 32]>()).prop_map(|(words, flags, kind, guids)| {
            let guids = (5..=8).contains(&kind).then_some(guids);
            AclEntry { who: words[0], mask: words[1], flags, kind, guids }
        });
    let parts = (any::<u64>(), vec(entry, 0..5), vec(any::<u64>(), 0..4));
    parts.prop_map(|(flags, entries, owners)| LoggedAcl { flags, entries, owners })
}

fn parts() -> impl Strategy<Value = Parts> {
    let text = (any::<[u64; 12]>(), [names(), names(), names()], vec(any::<u8>(), 1..100), vec(names(), 0..3));
    (text, borns(), proptest::option::of(extras()), acls(), any::<[bool; 8]>()).prop_map(
        |((words, names, data, domains), born, extra, acl, options)| Parts {
            words,
            names,
            data,
            domains,
            born,
            extra,
            acl,
            options,
        },
    )
}

/// An operation of each type.
fn intents(parts: &Parts) -> Vec<Intent<'_>> {
    let Parts { words, names, data, domains, born, extra, acl, options } = parts;
    let w = words.map(|word| word >> 1);
    let (name, other) = (&names[0][..], &names[1][..]);
    let domains: Vec<&[u8]> = domains.iter().map(Vec::as_slice).collect();
    let shape = format::blkptr::BlockShape::of_hole(512, format::object_type::ObjectType::OBJECT_DIRECTORY, 0);
    let bp = format::blkptr::BlkPtrBuilder::new(shape, Txg::new(w[3])).hole();
    // owners say how many domains there are, if there is no list that does
    let of_domain = [0, 1, 2].map(|domain| if domain < domains.len() as u64 { (domain + 1) << 32 } else { 0 });
    let owned = Born { uid: born.uid | of_domain[0], gid: born.gid | of_domain[1], ..*born };
    let create = |made, has_extra, has_acl| {
        let can_have = matches!(made, Made::File | Made::Directory);
        Intent::Create(Create {
            made,
            dir: ObjectId::new(w[0]),
            born: if has_acl || !can_have { *born } else { owned },
            name: if made == Made::XattrDirectory { b"" } else { name },
            extra: if has_extra { Some(extra.clone().unwrap_or_default()) } else { None },
            acl: has_acl.then(|| acl.clone()),
            domains: if can_have { domains.clone() } else { Vec::new() },
        })
    };
    let rename =
        |how| Intent::Rename(Rename { from: (ObjectId::new(w[0]), name), to: (ObjectId::new(w[1]), other), how });
    let option = |number: usize, value: u64| options[number].then_some(value);
    let mut all = vec![
        create(Made::XattrDirectory, false, false),
        create(Made::Symlink(other), false, false),
        Intent::Remove { dir: ObjectId::new(w[0]), name, is_rmdir: options[0] },
        Intent::Link { dir: ObjectId::new(w[0]), object: ObjectId::new(w[1]), name },
        rename(Renamed::Replaced),
        rename(Renamed::Exchanged),
        rename(Renamed::Whiteout(*born)),
        Intent::Write {
            object: ObjectId::new(w[0]),
            offset: w[1],
            len: data.len() as u64,
            data: WrittenData::Here(data),
        },
        Intent::Write { object: ObjectId::new(w[0]), offset: w[1], len: w[2], data: WrittenData::Block(bp) },
        Intent::Extend { object: ObjectId::new(w[0]), offset: w[1], len: w[2] },
        Intent::Truncate { object: ObjectId::new(w[0]), offset: w[1], len: w[2] },
        Intent::SetAttr(LoggedSetAttr {
            object: ObjectId::new(w[0]),
            mode: option(0, w[1]),
            uid: (!domains.is_empty()).then_some(owned.uid).or(option(1, owned.uid)),
            gid: (domains.len() > 1).then_some(owned.gid).or(option(2, owned.gid)),
            size: option(3, w[4]),
            atime: options[4].then_some([w[5], w[6]]),
            mtime: options[5].then_some([w[7], w[8]]),
            extra: extra.clone(),
            domains: domains.clone(),
        }),
        Intent::SetAcl { object: ObjectId::new(w[0]), acl: acl.clone(), domains: domains.clone() },
        Intent::SetXattr { object: ObjectId::new(w[0]), name, value: options[6].then_some(data) },
        Intent::Clone {
            object: ObjectId::new(w[0]),
            offset: w[1],
            len: w[2],
            block_size: w[3],
            blocks: vec![bp; data.len() % 4],
        },
    ];
    for made in [Made::File, Made::Directory] {
        all.extend([(false, false), (true, false), (false, true), (true, true)].map(|(e, a)| create(made, e, a)));
    }
    all
}

proptest! {
    #[test]
    fn what_is_written_is_read(parts in parts()) {
        for intent in intents(&parts) {
            let bytes = intent.bytes();
            prop_assert_eq!(bytes.len() % 8, 0);
            let parsed = Intent::parse(intent.kind(), &bytes, Endian::Little);
            prop_assert_eq!(parsed.as_ref().ok(), Some(&intent), "{:?}", parsed);
            prop_assert!(!intent.to_string().is_empty());
            // cut short, it is refused, or is another one
            for len in (0..bytes.len()).step_by(7) {
                let _ = Intent::parse(intent.kind(), &bytes[..len], Endian::Little);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(kind in 0..30u64, bytes in vec(any::<u8>(), 0..400)) {
        for endian in [Endian::Little, Endian::Big] {
            if let Ok(intent) = Intent::parse(kind, &bytes, endian) {
                prop_assert!(intent.to_string().len() < 1 << 14);
                prop_assert!(intent.bytes().len() < 1 << 12);
            }
        }
    }
}

#[test]
fn every_type_has_its_number() {
    let parts = Parts {
        words: [1; 12],
        names: [b"a".to_vec(), b"b".to_vec(), Vec::new()],
        data: vec![7; 5],
        domains: Vec::new(),
        born: Born { object: ObjectId::new(9), slots: 2, ..Born::default() },
        extra: None,
        acl: LoggedAcl::default(),
        options: [true; 8],
    };
    let mut kinds: Vec<u64> = intents(&parts).iter().map(Intent::kind).collect();
    kinds.push(Intent::Remove { dir: ObjectId::new(1), name: b"a", is_rmdir: false }.kind());
    kinds.sort_unstable();
    kinds.dedup();
    // 12 is written as 13
    let expect: Vec<u64> = (1..=24).filter(|kind| *kind != ACL_V0).collect();
    assert_eq!(kinds, expect);
}

#[test]
fn foreign_byte_order_and_old_lists() {
    let be = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    let record = [be(&[34, 8]), b"name\0".to_vec()].concat();
    let link = Intent::parse(LINK, &record, Endian::Big).unwrap();
    assert_eq!(link, Intent::Link { dir: ObjectId::new(34), object: ObjectId::new(8), name: b"name" });

    let mut old = be(&[5, 1]);
    old.extend([0, 0, 0, 7, 0, 0, 0, 3, 0x10, 0, 0, 1]);
    let entry = AclEntry { who: 7, mask: 3, flags: 0x1000, kind: 1, guids: None };
    let acl = LoggedAcl { entries: vec![entry], ..LoggedAcl::default() };
    assert_eq!(
        Intent::parse(ACL_V0, &old, Endian::Big).unwrap(),
        Intent::SetAcl { object: ObjectId::new(5), acl, domains: vec![] }
    );

    let mut set = be(&[5, 1 << 31 | 2, 0, 77, 0, 0, 0, 0, 0, 0]);
    set.extend([0, 0, 0, 3].into_iter().chain(Extra::PROJECT.to_be_bytes()).chain([0; 8]));
    set.extend(be(&[0, 0, 0, 1234, 0, 0, 0]));
    let Intent::SetAttr(set) = Intent::parse(SETATTR, &set, Endian::Big).unwrap() else { panic!() };
    assert_eq!((set.uid, set.gid, set.extra.unwrap().project), (Some(77), None, 1234));
}

#[test]
fn sizes_that_lead_nowhere() {
    let le = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let refused = |kind, words: &[u64]| {
        let error = Intent::parse(kind, &le(words), Endian::Little).unwrap_err();
        assert_eq!(error.kind(), base::Kind::Corrupt, "{kind} {words:?}");
    };
    refused(CLONE, &[1, 0, 0, 512, u64::MAX]);
    refused(CLONE, &[1, 0, 0, 512, u64::MAX / 128 + 2]);
    refused(SET_XATTR, &[1, u64::MAX, 0]);
    refused(ACL, &[1, 0, 0, 0, u64::MAX, 0]);
    refused(ACL, &[1, 0, u64::MAX, u64::MAX, 0, 0]);
    refused(ACL_V0, &[1, u64::MAX]);
    refused(REMOVE, &[1, u64::MAX]);
    refused(WRITE, &[[1, u64::MAX, 2, 0].as_slice(), &[0; 16]].concat());
    refused(WRITE, &[[1, 0, 100, 0].as_slice(), &[0; 17]].concat());
    let unknown = Intent::parse(25, &[], Endian::Little).unwrap_err();
    assert_eq!(unknown.kind(), base::Kind::Unsupported);
}
