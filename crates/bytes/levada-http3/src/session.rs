//! The handshakes of QUIC version 1. rustls takes the transport parameters of a client by the number of a draft as
//! well; here a client without those of the version is refused (RFC 9001 Sec. 8.2).

use std::{any::Any, sync::Arc};

use quinn::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
    rustls::QuicServerConfig,
};
use quinn_proto::{
    ConnectionId, Side, TransportError, TransportErrorCode,
    transport_parameters::TransportParameters,
};

use crate::{
    padding::{trimming, trimming_pair},
    tickets::Sessions,
};

/// The version of RFC 9000, without the drafts before it.
pub(crate) const VERSION: u32 = 1;
const TRANSPORT_PARAMETERS: u16 = 57;
/// The alert of TLS 1.3.
const MISSING_EXTENSION: u8 = 109;

/// See the module.
pub(crate) struct Handshakes {
    pub(crate) config: Arc<QuicServerConfig>,
    pub(crate) sessions: Arc<Sessions>,
}

impl crypto::ServerConfig for Handshakes {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        // Of the first packet alone, whose padding stays: quinn counts its bytes behind this, and has to know how much it
        // may answer.
        self.config.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.config.retry_tag(version, id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let inner = self.config.clone().start_session(version, parameters);
        Box::new(Session { inner, hello: Some(Vec::new()), sessions: self.sessions.clone() })
    }
}

struct Session {
    inner: Box<dyn crypto::Session>,
    /// The ClientHello, until it is whole. rustls bounds its length.
    hello: Option<Vec<u8>>,
    sessions: Arc<Sessions>,
}

impl crypto::Session for Session {
    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        if let Some(hello) = &mut self.hello {
            hello.extend_from_slice(bytes);
            if is_whole(hello) {
                if has_extension(hello, TRANSPORT_PARAMETERS) == Some(false) {
                    return Err(TransportError {
                        code: TransportErrorCode::crypto(MISSING_EXTENSION),
                        frame: None,
                        reason: "no transport parameters of version 1".to_owned(),
                    });
                }
                self.hello = None;
            }
        }
        self.inner.read_handshake(bytes)
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        trimming(self.inner.initial_keys(id, side))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, bytes: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.inner.write_handshake(bytes).map(trimming);
        if keys.is_none() && !bytes.is_empty() && !self.inner.is_handshaking() {
            self.sessions.seal_tickets(bytes);
        }
        keys
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys().map(trimming_pair)
    }

    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(id, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

/// Takes `length` bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(front)
}

/// Takes a number in `width` bytes.
fn number(bytes: &mut &[u8], width: usize) -> Option<usize> {
    Some(take(bytes, width)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// Takes a field whose length is in `width` bytes before it.
fn field<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = number(bytes, width)?;
    take(bytes, length)
}

/// Whether a message of the handshake is complete: a type, and a length in three bytes.
fn is_whole(mut message: &[u8]) -> bool {
    take(&mut message, 1).is_some() && field(&mut message, 3).is_some()
}

/// Whether a ClientHello (RFC 8446 Sec. 4.1.2) has this extension; `None` if it is none, which rustls judges.
pub(crate) fn has_extension(mut hello: &[u8], wanted: u16) -> Option<bool> {
    take(&mut hello, 1)?;
    let mut hello = field(&mut hello, 3)?;
    // Version and random bytes.
    take(&mut hello, 34)?;
    let _session = field(&mut hello, 1)?;
    let _suites = field(&mut hello, 2)?;
    let _compressions = field(&mut hello, 1)?;
    let mut extensions = field(&mut hello, 2)?;
    while !extensions.is_empty() {
        let kind = number(&mut extensions, 2)?;
        field(&mut extensions, 2)?;
        if kind == usize::from(wanted) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3; 34];
        // No session, one suite, no compression.
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = vec![1, 0, 0, body.len() as u8];
        message.extend(body);
        message
    }

    #[test]
    fn extensions_of_a_hello_are_found_in_whatever_pieces_it_comes() {
        let with = hello(&[0, 10, 0, 2, 7, 7, 0, 57, 0, 1, 9]);
        let draft = hello(&[0, 10, 0, 2, 0, 57, 0xff, 0xa5, 0, 1, 9]);
        assert_eq!(has_extension(&with, TRANSPORT_PARAMETERS), Some(true));
        assert_eq!(has_extension(&draft, TRANSPORT_PARAMETERS), Some(false));
        for end in 0..with.len() {
            assert!(!is_whole(&with[..end]));
            assert_eq!(has_extension(&with[..end], TRANSPORT_PARAMETERS), None, "{end}");
        }
        assert!(is_whole(&with));
    }
}
