//! Entries as the disk tier keeps them: a head of bytes that says all but the body, and the body.
//!
//! ```text
//! object  4 freshness:38 label* head, as crate::packed has it
//! varies  5 generation:8 vary*
//! block   3 object:8 version:8 number:8
//! ```
//!
//! Numbers and lengths are those of `crate::encoding`. Any other bytes are no entry.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use levada_cache::{Freshness, Vary};
use levada_types::Key;

use crate::{
    block::Block,
    encoding::{Decoder, write},
    label::Label,
    memory::StoredEntry,
    object::{Object, StoredBody},
    packed::PackedHead,
    variants::Varies,
};

const OBJECT: u8 = 4;
const VARIES: u8 = 5;
const BLOCK: u8 = 3;

/// The head of an entry.
pub(crate) fn head(entry: &StoredEntry) -> Bytes {
    let mut out = Vec::with_capacity(512);
    match entry {
        StoredEntry::Object(object) => write_object(&mut out, object),
        StoredEntry::Varies(varies) => {
            out.push(VARIES);
            out.extend(varies.generation.to_le_bytes());
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

/// The entry that was written so.
pub(crate) fn entry(head: &Bytes, body: StoredBody) -> Option<StoredEntry> {
    let mut read = Decoder { bytes: head };
    let entry = match read.u8()? {
        OBJECT => return Some(StoredEntry::Object(Arc::new(read_object(read, body)?))),
        VARIES => {
            let generation = read.u64()?;
            let names = [(header::VARY, HeaderValue::from_bytes(read.bytes()?).ok()?)];
            let vary = Vary::of(&names.into_iter().collect()).ok()?;
            StoredEntry::Varies(Arc::new(Varies::with(vary, generation)))
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
    out.push(OBJECT);
    out.extend(object.received_freshness().to_bytes());
    write(out, &object.label().to_bytes());
    out.extend(object.packed().bytes());
}

fn read_object(mut read: Decoder<'_>, body: StoredBody) -> Option<Object> {
    let freshness = Freshness::from_bytes(read.array()?)?;
    let label = Label::from_bytes(read.bytes()?)?;
    let head = PackedHead::read(read.bytes)?;
    let twice = head.blocks().is_some() && !body.is_empty();
    (!twice).then(|| Object::read(head, freshness, label, body))
}

/// The URI and the label in an object's head, for purges. `None` for everything else.
pub(crate) fn label(head: &[u8]) -> Option<(&str, Label)> {
    let mut read = Decoder { bytes: head };
    if read.u8()? != OBJECT {
        return None;
    }
    read.array::<{ Freshness::BYTES }>()?;
    let label = Label::from_bytes(read.bytes()?)?;
    read.u16()?;
    Some((read.text()?, label))
}

/// The head with another label.
pub(crate) fn relabelled(head: &[u8], label: &Label) -> Option<Bytes> {
    let front = 1 + Freshness::BYTES;
    let (front, rest) = head.split_at_checked(front)?;
    let mut read = Decoder { bytes: rest };
    read.bytes()?;
    let mut out = Vec::with_capacity(head.len());
    out.extend(front);
    write(&mut out, &label.to_bytes());
    out.extend(read.bytes);
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use levada_cache::Validators;
    use proptest::prelude::*;

    use super::*;
    use crate::object::{Blocks, StoredHead};

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
        match blocks {
            Some(blocks) => Object::blocked("http://a.test/x", head, blocks),
            None => {
                let body = Bytes::from_static(b"hello world");
                Object::new("http://a.test/x", head, std::iter::once(&body), 11)
            }
        }
    }

    fn entries() -> Vec<StoredEntry> {
        let fields =
            [("etag", "\"x\""), ("vary", "accept-encoding"), ("set-x", "1"), ("set-x", "2")];
        let blocks = Blocks { version: 7, block: 65536, length: 1 << 40 };
        let body = vec![Bytes::from_static(b"block")];
        vec![
            StoredEntry::Object(Arc::new(object(&[], None))),
            StoredEntry::Object(Arc::new(object(&fields, None))),
            StoredEntry::Object(Arc::new(object(&fields, Some(blocks)))),
            StoredEntry::Varies(Arc::new(Varies::of(&object(&fields, None), 99))),
            StoredEntry::Block(Arc::new(Block::with_body(Key(1), 2, 3, StoredBody::of(body)))),
        ]
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        for written in entries() {
            let read = entry(&head(&written), StoredBody::of(body(&written).into())).unwrap();
            // The text has all that is kept of an entry; a check is not kept, but made again.
            let written = format!("{written:?}").replace("checked: 4", "checked: 0");
            assert_eq!(format!("{read:?}"), written);
        }
    }

    #[test]
    fn label_can_be_read_and_changed_alone() {
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
            assert!(entry(&bytes, StoredBody::of(body(&written).into())).is_some());
        }
    }

    #[test]
    fn cut_or_longer_heads_are_no_entries() {
        for written in entries() {
            let bytes = head(&written);
            for length in 0..bytes.len() {
                assert!(
                    entry(&bytes.slice(..length), StoredBody::of(body(&written).into())).is_none(),
                    "{length}"
                );
            }
            let longer = Bytes::from([&bytes[..], b"x"].concat());
            assert!(entry(&longer, StoredBody::of(body(&written).into())).is_none());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, at in 0usize..400, byte: u8) {
                let _ = entry(&bytes.into(), StoredBody::of(Vec::new()));
            for written in entries() {
                let mut bytes = head(&written).to_vec();
                let at = at % bytes.len();
                bytes[at] = byte;
                let _ = (label(&bytes), relabelled(&bytes, &Label::new(0, 0)));
                let _ = entry(&bytes.into(), StoredBody::of(body(&written).into()));
            }
        }
    }
}
