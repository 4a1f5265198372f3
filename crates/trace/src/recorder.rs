//! A new file of records that this program reads again, compressed by zstd.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::binary::own;
use crate::error::TraceError;
use crate::names;
use crate::request::TraceRequest;

/// The fastest level: recording is not to disturb what it records.
const ZSTD_LEVEL: i32 = 1;

/// Writes a trace into a file.
pub struct TraceRecorder {
    out: zstd::stream::write::Encoder<'static, File>,
    buffer: Vec<u8>,
}

impl TraceRecorder {
    /// A new file. Errors: it is there already, or cannot be made.
    pub fn create(path: &Path) -> Result<TraceRecorder, TraceError> {
        let file = File::options().write(true).create_new(true).open(path)?;
        let out = zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?;
        Ok(TraceRecorder { out, buffer: Vec::new() })
    }

    /// Writes requests, so that they can be read even if the program is killed after that. Errors: they cannot be written.
    pub fn write<'a>(&mut self, requests: impl IntoIterator<Item = &'a TraceRequest>) -> Result<(), TraceError> {
        self.buffer.clear();
        requests.into_iter().for_each(|request| self.buffer.extend(own(request)));
        self.out.write_all(&self.buffer)?;
        Ok(self.out.flush()?)
    }

    /// Writes names of files, by dataset and object; they are best before what is told of these. Errors: they cannot be
    /// written.
    pub fn write_names<'a>(&mut self, names: impl IntoIterator<Item = (u64, u64, &'a str)>) -> Result<(), TraceError> {
        self.buffer.clear();
        names.into_iter().for_each(|(stream, object, name)| self.buffer.extend(names::record(stream, object, name)));
        Ok(self.out.write_all(&self.buffer)?)
    }

    /// Ends the file. Errors: it cannot be written.
    pub fn finish(self) -> Result<(), TraceError> {
        Ok(self.out.finish()?.sync_all()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TraceFormat, TraceOp, TraceReader};

    #[test]
    fn what_was_recorded_is_read() {
        let dir = std::env::temp_dir().join(format!("cenote-trace-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a.trace");
        let request = |n: u64| TraceRequest {
            time_ns: Some(n),
            op: TraceOp::Write,
            stream: 1,
            object: 2,
            offset: n << 12,
            bytes: 4096,
        };
        let requests: Vec<TraceRequest> = (0..1000).map(request).collect();
        let mut recorder = TraceRecorder::create(&path).unwrap();
        recorder.write(&requests[..500]).unwrap();
        let so_far: Vec<_> = TraceReader::open(&path, Some(TraceFormat::Cenote)).unwrap().collect();
        assert!(so_far.len() > 500 && so_far[..500].iter().zip(&requests).all(|(a, b)| a.as_ref() == Ok(b)));
        assert!(so_far.last().unwrap().is_err(), "it is told that there is no end");
        recorder.write_names([(1, 2, "/a\n\u{1b}b"), (1, 3, "")]).unwrap();
        recorder.write(&requests[500..]).unwrap();
        recorder.finish().unwrap();
        let mut reader = TraceReader::open(&path, None).unwrap();
        assert_eq!(reader.format(), TraceFormat::Cenote);
        assert_eq!(reader.by_ref().collect::<Result<Vec<_>, _>>(), Ok(requests));
        assert_eq!(reader.names().iter().collect::<Vec<_>>(), [(1, 2, "/a\n\u{1b}b"), (1, 3, "")]);
        assert!(TraceRecorder::create(&path).is_err(), "nothing is written over");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
