//! Failures of one request: the party at fault, the client's response, and whether another server may be
//! tried.

mod answer;
mod body_error;
pub mod grpc;

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, header::EXPECT};
use levada_body::{PieceFault, ReadError};
use levada_http::Fault;
use levada_http::websocket::HandshakeFault;
use levada_tls::client_certificates::ClientRefusal;
use levada_upstream::{SendError, ServerFailure};

pub use answer::{PROXY_STATUS, fixed, plain};
pub use body_error::BodyError;

/// Why a request could not be served as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", self.as_str())]
pub enum Failure {
    // The client's.
    /// The head has a fault.
    Malformed(Fault),
    /// The request names no host, or one that cannot be.
    BadHost,
    /// No site answers to the host.
    UnknownHost,
    /// The method is not one that passes a proxy.
    Method,
    /// `Expect` asks for something unknown (RFC 9110 Sec. 10.1.1).
    Expectation,
    /// The request has passed this CDN too often (RFC 8586).
    Loop,
    /// The routes of the site send the request on too often.
    Redirects,
    /// The sender on the peer listener is no peer.
    NoPeer,
    /// The client wants a stored response only, and there is none (RFC 9111 Sec. 5.2.1.7).
    OnlyIfCached,
    /// The digest that the file is to have is none.
    BadDigest,
    /// A peer asked for a piece of a file in a way that is none.
    BadPiece,
    /// The body is larger than the site allows.
    BodyTooLarge,
    /// The path has an encoded control character, and the site does not let it pass.
    EncodedControl,
    /// The site wants a client certificate, and this client may not pass.
    Certificate(ClientRefusal),
    /// The request asks for WebSocket in a way that is none.
    Handshake(HandshakeFault),
    /// The site, or the route, has no WebSocket.
    NoWebSocket,
    // The server's: an origin, a peer, a server of a switch.
    /// No server answered.
    Server(ServerFailure),
    /// It answered with an error, where a stored response was to be confirmed.
    ErrorAnswer(StatusCode),
    /// A file changed while it was fetched in pieces.
    Changed,
    /// It does not send the piece that it was asked for.
    NoPieces,
    // This node's.
    /// This node holds as many requests as it can.
    Overload,
    /// This node has not learned yet what was purged while it was away.
    Starting,
}

impl Failure {
    /// The failure of a request with this head, if none is served: a public cache refuses CONNECT and TRACE, and an
    /// expectation that is unknown.
    pub fn of_head(method: &Method, headers: &HeaderMap) -> Option<Self> {
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return Some(Self::Method);
        }
        let expected = headers.get(EXPECT)?;
        let is_known = expected.as_bytes().eq_ignore_ascii_case(b"100-continue");
        (!is_known).then_some(Self::Expectation)
    }
}

impl From<PieceFault> for Failure {
    fn from(fault: PieceFault) -> Self {
        match fault {
            PieceFault::Changed => Self::Changed,
            PieceFault::None => Self::NoPieces,
            PieceFault::Error(status) => Self::ErrorAnswer(status),
            PieceFault::Full => Self::Server(ServerFailure::PeerFull),
            PieceFault::Bad => Self::Server(ServerFailure::BadResponse),
        }
    }
}

impl Failure {
    /// The status for the client.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed(fault) => fault.status().unwrap_or(StatusCode::BAD_REQUEST),
            Self::Handshake(fault) => fault.status(),
            Self::BadHost | Self::BadDigest | Self::BadPiece | Self::EncodedControl => {
                StatusCode::BAD_REQUEST
            }
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnknownHost | Self::Certificate(ClientRefusal::Misdirected) => {
                StatusCode::MISDIRECTED_REQUEST
            }
            Self::Certificate(_) => StatusCode::FORBIDDEN,
            Self::Method => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Loop | Self::Redirects => StatusCode::LOOP_DETECTED,
            Self::NoPeer | Self::NoWebSocket => StatusCode::FORBIDDEN,
            Self::OnlyIfCached => StatusCode::GATEWAY_TIMEOUT,
            Self::ErrorAnswer(_) | Self::Changed | Self::NoPieces => StatusCode::BAD_GATEWAY,
            Self::Overload | Self::Starting => StatusCode::SERVICE_UNAVAILABLE,
            Self::Server(failure) => match failure {
                ServerFailure::RequestBody => StatusCode::BAD_REQUEST,
                ServerFailure::ConnectTimeout
                | ServerFailure::ResponseTimeout
                | ServerFailure::Late
                | ServerFailure::GaveWay
                | ServerFailure::WentDown => StatusCode::GATEWAY_TIMEOUT,
                ServerFailure::Dns
                | ServerFailure::Connect
                | ServerFailure::NoSocket
                | ServerFailure::SocketForbidden
                | ServerFailure::Tls(_)
                | ServerFailure::NotHttp2
                | ServerFailure::Stranger
                | ServerFailure::NoResponse
                | ServerFailure::StreamReset
                | ServerFailure::BadResponse
                | ServerFailure::BadHandshake => StatusCode::BAD_GATEWAY,
                ServerFailure::PeerFull
                | ServerFailure::AllDown
                | ServerFailure::NoMembers
                | ServerFailure::QueueFull
                | ServerFailure::QueueTimeout => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }

    /// One sentence for the client and the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed(fault) => fault.sentence(),
            Self::BadHost => "the request names no valid host",
            Self::UnknownHost => "no site here answers to this host",
            Self::Method => "this method does not pass a cache",
            Self::Expectation => "only 100-continue can be expected",
            Self::Loop => "the request has passed this CDN too often",
            Self::Redirects => "the routes of the site send the request on too often",
            Self::NoPeer => "only peers may speak here",
            Self::OnlyIfCached => "nothing stored that could be served",
            Self::BadDigest => "levada-digest is neither sha-256= nor md5= with hexadecimal digits",
            Self::BodyTooLarge => "the request body is too large",
            Self::Certificate(refusal) => refusal.as_str(),
            Self::EncodedControl => "the path has an encoded control character",
            Self::BadPiece => "this is no piece of a file",
            Self::Handshake(fault) => fault.as_str(),
            Self::NoWebSocket => "WebSocket is switched off here",
            Self::Server(failure) => failure.as_str(),
            Self::ErrorAnswer(_) => "the server answered with an error",
            Self::Changed => "the file changed while it was fetched in pieces",
            Self::NoPieces => "the server does not send pieces of this file",
            Self::Overload => "this node is full",
            Self::Starting => "this node is starting",
        }
    }

    /// The error type of `Proxy-Status` (RFC 9209 Sec. 2.3).
    pub const fn proxy_error(self) -> &'static str {
        match self {
            Self::Malformed(_)
            | Self::BadHost
            | Self::UnknownHost
            | Self::Method
            | Self::Expectation
            | Self::BadDigest
            | Self::BadPiece
            | Self::EncodedControl
            | Self::Handshake(_) => "http_request_error",
            Self::NoPeer | Self::BodyTooLarge | Self::NoWebSocket | Self::Certificate(_) => {
                "http_request_denied"
            }
            Self::Loop | Self::Redirects => "proxy_loop_detected",
            Self::Server(failure) => failure.proxy_error(),
            Self::Changed | Self::NoPieces => "http_protocol_error",
            Self::OnlyIfCached | Self::ErrorAnswer(_) | Self::Starting => "destination_unavailable",
            Self::Overload => "connection_limit_reached",
        }
    }

    /// Whether another server might do better.
    pub const fn worth_retrying(self) -> bool {
        matches!(self, Self::Server(failure) if failure.worth_retrying())
    }

    /// Whether the client should come back soon.
    pub fn retry_after(self) -> Option<u64> {
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE => Some(1),
            // At least the time for which a failed server is ejected.
            _ if matches!(self, Self::Server(failure) if failure.blames_server()) => Some(5),
            _ => None,
        }
    }
}

/// A request that no server has answered, and the last one that was asked.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The failure.
    pub failure: Failure,
    /// The server that was asked, if one was.
    pub next_hop: Option<Arc<str>>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, next_hop: None }
    }
}

impl Failure {
    /// The failure of the fetch that a body was read from.
    pub fn of_fetch(error: &ReadError) -> Option<Self> {
        match error {
            ReadError::Failed(reason) => reason.downcast_ref().copied(),
            ReadError::Broken | ReadError::Gone | ReadError::Digest => None,
        }
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Failed(Arc::new(failure))
    }
}

impl From<ServerFailure> for Failure {
    fn from(failure: ServerFailure) -> Self {
        Self::Server(failure)
    }
}

impl From<SendError> for Failed {
    fn from(error: SendError) -> Self {
        Self { failure: error.failure.into(), next_hop: error.server }
    }
}

impl From<ServerFailure> for Failed {
    fn from(failure: ServerFailure) -> Self {
        Failure::Server(failure).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_never_blamed_on_servers() {
        let request_body = Failure::Server(ServerFailure::RequestBody);
        for failure in [Failure::BadHost, Failure::Loop, request_body] {
            assert!(failure.status().is_client_error() || failure == Failure::Loop);
            assert!(failure.retry_after().is_none() && !failure.worth_retrying());
        }
        assert_eq!(Failure::Overload.retry_after(), Some(1));
        assert_eq!(Failure::Server(ServerFailure::Connect).retry_after(), Some(5));
        assert_eq!(Failure::OnlyIfCached.retry_after(), None);
    }
}
