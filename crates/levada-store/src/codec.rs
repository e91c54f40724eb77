//! Entries as the disk tier keeps them: a head of bytes that says all but the body, and the body.
//!
//! ```text
//! object  1 status:2 freshness:34 label* identity* variant* copies(| 2 version:8)
//!         blocks(0 | 1 version:8 block:8 length:8) fields:2 (name* value*)...
//! varies  2 generation:8 identity* vary*
//! block   3 object:8 version:8 number:8
//! ```
//!
//! Numbers are little-endian, `x*` is a length of four bytes and so many bytes. Any other bytes are
//! no entry.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use levada_cache::{Freshness, Validators, Vary};
use levada_types::Key;

use crate::{
    block::Block,
    label::Label,
    memory::StoredEntry,
    object::{Blocks, Object, StoredBody, StoredHead},
    variants::Varies,
};

const OBJECT: u8 = 1;
const VARIES: u8 = 2;
const BLOCK: u8 = 3;

/// The head of an entry.
pub(crate) fn head(entry: &StoredEntry) -> Bytes {
    let mut out = Vec::with_capacity(512);
    match entry {
        StoredEntry::Object(object) => write_object(&mut out, object),
        StoredEntry::Varies(varies) => {
            out.push(VARIES);
            out.extend(varies.generation.to_le_bytes());
            write(&mut out, varies.identity.as_bytes());
            let names: Vec<&str> = varies.vary.fields().iter().map(HeaderName::as_str).collect();
            write(&mut out, names.join(",").as_bytes());
        }
        StoredEntry::Block(block) => {
            out.push(BLOCK);
            out.extend(block.object.0.to_le_bytes());
            out.extend(block.version.to_le_bytes());
            out.extend(block.number.to_le_bytes());
        }
    }
    out.into()
}

/// The body of an entry.
pub(crate) fn body(entry: &StoredEntry) -> Box<[Bytes]> {
    match entry {
        StoredEntry::Object(object) => object.body().into(),
        StoredEntry::Varies(_) => Box::default(),
        StoredEntry::Block(block) => block.body().into(),
    }
}

/// The entry that was written so; `via` is what this node adds to `Via`.
pub(crate) fn entry(head: &Bytes, body: StoredBody, via: &HeaderValue) -> Option<StoredEntry> {
    let mut read = DecodedEntry { bytes: head };
    let entry = match read.u8()? {
        OBJECT => StoredEntry::Object(Arc::new(read_object(&mut read, body, via)?)),
        VARIES => {
            let generation = read.u64()?;
            let identity = read.text()?.into();
            let names = [(header::VARY, HeaderValue::from_bytes(read.bytes()?).ok()?)];
            let vary = Vary::of(&names.into_iter().collect()).ok()?;
            StoredEntry::Varies(Arc::new(Varies { identity, vary, generation }))
        }
        BLOCK => {
            let (object, version, number) = (Key(read.u64()?), read.u64()?, read.u64()?);
            StoredEntry::Block(Arc::new(Block::with_body(object, version, number, body)))
        }
        _ => return None,
    };
    read.bytes.is_empty().then_some(entry)
}

fn write_object(out: &mut Vec<u8>, object: &Object) {
    let head = &object.head;
    out.push(OBJECT);
    out.extend(head.status.as_u16().to_le_bytes());
    out.extend(head.freshness.to_bytes());
    write(out, &head.label.to_bytes());
    write(out, object.identity().as_bytes());
    write(out, &head.variant);
    if head.copies != 0 {
        out.push(2);
        out.extend(head.copies.to_le_bytes());
    }
    match object.blocks() {
        None => out.push(0),
        Some(Blocks { version, block, length }) => {
            out.push(1);
            for number in [version, block, length] {
                out.extend(number.to_le_bytes());
            }
        }
    }
    out.extend((head.headers.len() as u16).to_le_bytes());
    for (name, value) in &head.headers {
        write(out, name.as_str().as_bytes());
        write(out, value.as_bytes());
    }
}

fn read_object(read: &mut DecodedEntry<'_>, body: StoredBody, via: &HeaderValue) -> Option<Object> {
    let status = StatusCode::from_u16(read.u16()?).ok()?;
    let freshness = Freshness::from_bytes(read.array()?)?;
    let label = Label::from_bytes(read.bytes()?)?;
    let identity = read.text()?;
    let variant = read.bytes()?.into();
    let (tag, copies) = match read.u8()? {
        2 => {
            let version = read.u64().filter(|version| *version != 0)?;
            (read.u8()?, version)
        }
        tag => (tag, 0),
    };
    let blocks = match tag {
        0 => None,
        1 => Some(Blocks { version: read.u64()?, block: read.u64()?, length: read.u64()? }),
        _ => return None,
    };
    let count = read.u16()?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(read.bytes()?).ok()?;
        headers.try_append(name, HeaderValue::from_bytes(read.bytes()?).ok()?).ok()?;
    }
    let vary = Vary::of(&headers).ok()?;
    let vary = if copies == 0 { vary } else { vary.without(&header::ACCEPT_ENCODING) };
    let validators = Validators::default();
    let mut head =
        StoredHead { status, headers, freshness, validators, vary, variant, label, copies };
    head.validators = head.validators_of(freshness.received());
    match blocks {
        Some(blocks) if blocks.block == 0 || !body.is_empty() => None,
        Some(blocks) => Some(Object::blocked(identity, head, via, blocks)),
        None => Some(Object::with_body(identity, head, via, body)),
    }
}

fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// The URI and the label in an object's head, for purges. `None` for everything else.
pub(crate) fn label(head: &[u8]) -> Option<(&str, Label)> {
    let mut read = DecodedEntry { bytes: head };
    if read.u8()? != OBJECT {
        return None;
    }
    read.u16()?;
    read.array::<{ Freshness::BYTES }>()?;
    let label = Label::from_bytes(read.bytes()?)?;
    Some((read.text()?, label))
}

/// The head with another label.
pub(crate) fn relabelled(head: &[u8], label: &Label) -> Option<Bytes> {
    let front = 1 + 2 + Freshness::BYTES;
    let (front, rest) = head.split_at_checked(front)?;
    let mut read = DecodedEntry { bytes: rest };
    read.bytes()?;
    let mut out = Vec::with_capacity(head.len());
    out.extend(front);
    write(&mut out, &label.to_bytes());
    out.extend(read.bytes);
    Some(out.into())
}

struct DecodedEntry<'a> {
    bytes: &'a [u8],
}

impl<'a> DecodedEntry<'a> {
    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(array)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|byte| byte[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(*self.array()?) as usize;
        let (bytes, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(headers: &[(&'static str, &'static str)], blocks: Option<Blocks>) -> Object {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect();
        let request = [(header::ACCEPT_ENCODING, HeaderValue::from_static("br"))];
        let request: HeaderMap = request.into_iter().collect();
        let vary = Vary::of(&headers).unwrap();
        let freshness = Freshness::from_bytes(&[0; Freshness::BYTES]).unwrap();
        let head = StoredHead {
            status: StatusCode::OK,
            validators: Validators::of(&headers, freshness.received()),
            freshness,
            variant: vary.key(&request),
            vary,
            headers,
            label: Label::new(3, 4),
            copies: 0,
        };
        let via = HeaderValue::from_static("1.1 n0");
        match blocks {
            Some(blocks) => Object::blocked("http://a.test/x", head, &via, blocks),
            None => {
                let body = vec![Bytes::from_static(b"hello "), Bytes::from_static(b"world")];
                Object::with_body("http://a.test/x", head, &via, StoredBody::Memory(body.into()))
            }
        }
    }

    fn entries() -> Vec<StoredEntry> {
        let fields =
            [("etag", "\"x\""), ("vary", "accept-encoding"), ("set-x", "1"), ("set-x", "2")];
        let blocks = Blocks { version: 7, block: 65536, length: 1 << 40 };
        let body = Arc::from([Bytes::from_static(b"block")]);
        vec![
            StoredEntry::Object(Arc::new(object(&[], None))),
            StoredEntry::Object(Arc::new(object(&fields, None))),
            StoredEntry::Object(Arc::new(object(&fields, Some(blocks)))),
            StoredEntry::Varies(Arc::new(Varies::of(&object(&fields, None), 99))),
            StoredEntry::Block(Arc::new(Block::with_body(Key(1), 2, 3, StoredBody::Memory(body)))),
        ]
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let via = HeaderValue::from_static("1.1 n0");
        for written in entries() {
            let read =
                entry(&head(&written), StoredBody::Memory(body(&written).into()), &via).unwrap();
            // All that is kept of an entry shows; what was checked is checked anew.
            let written = format!("{written:?}").replace("checked: 4", "checked: 0");
            assert_eq!(format!("{read:?}"), written);
        }
    }

    #[test]
    fn label_can_be_read_and_changed_alone() {
        let via = HeaderValue::from_static("1.1 n0");
        for written in entries() {
            let bytes = head(&written);
            let StoredEntry::Object(object) = &written else {
                assert!(label(&bytes).is_none());
                continue;
            };
            let (identity, found) = label(&bytes).unwrap();
            assert_eq!((identity, found.born()), (object.identity(), 4));
            let bytes = relabelled(&bytes, &Label::new(3, 9)).unwrap();
            assert_eq!(label(&bytes).unwrap().1.born(), 9);
            assert!(entry(&bytes, StoredBody::Memory(body(&written).into()), &via).is_some());
        }
    }

    #[test]
    fn cut_or_longer_heads_are_no_entries() {
        let via = HeaderValue::from_static("1.1 n0");
        for written in entries() {
            let bytes = head(&written);
            for length in 0..bytes.len() {
                assert!(
                    entry(&bytes.slice(..length), StoredBody::Memory(body(&written).into()), &via)
                        .is_none(),
                    "{length}"
                );
            }
            let longer = Bytes::from([&bytes[..], b"x"].concat());
            assert!(entry(&longer, StoredBody::Memory(body(&written).into()), &via).is_none());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, at in 0usize..400, byte: u8) {
            let via = HeaderValue::from_static("1.1 n0");
            let _ = entry(&bytes.into(), StoredBody::Memory(Arc::default()), &via);
            for written in entries() {
                let mut bytes = head(&written).to_vec();
                let at = at % bytes.len();
                bytes[at] = byte;
                let _ = (label(&bytes), relabelled(&bytes, &Label::new(0, 0)));
                let _ = entry(&bytes.into(), StoredBody::Memory(body(&written).into()), &via);
            }
        }
    }
}
