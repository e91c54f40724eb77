//! HTTP/3 on the listening side, on quinn and h3. docs/operate/http3.md says what operators set up,
//! docs/decisions/0018 why it is done so.
//!
//! ```text
//! serve          the node behind it: answers the requests, knows the limits of clients
//! endpoint       the UDP side of a listener: accepts connections, asks for proofs of addresses
//! socket         the UDP socket of an endpoint
//! amplification  the limit of bytes to an address that is not proved
//! config         what a listener's TLS and limits mean for QUIC
//! session        handshakes of the one version that is spoken
//! tickets        sessions that clients resume, at any node
//! padding        cuts the padding off packets of clients
//! cid            connection ids that say at which socket their connection is
//! keys           keys of resets and tokens, which nodes share
//! connection     one connection: handshake, requests, end
//! silence        clients that answer nothing are given up
//! requests       the requests of a connection, which its task polls where they came
//! request        one request, until the client has all of the response
//! body           the body of a request
//! encoder        the head of a response as a frame
//! tunnel         the stream of a request that switches to WebSocket
//! transport      a connection of quinn as h3 uses it, with the guard in between
//! frames         the guard: lets only well-formed frames pass, within bounds
//! fields         the judge of pseudo fields
//! uni            unidirectional streams: the types, and the streams of QPACK
//! ```

mod amplification;
mod body;
mod cid;
mod code;
mod config;
mod connection;
mod encoder;
mod endpoint;
mod endpoints;
mod fields;
mod frames;
mod keys;
mod metrics;
mod padding;
mod request;
mod requests;
mod serve;
mod session;
mod silence;
mod socket;
mod tickets;
mod transport;
mod tunnel;
mod uni;

pub use body::{BodyError, RequestBody};
pub use config::{alt_svc, server_config};
pub use endpoint::{Endpoint, UNPROVEN};
pub use endpoints::{Endpoints, PreparedEndpoint};
pub use keys::QuicKeys;
pub use metrics::QuicMetrics;
pub use quinn::ServerConfig;
pub use quinn::crypto::rustls::NoInitialCipherSuite;
pub use serve::Serve;
pub use tunnel::TunnelStream;

/// The guard, for fuzzing and tests only.
#[doc(hidden)]
pub mod fuzzing {
    use std::collections::VecDeque;

    use bytes::Bytes;

    use crate::{
        frames::{Frames, HeadBytes},
        padding, session,
    };

    /// The length of a payload without padding at its end.
    pub fn length_of_frames(payload: &[u8]) -> usize {
        padding::length_of_frames(payload)
    }

    /// Whether a ClientHello has this extension; `None` if it is none.
    pub fn has_extension(hello: &[u8], kind: u16) -> Option<bool> {
        session::has_extension(hello, kind)
    }

    /// The bytes of a request's stream that pass when it comes in chunks of `at_once`; `None` if it is refused.
    pub fn passed(stream: &[u8], at_once: usize) -> Option<Vec<u8>> {
        let (mut frames, all) = (Frames::of_request(1 << 10), HeadBytes::default());
        let mut out = VecDeque::new();
        for chunk in stream.chunks(at_once) {
            frames.feed(Bytes::copy_from_slice(chunk), &mut out, &all).ok()?;
        }
        frames.end().ok()?;
        Some(out.into_iter().flatten().collect())
    }
}
