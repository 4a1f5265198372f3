//! `cenote cat`: files and volumes to standard output.

use std::ffi::OsString;
use std::io::{self, Write};

use base::Result;

use super::target::{Content, FileArgs, OpenTarget, Opener, Target};
use crate::output::complain;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Print files out of pools that are not imported. A volume reads as a file: POOL/VOLUME:
#[derive(clap::Parser)]
#[command(name = "cenote cat", no_binary_name = true)]
pub struct CatArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Files to print, one after the other
    #[arg(required = true, value_name = "POOL[/DS][@SNAP]:/PATH")]
    targets: Vec<OsString>,
}

pub fn run(args: CatArgs) -> bool {
    let mut opener = Opener::of_files(&args.files);
    let mut well = true;
    for target in &args.targets {
        match open(&mut opener, target).and_then(|content| copy_out(&content)) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => {
                complain("cat", format_args!("writing output: {e}"));
                return false;
            }
            Err(e) => {
                complain("cat", format_args!("{}: {e}", target.display()));
                well = false;
            }
        }
    }
    well
}

fn open(opener: &mut Opener, target: &OsString) -> Result<Content> {
    Ok(match opener.open(&Target::parse(target)?)? {
        OpenTarget::File(zpl, ino) => Content::File(zpl.open_file(ino)?),
        OpenTarget::Volume(volume) => Content::Volume(volume),
    })
}

/// The outer result is that of reading, the inner that of writing.
fn copy_out(content: &Content) -> Result<io::Result<()>> {
    let mut out = io::stdout().lock();
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < content.size() {
        let n = content.read(at, &mut buf)?;
        if let Err(e) = out.write_all(&buf[..n]) {
            return Ok(Err(e));
        }
        at += n as u64;
    }
    Ok(out.flush())
}
