//! The fields of header blocks (RFC 7541 Sec. 3, 5 and 6).

use super::{
    Broken, huffman,
    table::{Entry, HeaderField, Name, Table},
};

/// The size of the dynamic table that every client may use (RFC 9113 Sec. 6.5.2).
const TABLE: usize = 4096;
/// A larger buffer for strings is not kept.
const KEPT: usize = 1 << 10;

/// The decoder of one connection.
#[derive(Debug)]
pub(in super::super) struct Decoder {
    table: Table,
    /// A string that was written in Huffman's code.
    text: Vec<u8>,
}

impl Decoder {
    pub(in super::super) fn new() -> Self {
        Self { table: Table::new(TABLE), text: Vec::new() }
    }

    /// Hands over the fields of a block, each with its size as lists of fields count it.
    pub(in super::super) fn decode(
        &mut self,
        block: &[u8],
        mut each: impl FnMut(HeaderField, usize),
    ) -> Result<(), Broken> {
        let (mut rest, mut has_begun) = (Rest(block), false);
        while let Some(&first) = rest.0.first() {
            match first {
                0x80.. => {
                    let entry = self.table.get(rest.integer(7)?)?;
                    each(entry.field.clone(), entry.size);
                }
                0x40..=0x7f => {
                    let entry = self.literal(&mut rest, 6)?;
                    each(entry.field.clone(), entry.size);
                    self.table.insert(entry);
                }
                0x20..=0x3f => {
                    let most = rest.integer(5)?;
                    if has_begun || most > TABLE {
                        return Err(Broken);
                    }
                    self.table.resize(most);
                    continue;
                }
                _ => {
                    let entry = self.literal(&mut rest, 4)?;
                    each(entry.field, entry.size);
                }
            }
            has_begun = true;
        }
        Ok(())
    }

    /// Gives memory back that the next block may not need.
    pub(in super::super) fn rest(&mut self) {
        self.text = Vec::new();
    }

    /// A field whose value is written out. The index of its name has so many bits at first.
    fn literal(&mut self, rest: &mut Rest<'_>, bits: u32) -> Result<Entry, Broken> {
        self.text.shrink_to(KEPT);
        let (name, name_length) = match rest.integer(bits)? {
            0 => {
                let name = rest.string(&mut self.text)?;
                (Name::of(name), name.len())
            }
            index => {
                let entry = self.table.get(index)?;
                (entry.name.clone(), entry.name_length)
            }
        };
        Ok(Entry::new(name, name_length, rest.string(&mut self.text)?))
    }
}

