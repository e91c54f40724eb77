//! Frames (RFC 9113 Sec. 4 and 6): their heads and fixed payloads, as they are read and written.
//!
//! ```text
//!   length (3) type (1) flags (1) stream (4) payload (length)
//! ```

/// How a connection begins (RFC 9113 Sec. 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's head.
pub(super) const HEAD: usize = 9;
/// The longest payload that this side takes, and that every client takes.
pub(super) const LONGEST: usize = 16 << 10;

/// The types of frames that are known here.
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PUSH_PROMISE: u8 = 5;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
}

/// The flags of frames.
pub(super) mod flag {
    /// Of SETTINGS and PING.
    pub(in super::super) const ACK: u8 = 1;
    /// Of DATA and HEADERS.
    pub(in super::super) const END_STREAM: u8 = 1;
    pub(in super::super) const END_HEADERS: u8 = 4;
    pub(in super::super) const PADDED: u8 = 8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// An error code (RFC 9113 Sec. 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ErrorCode {
    NoError = 0,
    ProtocolError = 1,
    InternalError = 2,
    FlowControlError = 3,
    StreamClosed = 5,
    FrameSizeError = 6,
    RefusedStream = 7,
    Cancel = 8,
    CompressionError = 9,
    EnhanceYourCalm = 11,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    /// Reads a head; `None` when it has not come.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let &[high, middle, low, kind, flags, ref stream @ ..] = bytes.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        Some(Self { length, kind, flags, stream: u32::from_be_bytes(*stream) & LAST_STREAM })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let [_, high, middle, low] = (self.length as u32).to_be_bytes();
        let [a, b, c, d] = self.stream.to_be_bytes();
        [high, middle, low, self.kind, self.flags, a, b, c, d]
    }

    /// The payload without its padding, and in HEADERS without a priority (RFC 9113 Sec. 6.1 and 6.2). `None` if
    /// there is more padding than payload.
    pub(super) fn unpadded<'a>(&self, mut payload: &'a [u8]) -> Option<&'a [u8]> {
        let mut padding = 0;
        if self.has(flag::PADDED) {
            let (length, rest) = payload.split_first()?;
            (padding, payload) = (usize::from(*length), rest);
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            payload = payload.get(PRIORITY..)?;
        }
        payload.get(..payload.len().checked_sub(padding)?)
    }
}

/// The largest number of a stream.
pub(super) const LAST_STREAM: u32 = u32::MAX >> 1;
/// Bytes of a priority.
pub(super) const PRIORITY: usize = 5;

/// The number in the first four bytes of a payload.
pub(super) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Writes a frame.
pub(super) fn write(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let head = FrameHead { length: payload.len(), kind, flags, stream };
    to.extend_from_slice(&head.to_bytes());
    to.extend_from_slice(payload);
}

pub(super) fn write_reset(to: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write(to, kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}

pub(super) fn write_goaway(to: &mut Vec<u8>, last: u32, code: ErrorCode) {
    let payload = [last.to_be_bytes(), (code as u32).to_be_bytes()];
    write(to, kind::GOAWAY, 0, 0, payload.as_flattened());
}

pub(super) fn write_window_update(to: &mut Vec<u8>, stream: u32, more: u32) {
    write(to, kind::WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
}

/// Writes a header block in frames that `write` writes without their heads.
pub(super) fn write_block(
    to: &mut Vec<u8>,
    stream: u32,
    flags: u8,
    write_fields: impl FnOnce(&mut Vec<u8>),
) {
    let begin = to.len();
    to.extend_from_slice(&[0; HEAD]);
    write_fields(to);
    let mut head = FrameHead {
        length: to.len() - begin - HEAD,
        kind: kind::HEADERS,
        flags: flags | flag::END_HEADERS,
        stream,
    };
    if head.length > LONGEST {
        // Few blocks are as long.
        let rest = to.split_off(begin + HEAD + LONGEST);
        (head.length, head.flags) = (LONGEST, flags);
        let mut pieces = rest.chunks(LONGEST).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            write(to, kind::CONTINUATION, flags, stream, piece);
        }
    }
    to[begin..begin + HEAD].copy_from_slice(&head.to_bytes());
}

/// The settings of a client that matter to this side (RFC 9113 Sec. 6.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// The first window of a stream.
    pub(super) window: u32,
    /// The next header block has to say that the table of fields is smaller than at first (RFC 7541 Sec. 4.2).
    shrinks_table: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { window: super::flow::FIRST, shrinks_table: false }
    }
}

impl Settings {
    /// Takes a payload of settings over.
    pub(super) fn read(&mut self, payload: &[u8]) -> Result<(), ErrorCode> {
        if !payload.len().is_multiple_of(SETTING) {
            return Err(ErrorCode::FrameSizeError);
        }
        for setting in payload.chunks(SETTING) {
            let value = number(&setting[2..]);
            match (u16::from_be_bytes([setting[0], setting[1]]), value) {
                (HEADER_TABLE_SIZE, ..4096) => self.shrinks_table = true,
                (ENABLE_PUSH, 2..) => return Err(ErrorCode::ProtocolError),
                (INITIAL_WINDOW_SIZE, 0..=LAST_STREAM) => self.window = value,
                (INITIAL_WINDOW_SIZE, _) => return Err(ErrorCode::FlowControlError),
                (MAX_FRAME_SIZE, ..0x4000 | 0x100_0000..) => return Err(ErrorCode::ProtocolError),
                _ => {}
            }
        }
        Ok(())
    }

