//! The guard before h3: reads along in the frames of a client's stream, and lets only those pass that h3 may
//! see.
//!
//! ```text
//!   frame: type (varint) length (varint) payload (length)
//! ```
//!
//! h3 gathers every frame but DATA until it is complete, whatever its length, and forgets the order and the
//! number of pseudo fields. The guard bounds the length of heads, drops frames of unknown types as they come,
//! and judges the fields of a head before h3 reads it ([`crate::fields`]). The protocol of an extended CONNECT
//! does not pass.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;

use crate::{
    code::{Code, Fault},
    fields::{self, PseudoFields},
};

/// The bytes of incomplete heads that one connection may have.
const INCOMPLETE_HEADS: usize = 256 << 10;
/// The longest payload of a frame on the control stream, whose frames hold some numbers.
const CONTROL_PAYLOAD: u64 = 1 << 10;
/// A type and a length, each of eight bytes at most.
const HEADER: usize = 16;

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
/// Frames that are errors on the stream of a request (RFC 9114 Sec. 7.2, 11.2.1).
const UNEXPECTED: [u64; 9] = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];
const CANCEL_PUSH: u64 = 0x3;
const GOAWAY: u64 = 0x7;
const MAX_PUSH_ID: u64 = 0xd;
/// The longest number.
const NUMBER: u64 = 8;
/// Frames of the control stream that h3 knows, and those that it must refuse.
const CONTROL: [u64; 11] = [0x0, 0x1, 0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];

/// The bytes that all incomplete heads of a connection hold.
#[derive(Debug, Default)]
pub(crate) struct HeadBytes(AtomicUsize);

/// The frames of one stream.
#[derive(Debug)]
pub(crate) struct Frames {
    stream: StreamKind,
    place: Place,
    header: [u8; HEADER],
    came: usize,
    /// The type and the length of the head that is coming.
    head_header: Bytes,
    /// The part of a head that has come.
    held: Vec<u8>,
    /// The longest head.
    longest: usize,
    heads: u32,
    /// The most pushes that the client has allowed.
    max_push: Option<u64>,
    /// The pseudo fields of the first head, when it is complete.
    pub(crate) pseudo: Option<PseudoFields>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamKind {
    Request,
    Control,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Between two frames, or within the type and the length of one.
    Between,
    /// In a payload with so many bytes left.
    Payload { left: u64, passes: bool },
    /// In a head with so many bytes left.
    Head { left: usize },
    /// In a frame of this type that holds a number, with so many bytes left.
    Number { kind: u64, left: usize },
}

impl Frames {
    /// The stream of a request whose heads are `longest` bytes long at most.
    pub(crate) fn of_request(longest: usize) -> Self {
        Self::new(StreamKind::Request, longest)
    }

    /// The control stream, behind its type.
    pub(crate) fn of_control() -> Self {
        Self::new(StreamKind::Control, 0)
    }

    fn new(stream: StreamKind, longest: usize) -> Self {
        Self {
            stream,
            place: Place::Between,
            header: [0; HEADER],
            came: 0,
            head_header: Bytes::new(),
            held: Vec::new(),
            longest,
            heads: 0,
            max_push: None,
            pseudo: None,
        }
    }

    /// Takes in bytes of the stream. The bytes that may pass are added to `out`.
    ///
    /// # Errors
    /// The fault that ends the stream or the connection.
    pub(crate) fn feed(
        &mut self,
        mut chunk: Bytes,
        out: &mut VecDeque<Bytes>,
        all: &HeadBytes,
    ) -> Result<(), Fault> {
        while !chunk.is_empty() {
            match self.place {
                Place::Between => self.begin(&mut chunk, out)?,
                Place::Payload { left, passes } => {
                    let piece = chunk.split_to(chunk.len().min(left as usize));
                    self.payload(left - piece.len() as u64, passes);
                    if passes {
                        out.push_back(piece);
                    }
                }
                Place::Head { left } => self.head(left, &mut chunk, out, all)?,
                Place::Number { kind, left } => self.number(kind, left, &mut chunk, out)?,
            }
        }
        Ok(())
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// When it ends within a frame.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        match self.place == Place::Between && self.came == 0 {
            true => Ok(()),
            false => Err(Fault::Connection(Code::FRAME_ERROR, "the stream ends within a frame")),
        }
    }

    /// Forgets what is held of an incomplete head.
    pub(crate) fn forget(&mut self, all: &HeadBytes) {
        if let Place::Head { .. } = self.place {
            all.0.fetch_sub(self.held.len(), Relaxed);
        }
        self.held = Vec::new();
    }

