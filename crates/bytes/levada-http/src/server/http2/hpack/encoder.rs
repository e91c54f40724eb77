//! The fields of responses as literals that no table keeps (RFC 7541 Sec. 6.2.2).

use http::StatusCode;

/// Writes the status.
pub(in super::super) fn write_status(block: &mut Vec<u8>, status: StatusCode) {
    let index = match status.as_u16() {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            block.extend_from_slice(b"\x08\x03");
            return block.extend_from_slice(status.as_str().as_bytes());
        }
    };
    block.push(0x80 | index);
}

/// Writes a field. Its name is in lower case.
#[inline]
pub(in super::super) fn write_field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match index(name) {
        0 => {
            block.push(0);
            write_integer(block, 0, 7, name.len());
            block.extend_from_slice(name);
        }
        index => write_integer(block, 0, 4, index),
    }
    write_integer(block, 0, 7, value.len());
    block.extend_from_slice(value);
}

/// Writes an integer whose prefix is the last bits of `first` (RFC 7541 Sec. 5.1), as QPACK has them too.
pub fn write_integer(block: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let mask = (1 << bits) - 1;
    if value < mask {
        return block.push(first | value as u8);
    }
    block.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The static index of a response's field (RFC 7541 App. A), or 0.
fn index(name: &[u8]) -> usize {
    match name {
        b"accept-ranges" => 18,
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"cache-control" => 24,
        b"content-disposition" => 25,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-length" => 28,
        b"content-location" => 29,
        b"content-range" => 30,
        b"content-type" => 31,
        b"date" => 33,
        b"etag" => 34,
        b"expires" => 36,
        b"last-modified" => 44,
        b"link" => 45,
        b"location" => 46,
        b"retry-after" => 53,
        b"server" => 54,
        b"set-cookie" => 55,
        b"strict-transport-security" => 56,
        b"vary" => 59,
        b"via" => 60,
        b"www-authenticate" => 61,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Decoder, HeaderField, table::STATIC},
        *,
    };

    #[test]
    fn indices_are_those_of_the_table() {
        for (at, (name, _)) in STATIC.iter().enumerate() {
            let index = index(name.as_bytes());
            assert!(index == 0 || index == at + 1, "{name}");
        }
        for status in [200, 204, 206, 304, 400, 404, 500] {
            let mut block = Vec::new();
            write_status(&mut block, StatusCode::from_u16(status).unwrap());
            let (name, value) = STATIC[usize::from(block[0] & 0x7f) - 1];
            assert_eq!((name, value), (":status", status.to_string().as_str()));
        }
    }

    #[test]
    fn fields_are_read_as_they_were_written() {
        for length in [0, 1, 14, 15, 126, 127, 128, 255, 5000] {
            for name in ["etag", "x-own", "content-type"] {
                let (value, mut block, mut found) = ("v".repeat(length), Vec::new(), None);
                write_field(&mut block, name.as_bytes(), value.as_bytes());
                Decoder::new().decode(&block, |field, _| found = Some(field)).unwrap();
                let Some(HeaderField::Plain(known, read)) = found else { panic!("{name}") };
                assert_eq!((known.as_str(), read.to_str().unwrap()), (name, value.as_str()));
            }
        }
    }
}
