//! Strings in Huffman's code (RFC 7541 Sec. 5.2, App. B).
//!
//! The code is canonical: the codes of one length are consecutive numbers, in the order of their symbols. So the
//! lengths tell all of it. Codes of up to eight bits, which most text has, are found by one look into a table.

use super::Broken;

/// The length of each symbol's code in bits. The last symbol is the end of the string, which is never written.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15,
    6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22,
    20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23,
    23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22,
    22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26,
    27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27,
    26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const LONGEST: usize = 30;

struct ErrorCode {
    /// By the next eight bits: a symbol and the length of its code, which is 0 where the code is longer.
    short: [(u8, u8); 256],
    /// By length: the first code, how many there are, and where their symbols begin.
    lengths: [(u32, u32, usize); LONGEST + 1],
    /// The symbols in the order of their codes.
    symbols: [u16; LENGTHS.len()],
}

static CODE: ErrorCode = ErrorCode::new();

impl ErrorCode {
    const fn new() -> Self {
        let mut code = Self {
            short: [(0, 0); 256],
            lengths: [(0, 0, 0); LONGEST + 1],
            symbols: [0; LENGTHS.len()],
        };
        let (mut next, mut length, mut known) = (0, 1, 0);
        while length <= LONGEST {
            next <<= 1;
            code.lengths[length] = (next, 0, known);
            let mut symbol = 0;
            while symbol < LENGTHS.len() {
                if LENGTHS[symbol] as usize == length {
                    let mut low = 0;
                    while length <= 8 && low < 1 << (8 - length) {
                        code.short[((next as usize) << (8 - length)) | low] =
                            (symbol as u8, length as u8);
                        low += 1;
                    }
                    code.symbols[known] = symbol as u16;
                    (next, known) = (next + 1, known + 1);
                    code.lengths[length].1 += 1;
                }
                symbol += 1;
            }
            length += 1;
        }
        code
    }

    /// The first symbol in these bits, and the length of its code.
    fn long(&self, bits: u64) -> Option<(u16, u32)> {
        (9..=LONGEST).find_map(|length| {
            let (first, count, begin) = self.lengths[length];
            let number = ((bits >> (64 - length)) as u32).checked_sub(first)?;
            (number < count).then(|| (self.symbols[begin + number as usize], length as u32))
        })
    }
}

/// Adds the text that this is the code of.
pub(super) fn decode(coded: &[u8], text: &mut Vec<u8>) -> Result<(), Broken> {
    // The bits that have come lie at the top.
    let (mut bits, mut count, mut rest) = (0_u64, 0, coded);
    loop {
        while count <= 56
            && let Some((byte, behind)) = rest.split_first()
        {
            bits |= u64::from(*byte) << (56 - count);
            (count, rest) = (count + 8, behind);
        }
        let (symbol, length) = match CODE.short[(bits >> 56) as usize] {
            (symbol, length @ 1..) => (symbol, u32::from(length)),
            _ => match CODE.long(bits) {
                Some((symbol, length)) => match u8::try_from(symbol) {
                    Ok(symbol) => (symbol, length),
                    Err(_) if length <= count => return Err(Broken),
                    Err(_) => break,
                },
                None => break,
            },
        };
        if length > count {
            break;
        }
        text.push(symbol);
        (bits, count) = (bits << length, count - length);
    }
    // Less than a byte of ones.
    if count < 8 && bits.leading_ones() >= count { Ok(()) } else { Err(Broken) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The code of a text, bit by bit.
    pub(in super::super) fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = String::new();
        for &byte in text {
            let length = usize::from(LENGTHS[usize::from(byte)]);
            let (first, count, begin) = CODE.lengths[length];
            let symbols = &CODE.symbols[begin..begin + count as usize];
            let number = symbols.iter().position(|&symbol| symbol == u16::from(byte)).unwrap();
            bits += &format!("{:0length$b}", first + number as u32);
        }
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        let byte = |bits| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
        bits.as_bytes().chunks(8).map(byte).collect()
    }

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(coded, &mut text).ok().map(|()| text)
    }

    #[test]
    fn examples_of_the_standard_are_read() {
        for (coded, text) in [
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (
                b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3",
                "https://www.example.com",
            ),
        ] {
            assert_eq!(decoded(coded).unwrap(), text.as_bytes());
            assert_eq!(encode(text.as_bytes()), coded);
        }
    }

    #[test]
    fn every_byte_has_a_code() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        assert_eq!(decoded(&encode(&all)), Some(all.clone()));
        for byte in all {
            assert_eq!(decoded(&encode(&[byte])), Some(vec![byte]));
        }
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones() {
        assert_eq!(decoded(b""), Some(vec![]));
        assert_eq!(decoded(b"\x07"), Some(b"0".to_vec()));
        for coded in [&b"\x06"[..], b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfc"] {
            assert_eq!(decoded(coded), None, "{coded:x?}");
        }
    }
}