    /// Reads the type and the length of a frame.
    fn begin(&mut self, chunk: &mut Bytes, out: &mut VecDeque<Bytes>) -> Result<(), Fault> {
        if self.came == 0
            && let Some((kind, length, header)) = type_and_length(chunk)
        {
            let whole = chunk.split_to(header);
            return self.enter(kind, length, whole, out);
        }
        while let [first, ..] = **chunk {
            self.header[self.came] = first;
            self.came += 1;
            let _ = chunk.split_to(1);
            if let Some((kind, length, header)) = type_and_length(&self.header[..self.came]) {
                self.came = 0;
                let whole = Bytes::copy_from_slice(&self.header[..header]);
                return self.enter(kind, length, whole, out);
            }
        }
        Ok(())
    }

    /// Enters a frame.
    fn enter(
        &mut self,
        kind: u64,
        length: u64,
        header: Bytes,
        out: &mut VecDeque<Bytes>,
    ) -> Result<(), Fault> {
        match self.stream {
            StreamKind::Control if matches!(kind, CANCEL_PUSH | GOAWAY | MAX_PUSH_ID) => {
                if length == 0 || length > NUMBER {
                    return Err(Fault::Connection(Code::FRAME_ERROR, NO_NUMBER));
                }
                out.push_back(header);
                self.place = Place::Number { kind, left: length as usize };
            }
            StreamKind::Control if CONTROL.contains(&kind) => {
                if length > CONTROL_PAYLOAD {
                    let why = "a frame of the control stream is too long";
                    return Err(Fault::Connection(Code::EXCESSIVE_LOAD, why));
                }
                out.push_back(header);
                self.payload(length, true);
            }
            StreamKind::Request if kind == DATA => {
                out.push_back(header);
                self.payload(length, true);
            }
            StreamKind::Request if kind == HEADERS => {
                if length > self.longest as u64 {
                    return Err(Fault::Stream(Code::EXCESSIVE_LOAD));
                }
                self.head_header = header;
                self.place = Place::Head { left: length as usize };
                if length == 0 {
                    return self.pass_head(Bytes::new(), out);
                }
            }
            StreamKind::Request if UNEXPECTED.contains(&kind) => {
                let why = "a frame of this type has no place in a request";
                return Err(Fault::Connection(Code::FRAME_UNEXPECTED, why));
            }
            // A frame of an unknown type means nothing (RFC 9114 Sec. 9).
            _ => self.payload(length, false),
        }
        Ok(())
    }

    fn payload(&mut self, left: u64, passes: bool) {
        self.place = match left {
            0 => Place::Between,
            left => Place::Payload { left, passes },
        };
    }

    /// Gathers a head, which passes when it is complete and well-formed.
    fn head(
        &mut self,
        left: usize,
        chunk: &mut Bytes,
        out: &mut VecDeque<Bytes>,
        all: &HeadBytes,
    ) -> Result<(), Fault> {
        let piece = chunk.split_to(chunk.len().min(left));
        if piece.len() == left && self.held.is_empty() {
            return self.pass_head(piece, out);
        }
        self.held.extend_from_slice(&piece);
        if all.0.fetch_add(piece.len(), Relaxed) + piece.len() > INCOMPLETE_HEADS {
            let why = "too many heads are incomplete";
            return Err(Fault::Connection(Code::EXCESSIVE_LOAD, why));
        }
        self.place = Place::Head { left: left - piece.len() };
        if piece.len() == left {
            all.0.fetch_sub(self.held.len(), Relaxed);
            let head = std::mem::take(&mut self.held);
            return self.pass_head(head.into(), out);
        }
        Ok(())
    }

    /// Lets a complete head pass that is well-formed, without the protocol.
    fn pass_head(&mut self, head: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), Fault> {
        let protocol = self.judge(&head)?;
        let header = std::mem::take(&mut self.head_header);
        if protocol.is_empty() {
            out.push_back(header);
            out.extend((!head.is_empty()).then_some(head));
        } else {
            let kept = [&head[..protocol.start], &head[protocol.end..]].concat();
            out.push_back(frame_header(HEADERS as u8, kept.len()));
            out.push_back(kept.into());
        }
        Ok(())
    }

