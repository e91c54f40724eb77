//! The reasons why a server does not answer a request.

use http::HeaderName;
use levada_http::UpstreamError;
use levada_tls::fault::TlsFault;

/// To a peer: it gets no answer here, and asks another node. The value says why. No other server can set it.
pub const REFUSED: HeaderName = HeaderName::from_static("levada-refused");
/// The value of [`REFUSED`] for one that has not proved that it is a peer.
pub const STRANGER: &str = "stranger";

/// The reason why no server answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerFailure {
    /// The server's name does not resolve.
    Dns,
    /// The server refuses connections, or cannot be reached.
    Connect,
    /// There is no socket where the server should listen.
    NoSocket,
    /// This process may not connect to the server's socket.
    SocketForbidden,
    /// The server did not accept a connection in time.
    ConnectTimeout,
    /// TLS with the server failed.
    Tls(TlsFault),
    /// The server is to be reached over HTTP/2, and does not speak it.
    NotHttp2,
    /// The server closed the connection without a response.
    NoResponse,
    /// The server reset the stream of the request without a response.
    StreamReset,
    /// The server did not respond in time.
    ResponseTimeout,
    /// Another server answered earlier, although it was asked later.
    Late,
    /// The server was late, and the request's place was needed for clients that are answered.
    GaveWay,
    /// The server was declared down while its response was awaited.
    WentDown,
    /// The response is not HTTP, or violates it.
    BadResponse,
    /// The response switches to another protocol than WebSocket, or without having understood the request.
    BadHandshake,
    /// The body of the request ended early or too late.
    RequestBody,
    /// A peer is full and said so.
    PeerFull,
    /// A peer does not take this node for a peer, and said so.
    Stranger,
    /// Every server is down.
    AllDown,
    /// The sources of the site have not named a server yet.
    NoMembers,
    /// Too many requests wait for a place at the server.
    QueueFull,
    /// No place at the server became free in time.
    QueueTimeout,
}

impl ServerFailure {
    /// One sentence for the client and the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "the server's name does not resolve",
            Self::Connect => "the server refuses connections",
            Self::NoSocket => "the server's socket is not there: is the server running?",
            Self::SocketForbidden => {
                "the server's socket may not be used: give this process write permission to it"
            }
            Self::ConnectTimeout => "the server did not accept a connection in time",
            Self::Tls(fault) => fault.of_server(),
            Self::NotHttp2 => {
                "the server does not speak HTTP/2: check `protocol`, and the server's own settings"
            }
            Self::NoResponse => "the server closed without a response",
            Self::StreamReset => "the server reset the request without a response",
            Self::ResponseTimeout => "the server did not answer in time",
            Self::Late => "the server was late, and another one was asked",
            Self::GaveWay => "the server was late, and the place was needed for other clients",
            Self::WentDown => "the server went down before it answered",
            Self::BadResponse => "the server's answer is not HTTP",
            Self::BadHandshake => "the server's answer to the WebSocket handshake is wrong",
            Self::RequestBody => "the request body broke off",
            Self::PeerFull => "the peer is full",
            Self::Stranger => {
                "the peer takes this node for none: check that both have a secret of [peering] in common, and \
                 that its `name` is the one in the list of peers"
            }
            Self::AllDown => "every server is down",
            Self::NoMembers => "no member of this site is known yet",
            Self::QueueFull => "too many requests wait for the server",
            Self::QueueTimeout => "no connection to the server became free in time",
        }
    }

    /// The error type of `Proxy-Status` (RFC 9209 Sec. 2.3).
    pub const fn proxy_error(self) -> &'static str {
        match self {
            Self::Dns => "dns_error",
            Self::Connect | Self::NoSocket | Self::SocketForbidden | Self::Stranger => {
                "connection_refused"
            }
            Self::ConnectTimeout => "connection_timeout",
            Self::Tls(fault) => fault.proxy_error(),
            Self::NoResponse | Self::StreamReset => "connection_terminated",
            Self::ResponseTimeout | Self::Late | Self::GaveWay => "http_response_timeout",
            Self::BadResponse | Self::NotHttp2 => "http_protocol_error",
            Self::BadHandshake => "http_upgrade_failed",
            Self::RequestBody => "http_request_error",
            Self::PeerFull | Self::AllDown | Self::NoMembers | Self::WentDown => {
                "destination_unavailable"
            }
            Self::QueueFull | Self::QueueTimeout => "connection_limit_reached",
        }
    }

    /// Whether the failure is the fault of the server that was asked: it counts against its health.
    pub const fn blames_server(self) -> bool {
        matches!(
            self,
            Self::Dns
                | Self::Connect
                | Self::NoSocket
                | Self::SocketForbidden
                | Self::ConnectTimeout
                | Self::Tls(_)
                | Self::NotHttp2
                | Self::NoResponse
                | Self::StreamReset
                | Self::ResponseTimeout
                | Self::Late
                | Self::BadResponse
                | Self::Stranger
        )
    }

    /// Whether the failure is the fault of the client: it counts against no server.
    pub const fn is_clients(self) -> bool {
        matches!(self, Self::RequestBody)
    }

    /// Whether the server only took too long.
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::ResponseTimeout | Self::Late)
    }

    /// Whether another server might answer.
    pub const fn worth_retrying(self) -> bool {
        self.blames_server()
            || matches!(self, Self::PeerFull | Self::QueueFull | Self::QueueTimeout)
    }
}

impl From<UpstreamError> for ServerFailure {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::NoResponse => Self::NoResponse,
            UpstreamError::BadResponse => Self::BadResponse,
            UpstreamError::ResponseTimeout => Self::ResponseTimeout,
            UpstreamError::RequestBody => Self::RequestBody,
        }
    }
}
