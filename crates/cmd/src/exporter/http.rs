//! As much of HTTP as one page needs: a request, an answer, the end.
//!
//! What comes is read by `httparse`, up to [`HEAD_BYTES_MAX`] and for [`TIME_MAX`] in all, however slowly it comes. A
//! body is not asked for. Source: RFC 9112.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most fields in it.
const FIELDS_MAX: usize = 64;
/// How long a request, and the way of its answer, may take each.
const TIME_MAX: Duration = Duration::from_secs(10);
/// What is still read of clients that send more than they should, so that they get the answer.
const REST_BYTES_MAX: u64 = 64 << 10;

/// A connection.
pub trait Conn: Read + Write + Send {
    /// How long the next read or write may take.
    fn limit(&self, time: Duration) -> io::Result<()>;
    /// Tells that nothing more will be sent.
    fn end(&self) -> io::Result<()>;
    /// Another handle of the same connection.
    fn another(&self) -> io::Result<Box<dyn Conn>>;
    /// Ends it, also while another thread reads or writes.
    fn hang_up(&self) -> io::Result<()>;
}

impl Conn for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and(self.set_write_timeout(Some(time)))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn another(&self) -> io::Result<Box<dyn Conn>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn hang_up(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Both)
    }
}

impl Conn for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and(self.set_write_timeout(Some(time)))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn another(&self) -> io::Result<Box<dyn Conn>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn hang_up(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Both)
    }
}

/// A connection whose reads and writes all end at some time.
struct Timed<'a> {
    conn: &'a mut dyn Conn,
    end: Instant,
}

impl<'a> Timed<'a> {
    fn new(conn: &'a mut dyn Conn) -> Timed<'a> {
        Timed { conn, end: Instant::now() + TIME_MAX }
    }

    fn limit(&self) -> io::Result<()> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            rest => self.conn.limit(rest),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.conn.read(buf)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.conn.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.conn.flush()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Other,
}

/// What is answered.
pub struct HttpResponse {
    pub status: u16,
    /// Content type.
    pub kind: &'static str,
    pub body: String,
}

impl HttpResponse {
    /// A few words.
    pub fn words(status: u16, words: &str) -> HttpResponse {
        HttpResponse { status, kind: "text/plain; charset=utf-8", body: words.to_owned() }
    }

    /// As it is sent.
    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Internal Server Error",
        };
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        (head + if with_body { &self.body } else { "" }).into_bytes()
    }
}

/// As much of a request's head as is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    pub method: Method,
    /// Without what stands behind a `?`.
    pub path: String,
    /// The field `Host`, empty if there is none.
    pub host: String,
}

/// Reads a request, and sends what `answer` says to it; `None`: nothing.
pub fn serve(mut conn: Box<dyn Conn>, answer: impl Fn(&RequestHead) -> Option<HttpResponse>) {
    let reply = match read_head(&mut Timed::new(&mut *conn)) {
        Ok(head) => match answer(&head) {
            Some(answer) => answer.bytes(head.method != Method::Head),
            None => return,
        },
        Err(Some(status)) => HttpResponse::words(status, "what was sent is no request that is answered\n").bytes(true),
        Err(None) => return,
    };
    let mut timed = Timed::new(&mut *conn);
    if timed.write_all(&reply).and_then(|()| timed.conn.end()).is_ok() {
        // a connection that is closed with bytes unread may take the answer with it
        drop(io::copy(&mut timed.take(REST_BYTES_MAX), &mut io::sink()));
    }
}

/// The head of a request. Errors: the status to answer, `None` if nobody is there any more.
pub(crate) fn read_head(from: &mut impl Read) -> Result<RequestHead, Option<u16>> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        let room = part.len().min(HEAD_BYTES_MAX - head.len());
        match from.read(&mut part[..room]) {
            Ok(0) => return Err(None),
            Ok(n) => head.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == Interrupted => continue,
            Err(e) if matches!(e.kind(), TimedOut | WouldBlock) => return Err(Some(408)),
            Err(_) => return Err(None),
        }
        if let Some(parsed) = parse(&head).map_err(Some)? {
            return Ok(parsed);
        }
        if head.len() >= HEAD_BYTES_MAX {
            return Err(Some(431));
        }
    }
}

/// The head of a request; `None` if more is to come. Errors: the status to answer.
fn parse(head: &[u8]) -> Result<Option<RequestHead>, u16> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    }
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map_or(&b""[..], |field| field.value);
    // two may mean two to two readers
    match (std::str::from_utf8(host), hosts.next()) {
        (Ok(host), None) => Ok(Some(RequestHead { method, path, host: host.trim().to_owned() })),
        _ => Err(400),
    }
}

#[cfg(test)]
mod tests {
    use testkit::rng::Rng;

    use super::*;

    /// What is answered to some bytes.
    fn talk(bytes: &[u8]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        let sent = bytes.to_vec();
        std::thread::scope(|scope| {
            let say = |RequestHead { method, path, host }: &RequestHead| {
                HttpResponse::words(200, &format!("{method:?} {path}{host}"))
            };
            scope.spawn(move || serve(Box::new(server), |head| Some(say(head))));
            // it may be told enough before it has all
            let _ = client.write_all(&sent).and_then(|()| client.shutdown(Shutdown::Write));
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        })
    }

    #[test]
    fn requests_are_answered() {
        let answer = talk(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nGet /metricsa"), "{answer}");
        assert!(answer.contains("Content-Length: 13\r\n") && answer.contains("Connection: close\r\n"), "{answer}");
        let answer = talk(b"HEAD / HTTP/1.0\r\n\r\n");
        assert!(answer.contains("Content-Length: 6\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(talk(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").ends_with("Other /"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert!(talk(b"\xff\xff\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(talk(b"GET / HTTP/9\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(talk(b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let long = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 40_000]].concat();
        assert!(talk(&long).starts_with("HTTP/1.1 431 "));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
        assert!(talk(many.as_bytes()).starts_with("HTTP/1.1 431 "));
        assert_eq!(talk(b"GET / HT"), "", "half a request");
        assert_eq!(talk(b""), "");
    }

    #[test]
    fn who_is_slow_is_told() {
        struct Slow;
        impl Read for Slow {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
        assert_eq!(read_head(&mut Slow), Err(Some(408)));
        let (mut conn, _other) = UnixStream::pair().unwrap();
        let mut timed = Timed { conn: &mut conn, end: Instant::now() };
        assert_eq!(timed.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn no_bytes_panic() {
        let mut rng = Rng::new(1);
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost:9134\r\nAccept: text/plain;version=0.0.4\r\n\r\n";
        for _ in 0..20_000 {
            let mut bytes = request.to_vec();
            for _ in 0..rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.number() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            drop(read_head(&mut &bytes[..]));
        }
    }
}