    /// Gathers the number that is all of a frame (RFC 9114 Sec. 7.2.3, 7.2.6, 7.2.7). h3 reads it, and no further.
    fn number(
        &mut self,
        kind: u64,
        left: usize,
        chunk: &mut Bytes,
        out: &mut VecDeque<Bytes>,
    ) -> Result<(), Fault> {
        let piece = chunk.split_to(chunk.len().min(left));
        self.held.extend_from_slice(&piece);
        self.place = Place::Number { kind, left: left - piece.len() };
        out.push_back(piece);
        if self.place != (Place::Number { kind, left: 0 }) {
            return Ok(());
        }
        self.place = Place::Between;
        let held = std::mem::take(&mut self.held);
        let number = varint(&held).filter(|(_, length)| *length == held.len());
        let (number, _) = number.ok_or(Fault::Connection(Code::FRAME_ERROR, NO_NUMBER))?;
        match kind {
            MAX_PUSH_ID if self.max_push.is_some_and(|before| number < before) => {
                Err(Fault::Connection(Code::ID_ERROR, "fewer pushes are allowed than before"))
            }
            MAX_PUSH_ID => {
                self.max_push = Some(number);
                Ok(())
            }
            // This side promises none.
            CANCEL_PUSH => Err(Fault::Connection(Code::ID_ERROR, "there is no such push")),
            _ => Ok(()),
        }
    }

    /// Judges the fields of a complete head, or of trailers. Returns the place of the protocol, if there is one.
    fn judge(&mut self, section: &[u8]) -> Result<Range<usize>, Fault> {
        self.place = Place::Between;
        self.heads += 1;
        if self.pseudo.is_some_and(|pseudo| pseudo.protocol().is_some()) {
            // RFC 9114 Sec. 4.4.
            let why = "nothing but data comes after CONNECT";
            return Err(Fault::Connection(Code::FRAME_UNEXPECTED, why));
        }
        let Some((found, protocol)) = fields::pseudo_fields(section)? else { return Ok(0..0) };
        match self.heads {
            1 => self.pseudo = Some(found),
            _ if found != PseudoFields::default() => {
                return Err(Fault::Stream(Code::MESSAGE_ERROR));
            }
            _ => {}
        }
        Ok(protocol)
    }
}

/// The type and the length of a frame.
pub(crate) fn frame_header(kind: u8, length: usize) -> Bytes {
    let length = length as u64;
    let mut header = Vec::with_capacity(9);
    header.push(kind);
    match length {
        0..0x40 => header.push(length as u8),
        0x40..0x4000 => header.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            header.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes())
        }
        _ => header.extend_from_slice(&(length | 0xc000_0000_0000_0000).to_be_bytes()),
    }
    header.into()
}

/// The fault of a frame that is to hold a number.
const NO_NUMBER: &str = "the frame does not hold one number";

fn type_and_length(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let (kind, first) = varint(bytes)?;
    let (length, second) = varint(&bytes[first..])?;
    Some((kind, length, first + second))
}

