use super::*;

fn sample() -> NvList {
    let mut inner = NvList::new();
    inner.set("path", Value::Str("/dev/sda1".into()));
    inner.set("guid", Value::U64(0x1122_3344_5566_7788));
    let mut list = NvList::new();
    list.set("flag", Value::Flag);
    list.set("bool", Value::Bool(true));
    list.set("i8", Value::I8(-3));
    list.set("i16", Value::I16(-300));
    list.set("u32", Value::U32(7));
    list.set("i64", Value::I64(-1));
    list.set("bytes", Value::Bytes(vec![1, 2, 3, 4, 5]));
    list.set("u8s", Value::U8s(vec![9; 3]));
    list.set("u64s", Value::U64s(vec![1, u64::MAX]));
    list.set("strs", Value::Strs(vec!["".into(), "abc".into()]));
    list.set("tree", Value::List(inner.clone()));
    list.set("children", Value::Lists(vec![inner.clone(), NvList::new(), inner]));
    list
}

#[test]
fn xdr_round_trip() {
    let list = sample();
    let packed = list.pack();
    assert_eq!(packed.len() % 4, 0);
    assert_eq!(NvList::unpack(&packed).unwrap(), list);
}

#[test]
fn every_type_round_trips() {
    let values = [
        Value::Byte(200),
        Value::U8(201),
        Value::U16(60000),
        Value::I32(-70000),
        Value::U64(u64::MAX),
        Value::Hrtime(-1 << 40),
        Value::Double(-2.5),
        Value::Str(String::new()),
        Value::Bools(vec![true, false, true]),
        Value::I8s(vec![-1, 2]),
        Value::I16s(vec![-1, 2]),
        Value::U16s(vec![60000]),
        Value::I32s(vec![-1, i32::MIN]),
        Value::U32s(vec![u32::MAX]),
        Value::I64s(vec![i64::MIN]),
        Value::U64s(vec![]),
        Value::Strs(vec![]),
        Value::Lists(vec![sample(), sample()]),
    ];
    let list: NvList = values.iter().enumerate().map(|(i, value)| ("n".repeat(i), value.clone())).collect();
    assert_eq!(NvList::unpack(&list.pack()).unwrap(), list);
}

#[test]
fn every_truncation_is_an_error() {
    let packed = sample().pack();
    for n in 0..packed.len() {
        assert!(NvList::unpack(&packed[..n]).is_err(), "{n}");
    }
}

#[test]
fn counts_beyond_the_input_do_not_allocate() {
    let mut list = NvList::new();
    list.set("a", Value::U64s(vec![1, 2]));
    let packed = list.pack();
    // the length of the array is the word before its 16 bytes and the 8 of the end
    let at = packed.len() - 8 - 16 - 4;
    let mut bad = packed.clone();
    bad[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(NvList::unpack(&bad).unwrap_err().to_string().contains("array of 4294967295 elements"));
}

#[test]
fn deep_nesting_is_refused() {
    let mut list = NvList::new();
    for _ in 0..100 {
        let mut outer = NvList::new();
        outer.set("l", Value::List(list));
        list = outer;
    }
    assert!(NvList::unpack(&list.pack()).unwrap_err().to_string().contains("deeper"));
}

/// A native list written out by hand, in both byte orders.
#[test]
fn native_lists() {
    for big in [false, true] {
        let w4 = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let w2 = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let w8 = |n: u64| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let pair = |name: &str, kind: u32, n: u32, value: &[u8]| {
            let mut body = Vec::new();
            body.extend(w2(name.len() as u16 + 1));
            body.extend(w2(0));
            body.extend(w4(n));
            body.extend(w4(kind));
            body.extend(name.bytes());
            body.push(0);
            body.resize((4 + body.len()).next_multiple_of(8) - 4, 0);
            body.extend(value);
            body.resize((4 + body.len()).next_multiple_of(8) - 4, 0);
            [&w4(body.len() as u32 + 4)[..], &body].concat()
        };
        let mut packed = vec![0, u8::from(!big), 0, 0];
        packed.extend(w4(0));
        packed.extend(w4(1));
        packed.extend(pair("n", code::U64, 1, &w8(77)));
        packed.extend(pair("inner", code::LIST, 1, &[0; 24]));
        packed.extend(pair("s", code::STR, 1, b"hello\0"));
        packed.extend(w4(0));
        packed.extend(pair("strs", code::STRS, 2, b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0ab\0c\0"));
        packed.extend(w4(0));
        let list = NvList::unpack(&packed).unwrap();
        assert_eq!(list.u64("n").unwrap(), 77);
        assert_eq!(list.list("inner").unwrap().str("s").unwrap(), "hello");
        assert_eq!(list.get("strs"), Some(&Value::Strs(vec!["ab".into(), "c".into()])));
        for n in 0..packed.len() {
            assert!(NvList::unpack(&packed[..n]).is_err(), "{n}");
        }
    }
}
