//! The server as its clients meet it, over real sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use axum::extract::Query;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::routing::get;
use testkit::rng::Rng;

use super::answer::words;
use super::guard::NameCheck;
use super::*;

/// A server at a socket, in a thread that lives as long as the test program.
struct Served {
    dir: tempfile::TempDir,
}

impl Served {
    fn new(max: usize) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let listener = AnyListener::Unix(place::bind(&dir.path().join("sock"), true).unwrap());
        let echo = async |method: Method, uri: Uri, fields: HeaderMap| {
            let host = fields.get("host").map_or("", |host| host.to_str().unwrap());
            words(StatusCode::OK, format!("{method} {}{host}", uri.path()))
        };
        let long = async |Query(fields): Query<std::collections::HashMap<String, usize>>| {
            words(StatusCode::OK, "x".repeat(fields["bytes"]))
        };
        let routes = Router::new().route("/long", get(long)).fallback(echo);
        let routes = Guard::new(NameCheck::Any, None).protect(routes);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
            runtime.block_on(serve(listener, routes, max))
        });
        Served { dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// The answer to some bytes.
    fn talk(&self, bytes: &[u8]) -> String {
        talk(&self.socket(), bytes)
    }
}

fn talk(socket: &Path, bytes: &[u8]) -> String {
    let mut client = UnixStream::connect(socket).unwrap();
    // it may be told enough before it has all
    let _ = client.write_all(bytes).and_then(|()| client.shutdown(Shutdown::Write));
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn requests_are_answered() {
    let served = Served::new(8);
    let answer = served.talk(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nGET /metricsa"), "{answer}");
    assert!(answer.contains("Content-Length: 13\r\n") && answer.contains("Connection: close\r\n"), "{answer}");
    for field in
        ["Content-Security-Policy: default-src 'none'; script-src 'self';", "X-Content-Type-Options: nosniff\r\n"]
    {
        assert!(answer.contains(field), "{answer}");
    }
    let answer = served.talk(b"HEAD / HTTP/1.0\r\n\r\n");
    assert!(answer.contains("Content-Length: 6\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(served.talk(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").ends_with("POST /"));
    let answer = served.talk(b"GET / HTTP/1.1\r\n\r\nGET /second HTTP/1.1\r\n\r\n");
    assert!(answer.ends_with("GET /"), "one request a connection: {answer}");
    let answer = served.talk(b"GET /long?bytes=3000000 HTTP/1.1\r\n\r\n");
    assert!(answer.len() > 3_000_000 && answer.ends_with("xxx"));
}

#[test]
fn nonsense_is_refused() {
    let served = Served::new(8);
    let starts = |bytes: &[u8], with: &str| {
        let answer = served.talk(bytes);
        assert!(answer.starts_with(with), "{}: {answer}", bytes.escape_ascii().to_string().split_at(9).0);
    };
    starts(b"\xff\xff\r\n\r\n", "HTTP/1.1 400 ");
    starts(b"GET / HTTP/9\r\n\r\n", "HTTP/1.1 400 ");
    starts(b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "HTTP/1.1 400 ");
    starts(&[&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 40_000]].concat(), "HTTP/1.1 431 ");
    starts(format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100)).as_bytes(), "HTTP/1.1 431 ");
    assert_eq!(served.talk(b"GET / HT"), "", "half a request");
    assert_eq!(served.talk(b""), "");
}

#[test]
fn no_bytes_end_the_server() {
    let served = Served::new(8);
    let mut rng = Rng::new(1);
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost:9134\r\nAccept: text/plain;version=0.0.4\r\n\r\n";
    for _ in 0..1000 {
        let mut bytes = request.to_vec();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.number() as u8;
        }
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        let mut client = UnixStream::connect(served.socket()).unwrap();
        let _ = client.write_all(&bytes).and_then(|()| client.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", answer.escape_ascii());
    }
    assert!(served.talk(request).starts_with("HTTP/1.1 200 "));
}

#[test]
fn half_requests_and_answers_that_nobody_takes_keep_nobody_out() {
    let served = Served::new(4);
    let begin = |bytes: &[u8]| {
        let mut client = UnixStream::connect(served.socket()).unwrap();
        // it may be hung up on at once
        let _ = client.write_all(bytes);
        client
    };
    let _half: Vec<UnixStream> = (0..40).map(|_| begin(b"GET / HT")).collect();
    assert!(served.talk(b"GET / HTTP/1.1\r\n\r\n").ends_with("GET /"));
    let _untaken: Vec<UnixStream> = (0..40).map(|_| begin(b"GET /long?bytes=9000000 HTTP/1.1\r\n\r\n")).collect();
    assert!(served.talk(b"GET / HTTP/1.1\r\n\r\n").ends_with("GET /"));
}

#[test]
fn an_address_is_served_as_a_socket_is() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/", get(async || words(StatusCode::OK, "here")));
    let guard = Guard::new(NameCheck::Address(address), None);
    std::thread::spawn(move || run(AnyListener::Tcp(listener), guard, routes));
    let ask = |host: &str| {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask(&address.to_string()).ends_with("here"));
    assert!(ask("evil.example").starts_with("HTTP/1.1 421 "));
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(format!("DELETE / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("Allow: GET,HEAD\r\n"), "{answer}");
}