/// A variable-length integer and the bytes that it takes (RFC 9000 Sec. 16).
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value =
        rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `GET https /` with an authority, by the static table.
    const HEAD: &[u8] = b"\x00\x00\xd1\xd7\x50\x01a\xc1";

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        [&[kind, payload.len() as u8], payload].concat()
    }

    fn passed(stream: &[u8], at_once: usize) -> Result<Vec<u8>, Fault> {
        let (mut frames, all) = (Frames::of_request(40), HeadBytes::default());
        let mut out = VecDeque::new();
        let fed = stream
            .chunks(at_once)
            .try_for_each(|chunk| frames.feed(Bytes::copy_from_slice(chunk), &mut out, &all));
        frames.forget(&all);
        assert_eq!(all.0.load(Relaxed), 0);
        fed.and_then(|()| frames.end()).map(|()| out.into_iter().flatten().collect())
    }

    #[test]
    fn frames_pass_whole_and_unknown_ones_are_dropped_however_they_are_cut() {
        let known = [frame(1, HEAD), frame(0, b"body"), frame(0, b""), frame(1, b"\0\0")].concat();
        let unknown = [frame(0x21, b"grease"), vec![0x40, 0x41, 3], b"abc".to_vec()].concat();
        let stream = [
            &unknown[..],
            &frame(1, HEAD),
            &unknown,
            &frame(0, b"body"),
            &frame(0, b""),
            &frame(1, b"\0\0"),
        ]
        .concat();
        for at_once in 1..stream.len() {
            assert_eq!(passed(&stream, at_once).unwrap(), known, "{at_once}");
        }
    }

    #[test]
    fn length_of_a_frame_is_written_as_it_is_read() {
        for length in [0, 1, 63, 64, 16383, 16384, (1 << 30) - 1, 1 << 30] {
            let header = frame_header(1, length);
            assert_eq!(type_and_length(&header), Some((1, length as u64, header.len())));
        }
    }

    #[test]
    fn protocol_does_not_pass_and_nothing_but_data_comes_after_it() {
        let connect = b"\x00\x00\xcf\xd7\x50\x01a\xc1\x27\x02:protocol\x01x\xdd";
        let known = [frame(1, b"\x00\x00\xcf\xd7\x50\x01a\xc1\xdd"), frame(0, b"data")].concat();
        let stream = [frame(1, connect), frame(0, b"data")].concat();
        for at_once in 1..stream.len() {
            assert_eq!(passed(&stream, at_once).unwrap(), known, "{at_once}");
        }
        let fault = passed(&[stream, frame(1, b"\0\0")].concat(), 7).unwrap_err();
        assert!(matches!(fault, Fault::Connection(Code::FRAME_UNEXPECTED, _)), "{fault:?}");
    }

    #[test]
    fn frames_without_a_place_in_a_request_end_the_connection() {
        for kind in UNEXPECTED {
            let fault = passed(&frame(kind as u8, b"abc"), 1).unwrap_err();
            assert!(matches!(fault, Fault::Connection(Code::FRAME_UNEXPECTED, _)), "{kind}");
        }
    }

    #[test]
    fn frames_of_the_control_stream_hold_one_number() {
        let control = |stream: &[u8], at_once: usize| {
            let (mut frames, all) = (Frames::of_control(), HeadBytes::default());
            let mut out = VecDeque::new();
            let mut chunks = stream.chunks(at_once);
            let fed = chunks
                .try_for_each(|chunk| frames.feed(Bytes::copy_from_slice(chunk), &mut out, &all));
            frames.forget(&all);
            assert_eq!(all.0.load(Relaxed), 0);
            fed.map(|()| out.into_iter().flatten().collect::<Vec<_>>())
        };
        let code = |stream: &[u8]| match (control(stream, 100), control(stream, 1)) {
            (Err(Fault::Connection(code, _)), Err(Fault::Connection(same, _))) if code == same => {
                Some(code)
            }
            (Ok(at_once), Ok(by_one)) => {
                assert_eq!((&at_once[..], &by_one[..]), (stream, stream));
                None
            }
            other => panic!("{other:?}"),
        };
        let goaway = frame(7, b"\x00");
        assert_eq!(code(&goaway), None);
        assert_eq!(code(&frame(7, b"\x00\x00")), Some(Code::FRAME_ERROR), "too much");
        assert_eq!(code(&frame(7, b"\x40")), Some(Code::FRAME_ERROR), "too little");
        assert_eq!(code(&frame(7, b"")), Some(Code::FRAME_ERROR));
        assert_eq!(code(&frame(7, &[0; 9])), Some(Code::FRAME_ERROR));
        let pushes = |ids: &[u8]| ids.iter().flat_map(|id| frame(13, &[*id])).collect::<Vec<_>>();
        assert_eq!(code(&pushes(&[3, 3, 7])), None);
        assert_eq!(code(&pushes(&[3, 2])), Some(Code::ID_ERROR));
        assert_eq!(code(&frame(3, b"\x00")), Some(Code::ID_ERROR), "nothing was promised");
    }

    #[test]
    fn heads_that_are_too_long_or_ill_formed_end_the_stream() {
        assert_eq!(passed(&frame(1, &[0; 41]), 9), Err(Fault::Stream(Code::EXCESSIVE_LOAD)));
        let twice = b"\x00\x00\xd1\xd1\xd7\x50\x01a\xc1";
        assert_eq!(passed(&frame(1, twice), 2), Err(Fault::Stream(Code::MESSAGE_ERROR)));
        let trailers = [frame(1, HEAD), frame(1, HEAD)].concat();
        assert_eq!(passed(&trailers, 3), Err(Fault::Stream(Code::MESSAGE_ERROR)));
    }

    #[test]
    fn stream_that_ends_within_a_frame_ends_the_connection() {
        let stream = [frame(1, HEAD), frame(0, b"body")].concat();
        for cut in 1..stream.len() {
            let ended = passed(&stream[..cut], 100);
            let whole = cut == HEAD.len() + 2;
            assert_eq!(ended.is_ok(), whole, "{cut}: {ended:?}");
        }
    }

    #[test]
    fn incomplete_heads_of_a_connection_are_bounded() {
        let all = HeadBytes::default();
        let begun = |count| {
            let one = |_| {
                let mut frames = Frames::of_request(32 << 10);
                let head = [&b"\x01\x80\0\x7f\xff"[..], &[0; 30 << 10]].concat();
                frames.feed(head.into(), &mut VecDeque::new(), &all).map(|()| frames)
            };
            (0..count).map(one).collect::<Result<Vec<_>, _>>()
        };
        let mut few = begun(8).unwrap();
        assert!(begun(1).is_err());
        few.iter_mut().for_each(|frames| frames.forget(&all));
    }
}
