//! The head of a stored response in one piece of memory, in the form in which the disk keeps it.
//!
//! ```text
//! status:2 identity* variant* copies:8 blocks(0 | 1 version:8 block:8 length:8)
//! names*    of all fields, each with its length
//! lengths*  of their values
//! values    one after the other
//! ```
//!
//! A map of fields takes three to ten times as much memory as their text. Objects keep the text, and a
//! hit makes the map from it ([`crate::template`]).

use std::ops::Range;

use http::{HeaderValue, StatusCode};

use crate::{
    encoding::{Decoder, write, write_short},
    object::{Blocks, StoredHead},
    template,
};

/// The URI that a response answers, the variant that it is, and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedHead(Box<[u8]>);

/// The fields of a packed head.
#[derive(Clone, Copy)]
pub(crate) struct PackedFields<'a> {
    /// The names with their lengths.
    pub(crate) names: &'a [u8],
    lengths: &'a [u8],
    /// The values without their lengths.
    pub(crate) values: &'a [u8],
}

impl PackedHead {
    pub(crate) fn new(identity: &str, head: &StoredHead, blocks: Option<Blocks>) -> Self {
        let StoredHead { status, headers, variant, copies, .. } = head;
        let (mut names, mut lengths) = (Vec::with_capacity(512), Vec::with_capacity(64));
        for (name, value) in headers {
            write_short(&mut names, name.as_str().len());
            names.extend(name.as_str().as_bytes());
            write_short(&mut lengths, value.len());
        }
        let values: usize = headers.values().map(HeaderValue::len).sum();
        let strings = [identity.len(), variant.len(), names.len(), lengths.len(), values];
        // Of the right size from the start: an allocator may leave a vector that shrinks where it is.
        let numbers = size_of::<u16>() + size_of::<u64>() + 4 * size_of::<u32>();
        let in_blocks = if blocks.is_some() { 1 + 3 * size_of::<u64>() } else { 1 };
        let size = strings.iter().sum::<usize>() + numbers + in_blocks;
        let mut out = Vec::with_capacity(size);
        out.extend(status.as_u16().to_le_bytes());
        write(&mut out, identity.as_bytes());
        write(&mut out, variant);
        out.extend(copies.to_le_bytes());
        match blocks {
            None => out.push(0),
            Some(Blocks { version, block, length }) => {
                out.push(1);
                for number in [version, block, length] {
                    out.extend(number.to_le_bytes());
                }
            }
        }
        write(&mut out, &names);
        write(&mut out, &lengths);
        headers.values().for_each(|value| out.extend(value.as_bytes()));
        Self(out.into())
    }

    /// Reads what [`Self::bytes`] gave; `None` for other bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut read = Decoder { bytes };
        StatusCode::from_u16(read.u16()?).ok()?;
        read.text()?;
        read.bytes()?;
        read.u64()?;
        if blocks(&mut read)?.is_some_and(|blocks| blocks.block == 0) {
            return None;
        }
        let fields = fields(&mut read)?;
        let count = template::count(fields.names)?;
        let mut lengths = Decoder { bytes: fields.lengths };
        let mut left = fields.values.len();
        for _ in 0..count {
            left = left.checked_sub(lengths.short()?)?;
        }
        let valid = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        let whole = left == 0 && lengths.bytes.is_empty() && fields.values.iter().all(valid);
        whole.then(|| Self(bytes.into()))
    }

    /// The head as it is.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The status as received.
    pub(crate) fn status(&self) -> StatusCode {
        let number = Decoder { bytes: &self.0 }.u16().unwrap_or_default();
        // It was a status when it was packed or read.
        StatusCode::from_u16(number).unwrap_or_default()
    }

    /// The URI that is answered.
    pub(crate) fn identity(&self) -> &str {
        // It was text when it was packed or read.
        std::str::from_utf8(self.identity_bytes()).unwrap_or_default()
    }

    /// The same, to be compared.
    pub(crate) fn identity_bytes(&self) -> &[u8] {
        self.read_first().0
    }

    /// The values of the request's fields that selected it.
    pub(crate) fn variant(&self) -> &[u8] {
        self.read_first().1.bytes().unwrap_or_default()
    }

    /// The version that coded copies are of.
    pub(crate) fn copies(&self) -> u64 {
        let mut read = self.read_first().1;
        read.bytes();
        read.u64().unwrap_or_default()
    }

    /// Where the body is, if it is in blocks.
    pub(crate) fn blocks(&self) -> Option<Blocks> {
        let mut read = self.read_first().1;
        read.bytes()?;
        read.u64()?;
        blocks(&mut read)?
    }

    /// The fields as received.
    pub(crate) fn fields(&self) -> PackedFields<'_> {
        let mut read = self.read_first().1;
        let mut fields = || {
            read.bytes()?;
            read.u64()?;
            blocks(&mut read)?;
            fields(&mut read)
        };
        // It was whole when it was packed or read.
        fields().unwrap_or(PackedFields { names: &[], lengths: &[], values: &[] })
    }

    fn read_first(&self) -> (&[u8], Decoder<'_>) {
        let mut read = Decoder { bytes: &self.0 };
        read.u16();
        (read.bytes().unwrap_or_default(), read)
    }
}

impl<'a> PackedFields<'a> {
    /// The places of the values within them.
    pub(crate) fn places(&self) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut lengths = Decoder { bytes: self.lengths };
        let mut end = 0;
        std::iter::from_fn(move || {
            let begin = end;
            end += lengths.short()?;
            Some(begin..end)
        })
    }
}

fn blocks(read: &mut Decoder<'_>) -> Option<Option<Blocks>> {
    match read.u8()? {
        0 => Some(None),
        1 => Some(Some(Blocks { version: read.u64()?, block: read.u64()?, length: read.u64()? })),
        _ => None,
    }
}

fn fields<'a>(read: &mut Decoder<'a>) -> Option<PackedFields<'a>> {
    Some(PackedFields { names: read.bytes()?, lengths: read.bytes()?, values: read.bytes })
}
