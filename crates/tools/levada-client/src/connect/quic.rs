//! Connections over QUIC (RFC 9114) to servers that offer HTTP/3.
//!
//! Where the route moves they cost less than TLS over TCP: a handshake takes a round trip less, and each packet
//! can be used without the next one, while a record that was cut cannot.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use quinn::{
    ClientConfig, ConnectionError, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt,
    crypto::rustls::QuicClientConfig,
};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use tokio::time::timeout;

use super::{Origin, WINDOW};

/// A connection whose handshake is complete.
pub(super) struct Opened {
    pub(super) sender: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    pub(super) connection: quinn::Connection,
}

/// The reason why there is no connection; TCP is used then.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuicError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Name(#[from] quinn::ConnectError),
    #[error(transparent)]
    Quic(#[from] ConnectionError),
    #[error(transparent)]
    Http3(#[from] h3::error::ConnectionError),
    #[error("no answer")]
    Slow,
}

/// Opens a connection. It receives at most about `window` bytes in a round trip.
pub(super) async fn open(
    crypto: Arc<QuicClientConfig>,
    host: &str,
    address: SocketAddr,
    window: Option<usize>,
) -> Result<Opened, QuicError> {
    // Twice, as Linux does for TCP: the server hears of room only when a part of the window is free.
    let window =
        window.map_or(WINDOW, |window| u32::try_from(window.saturating_mul(2)).unwrap_or(WINDOW));
    let mut transport = TransportConfig::default();
    transport.receive_window(VarInt::from_u32(window));
    transport.stream_receive_window(VarInt::from_u32(window));
    let mut config = ClientConfig::new(crypto);
    config.transport_config(Arc::new(transport));

    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    // The kernel gives what it allows. Its default holds two milliseconds of 1 Gbit/s.
    let _ = set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let connecting = endpoint.connect_with(config, address, bare)?;
    let connection =
        timeout(HANDSHAKE_TIMEOUT, connecting).await.map_err(|_| QuicError::Slow)??;
    let transport = h3_quinn::Connection::new(connection.clone());
    let (mut driver, sender) = h3::client::builder().send_grease(false).build(transport).await?;
    // The reader of the body gets the error.
    tokio::spawn(async move { driver.wait_idle().await });
    Ok(Opened { sender, connection })
}

/// The servers that offer HTTP/3, and those that do not answer there.
#[derive(Default)]
pub(super) struct Offers(Mutex<HashMap<Origin, Offer>>);

#[derive(Clone, Copy)]
enum Offer {
    /// At this port, and whether a connection has been opened.
    At(u16, bool),
    /// Nothing answers.
    Failed,
}

impl Offers {
    /// Takes note of what a response over TLS offers. The offer of another host is not taken.
    pub(super) fn heard(&self, origin: &Origin, headers: &HeaderMap) {
        if !origin.0 {
            return;
        }
        let fields = headers.get_all(header::ALT_SVC).iter();
        let port = fields.filter_map(|value| offered(value.to_str().ok()?)).next();
        if let Some(port) = port {
            self.0.lock().entry(origin.clone()).or_insert(Offer::At(port, false));
        }
    }

    /// The port for HTTP/3, unless nothing answers there. Without an offer it is `otherwise`.
    pub(super) fn port(&self, origin: &Origin, otherwise: Option<u16>) -> Option<u16> {
        match self.0.lock().get(origin) {
            Some(Offer::At(port, _)) => Some(*port),
            Some(Offer::Failed) => None,
            None => otherwise,
        }
    }

    /// A connection was opened.
    pub(super) fn worked(&self, origin: &Origin, port: u16) {
        self.0.lock().insert(origin.clone(), Offer::At(port, true));
    }

    /// No connection was opened. One that is reset within the handshake says nothing: the route has moved.
    pub(super) fn failed(&self, origin: &Origin, error: &QuicError) {
        let offer = &mut *self.0.lock();
        let is_proven = matches!(offer.get(origin), Some(Offer::At(_, true)));
        if !is_proven && !matches!(error, QuicError::Quic(ConnectionError::Reset)) {
            offer.insert(origin.clone(), Offer::Failed);
        }
    }
}

/// The port of `h3` in a field of `Alt-Svc`: `h3=":443"; ma=86400`.
fn offered(field: &str) -> Option<u16> {
    field.split(',').find_map(|offer| {
        let authority = offer.trim_start().strip_prefix("h3=\":")?;
        authority.split('"').next()?.parse().ok()
    })
}

/// Longer than a round trip by satellite. Where UDP is blocked, this time is lost once.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
const SOCKET_BUFFER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_of_this_host_are_found_among_others() {
        assert_eq!(offered("h3=\":443\"; ma=86400"), Some(443));
        assert_eq!(offered("h2=\":1\", h3=\":8443\""), Some(8443));
        for none in ["clear", "", "h3=\"other.test:443\"", "h3-29=\":443\"", "h3=\":x\"", "h3=\":"]
        {
            assert_eq!(offered(none), None, "{none}");
        }
    }

    #[test]
    fn what_does_not_answer_is_not_tried_again_and_what_has_answered_is() {
        let (offers, origin) = (Offers::default(), (true, "a".to_owned(), 443));
        let mut headers = HeaderMap::new();
        headers.insert(header::ALT_SVC, "h3=\":8443\"".parse().unwrap());
        offers.heard(&(false, "a".to_owned(), 80), &headers);
        assert_eq!(offers.port(&(false, "a".to_owned(), 80), None), None);
        assert_eq!(offers.port(&origin, Some(443)), Some(443));
        offers.heard(&origin, &headers);
        offers.failed(&origin, &QuicError::Quic(ConnectionError::Reset));
        assert_eq!(offers.port(&origin, None), Some(8443));
        offers.worked(&origin, 8443);
        offers.failed(&origin, &QuicError::Slow);
        assert_eq!(offers.port(&origin, None), Some(8443));
        let other = (true, "b".to_owned(), 443);
        offers.failed(&other, &QuicError::Slow);
        offers.heard(&other, &headers);
        assert_eq!(offers.port(&other, Some(443)), None);
    }
}
