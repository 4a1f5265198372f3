use super::*;

#[test]
fn places() {
    let parse = |text: &str| text.parse::<KeyPlace>();
    assert_eq!((parse("prompt"), parse("-")), (Ok(KeyPlace::Prompt), Ok(KeyPlace::Stdin)));
    assert_eq!(parse("file:///a/b"), Ok(KeyPlace::File("/a/b".into())));
    for wrong in ["", "file://", "file://a", "/a", "https://host/key", "http://host/key", "Prompt"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(KeyPlace::of_zdb("file:///a"), KeyPlace::File("/a".into()));
    assert_eq!(KeyPlace::of_zdb("correct horse"), KeyPlace::Given(GivenKey("correct horse".to_owned())));
    assert!(!format!("{:?}", KeyPlace::of_zdb("correct horse")).contains("horse"));
}

#[test]
fn keys_as_they_are_written_down() {
    let read = |mut bytes: &[u8], is_raw| key_in(&mut bytes, is_raw).map_err(|e| e.kind());
    assert_eq!(read(b"secret\nmore", false).unwrap(), b"secret");
    assert_eq!(read(b"secret", false).unwrap(), b"secret");
    // of raw keys nothing is cut off, and one byte too much is seen
    assert_eq!(read(&[b'\n'; 32], true).unwrap(), [b'\n'; 32]);
    assert_eq!(read(&[7; 40], true).unwrap().len(), 33);
    assert_eq!(read(b"", false).unwrap_err(), Kind::Invalid);
    assert_eq!(read(b"\n", false).unwrap(), b"");
    assert_eq!(read(&[b'a'; LINE_MAX], false).unwrap_err(), Kind::Invalid);
}
