//! `inspect block`: the bytes at an address of a pool, put together from its vdev's devices.

use std::io::Write;

use base::{AlignedBuf, Error, Kind, Result};
use codec::compress::{self, Compress};
use format::blkptr::{BLOCK_SIZE_MAX, BlkPtr};
use format::ids::{Txg, VdevNumber};
use vdev::Extent;

use crate::offline::{Opener, PoolArgs};
use crate::zdb::text::Pointer;

/// Bytes of a line of a dump.
const LINE: usize = 16;

#[derive(clap::Args)]
pub struct BlockArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// How to show it
    #[arg(short = 'f', long = "as", value_enum, default_value_t = BlockForm::Hex)]
    form: BlockForm,
    /// Decompress it first
    #[arg(short = 'c', long, value_name = "ALGORITHM", requires = "lsize")]
    decompress: Option<String>,
    /// Bytes after decompression
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number)]
    lsize: Option<u64>,
    /// The pool, by name or guid
    #[arg(value_name = "POOL")]
    name: String,
    /// Number of the top-level vdev, offset and size in hex, as block pointers are printed
    #[arg(required = true, value_name = "VDEV:OFFSET:SIZE")]
    addresses: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BlockForm {
    /// Hex and text
    Hex,
    /// The bytes themselves
    Raw,
    /// As an array of block pointers
    Pointers,
}

pub fn print(args: &BlockArgs, opener: &mut Opener, out: &mut dyn Write) -> Result<bool> {
    let pool = opener.pool(&args.name)?;
    for address in &args.addresses {
        let (top, offset, size) = parse(address)?;
        let mut bytes = AlignedBuf::zeroed(size as usize);
        // any birth: what some device has missed is not known of an address alone
        let extent = Extent { top, offset, size, birth_txg: Txg::MAX };
        let mut bufs = [&mut *bytes];
        pool.tree().read_batch(&[extent], &mut bufs).pop().expect("one result an extent")?;
        let bytes = match &args.decompress {
            None => bytes.to_vec(),
            Some(name) => decompress(name, args.lsize.unwrap_or(0), &bytes)?,
        };
        match args.form {
            BlockForm::Raw => out.write_all(&bytes)?,
            BlockForm::Hex => dump(&bytes, out)?,
            BlockForm::Pointers => {
                for (i, bp) in BlkPtr::slice(&bytes).iter().enumerate().filter(|(_, bp)| **bp != BlkPtr::HOLE) {
                    writeln!(out, "{i:6x}  {}", Pointer(bp))?;
                }
            }
        }
    }
    Ok(true)
}

fn parse(address: &str) -> Result<(VdevNumber, u64, u64)> {
    let wrong = |what| Error::new(Kind::Invalid, format!("'{address}' {what}"));
    let parts: Vec<&str> = address.split(':').collect();
    let &[top, offset, size] = &parts[..] else { return Err(wrong("is not VDEV:OFFSET:SIZE")) };
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (Ok(top), Some(offset), Some(size)) = (top.parse(), hex(offset), hex(size)) else {
        return Err(wrong("is not VDEV:OFFSET:SIZE, with offset and size in hex"));
    };
    if size == 0 || size > BLOCK_SIZE_MAX {
        return Err(wrong("is not the size of a block"));
    }
    Ok((top, offset, size))
}

fn decompress(name: &str, lsize: u64, bytes: &[u8]) -> Result<Vec<u8>> {
    let kind = Compress::ALL.into_iter().find(|kind| kind.is_concrete() && kind.name() == name);
    let kind = kind.ok_or_else(|| Error::new(Kind::Invalid, format!("no compression is called '{name}'")))?;
    if lsize > BLOCK_SIZE_MAX {
        return Err(Error::new(Kind::Invalid, format!("no block has {lsize} bytes")));
    }
    let mut out = vec![0; lsize as usize];
    compress::decompress(kind, bytes, &mut out)?;
    Ok(out)
}

fn number(text: &str) -> std::result::Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|e| e.to_string())
}

/// Offset, hex and text.
fn dump(bytes: &[u8], out: &mut dyn Write) -> Result<()> {
    for (i, line) in bytes.chunks(LINE).enumerate() {
        let hex: Vec<String> = line.chunks(8).map(protocol::words::hex).collect();
        let text: String = line.iter().map(|&b| if matches!(b, b' '..=b'~') { char::from(b) } else { '.' }).collect();
        writeln!(out, "{:08x}  {:33}  {text}", i * LINE, hex.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(parse("1:1b8000:200").unwrap(), (VdevNumber::new(1), 0x1b_8000, 512));
        for wrong in ["", "1:2", "1:2:3:4", "x:0:200", "0:0:0", "0:0:1000001", "0:g:200"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!((number("0x20"), number("20")), (Ok(32), Ok(20)));
    }

    #[test]
    fn dumps() {
        let mut out = Vec::new();
        dump(&[b"0123456789abcdef".as_slice(), &[0, 200]].concat(), &mut out).unwrap();
        let lines = "00000000  3031323334353637 3839616263646566  0123456789abcdef\n\
                     00000010  00c8                               ..\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
    }
}
