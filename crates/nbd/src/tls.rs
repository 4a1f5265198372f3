//! TLS for connections by network.
//!
//! ```text
//!   FOLDER/server-cert.pem, server-key.pem   what the server shows
//!   FOLDER/ca-cert.pem                       if it is there: clients have to show a certificate that it vouches for
//! ```
//!
//! These names are those of QEMU and libnbd. One thread reads from a session, another writes to it: the state of the
//! session is held only while bytes are coded, never while the socket is waited for.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use base::{Error, Kind, Mutex, Result};
use export::{ClientSocket, FileRights, read_host_file};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// Coded bytes that are read at a time.
const INCOMING_BYTES: usize = 32 << 10;
/// Longest file of certificates, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the server needs to speak TLS.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    is_client_known: bool,
}

impl Tls {
    /// From a folder of certificates, which nobody but root and the user of this process may write, and whose key nobody
    /// else may read. Errors: `Invalid`, with what is wrong with which of them.
    pub fn load(folder: &Path) -> Result<Tls> {
        let wrong = |name: &str, why: &dyn std::fmt::Display| {
            Error::new(Kind::Invalid, format!("{}: {why}", folder.join(name).display()))
        };
        let read = |name: &str, rights| read_host_file(&folder.join(name), rights, FILE_BYTES_MAX);
        let certificates_in = |name: &str, bytes: &[u8]| -> Result<Vec<CertificateDer<'static>>> {
            let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
            all.map_err(|error| wrong(name, &error))
        };
        let public = |name: &str| read(name, FileRights::Public).map_err(|error| wrong(name, &error));
        let certificates = certificates_in("server-cert.pem", &public("server-cert.pem")?)?;
        let key = read("server-key.pem", FileRights::Secret).map_err(|error| wrong("server-key.pem", &error))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong("server-key.pem", &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| wrong("", &error))?;
        let authorities = match read("ca-cert.pem", FileRights::Public) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            read => Some(read.map_err(|error| wrong("ca-cert.pem", &error))?),
        };
        let is_client_known = authorities.is_some();
        let builder = if let Some(authorities) = authorities {
            let mut roots = RootCertStore::empty();
            for certificate in certificates_in("ca-cert.pem", &authorities)? {
                roots.add(certificate).map_err(|error| wrong("ca-cert.pem", &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| wrong("ca-cert.pem", &error))?)
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(certificates, key).map_err(|error| wrong("server-cert.pem", &error))?;
        Ok(Tls { config: Arc::new(config), is_client_known })
    }

    /// Whether clients have to show a certificate.
    pub fn is_client_known(&self) -> bool {
        self.is_client_known
    }

    /// A session that begins. Errors: the system has no random numbers.
    pub(crate) fn begin(&self) -> Result<TlsSession> {
        let mut session = ServerConnection::new(self.config.clone())
            .map_err(|error| Error::new(Kind::Io, format!("no session of TLS: {error}")))?;
        // one write is bounded by what is written
        session.set_buffer_limit(None);
        let state = Mutex::new(TlsState { session, coded: Vec::new(), at: 0 });
        Ok(TlsSession { state, sending: Mutex::default() })
    }
}

/// A connection by TLS. One thread may read and another write at a time.
pub(crate) struct TlsSession {
    state: Mutex<TlsState>,
    /// Held while what the state gave out is sent, so that it is sent in that order; taken before the state.
    sending: Mutex<()>,
}

struct TlsState {
    session: ServerConnection,
    /// Coded bytes that have come, and how many of them the session has taken.
    coded: Vec<u8>,
    at: usize,
}

impl TlsState {
    /// Gives coded bytes to the session; false if there are none. Errors: `InvalidData`.
    fn decode(&mut self) -> io::Result<bool> {
        if self.at >= self.coded.len() {
            return Ok(false);
        }
        self.at += self.session.read_tls(&mut &self.coded[self.at..])?;
        let processed = self.session.process_new_packets();
        processed.map(|_| true).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn coded(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut out)?;
        }
        Ok(out)
    }
}

