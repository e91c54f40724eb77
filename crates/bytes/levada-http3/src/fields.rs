//! Judges the pseudo fields of a head before h3 decodes it (RFC 9114 Sec. 4.3): h3 keeps the last of two, and
//! does not know which came after ordinary fields.
//!
//! Only names are read, and of these only whether they begin with a colon: the static table has all pseudo
//! fields but one, and a name that is written out is compared with both ways to write it.
//!
//! h3 refuses the `:protocol` of an extended CONNECT (RFC 9220 Sec. 3) unless it knows the protocol. The judge
//! reads that one, and finds its line, which h3 does not get.

use std::ops::Range;

use hyper::ext::Protocol;

use crate::code::{Code, Fault};

/// The pseudo fields of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PseudoFields(u8);

impl PseudoFields {
    const METHOD: u8 = 1;
    const SCHEME: u8 = 1 << 1;
    const PATH: u8 = 1 << 2;
    const AUTHORITY: u8 = 1 << 3;
    const PROTOCOL: u8 = 1 << 4;
    /// The protocol is WebSocket.
    const WEBSOCKET: u8 = 1 << 5;

    /// Whether they are those of a request: CONNECT has an authority and no more, or all with a protocol.
    pub(crate) fn fit(self, is_connect: bool) -> bool {
        let all = Self::METHOD | Self::SCHEME | Self::PATH | Self::AUTHORITY;
        let fields = self.0 & !Self::WEBSOCKET;
        match is_connect {
            true => {
                fields == Self::METHOD | Self::AUTHORITY
                    || fields | Self::AUTHORITY == all | Self::PROTOCOL
            }
            false => fields | Self::AUTHORITY == all,
        }
    }

    /// The protocol of an extended CONNECT. One that is not known here has no name.
    pub(crate) fn protocol(self) -> Option<Protocol> {
        match (self.0 & Self::PROTOCOL, self.0 & Self::WEBSOCKET) {
            (0, _) => None,
            (_, 0) => Some(Protocol::from_static("")),
            _ => Some(Protocol::from_static("websocket")),
        }
    }
}

/// The names of pseudo fields, plain and in Huffman's code (RFC 7541 App. B).
const NAMES: [(&[u8], &[u8], u8); 5] = [
    (b":method", b"\xb9\x49\x53\x39\xe4", PseudoFields::METHOD),
    (b":scheme", b"\xb8\x82\x4e\x5a\x4b", PseudoFields::SCHEME),
    (b":path", b"\xb9\x58\xd3\x3f", PseudoFields::PATH),
    (b":authority", b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f", PseudoFields::AUTHORITY),
    (b":protocol", b"\xb9\x5d\x87\x49\xc8\x7a\x3f", PseudoFields::PROTOCOL),
];
/// The protocol of WebSocket, plain and in Huffman's code.
const WEBSOCKET: (&[u8], &[u8]) = (b"websocket", b"\xf0\x58\xd0\x72\x75\x2a\x7f");

/// The first seven bits of a colon in Huffman's code, and a mask for them.
const COLON: (u8, u8) = (0b1011_1000, 0b1111_1110);

/// The pseudo fields of an encoded field section, and the place of the protocol among its lines, which is empty
/// if there is none; `None` if h3 will find it undecodable.
///
/// # Errors
/// When a pseudo field is repeated, unknown, empty, or comes after an ordinary field.
pub(crate) fn pseudo_fields(section: &[u8]) -> Result<Option<(PseudoFields, Range<usize>)>, Fault> {
    let mut rest = Section(section);
    let mut protocol = 0..0;
    let mut found = PseudoFields::default();
    if rest.integer(8).and_then(|_| rest.integer(7)).is_none() {
        return Ok(None);
    }
    let mut ordinary = false;
    while let Some(first) = rest.0.first().copied() {
        let begin = section.len() - rest.0.len();
        let Some((name, value)) = rest.line(first) else { return Ok(None) };
        match name {
            FieldName::Ordinary => ordinary = true,
            FieldName::Pseudo(bit) if !ordinary && !value.is_empty() && found.0 & bit == 0 => {
                found.0 |= bit;
                if bit == PseudoFields::PROTOCOL {
                    protocol = begin..section.len() - rest.0.len();
                    if value.is_websocket() {
                        found.0 |= PseudoFields::WEBSOCKET;
                    }
                }
            }
            FieldName::Pseudo(_) | FieldName::Unknown => {
                return Err(Fault::Stream(Code::MESSAGE_ERROR));
            }
        }
    }
    Ok(Some((found, protocol)))
}

enum FieldName {
    Ordinary,
    Pseudo(u8),
    /// A pseudo field that no request has.
    Unknown,
}

/// A string of a line.
enum Text<'a> {
    /// It is in the static table.
    Static,
    Plain(&'a [u8]),
    /// In Huffman's code.
    Coded(&'a [u8]),
}

impl Text<'_> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Plain([]) | Self::Coded([]))
    }

    /// Whether a protocol is WebSocket, in any case (RFC 9110 Sec. 7.8).
    fn is_websocket(&self) -> bool {
        match self {
            Self::Static => false,
            Self::Plain(text) => text.eq_ignore_ascii_case(WEBSOCKET.0),
            Self::Coded(text) => *text == WEBSOCKET.1,
        }
    }
}

