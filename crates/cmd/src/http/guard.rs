//! Which requests are answered, and what browsers are told about the answers.
//!
//! Any user of a machine can connect to its loopback addresses, and so can a web page in that user's browser: a page whose
//! name leads there (DNS rebinding) is told by the field `Host`, and refused. An address that other machines reach asks for
//! a token: once in the address of the page, and then in a cookie that no script sees and no other page sends.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::answer::words;

/// The name of the cookie, and of the field in the address.
const TOKEN: &str = "token";
/// Bytes of a token that is made here.
const TOKEN_BYTES: usize = 24;
/// The fewest characters of one that is given.
const TOKEN_CHARS_MIN: usize = 16;
/// Header fields of each answer that protect the browser.
const PROTECTION: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
];

/// By which names a server may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCheck {
    /// By any: names of machines do not lead there, or a token is asked for.
    Any,
    /// By those of this machine, at any port: a socket that somebody forwards to one.
    Loopback,
    /// By those of this address.
    Address(SocketAddr),
}

/// A secret that opens a server.
#[derive(Clone)]
pub struct Token(String);

/// See the top of the file.
pub struct Guard {
    names: NameCheck,
    token: Option<Token>,
}

impl NameCheck {
    /// Whether `host`, as a request has it, is such a name.
    pub fn allows(self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
            _ => (host, Some(80)),
        };
        let is_local = name.eq_ignore_ascii_case("localhost");
        match self {
            NameCheck::Any => true,
            NameCheck::Loopback => {
                host.is_empty() || port.is_some() && (is_local || ["127.0.0.1", "[::1]"].contains(&name))
            }
            NameCheck::Address(address) => {
                let ip = match address {
                    SocketAddr::V4(v4) => v4.ip().to_string(),
                    SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
                };
                port == Some(address.port()) && (is_local || name == ip)
            }
        }
    }
}

impl Token {
    /// One that nobody can guess. Errors: the machine has no random numbers.
    pub fn random() -> Result<Token, String> {
        let mut bytes = [0; TOKEN_BYTES];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        if got.map_err(|e| format!("random numbers: {e}"))? != bytes.len() {
            return Err("random numbers: too few".to_owned());
        }
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            // writing to a string does not fail
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        Ok(Token(hex))
    }

    /// One that is in a file, without spaces around it. Errors: it is short, or has characters that an address would
    /// have to escape.
    pub fn parse(text: &str) -> Result<Token, String> {
        let text = text.trim();
        if text.len() < TOKEN_CHARS_MIN || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err(format!("a token has {TOKEN_CHARS_MIN} or more letters, digits, and any of '-_.'"));
        }
        Ok(Token(text.to_owned()))
    }

    /// As it stands in an address.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it is this one; how long that takes tells nothing but whether their lengths are equal.
    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl Guard {
    /// One that lets in requests that use these names, and have the token, if there is one.
    pub fn new(names: NameCheck, token: Option<Token>) -> Guard {
        Guard { names, token }
    }

    /// Stands before `routes`.
    pub fn protect(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(Arc::new(self), pass))
    }

    /// The answer to a request that is refused; `None` if it comes through.
    fn refusal(&self, uri: &Uri, fields: &HeaderMap) -> Option<Response> {
        let mut hosts = fields.get_all(HOST).iter();
        let host = hosts.next().map_or(Ok(""), HeaderValue::to_str);
        let (Ok(host), None) = (host, hosts.next()) else {
            // two may mean two to two readers
            return Some(words(StatusCode::BAD_REQUEST, "the request names no host that makes sense\n"));
        };
        if !self.names.allows(host.trim()) {
            return Some(words(StatusCode::MISDIRECTED_REQUEST, "this is not the machine that was asked for\n"));
        }
        let token = self.token.as_ref()?;
        let cookies = fields.get_all(COOKIE).iter().filter_map(|field| field.to_str().ok());
        let mut cookies = cookies.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
        if cookies.any(|(name, value)| name == TOKEN && token.is(value)) {
            return None;
        }
        let mut pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        if pairs.any(|(name, value)| name == TOKEN && token.is(value)) {
            let cookie = format!("{TOKEN}={}; HttpOnly; SameSite=Strict; Path=/", token.text());
            // the address that the browser remembers is without it
            let fields = [(SET_COOKIE, cookie), (LOCATION, uri.path().to_owned())];
            return Some((StatusCode::SEE_OTHER, fields).into_response());
        }
        Some(words(StatusCode::UNAUTHORIZED, "a token is asked for: open the address that was printed at the start\n"))
    }
}

async fn pass(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let refusal = guard.refusal(request.uri(), request.headers());
    let mut response = match refusal {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    for (name, value) in PROTECTION {
        // an answer may have a stricter one of its own
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_answered_to() {
        let of = |address: &str| NameCheck::Address(address.parse().unwrap());
        let address = of("127.0.0.1:9134");
        for host in ["127.0.0.1:9134", "localhost:9134", "LocalHost:9134"] {
            assert!(address.allows(host) && NameCheck::Loopback.allows(host), "{host}");
        }
        for host in
            ["", "evil.example:9134", "localhost", "127.0.0.1", "localhost:80", "localhost.evil.example:9134", "::1"]
        {
            assert!(!address.allows(host), "{host}");
        }
        let address = of("[::1]:80");
        assert!(address.allows("[::1]") && address.allows("[::1]:80") && !address.allows("[::2]:80"));
        for host in ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1:x", "10.0.0.1:80"] {
            assert!(!NameCheck::Loopback.allows(host) && NameCheck::Any.allows(host), "{host}");
        }
        assert!(NameCheck::Loopback.allows("") && NameCheck::Loopback.allows("[::1]:8080"));
    }

    #[test]
    fn a_token_comes_once_in_the_address_and_then_in_a_cookie() {
        let token = Token::random().unwrap();
        assert!(token.text().len() == 48 && Token::random().unwrap().text() != token.text());
        let guard = Guard::new(NameCheck::Any, Some(token.clone()));
        let refusal = |uri: &str, cookie: &str| {
            let mut fields = HeaderMap::new();
            fields.insert(COOKIE, cookie.parse().unwrap());
            guard.refusal(&uri.parse().unwrap(), &fields)
        };
        let text = token.text();
        for (uri, cookie) in [("/", ""), ("/?token=", "token="), ("/?x=1&token=0", "token=1; tokens=2")] {
            assert_eq!(refusal(uri, cookie).unwrap().status(), StatusCode::UNAUTHORIZED, "{uri} {cookie}");
        }
        assert!(refusal("/", &format!("a=b; token={text}")).is_none());
        assert!(refusal("/", &format!("token={}", &text[1..])).is_some());
        let moved = refusal(&format!("/x?a=b&token={text}"), "").unwrap();
        assert_eq!((moved.status(), &moved.headers()[LOCATION]), (StatusCode::SEE_OTHER, &"/x".parse().unwrap()));
        let cookie = moved.headers()[SET_COOKIE].to_str().unwrap();
        assert_eq!(cookie, format!("token={text}; HttpOnly; SameSite=Strict; Path=/"));
    }

    #[test]
    fn tokens_of_files() {
        assert_eq!(Token::parse(" 0123456789abc-_.\n").unwrap().text(), "0123456789abc-_.");
        for text in ["", "short", "0123456789abcdef&x", "0123456789 abcdef", "0123456789äbcdefgh"] {
            assert!(Token::parse(text).is_err(), "{text}");
        }
    }
}
