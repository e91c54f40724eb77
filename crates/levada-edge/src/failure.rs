//! Failures of one request: the party at fault, the client's response, and whether another server may be
//! tried.

use std::sync::Arc;

use http::StatusCode;
use levada_http1::UpstreamError;

/// Why a request could not be served as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    // The client's.
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
    /// The sender on the peer listener is no peer.
    NoPeer,
    /// The client wants a stored response only, and there is none (RFC 9111 Sec. 5.2.1.7).
    OnlyIfCached,
    /// The request body ended early or too late.
    RequestBody,
    /// The digest that the file is to have is none.
    BadDigest,
    /// A peer asked for a piece of a file in a way that is none.
    BadPiece,
    // The server's: an origin or a peer.
    /// Its name does not resolve.
    Dns,
    /// It refuses connections, or cannot be reached.
    Connect,
    /// There is no socket where it should listen.
    NoSocket,
    /// This process may not connect to its socket.
    SocketForbidden,
    /// It did not accept a connection in time.
    ConnectTimeout,
    /// TLS with it failed.
    Tls,
    /// It closed the connection without a response.
    NoResponse,
    /// It did not answer in time.
    ResponseTimeout,
    /// It answered something that is not HTTP, or not as HTTP wants it.
    BadResponse,
    /// It answered with an error, where a stored response was to be confirmed.
    ErrorAnswer(StatusCode),
    /// A peer is full and said so.
    PeerFull,
    /// A file changed while it was fetched in pieces.
    Changed,
    /// It does not send the piece that it was asked for.
    NoPieces,
    // This node's.
    /// Every server is down.
    AllDown,
    /// Too many requests wait for a connection to the server.
    QueueFull,
    /// No connection to the server became free in time.
    QueueTimeout,
    /// This node holds as many requests as it can.
    Overload,
}

impl Failure {
    /// The status for the client.
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::BadHost | Self::RequestBody | Self::BadDigest | Self::BadPiece => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Method => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::NoPeer => StatusCode::FORBIDDEN,
            Self::OnlyIfCached | Self::ConnectTimeout | Self::ResponseTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Dns
            | Self::Connect
            | Self::NoSocket
            | Self::SocketForbidden
            | Self::Tls
            | Self::NoResponse
            | Self::BadResponse
            | Self::ErrorAnswer(_)
            | Self::Changed
            | Self::NoPieces => StatusCode::BAD_GATEWAY,
            Self::PeerFull
            | Self::AllDown
            | Self::QueueFull
            | Self::QueueTimeout
            | Self::Overload => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// One sentence for the client and the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::BadHost => "the request names no valid host",
            Self::UnknownHost => "no site here answers to this host",
            Self::Method => "this method does not pass a cache",
            Self::Expectation => "only 100-continue can be expected",
            Self::Loop => "the request has passed this CDN too often",
            Self::NoPeer => "only peers may speak here",
            Self::OnlyIfCached => "nothing stored that could be served",
            Self::RequestBody => "the request body broke off",
            Self::BadDigest => "levada-digest is neither sha-256= nor md5= with hexadecimal digits",
            Self::BadPiece => "this is no piece of a file",
            Self::Dns => "the server's name does not resolve",
            Self::Connect => "the server refuses connections",
            Self::NoSocket => "the server's socket is not there: is the server running?",
            Self::SocketForbidden => {
                "the server's socket may not be used: give this process write permission to it"
            }
            Self::ConnectTimeout => "the server did not accept a connection in time",
            Self::Tls => "the server's TLS failed",
            Self::NoResponse => "the server closed without a response",
            Self::ResponseTimeout => "the server did not answer in time",
            Self::BadResponse => "the server's answer is not HTTP",
            Self::ErrorAnswer(_) => "the server answered with an error",
            Self::PeerFull => "the peer is full",
            Self::Changed => "the file changed while it was fetched in pieces",
            Self::NoPieces => "the server does not send pieces of this file",
            Self::AllDown => "every server is down",
            Self::QueueFull => "too many requests wait for the server",
            Self::QueueTimeout => "no connection to the server became free in time",
            Self::Overload => "this node is full",
        }
    }

    /// The error type of `Proxy-Status` (RFC 9209 Sec. 2.3).
    pub(crate) const fn proxy_error(self) -> &'static str {
        match self {
            Self::BadHost
            | Self::UnknownHost
            | Self::Method
            | Self::Expectation
            | Self::RequestBody
            | Self::BadDigest
            | Self::BadPiece => "http_request_error",
            Self::NoPeer => "http_request_denied",
            Self::Loop => "proxy_loop_detected",
            Self::OnlyIfCached => "destination_unavailable",
            Self::Dns => "dns_error",
            Self::Connect | Self::NoSocket | Self::SocketForbidden => "connection_refused",
            Self::ConnectTimeout => "connection_timeout",
            Self::Tls => "tls_protocol_error",
            Self::NoResponse => "connection_terminated",
            Self::ResponseTimeout => "http_response_timeout",
            Self::BadResponse | Self::Changed | Self::NoPieces => "http_protocol_error",
            Self::ErrorAnswer(_) | Self::PeerFull | Self::AllDown => "destination_unavailable",
            Self::QueueFull | Self::QueueTimeout | Self::Overload => "connection_limit_reached",
        }
    }

    /// Whether the server that was asked is to blame: it counts against its health.
    pub(crate) const fn blames_server(self) -> bool {
        matches!(
            self,
            Self::Dns
                | Self::Connect
                | Self::NoSocket
                | Self::SocketForbidden
                | Self::ConnectTimeout
                | Self::Tls
                | Self::NoResponse
                | Self::ResponseTimeout
                | Self::BadResponse
        )
    }

    /// Whether another server might do better.
    pub(crate) const fn worth_retrying(self) -> bool {
        self.blames_server()
            || matches!(self, Self::PeerFull | Self::QueueFull | Self::QueueTimeout)
    }

    /// Whether the client should come back soon.
    pub(crate) const fn retry_after(self) -> Option<u64> {
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE => Some(1),
            // At least the time for which a failed server is ejected.
            _ if self.blames_server() => Some(5),
            _ => None,
        }
    }
}

/// A request that no server has answered, and the last one that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) next_hop: Option<Arc<str>>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, next_hop: None }
    }
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::NoResponse => Self::NoResponse,
            UpstreamError::BadResponse => Self::BadResponse,
            UpstreamError::ResponseTimeout => Self::ResponseTimeout,
            UpstreamError::RequestBody => Self::RequestBody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_never_blamed_on_servers() {
        for failure in [Failure::BadHost, Failure::Loop, Failure::RequestBody] {
            assert!(failure.status().is_client_error() || failure == Failure::Loop);
            assert!(!failure.blames_server() && !failure.worth_retrying());
        }
        assert_eq!(Failure::Overload.retry_after(), Some(1));
        assert_eq!(Failure::Connect.retry_after(), Some(5));
        assert_eq!(Failure::OnlyIfCached.retry_after(), None);
    }
}