/// The rest of a field section (RFC 9204 Sec. 4.5).
struct Section<'a>(&'a [u8]);

impl<'a> Section<'a> {
    /// The name of the next line, and its value. `None` if it needs the dynamic table, which this side does not
    /// have, or is cut.
    fn line(&mut self, first: u8) -> Option<(FieldName, Text<'a>)> {
        match first {
            0xc0.. => Some((of_static(self.integer(6)?), Text::Static)),
            0x50..=0x5f | 0x70..=0x7f => {
                let name = of_static(self.integer(4)?);
                Some((name, self.string(7)?))
            }
            0x20..=0x3f => {
                let name = of_text(self.string(3)?);
                Some((name, self.string(7)?))
            }
            _ => None,
        }
    }

    /// An integer behind a prefix of so many bits (RFC 7541 Sec. 5.1).
    fn integer(&mut self, bits: u32) -> Option<u64> {
        let mask = u8::try_from((1_u16 << bits) - 1).unwrap_or(u8::MAX);
        let (first, mut rest) = self.0.split_first()?;
        let mut value = u64::from(first & mask);
        if first & mask == mask {
            let mut shift = 0;
            loop {
                let (byte, behind) = rest.split_first()?;
                rest = behind;
                // No length has more bits.
                if shift > 28 {
                    return None;
                }
                value += u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        self.0 = rest;
        Some(value)
    }

    /// A string whose length has a prefix of so many bits.
    fn string(&mut self, bits: u32) -> Option<Text<'a>> {
        let is_coded = self.0.first()? >> bits & 1 == 1;
        let length = usize::try_from(self.integer(bits)?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(if is_coded { Text::Coded(string) } else { Text::Plain(string) })
    }
}

/// The field of this index (RFC 9204 App. A).
fn of_static(index: u64) -> FieldName {
    match index {
        0 => FieldName::Pseudo(PseudoFields::AUTHORITY),
        1 => FieldName::Pseudo(PseudoFields::PATH),
        15..=21 => FieldName::Pseudo(PseudoFields::METHOD),
        22 | 23 => FieldName::Pseudo(PseudoFields::SCHEME),
        24..=28 | 63..=71 => FieldName::Unknown,
        _ => FieldName::Ordinary,
    }
}

fn of_text(name: Text<'_>) -> FieldName {
    let begins_with_colon = match name {
        Text::Coded([first, ..]) => first & COLON.1 == COLON.0,
        Text::Plain([first, ..]) => *first == b':',
        _ => false,
    };
    if !begins_with_colon {
        return FieldName::Ordinary;
    }
    let is_it = |(plain, coded, _): &&(&[u8], &[u8], u8)| match name {
        Text::Coded(name) => name == *coded,
        Text::Plain(name) => name == *plain,
        Text::Static => false,
    };
    NAMES.iter().find(is_it).map_or(FieldName::Unknown, |(.., bit)| FieldName::Pseudo(*bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Result<Option<PseudoFields>, Fault> = Err(Fault::Stream(Code::MESSAGE_ERROR));

    fn found(lines: &[&[u8]]) -> Result<Option<PseudoFields>, Fault> {
        let found = pseudo_fields(&[&b"\0\0"[..], &lines.concat()].concat());
        found.map(|found| found.map(|(fields, _)| fields))
    }

    const METHOD: &[u8] = b"\xd1";
    const SCHEME: &[u8] = b"\xd7";
    const PATH: &[u8] = b"\xc1";
    const AUTHORITY: &[u8] = b"\x50\x06a.test";
    const ACCEPT: &[u8] = b"\xdd";

    #[test]
    fn requests_have_each_pseudo_field_once_and_first() {
        let whole = found(&[METHOD, SCHEME, PATH, AUTHORITY, ACCEPT]).unwrap().unwrap();
        assert!(whole.fit(false) && !whole.fit(true));
        assert!(found(&[PATH, METHOD, SCHEME]).unwrap().unwrap().fit(false), "with a Host field");
        assert!(found(&[METHOD, AUTHORITY]).unwrap().unwrap().fit(true), "CONNECT");
        assert!(!found(&[METHOD, PATH]).unwrap().unwrap().fit(false));
        assert_eq!(found(&[METHOD, METHOD]), REFUSED);
        assert_eq!(found(&[METHOD, ACCEPT, PATH]), REFUSED);
        assert_eq!(found(&[b"\x50\0"]), REFUSED, "empty");
        assert_eq!(found(&[b"\xd9"]), REFUSED, ":status");
        assert_eq!(found(&[b"\x27\x02:protocol\0"]), REFUSED, "empty");
    }

    #[test]
    fn protocol_belongs_to_connect_and_is_found_in_both_codes() {
        let of = |name_and_value: &[u8]| {
            let whole =
                found(&[b"\xcf", name_and_value, SCHEME, PATH, AUTHORITY]).unwrap().unwrap();
            assert!(whole.fit(true) && !whole.fit(false));
            let lines = [b"\xcf", name_and_value].concat();
            let (_, place) = pseudo_fields(&[b"\0\0", &lines[..]].concat()).unwrap().unwrap();
            assert_eq!(place, 3..3 + name_and_value.len());
            whole.protocol().unwrap().as_str().to_owned()
        };
        for websocket in [
            &b"\x27\x02:protocol\x09websocket"[..],
            b"\x27\x02:protocol\x09WebSocket",
            b"\x2f\0\xb9\x5d\x87\x49\xc8\x7a\x3f\x87\xf0\x58\xd0\x72\x75\x2a\x7f",
        ] {
            assert_eq!(of(websocket), "websocket");
        }
        assert_eq!(of(b"\x27\x02:protocol\x0bconnect-udp"), "");
        let cut = found(&[b"\xcf", b"\x27\x02:protocol\x01x", AUTHORITY]).unwrap().unwrap();
        assert!(!cut.fit(true), "without a path");
    }

    #[test]
    fn names_written_out_are_recognised_in_both_codes() {
        for (plain, coded, bit) in NAMES {
            for (name, flag) in [(plain, 0x20), (coded, 0x28)] {
                let mut line = match name.len() {
                    short @ 0..7 => vec![flag | short as u8],
                    long => vec![flag | 7, (long - 7) as u8],
                };
                line.extend_from_slice(name);
                line.extend_from_slice(b"\x01x");
                assert_eq!(found(&[&line]), Ok(Some(PseudoFields(bit))), "{line:x?}");
            }
        }
        // ":nope" in both codes.
        assert_eq!(found(&[b"\x25:nope\x01x"]), REFUSED);
        assert_eq!(found(&[b"\x2c\xb9\x51\xeb\x2f\x01x"]), REFUSED);
    }

    #[test]
    fn undecodable_sections_are_left_to_h3() {
        for section in [
            &b""[..],
            b"\0",
            b"\0\0\x80",
            b"\0\0\x51",
            b"\0\0\x51\x05ab",
            b"\0\0\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(pseudo_fields(section), Ok(None), "{section:x?}");
        }
    }
}