    /// Begins a header block. No table is used here, so it may have no size at all.
    pub(super) fn begin_block(&mut self, block: &mut Vec<u8>) {
        block.extend(std::mem::take(&mut self.shrinks_table).then_some(0x20));
    }
}

/// Writes this side's settings: the largest size of a list of fields, and how many streams may be open.
pub(super) fn write_settings(to: &mut Vec<u8>, list_size: u32, streams: u32) {
    let settings = [
        (MAX_CONCURRENT_STREAMS, streams),
        (MAX_HEADER_LIST_SIZE, list_size),
        (ENABLE_CONNECT_PROTOCOL, 1),
    ];
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|(name, value)| name.to_be_bytes().into_iter().chain(value.to_be_bytes()))
        .collect();
    write(to, kind::SETTINGS, 0, 0, &payload);
}

/// Bytes of a setting.
const SETTING: usize = 6;
const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 8441 Sec. 3.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let head = FrameHead { length: 0x12345, kind: 9, flags: 4, stream: 0x7654_3210 };
        assert_eq!(FrameHead::read(&head.to_bytes()), Some(head));
        assert_eq!(FrameHead::read(&head.to_bytes()[..8]), None);
        let reserved = [0, 0, 0, 0, 0, 0x80, 0, 0, 1];
        assert_eq!(FrameHead::read(&reserved).unwrap().stream, 1);
    }

    #[test]
    fn padding_and_priority_are_cut_off() {
        let of = |kind, flags, payload: &'static [u8]| {
            FrameHead { length: payload.len(), kind, flags, stream: 1 }.unpadded(payload)
        };
        assert_eq!(of(kind::DATA, 0, b"abc"), Some(&b"abc"[..]));
        assert_eq!(of(kind::DATA, flag::PADDED, b"\x02abc"), Some(&b"a"[..]));
        assert_eq!(of(kind::DATA, flag::PADDED, b"\x03abc"), Some(&b""[..]));
        assert_eq!(of(kind::DATA, flag::PADDED, b"\x04abc"), None);
        assert_eq!(of(kind::DATA, flag::PADDED, b""), None);
        assert_eq!(of(kind::DATA, flag::PRIORITY, b"abc"), Some(&b"abc"[..]));
        let both = flag::PADDED | flag::PRIORITY;
        assert_eq!(of(kind::HEADERS, both, b"\x01.....ab"), Some(&b"a"[..]));
        assert_eq!(of(kind::HEADERS, flag::PRIORITY, b"...."), None);
    }

    #[test]
    fn long_blocks_go_on_in_further_frames() {
        for (length, lengths) in [
            (3, &[3][..]),
            (LONGEST, &[LONGEST]),
            (LONGEST + 1, &[LONGEST, 1]),
            (2 * LONGEST + 5, &[LONGEST, LONGEST, 5]),
        ] {
            let mut bytes = b"before".to_vec();
            write_block(&mut bytes, 5, flag::END_STREAM, |to| to.resize(to.len() + length, b'x'));
            let mut rest = &bytes[6..];
            for (at, expected) in lengths.iter().enumerate() {
                let head = FrameHead::read(rest).unwrap();
                let kind = if at == 0 { kind::HEADERS } else { kind::CONTINUATION };
                assert_eq!((head.length, head.kind, head.stream), (*expected, kind, 5));
                assert_eq!(head.has(flag::END_HEADERS), at + 1 == lengths.len());
                assert_eq!(head.has(flag::END_STREAM), at == 0);
                assert!(rest[HEAD..HEAD + head.length].iter().all(|byte| *byte == b'x'));
                rest = &rest[HEAD + head.length..];
            }
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn settings_are_within_their_bounds() {
        let of = |payload: &[u8]| {
            let mut settings = Settings::default();
            settings.read(payload).map(|()| settings.window)
        };
        assert_eq!(of(b""), Ok(65_535));
        assert_eq!(of(b"\0\x04\0\0\0\x07\0\x09\xff\xff\xff\xff"), Ok(7));
        assert_eq!(of(b"\0\x05\0\x01\0\0"), Ok(65_535));
        assert_eq!(of(b"\0\x04\x80\0\0\0"), Err(ErrorCode::FlowControlError));
        assert_eq!(of(b"\0\x05\0\0\x3f\xff"), Err(ErrorCode::ProtocolError));
        assert_eq!(of(b"\0\x02\0\0\0\x02"), Err(ErrorCode::ProtocolError));
        assert_eq!(of(b"\0\x02"), Err(ErrorCode::FrameSizeError));
    }
}
