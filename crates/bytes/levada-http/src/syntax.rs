//! Syntax that requests and responses share (RFC 9110, RFC 9112 Sec. 7.1).

/// Bytes of a line that states a chunk's size, its extensions and its end included.
pub(crate) const CHUNK_LINE: usize = 1 << 10;
/// Fields of a trailer section.
pub(crate) const TRAILERS: usize = 64;

/// A number in digits only: no sign, no list, nothing empty (RFC 9110 Sec. 8.6).
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let first = digit(*text.first()?)?;
    text[1..].iter().try_fold(first, |sum, &byte| sum.checked_mul(10)?.checked_add(digit(byte)?))
}

/// Splits a line `chunk-size [ chunk-ext ]`, without its line end, behind the size. The size is `None`
/// when it has no digit or more than 16 of them.
pub(crate) fn split_chunk_size(line: &[u8]) -> (Option<u64>, &[u8]) {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at(digits);
    let size = Some(size).filter(|size| (1..=16).contains(&size.len()));
    let size = size.and_then(|size| std::str::from_utf8(size).ok());
    (size.and_then(|size| u64::from_str_radix(size, 16).ok()), extension)
}

/// Whether the rest of such a line is empty, or `;` behind optional white space. Says nothing of the
/// bytes behind it.
pub(crate) fn begins_extension(rest: &[u8]) -> bool {
    matches!(trimmed(rest), [] | [b';', ..])
}

/// Whether there is no control character but HTAB. Written without a branch for each byte, so that the
/// compiler makes it a loop over vectors.
pub(crate) fn is_clean(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |bad, &byte| bad | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f))
}

/// Cuts optional white space: SP and HTAB only (RFC 9110 Sec. 5.6.3).
pub(crate) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether a list has this member.
pub(crate) fn names(list: &[u8], member: &[u8]) -> bool {
    let mut members = list.split(|&byte| byte == b',');
    members.any(|other| trimmed(other).eq_ignore_ascii_case(member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_within_bounds() {
        assert_eq!(decimal(b"0005"), Some(5));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for text in ["", "+1", "-1", "1 ", "0x1", "18446744073709551616"] {
            assert_eq!(decimal(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn chunk_sizes_are_split_from_extensions() {
        assert_eq!(split_chunk_size(b"A;b"), (Some(10), &b";b"[..]));
        assert_eq!(split_chunk_size(b"ffffffffffffffff"), (Some(u64::MAX), &b""[..]));
        assert_eq!(split_chunk_size(b"00000000000000005").0, None);
        assert_eq!(split_chunk_size(b";b").0, None);
        assert!(begins_extension(b"") && begins_extension(b" ;a") && !begins_extension(b" a"));
    }
}
