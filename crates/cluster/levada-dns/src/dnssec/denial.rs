//! Compact denial of existence (RFC 9824): one record for the name that was asked for says that no name follows it
//! but the one right after it, and which types it has. So nothing has to be known of other names, and none can be
//! listed.

use crate::wire::{kind, name::LONGEST_NAME};

/// The data of the NSEC record of a name with these types. A name that does not exist has the type NXNAME.
pub fn nsec(name: &[u8], types: impl IntoIterator<Item = u16>) -> Vec<u8> {
    let mut types: Vec<u16> = types.into_iter().chain([kind::RRSIG, kind::NSEC]).collect();
    types.sort_unstable();
    types.dedup();
    let mut data = next(name);
    // RFC 4034 Sec. 4.1.2: blocks of 256 types, each with its number and its bits.
    for block in types.chunk_by(|one, other| one >> 8 == other >> 8) {
        let mut bits = [0; 32];
        for kind in block {
            bits[usize::from(kind & 0xff) / 8] |= 0x80 >> (kind & 7);
        }
        let length = usize::from(block[block.len() - 1] & 0xff) / 8 + 1;
        data.extend_from_slice(&[(block[0] >> 8) as u8, length as u8]);
        data.extend_from_slice(&bits[..length]);
    }
    data
}

/// The name that comes right after a name in canonical order (RFC 4471 Sec. 3.1.2): a label of one zero byte before
/// it. One for which this is too long ends its first label with the next byte.
fn next(name: &[u8]) -> Vec<u8> {
    if name.len() + 2 <= LONGEST_NAME {
        return [b"\x01\0", name].concat();
    }
    let mut next = name.to_vec();
    let last = next.first().map_or(0, |length| usize::from(*length));
    if let Some(byte) = next.get_mut(last) {
        *byte = byte.saturating_add(1);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_the_next_name_and_the_bits_of_the_types() {
        // RFC 4034 Sec. 4.3 has these types: A MX RRSIG NSEC TYPE1234.
        let data = nsec(b"\x01a\0", [1234, kind::A, kind::MX]);
        let bits = b"\x00\x06\x40\x01\0\0\0\x03\x04\x1b";
        assert_eq!(&data[..5], b"\x01\0\x01a\0");
        assert_eq!(&data[5..15], bits);
        assert_eq!((data.len(), data[data.len() - 1]), (5 + 10 + 27, 0x20));
    }
}
