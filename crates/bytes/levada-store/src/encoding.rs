//! Numbers and byte strings in the heads of entries. Numbers are little-endian; `x*` is a length of four
//! bytes and so many bytes.

/// Appends a byte string with its length.
pub(crate) fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// Appends a number in groups of seven bits, the lowest first. All groups but the last have the high bit.
pub(crate) fn write_short(out: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bytes that are read from the front.
pub(crate) struct Decoder<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(array)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|byte| byte[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A byte string with its length before it.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(*self.array()?) as usize;
        self.next(length)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// The next so many bytes.
    pub(crate) fn next(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(bytes)
    }

    /// A number that [`write_short`] wrote.
    pub(crate) fn short(&mut self) -> Option<usize> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let byte = self.u8()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}
