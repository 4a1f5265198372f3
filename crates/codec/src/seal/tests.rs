use ::ccm::Ccm;
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::consts::{U12, U16};
use proptest::prelude::*;
use serde_json::Value;

use super::cipher::Cipher;
use super::*;

/// What OpenZFS sealed, with the keys: made by a program that shares no code with this one.
fn vectors() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/encrypted/vectors.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    bytes(value).try_into().unwrap()
}

/// Additional data of the wrapped keys of a dataset.
fn additional(of: &Value) -> Vec<u8> {
    ["guid", "suite", "version"].iter().flat_map(|name| of[name].as_u64().unwrap().to_le_bytes()).collect()
}

fn wrapped<'a>(of: &Value, additional: &'a [u8]) -> WrappedKeys<'a> {
    WrappedKeys {
        suite: Suite::of_number(of["suite"].as_u64().unwrap()).unwrap(),
        iv: array(&of["wrap_iv"]),
        mac: array(&of["wrap_mac"]),
        additional,
        master: array(&of["wrapped_master"]),
        hmac: array(&of["wrapped_hmac"]),
    }
}

fn wrapping(of: &Value) -> SecretBytes<WRAPPING_SIZE> {
    SecretBytes::take(&mut bytes(&of["wrapping_key"])).unwrap()
}

#[test]
fn keys_of_the_corpus() {
    let (mut suites, mut keys) = (Vec::new(), 0);
    for of in vectors() {
        let additional = additional(&of);
        let found = DataKeys::unwrap(&wrapped(&of, &additional), &wrapping(&of)).unwrap();
        suites.push(found.suite());
        // the same as if they had never been wrapped
        let expect = DataKeys::new(found.suite(), &bytes(&of["master"]), &bytes(&of["hmac"]));
        assert_eq!(found.name(), expect.name());
        for block in of["blocks"].as_array().unwrap().iter().filter(|block| block.get("block_key").is_some()) {
            let due = bytes(&block["block_key"]);
            assert_eq!(found.key_of_salt(array(&block["salt"]))[..due.len()], due);
            keys += 1;
        }
    }
    suites.sort_by_key(|suite| *suite as u8);
    suites.dedup();
    assert_eq!((suites, keys > 8), (Suite::ALL.to_vec(), true));
}

/// Every bit of what is wrapped, of what is authenticated with it, and of the wrapping key counts.
#[test]
fn other_keys_open_nothing() {
    for of in vectors() {
        let good = additional(&of);
        let is_open =
            |change: &mut dyn FnMut(&mut WrappedKeys<'_>), key: &SecretBytes<WRAPPING_SIZE>, additional: &[u8]| {
                let mut changed = wrapped(&of, additional);
                change(&mut changed);
                DataKeys::unwrap(&changed, key).is_some()
            };
        let key = wrapping(&of);
        assert!(is_open(&mut |_| {}, &key, &good));
        for bit in 0..8 * WRAPPING_SIZE {
            let mut other = *key.bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_open(&mut |_| {}, &SecretBytes::take(&mut other).unwrap(), &good), "key bit {bit}");
        }
        for at in 0..good.len() {
            let mut other = good.clone();
            other[at] ^= 1;
            assert!(!is_open(&mut |_| {}, &key, &other), "additional byte {at}");
        }
        let size = wrapped(&of, &good).suite.key_size();
        for at in 0..size {
            assert!(!is_open(&mut |of| of.master[at] ^= 0x80, &key, &good), "master byte {at}");
        }
        for at in 0..64 {
            assert!(!is_open(&mut |of| of.hmac[at] ^= 1, &key, &good), "hmac byte {at}");
        }
        for at in 0..IV_SIZE {
            assert!(!is_open(&mut |of| of.iv[at] ^= 1, &key, &good), "vector byte {at}");
        }
        assert!(!is_open(&mut |of| of.mac[15] ^= 1, &key, &good));
        // what is behind a short master key is nobody's
        assert!(size == 32 || is_open(&mut |of| of.master[31] ^= 1, &key, &good));
    }
}

#[test]
fn wrapping_keys_of_passphrases() {
    // by Python's hashlib
    let salt = u64::from_le_bytes(*b"saltSALT");
    let expect = Value::from("2e4f5f3032499e89d47d72d68903da5e64aea14cc283cfaf6c87814ec68641e2");
    assert_eq!(derive(b"password", salt, 1).bytes()[..], bytes(&expect));
    let of = vectors().into_iter().find(|of| of["format"] == 3 && of["iters"].as_u64().unwrap() < 200_000).unwrap();
    let name = of["dataset"].as_str().unwrap().replace('/', "+");
    let path = format!("{}/../../tests/corpus/encrypted/keys/{name}.key", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(path).unwrap();
    let passphrase = text.strip_suffix(b"\n").unwrap_or(&text);
    let key = derive(passphrase, of["salt"].as_u64().unwrap(), of["iters"].as_u64().unwrap() as u32);
    assert!(key.bytes() == wrapping(&of).bytes());
}

/// NIST SP 800-38D, test cases 3 and 4 of its first proposal: keys of 128, 192 and 256 bits.
#[test]
fn gcm_of_all_key_lengths() {
    let hex = |text: &str| bytes(&Value::from(text));
    let message = hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
    );
    let additional = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let iv = hex("cafebabefacedbaddecaf888").try_into().unwrap();
    let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
    let cases = [
        (Suite::Aes128Gcm, "5bc94fbc3221a5db94fae95ae7121a47", "42831ec2"),
        (Suite::Aes192Gcm, "2519498e80f1478f37ba55bd6d27618c", "3980ca0b"),
        (Suite::Aes256Gcm, "76fc6ece0f4e1768cddf8853bb2d551b", "522dc1f0"),
    ];
    for (suite, mac, begin) in cases {
        let cipher = Cipher::new(suite, &key[..suite.key_size()]);
        let mut sealed = message.clone();
        let found = cipher.seal(&iv, &additional, &mut sealed).unwrap();
        assert_eq!((found.to_vec(), &sealed[..4]), (hex(mac), &hex(begin)[..]), "{suite:?}");
        assert!(cipher.open(&iv, &additional, &mut sealed, &found) && sealed == message);
    }
}

