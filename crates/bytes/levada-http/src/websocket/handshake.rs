//! The handshake of WebSocket (RFC 6455 Sec. 4, RFC 8441 Sec. 5, RFC 9220 Sec. 3).
//!
//! A request over HTTP/2 or HTTP/3 is an extended CONNECT, with a protocol. It becomes the GET that it stands for, so that every rule for
//! requests holds for it, and servers see one kind of handshake.

use crate::names_websocket;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use http_body::Body;
use hyper::ext::Protocol;
use ring::{
    digest::{SHA1_FOR_LEGACY_USE_ONLY, digest},
    rand::{SecureRandom, SystemRandom},
};

/// A request for WebSocket.
#[derive(Clone, Debug)]
pub struct Handshake {
    key: HeaderValue,
    accept: HeaderValue,
    by_connect: bool,
}

/// The reason why a request that asks for WebSocket gets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", self.as_str())]
pub enum HandshakeFault {
    /// It is not a GET.
    Method,
    /// It has a body.
    Body,
    /// `Sec-WebSocket-Key` is missing, repeated, or not 16 bytes in Base64.
    Key,
    /// `Sec-WebSocket-Version` is not 13.
    Version,
    /// An extended CONNECT has another protocol.
    Protocol,
}

impl HandshakeFault {
    /// One sentence for the client and the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "a WebSocket handshake is a GET (RFC 6455 section 4.1)",
            Self::Body => "a WebSocket handshake has no body (RFC 6455 section 4.1)",
            Self::Key => "Sec-WebSocket-Key is not 16 bytes in Base64 (RFC 6455 section 4.1)",
            Self::Version => "the only version of WebSocket is 13 (RFC 6455 section 4.4)",
            Self::Protocol => {
                "the only protocol of CONNECT here is WebSocket (RFC 8441 section 4, RFC 9220 section 3)"
            }
        }
    }

    /// The status for the client.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Method | Self::Body | Self::Key => StatusCode::BAD_REQUEST,
            Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Protocol => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// Adds the fields by which a client learns how to ask (RFC 9110 Sec. 15.5.22, RFC 6455 Sec. 4.4).
    pub fn add_to(self, headers: &mut HeaderMap) {
        if self == Self::Version {
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, VERSION);
        }
    }
}

impl Handshake {
    /// The handshake in a request, if it asks for WebSocket. Call this before hop-by-hop fields are removed. A
    /// CONNECT becomes a GET.
    ///
    /// A node may ignore all other protocols, and does (RFC 9110 Sec. 7.8).
    pub fn of<B: Body>(request: &mut Request<B>) -> Option<Result<Self, HandshakeFault>> {
        match request.version() {
            Version::HTTP_11 if asks(request.headers()) => Some(Self::over_http1(request)),
            Version::HTTP_2 | Version::HTTP_3 if *request.method() == Method::CONNECT => {
                let protocol = request.extensions().get::<Protocol>()?;
                let is_websocket = protocol.as_str().eq_ignore_ascii_case("websocket");
                *request.method_mut() = Method::GET;
                match is_websocket {
                    true => Some(Self::by_connect(request.headers())),
                    false => Some(Err(HandshakeFault::Protocol)),
                }
            }
            _ => None,
        }
    }

    fn over_http1<B: Body>(request: &Request<B>) -> Result<Self, HandshakeFault> {
        if *request.method() != Method::GET {
            return Err(HandshakeFault::Method);
        }
        if !request.body().is_end_stream() {
            return Err(HandshakeFault::Body);
        }
        check_version(request.headers())?;
        let key = one(request.headers(), &SEC_WEBSOCKET_KEY).ok_or(HandshakeFault::Key)?;
        let mut bytes = [0; KEY];
        match STANDARD.decode_slice(key.as_bytes(), &mut bytes) {
            Ok(KEY) => Ok(Self::new(key.clone(), false)),
            _ => Err(HandshakeFault::Key),
        }
    }

    /// The stream itself takes the place of the key.
    fn by_connect(headers: &HeaderMap) -> Result<Self, HandshakeFault> {
        check_version(headers)?;
        let mut bytes = [0; KEY];
        SystemRandom::new().fill(&mut bytes).map_err(|_| HandshakeFault::Key)?;
        let key = HeaderValue::try_from(STANDARD.encode(bytes));
        Ok(Self::new(key.map_err(|_| HandshakeFault::Key)?, true))
    }