impl TlsSession {
    /// Reads; `Interrupted` when something has come that was none of the data. Errors: those of the connection.
    pub(crate) fn read(&self, mut socket: &ClientSocket, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let (decoded, answers) = {
                let mut state = self.state.lock();
                match state.session.reader().read(buf) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                }
                let decoded = state.decode();
                (decoded, state.session.wants_write())
            };
            if answers {
                self.send(socket)?;
            }
            if !decoded? {
                break;
            }
        }
        let mut coded = vec![0; INCOMING_BYTES];
        let len = socket.read(&mut coded)?;
        if len == 0 {
            return Ok(0);
        }
        coded.truncate(len);
        let mut state = self.state.lock();
        (state.coded, state.at) = (coded, 0);
        Err(ErrorKind::Interrupted.into())
    }

    /// Whether it holds something that is not read yet.
    pub(crate) fn has_input(&self) -> bool {
        let mut state = self.state.lock();
        state.at < state.coded.len() || state.session.reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    /// Writes all. Errors: those of the connection.
    pub(crate) fn write(&self, mut socket: &ClientSocket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let _sending = self.sending.lock();
        let (len, coded) = {
            let mut state = self.state.lock();
            let len = state.session.writer().write_vectored(slices)?;
            (len, state.coded()?)
        };
        socket.write_all(&coded)?;
        Ok(len)
    }

    fn send(&self, mut socket: &ClientSocket) -> io::Result<()> {
        let _sending = self.sending.lock();
        let coded = self.state.lock().coded()?;
        socket.write_all(&coded)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::{ClientConfig, ClientConnection, StreamOwned};

    use super::*;
    use crate::stream::ClientStream;

    /// A folder of certificates, and what makes clients of it: with a certificate, and without.
    fn certificates() -> (tempfile::TempDir, [ClientConfig; 2]) {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let signed = || {
            let key = KeyPair::generate().unwrap();
            let made = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
            (made, key)
        };
        let (server, key) = signed();
        for (name, text) in
            [("server-cert.pem", server.pem()), ("server-key.pem", key.serialize_pem()), ("ca-cert.pem", ca.pem())]
        {
            fs::write(folder.path().join(name), text).unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let builder = || {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            builder.with_root_certificates(roots.clone())
        };
        let (client, key) = signed();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let known = builder().with_client_auth_cert(vec![client.der().clone()], key).unwrap();
        (folder, [known, builder().with_no_client_auth()])
    }

    fn connect(config: ClientConfig, theirs: UnixStream) -> StreamOwned<ClientConnection, UnixStream> {
        StreamOwned::new(ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap(), theirs)
    }

    #[test]
    fn both_ways_at_once() {
        let (folder, [config, _]) = certificates();
        let tls = Tls::load(folder.path()).unwrap();
        assert!(tls.is_client_known());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = ClientStream::new(ours.into()).unwrap();
        stream.start_tls(&tls).unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
        std::thread::scope(|scope| {
            let mut client = connect(config, theirs);
            let sent = &bytes;
            scope.spawn(move || {
                client.write_all(sent).unwrap();
                let mut back = vec![0; sent.len()];
                client.read_exact(&mut back).unwrap();
                assert!(back == *sent);
            });
            let (pieces, written) = std::sync::mpsc::channel::<Vec<u8>>();
            let stream = &stream;
            let writer = scope.spawn(move || {
                // what the client does not take at once waits here
                let all: Vec<Vec<u8>> = written.iter().collect();
                all.iter().for_each(|piece| (&mut &*stream).write_all(piece).unwrap());
            });
            let mut left = bytes.len();
            while left > 0 {
                let mut piece = vec![0; left.min(70_000)];
                (&mut &*stream).read_exact(&mut piece).unwrap();
                left -= piece.len();
                pieces.send(piece).unwrap();
            }
            drop(pieces);
            writer.join().unwrap();
        });
    }

    #[test]
    fn strangers_are_turned_away() {
        let (folder, [_, config]) = certificates();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = ClientStream::new(ours.into()).unwrap();
        stream.start_tls(&Tls::load(folder.path()).unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut client = connect(config, theirs);
                assert!(client.write_all(b"hello").and_then(|()| client.read(&mut [0; 9])).is_err());
            });
            assert_eq!((&stream).read_exact(&mut [0; 5]).unwrap_err().kind(), ErrorKind::InvalidData);
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let key = folder.path().join("server-key.pem");
        let refused = |word: &str| {
            let error = Tls::load(folder.path()).err().unwrap();
            assert!(error.what().contains("server-key.pem") && error.what().contains(word), "{error}");
        };
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        refused("chmod 600");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&key, "none").unwrap();
        refused("");
        // nobody writes it: an open would wait for ever
        fs::remove_file(&key).unwrap();
        assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&key).status().unwrap().success());
        refused("no regular file");
    }
}
