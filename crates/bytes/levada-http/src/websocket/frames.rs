//! Where the frames of WebSocket end (RFC 6455 Sec. 5.2), in one direction of a tunnel.
//!
//! ```text
//!   FIN RSV opcode | MASK length (7 bits) | length (0, 2 or 8 bytes) | mask (0 or 4) | payload
//! ```
//!
//! Deliberately absent: whether frames are allowed where they stand. The two ends judge that. Bytes that are no
//! frames end the tracking of frames, and nothing else.

/// The place in the frames of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramePosition {
    /// The head of the next frame, as far as it has come.
    head: [u8; HEAD],
    have: usize,
    /// Bytes of mask and payload that are still to come.
    left: u64,
    /// The frame that is passing is the last one.
    closes: bool,
    /// The bytes are no frames.
    lost: bool,
}

/// Bytes of a head without its mask, at most.
const HEAD: usize = 10;
const MASK: u64 = 4;
const CLOSE: u8 = 8;
/// The longest payload of a control frame (RFC 6455 Sec. 5.5).
const CONTROL: u64 = 125;

impl FramePosition {
    /// Takes in bytes in the order in which they pass.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.lost {
            let payload = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            bytes = &bytes[payload..];
            self.left -= payload as u64;
            if self.closes {
                return;
            }
            // No head ends before its second byte, and that one tells the length of the rest.
            while let Some((byte, rest)) = bytes.split_first() {
                self.head[self.have] = *byte;
                self.have += 1;
                bytes = rest;
                if self.have >= 2 && self.have == length_of_head(self.head[1]) {
                    self.begin();
                    break;
                }
            }
        }
    }

    fn begin(&mut self) {
        let [first, second, extended @ ..] = self.head;
        let length = match second & 0x7f {
            126 => u64::from(u16::from_be_bytes([extended[0], extended[1]])),
            127 => u64::from_be_bytes(extended),
            short => u64::from(short),
        };
        let opcode = first & 0x0f;
        let is_control = opcode & 0x08 != 0;
        self.lost = length > i64::MAX as u64 || (is_control && length > CONTROL);
        self.closes = opcode == CLOSE;
        self.left = length + if second & 0x80 != 0 { MASK } else { 0 };
        self.have = 0;
    }

    /// Whether no frame is on its way, and another one may follow.
    pub fn is_between(&self) -> bool {
        self.left == 0 && self.have == 0 && !self.closes && !self.lost
    }

    /// Whether the frame that says goodbye has passed. Nothing follows it.
    pub fn has_closed(&self) -> bool {
        self.closes && self.left == 0 && !self.lost
    }

    /// Whether the bytes were no frames.
    pub fn is_lost(&self) -> bool {
        self.lost
    }
}

fn length_of_head(second: u8) -> usize {
    match second & 0x7f {
        126 => 4,
        127 => 10,
        _ => 2,
    }
}

/// The frame by which an end that goes away says goodbye: status 1001 (RFC 6455 Sec. 7.4.1). Clients mask what they
/// send; the mask of zeros leaves it as it is.
pub(crate) fn goodbye(masked: bool) -> &'static [u8] {
    match masked {
        false => &[0x88, 2, 0x03, 0xe9],
        true => &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(first: u8, masked: bool, length: usize) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut bytes = vec![first];
        match length {
            0..=125 => bytes.push(mask | length as u8),
            126..=65535 => {
                bytes.push(mask | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(std::iter::repeat_n(0xff, length + if masked { 4 } else { 0 }));
        bytes
    }

    #[test]
    fn frame_ends_at_its_last_byte_however_it_comes() {
        for length in [0, 1, 125, 126, 65535, 65536] {
            for masked in [false, true] {
                let bytes = frame(0x82, masked, length);
                let mut position = FramePosition::default();
                for (at, byte) in bytes.iter().enumerate() {
                    assert_eq!(position.is_between(), at == 0, "{length} {masked} {at}");
                    position.feed(&[*byte]);
                }
                assert!(position.is_between() && !position.has_closed());
            }
        }
    }

    #[test]
    fn nothing_follows_a_close() {
        for bytes in [frame(0x88, true, 2), goodbye(false).to_vec(), goodbye(true).to_vec()] {
            let mut position = FramePosition::default();
            position.feed(&bytes[..bytes.len() - 1]);
            assert!(!position.has_closed() && !position.is_between());
            position.feed(&bytes[bytes.len() - 1..]);
            assert!(position.has_closed() && !position.is_between());
            position.feed(b"whatever");
            assert!(position.has_closed());
        }
    }

    #[test]
    fn bytes_that_are_no_frames_are_told() {
        for bytes in [&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0][..], &[0x89, 126, 0, 126]] {
            let mut position = FramePosition::default();
            position.feed(bytes);
            assert!(position.is_lost() && !position.is_between() && !position.has_closed());
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(bytes: Vec<u8>, cuts in prop::collection::vec(1_usize..9, 0..40)) {
            let (mut whole, mut pieces) = (FramePosition::default(), FramePosition::default());
            whole.feed(&bytes);
            let mut rest = &bytes[..];
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.feed(piece);
                rest = after;
            }
            pieces.feed(rest);
            prop_assert_eq!(whole.is_between(), pieces.is_between());
            prop_assert_eq!(whole.has_closed(), pieces.has_closed());
            prop_assert_eq!(whole.is_lost(), pieces.is_lost());
        }

        #[test]
        fn frames_end_where_they_should(lengths in prop::collection::vec(0_usize..300, 1..20)) {
            let mut position = FramePosition::default();
            for length in lengths {
                position.feed(&frame(0x81, true, length));
                prop_assert!(position.is_between());
            }
        }
    }
}