    fn new(key: HeaderValue, by_connect: bool) -> Self {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), GUID].concat());
        let accept = HeaderValue::try_from(STANDARD.encode(hash));
        let accept = accept.unwrap_or_else(|_| unreachable!("Base64 is a field value"));
        Self { key, accept, by_connect }
    }

    /// The `Sec-WebSocket-Accept` of a server that has understood the request.
    pub fn accept(&self) -> &HeaderValue {
        &self.accept
    }

    /// Whether any status of success opens the tunnel to the client, as after CONNECT.
    pub fn is_by_connect(&self) -> bool {
        self.by_connect
    }

    /// Makes a request to a server ask for WebSocket.
    pub fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_KEY, self.key.clone());
        headers.insert(SEC_WEBSOCKET_VERSION, VERSION);
        headers.remove(SEC_WEBSOCKET_ACCEPT);
    }

    /// Makes an answer open the tunnel to the client. Returns its status.
    pub fn open(&self, headers: &mut HeaderMap) -> StatusCode {
        // A 101 has no body, whatever the server says.
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        if self.by_connect {
            headers.remove(SEC_WEBSOCKET_ACCEPT);
            return StatusCode::OK;
        }
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        StatusCode::SWITCHING_PROTOCOLS
    }
}

/// Whether a request over HTTP/1.1 asks for WebSocket. Without the option in `Connection`, the field is none of
/// this node's (RFC 9110 Sec. 7.8).
fn asks(headers: &HeaderMap) -> bool {
    let named = |name: HeaderName, found: fn(&[u8]) -> bool| {
        headers.get_all(name).iter().any(|value| found(value.as_bytes()))
    };
    named(UPGRADE, names_websocket)
        && named(CONNECTION, |value| {
            let mut options = value.split(|&byte| byte == b',');
            options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        })
}

fn check_version(headers: &HeaderMap) -> Result<(), HandshakeFault> {
    let is_known = one(headers, &SEC_WEBSOCKET_VERSION).is_some_and(|version| *version == VERSION);
    if is_known { Ok(()) } else { Err(HandshakeFault::Version) }
}

/// The value of a field that is there once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

const VERSION: HeaderValue = HeaderValue::from_static("13");
/// Bytes of a key.
const KEY: usize = 16;
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        KEY,
        ("sec-websocket-version", "13"),
    ];

    fn of(
        method: &str,
        fields: &[(&'static str, &'static str)],
        body: &str,
    ) -> Option<Result<Handshake, HandshakeFault>> {
        let mut request = Request::builder().method(method).body(body.to_owned()).unwrap();
        for (name, value) in fields {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        Handshake::of(&mut request)
    }

    fn with(name: &'static str, value: &'static str) -> Vec<(&'static str, &'static str)> {
        let one =
            |(n, v): (&'static str, &'static str)| if n == name { (n, value) } else { (n, v) };
        GOOD.map(one).to_vec()
    }

    #[test]
    fn key_of_the_rfc_is_accepted_by_the_value_of_the_rfc() {
        let handshake = of("GET", &GOOD, "").unwrap().unwrap();
        assert_eq!(handshake.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn handshakes_that_lie_are_told_by_their_fault() {
        assert_eq!(of("POST", &GOOD, "").unwrap().unwrap_err(), HandshakeFault::Method);
        assert_eq!(of("GET", &GOOD, "body").unwrap().unwrap_err(), HandshakeFault::Body);
        for key in [
            "",
            "x",
            "dGhlIHNhbXBsZQ==",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZSBub25jZQ==",
        ] {
            let fault = of("GET", &with(KEY.0, key), "").unwrap().unwrap_err();
            assert_eq!(fault, HandshakeFault::Key, "{key}");
        }
        let without: Vec<_> = GOOD.into_iter().filter(|field| *field != KEY).collect();
        assert_eq!(of("GET", &without, "").unwrap().unwrap_err(), HandshakeFault::Key);
        let twice: Vec<_> = GOOD.into_iter().chain([KEY]).collect();
        assert_eq!(of("GET", &twice, "").unwrap().unwrap_err(), HandshakeFault::Key);
        for version in ["8", "", "13, 8", "013"] {
            let fault = of("GET", &with("sec-websocket-version", version), "").unwrap();
            assert_eq!(fault.unwrap_err(), HandshakeFault::Version, "{version}");
        }
    }

    #[test]
    fn other_requests_ask_for_nothing() {
        assert!(of("GET", &with("upgrade", "h2c"), "").is_none());
        assert!(of("GET", &with("upgrade", "websockets"), "").is_none());
        assert!(of("GET", &with("connection", "close"), "").is_none());
        assert!(of("GET", &[], "").is_none());
        assert!(of("GET", &with("upgrade", "h2c, websocket"), "").is_some());
    }

    #[test]
    fn answer_has_the_fields_of_a_tunnel_only() {
        let handshake = of("GET", &GOOD, "").unwrap().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        headers.insert("sec-websocket-protocol", HeaderValue::from_static("chat"));
        assert_eq!(handshake.open(&mut headers), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(headers[UPGRADE], "websocket");
        assert_eq!(headers[SEC_WEBSOCKET_ACCEPT], *handshake.accept());
        assert_eq!(headers["sec-websocket-protocol"], "chat");
        assert!(!headers.contains_key(CONTENT_LENGTH));
        let by_connect = Handshake { by_connect: true, ..handshake };
        let mut headers = HeaderMap::new();
        assert_eq!(by_connect.open(&mut headers), StatusCode::OK);
        assert!(headers.is_empty());
    }
}
