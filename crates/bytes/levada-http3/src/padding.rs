//! Padding behind the frames of a packet, which is cut off as soon as the packet is deciphered. Clients fill their
//! first packets to 1200 bytes, and probes of the path's MTU to more; quinn would handle each byte as a frame.

use bytes::BytesMut;
use quinn::crypto::{CryptoError, KeyPair, Keys, PacketKey};

use crate::frames::varint;

const PADDING: u8 = 0;
/// Of draft-ietf-quic-ack-frequency; probes of the MTU have it.
const IMMEDIATE_ACK: u64 = 0x1f;

/// A key for packets of clients.
struct Trimming(Box<dyn PacketKey>);

/// Keys of one space of packet numbers, of which that for packets of the client trims them.
pub(crate) fn trimming(mut keys: Keys) -> Keys {
    keys.packet = trimming_pair(keys.packet);
    keys
}

pub(crate) fn trimming_pair(keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
    KeyPair { local: keys.local, remote: Box::new(Trimming(keys.remote)) }
}

impl PacketKey for Trimming {
    fn encrypt(&self, packet: u64, bytes: &mut [u8], header_length: usize) {
        self.0.encrypt(packet, bytes, header_length);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.0.decrypt(packet, header, payload)?;
        if payload.last() == Some(&PADDING) {
            payload.truncate(length_of_frames(payload));
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// The length of a payload without padding at its end, as far as its frames are those of packets that are filled:
/// PING, ACK, CRYPTO, and those of probes. A payload of padding only keeps one byte, since one without frames is a
/// fault of the client.
pub(crate) fn length_of_frames(payload: &[u8]) -> usize {
    let mut rest = payload;
    while rest.first().is_some_and(|kind| *kind != PADDING) {
        match after_frame(rest) {
            Some(after) => rest = after,
            None => return payload.len(),
        }
    }
    match rest.iter().all(|byte| *byte == PADDING) {
        true => (payload.len() - rest.len()).max(1).min(payload.len()),
        false => payload.len(),
    }
}

/// The bytes behind the first frame (RFC 9000 Sec. 19); `None` if that is of another type or not whole.
fn after_frame(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    let mut number = || {
        let (value, length) = varint(rest)?;
        rest = &rest[length..];
        Some(value)
    };
    let kind = number()?;
    match kind {
        1 | IMMEDIATE_ACK => {}
        2 | 3 => {
            let (_largest, _delay) = (number()?, number()?);
            let ranges = number()?;
            let _first = number()?;
            for _ in 0..ranges {
                let (_gap, _length) = (number()?, number()?);
            }
            if kind == 3 {
                let _ecn = (number()?, number()?, number()?);
            }
        }
        6 => {
            let _offset = number()?;
            let length = usize::try_from(number()?).ok()?;
            rest = rest.get(length..)?;
        }
        // The challenge of a path, and the response to one.
        0x1a | 0x1b => rest = rest.get(8..)?,
        _ => return None,
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_cut_off_behind_known_frames_only() {
        let crypto = b"\x06\0\x04ab\0\0";
        let ack = b"\x02\x01\0\x01\0\0\0";
        let ecn = b"\x03\x01\0\0\0\0\0\0";
        for frames in [
            &crypto[..],
            ack,
            ecn,
            b"\x01\x1f",
            b"\x1a12345678",
            &[&ack[..], b"\x01", crypto].concat(),
        ] {
            for padding in [0, 1, 1000] {
                let payload = [frames, &vec![0; padding]].concat();
                assert_eq!(length_of_frames(&payload), frames.len(), "{payload:?}");
            }
        }
        assert_eq!(
            (length_of_frames(b""), length_of_frames(b"\0"), length_of_frames(&[0; 9])),
            (0, 1, 1)
        );
        // The data of a stream, frames behind padding, and frames that are cut.
        for whole in
            [&b"\x08\0a\0\0\0"[..], b"\0\0\x01", b"\x01\0\x01\0", b"\x06\0\x09a\0\0", b"\x02\0\0"]
        {
            assert_eq!(length_of_frames(whole), whole.len(), "{whole:?}");
        }
    }
}