/// The rest of a block.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// An integer behind a prefix of so many bits (RFC 7541 Sec. 5.1).
    fn integer(&mut self, bits: u32) -> Result<usize, Broken> {
        let mask = (1 << bits) - 1;
        let (first, mut rest) = self.0.split_first().ok_or(Broken)?;
        let mut value = usize::from(first & mask);
        if first & mask == mask {
            let mut shift = 0;
            loop {
                let (byte, behind) = rest.split_first().ok_or(Broken)?;
                rest = behind;
                // No length or index has more bits.
                if shift > 21 {
                    return Err(Broken);
                }
                value += usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        self.0 = rest;
        Ok(value)
    }

    /// A string. One in Huffman's code is decoded into `text`.
    fn string<'t>(&mut self, text: &'t mut Vec<u8>) -> Result<&'t [u8], Broken>
    where
        'a: 't,
    {
        let is_coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(Broken)?;
        self.0 = rest;
        if !is_coded {
            return Ok(string);
        }
        text.clear();
        huffman::decode(string, text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::huffman::tests::encode, *};

    /// The fields of a block as text, or `None` when it is broken.
    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<String>> {
        let mut all = Vec::new();
        let each = |field, size| {
            let text = match field {
                HeaderField::Method(method) => format!(":method={method}"),
                HeaderField::Scheme(scheme) => format!(":scheme={scheme}"),
                HeaderField::Authority(authority) => format!(":authority={authority}"),
                HeaderField::Path(path) => format!(":path={path}"),
                HeaderField::Protocol(protocol) => format!(":protocol={}", protocol.as_str()),
                HeaderField::Plain(name, value) => format!("{name}={}", value.to_str().unwrap()),
                HeaderField::Bad => "bad".to_owned(),
            };
            all.push(format!("{text} {size}"));
        };
        decoder.decode(block, each).ok().map(|()| all)
    }

    fn at_first(block: &[u8]) -> Option<Vec<String>> {
        decoded(&mut Decoder::new(), block)
    }

    fn hex(text: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    /// RFC 7541 App. C.3 and C.4.
    #[test]
    fn requests_of_the_standard_are_read() {
        for blocks in [
            [
                "828684410f7777772e6578616d706c652e636f6d",
                "828684be58086e6f2d6361636865",
                "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
            ],
            [
                "828684418cf1e3c2e5f23a6ba0ab90f4ff",
                "828684be5886a8eb10649cbf",
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
            ],
        ] {
            let mut decoder = Decoder::new();
            let [first, second, third] =
                blocks.map(|block| decoded(&mut decoder, &hex(block)).unwrap());
            let begin = [":method=GET 42", ":scheme=http 43", ":path=/ 38"];
            let authority = ":authority=www.example.com 57";
            assert_eq!(first, [&begin[..], &[authority]].concat());
            assert_eq!(second, [&begin[..], &[authority, "cache-control=no-cache 53"]].concat());
            assert_eq!(
                third,
                [
                    ":method=GET 42",
                    ":scheme=https 44",
                    ":path=/index.html 48",
                    authority,
                    "custom-key=custom-value 54",
                ]
            );
            assert_eq!(decoder.table.get(62).unwrap().size, 54);
            assert_eq!(decoder.table.get(64).unwrap().size, 57);
            assert!(decoder.table.get(65).is_err());
        }
    }

    #[test]
    fn broken_blocks_are_found() {
        for block in [
            &b"\x80"[..],
            b"\xbe",
            b"\x40",
            b"\x41\x05ab",
            b"\x41\x81\x00",
            b"\xff\xff\xff\xff\xff\xff\x01",
            b"\x3f\xe2\x1f",
            b"\x82\x20",
            b"\x0f",
        ] {
            assert_eq!(at_first(block), None, "{block:x?}");
        }
        assert_eq!(at_first(b"\x3f\xe1\x1f\x20"), Some(vec![]));
    }

    #[test]
    fn fields_that_no_request_has_keep_their_size() {
        for (block, text) in [
            (&b"\x88"[..], "bad 42"),
            (b"\x00\x02A-\x01x", "bad 35"),
            (b"\x00\x05:nope\0", "bad 37"),
            (b"\x04\x01x", "bad 38"),
            (b"\x04\x03/#a", "bad 40"),
            (b"\x04\0", "bad 37"),
            (b"\x10\x01a\x01\n", "bad 34"),
            (b"\x04\x01*", ":path=* 38"),
        ] {
            assert_eq!(at_first(block).unwrap(), [text], "{block:x?}");
        }
        let mut decoder = Decoder::new();
        decoded(&mut decoder, b"\x40\x03A-B\x01x").unwrap();
        assert_eq!(decoded(&mut decoder, b"\x7e\x02ab\xbf").unwrap(), ["bad 37", "bad 36"]);
    }

    #[test]
    fn old_entries_give_way_to_new_ones() {
        let mut decoder = Decoder::new();
        // Room for two entries of 34 bytes.
        assert!(
            decoded(&mut decoder, b"\x3f\x25\x40\x01a\x01x\x40\x01b\x01y\x40\x01c\x01z").is_some()
        );
        assert_eq!(decoded(&mut decoder, b"\xbe\xbf").unwrap(), ["c=z 34", "b=y 34"]);
        assert_eq!(decoded(&mut decoder, b"\xc0"), None);
        let long = [&b"\x40\x01d\x64"[..], &[b'x'; 100]].concat();
        assert!(decoded(&mut decoder, &long).is_some());
        assert_eq!(decoded(&mut decoder, b"\xbe"), None, "the table is empty");
    }

    #[test]
    fn names_and_values_may_both_be_in_the_code() {
        let (name, value) = (encode(b"x-name"), encode(b"a value"));
        let block = [&[0, 0x80 | name.len() as u8][..], &name, &[0x80 | value.len() as u8], &value];
        assert_eq!(at_first(&block.concat()).unwrap(), ["x-name=a value 45"]);
    }
}
