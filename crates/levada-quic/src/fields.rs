//! Judges the pseudo fields of a head before h3 decodes it (RFC 9114 Sec. 4.3): h3 keeps the last of two, and
//! does not know which came after ordinary fields.
//!
//! Only names are read, and of these only whether they begin with a colon: the static table has all pseudo
//! fields, and a name that is written out is compared with both ways to write it.

use crate::code::{Code, Fault};

/// The pseudo fields of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PseudoFields(u8);

impl PseudoFields {
    const METHOD: u8 = 1;
    const SCHEME: u8 = 1 << 1;
    const PATH: u8 = 1 << 2;
    const AUTHORITY: u8 = 1 << 3;

    /// Whether they are those of a request: CONNECT has an authority and no more.
    pub(crate) fn fit(self, is_connect: bool) -> bool {
        match is_connect {
            true => self.0 == Self::METHOD | Self::AUTHORITY,
            false => {
                self.0 | Self::AUTHORITY
                    == Self::METHOD | Self::SCHEME | Self::PATH | Self::AUTHORITY
            }
        }
    }
}

/// The names of pseudo fields, plain and in Huffman's code (RFC 7541 App. B).
const NAMES: [(&[u8], &[u8], u8); 4] = [
    (b":method", b"\xb9\x49\x53\x39\xe4", PseudoFields::METHOD),
    (b":scheme", b"\xb8\x82\x4e\x5a\x4b", PseudoFields::SCHEME),
    (b":path", b"\xb9\x58\xd3\x3f", PseudoFields::PATH),
    (b":authority", b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f", PseudoFields::AUTHORITY),
];

/// The first seven bits of a colon in Huffman's code, and a mask for them.
const COLON: (u8, u8) = (0b1011_1000, 0b1111_1110);

/// The pseudo fields of an encoded field section; `None` if h3 will find it undecodable.
///
/// # Errors
/// When a pseudo field is repeated, unknown, empty, or comes after an ordinary field.
pub(crate) fn pseudo_fields(section: &[u8]) -> Result<Option<PseudoFields>, Fault> {
    let mut rest = Section(section);
    let mut found = PseudoFields::default();
    if rest.integer(8).and_then(|_| rest.integer(7)).is_none() {
        return Ok(None);
    }
    let mut ordinary = false;
    while let Some(first) = rest.0.first().copied() {
        let Some((name, is_empty)) = rest.line(first) else { return Ok(None) };
        match name {
            FieldName::Ordinary => ordinary = true,
            FieldName::Pseudo(bit) if !ordinary && !is_empty && found.0 & bit == 0 => {
                found.0 |= bit
            }
            FieldName::Pseudo(_) | FieldName::Unknown => {
                return Err(Fault::Stream(Code::MESSAGE_ERROR));
            }
        }
    }
    Ok(Some(found))
}

enum FieldName {
    Ordinary,
    Pseudo(u8),
    /// A pseudo field that no request has.
    Unknown,
}

/// The rest of a field section (RFC 9204 Sec. 4.5).
struct Section<'a>(&'a [u8]);

impl<'a> Section<'a> {
    /// The name of the next line, and whether its value is empty. `None` if it needs the dynamic table, which
    /// this side does not have, or is cut.
    fn line(&mut self, first: u8) -> Option<(FieldName, bool)> {
        match first {
            0xc0.. => Some((of_static(self.integer(6)?), false)),
            0x50..=0x5f | 0x70..=0x7f => {
                let name = of_static(self.integer(4)?);
                let value = self.string(7)?.0;
                Some((name, value.is_empty()))
            }
            0x20..=0x3f => {
                let (name, is_coded) = self.string(3)?;
                let value = self.string(7)?.0;
                Some((of_text(name, is_coded), value.is_empty()))
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

    /// A string whose length has a prefix of so many bits, and whether it is in Huffman's code.
    fn string(&mut self, bits: u32) -> Option<(&'a [u8], bool)> {
        let is_coded = self.0.first()? >> bits & 1 == 1;
        let length = usize::try_from(self.integer(bits)?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((string, is_coded))
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

fn of_text(name: &[u8], is_coded: bool) -> FieldName {
    let begins_with_colon = match (name.first(), is_coded) {
        (Some(first), true) => first & COLON.1 == COLON.0,
        (first, _) => first == Some(&b':'),
    };
    if !begins_with_colon {
        return FieldName::Ordinary;
    }
    let is_it =
        |(plain, coded, _): &&(&[u8], &[u8], u8)| name == if is_coded { *coded } else { *plain };
    NAMES.iter().find(is_it).map_or(FieldName::Unknown, |(.., bit)| FieldName::Pseudo(*bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Result<Option<PseudoFields>, Fault> = Err(Fault::Stream(Code::MESSAGE_ERROR));

    fn found(lines: &[&[u8]]) -> Result<Option<PseudoFields>, Fault> {
        pseudo_fields(&[&b"\0\0"[..], &lines.concat()].concat())
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
        assert_eq!(found(&[b"\x27\x02:protocol\x01x"]), REFUSED);
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