fn key() -> [u8; 32] {
    std::array::from_fn(|at| (at * 7 + 3) as u8)
}

/// What the crate `ccm` makes of it.
fn expected(suite: Suite, iv: &[u8; IV_SIZE], additional: &[u8], message: &mut [u8]) -> [u8; MAC_SIZE] {
    use aes_gcm::KeyInit;
    let key = &key()[..suite.key_size()];
    let iv = &(*iv).into();
    match suite {
        Suite::Aes128Ccm => Ccm::<aes::Aes128, U16, U12>::new_from_slice(key)
            .unwrap()
            .encrypt_inout_detached(iv, additional, message.into())
            .unwrap()
            .into(),
        Suite::Aes192Ccm => Ccm::<aes::Aes192, U16, U12>::new_from_slice(key)
            .unwrap()
            .encrypt_inout_detached(iv, additional, message.into())
            .unwrap()
            .into(),
        _ => Ccm::<aes::Aes256, U16, U12>::new_from_slice(key)
            .unwrap()
            .encrypt_inout_detached(iv, additional, message.into())
            .unwrap()
            .into(),
    }
}

fn check_ccm(suite: Suite, iv: [u8; IV_SIZE], additional: &[u8], message: &[u8]) {
    let cipher = Cipher::new(suite, &key()[..suite.key_size()]);
    let (mut ours, mut theirs) = (message.to_vec(), message.to_vec());
    let mac = cipher.seal(&iv, additional, &mut ours).unwrap();
    assert_eq!(mac, expected(suite, &iv, additional, &mut theirs));
    assert!(ours == theirs);
    assert!(cipher.open(&iv, additional, &mut ours, &mac) && ours == message);
}

proptest! {
    #[test]
    fn ccm_is_that_of_others(
        which in 0..3usize,
        iv in any::<[u8; IV_SIZE]>(),
        additional in prop::collection::vec(any::<u8>(), 0..100),
        message in prop::collection::vec(any::<u8>(), 0..700),
    ) {
        check_ccm(Suite::ALL[which], iv, &additional, &message);
    }

    #[test]
    fn changed_bytes_do_not_open(
        which in 0..6usize,
        iv in any::<[u8; IV_SIZE]>(),
        additional in prop::collection::vec(any::<u8>(), 1..40),
        message in prop::collection::vec(any::<u8>(), 1..300),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let suite = Suite::ALL[which];
        let cipher = Cipher::new(suite, &key()[..suite.key_size()]);
        let mut sealed = message.clone();
        let mac = cipher.seal(&iv, &additional, &mut sealed).unwrap();
        let flip = |bytes: &mut [u8]| { let at = at.index(bytes.len()); bytes[at] ^= 1 << bit; };
        for what in 0..4 {
            let (mut iv, mut additional, mut message, mut mac) = (iv, additional.clone(), sealed.clone(), mac);
            match what {
                0 => flip(&mut iv),
                1 => flip(&mut additional),
                2 => flip(&mut message),
                _ => flip(&mut mac),
            }
            prop_assert!(!cipher.open(&iv, &additional, &mut message, &mac));
            prop_assert!(message.iter().all(|&byte| byte == 0));
        }
    }
}

/// Nothing at all, whole blocks, and additional data on both sides of where its length takes more bytes.
#[test]
fn ccm_at_its_edges() {
    for suite in &Suite::ALL[..3] {
        for additional in [0, 1, 13, 14, 15, 16, 0xfeff, 0xff00, 0x1_0001] {
            for message in [0, 1, 16, 255, 256, 257, 4096] {
                check_ccm(*suite, [9; IV_SIZE], &vec![0x5a; additional], &vec![0xa5; message]);
            }
        }
    }
    let cipher = Cipher::new(Suite::Aes128Ccm, &[1; 16]);
    let mut long = vec![0; 1 << 24];
    assert!(cipher.seal(&[0; IV_SIZE], &[], &mut long).is_none());
    assert!(!cipher.open(&[0; IV_SIZE], &[], &mut long, &[0; MAC_SIZE]));
    assert!(cipher.seal(&[0; IV_SIZE], &[], &mut long[1..]).is_some());
}

#[test]
fn macs_are_over_one_message() {
    let keys = DataKeys::new(Suite::Aes128Gcm, &[1; 16], &[2; 64]);
    assert_eq!(keys.mac([&b"ab"[..], b"", b"c"]), keys.mac([&b"abc"[..]]));
    assert_eq!(sha512([&b"ab"[..], b"c"]), sha512([&b"abc"[..]]));
    assert!(keys.mac([&b"abc"[..]]) != sha512([&b"abc"[..]]));
    assert!(Suite::of_number(2).is_none() && Suite::of_number(9).is_none() && Suite::of_number(u64::MAX).is_none());
}
