//! The meaning of a listener's TLS and limits for QUIC.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use levada_http::ConnectionLimits;
use quinn::{
    IdleTimeout, ServerConfig, TransportConfig, VarInt,
    crypto::rustls::{NoInitialCipherSuite, QuicServerConfig},
};
use rustls::server::ProducesTickets;

use crate::{QuicKeys, session::Handshakes, tickets::Sessions};

/// Streams of one connection at once: as many as over HTTP/2.
const STREAMS: u32 = 128;
/// Unidirectional streams: three of HTTP/3, and some that mean nothing.
const UNI_STREAMS: u32 = 8;
/// Bytes of one request's body that may be on their way, and of all.
const STREAM_WINDOW: u32 = 1 << 20;
const WINDOW: u32 = 2 << 20;
/// Bytes of responses that are kept until the client has acknowledged them: 320 Mbit/s at 50 ms.
const SEND_WINDOW: u64 = 2 << 20;
/// Handshakes that may wait for this node to look at them, and the bytes that come with them.
const WAITING: usize = 1024;
const WAITING_BYTES: u64 = 4 << 20;

/// How long a client may take to show that it has got a Retry packet, with the difference of the clocks of two nodes.
const RETRY_LIFETIME: Duration = Duration::from_secs(60);

/// The configuration of a listener with this TLS.
///
/// # Errors
/// When the TLS settings exclude TLS 1.3, which QUIC has always.
pub fn server_config(
    tls: &rustls::ServerConfig,
    limits: &ConnectionLimits,
    keys: &QuicKeys,
) -> Result<ServerConfig, NoInitialCipherSuite> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // QUIC knows this value or 0 (RFC 9001 Sec. 4.6.1).
    tls.max_early_data_size = u32::MAX;
    // A session that is kept here is used once, so that a replay of early data finds none (RFC 8446 Sec. 8.1). The
    // ticketer of rustls would give no early data at all.
    let sealing = std::mem::replace(&mut tls.ticketer, Arc::new(NoTickets));
    let sessions = Arc::new(Sessions::new(sealing));
    tls.session_storage = sessions.clone();
    let handshakes = Handshakes { config: Arc::new(QuicServerConfig::try_from(tls)?), sessions };
    let mut config = ServerConfig::new(Arc::new(handshakes), keys.tokens());
    config
        .transport_config(Arc::new(transport(limits)))
        .retry_token_lifetime(RETRY_LIFETIME)
        .max_incoming(WAITING)
        .incoming_buffer_size_total(WAITING_BYTES);
    Ok(config)
}

/// The offer of HTTP/3 at this port, for responses over TCP.
pub fn alt_svc(port: u16) -> HeaderValue {
    let offer = HeaderValue::try_from(format!("h3=\":{port}\"; ma=86400"));
    offer.unwrap_or_else(|_| HeaderValue::from_static("clear"))
}

fn transport(limits: &ConnectionLimits) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(limits.idle_timeout).ok();
    transport
        .max_idle_timeout(idle)
        // A client that waits for a slow response is asked whether it is still there.
        .keep_alive_interval(Some(limits.idle_timeout / 2))
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS))
        .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None);
    transport
}

#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _cipher: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
