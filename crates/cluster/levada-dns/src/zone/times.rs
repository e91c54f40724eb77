//! Times with units (`1h`, `1w2d`), which most zone files have and RFC 1035 does not: they become seconds where a time may
//! stand, before the file is parsed. Nothing else changes, so that lines keep their numbers.

use std::ops::Range;

/// The text with all times in seconds.
pub(super) fn in_seconds(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut entry = Entry::default();
    let mut copied = 0;
    for Token { place, begins_line } in tokens(text) {
        if begins_line {
            // A line that begins with white space has the owner of the one before.
            let has_owner = place.start == 0 || text[place.start - 1] == b'\n';
            entry = Entry { words: usize::from(!has_owner), ..Entry::default() };
        }
        let word = &text[place.clone()];
        if entry.may_be_time(word)
            && let Some(seconds) = seconds(word)
        {
            out.extend_from_slice(&text[copied..place.start]);
            out.extend_from_slice(seconds.to_string().as_bytes());
            copied = place.end;
        }
    }
    out.extend_from_slice(&text[copied..]);
    out
}

/// The part of an entry that has come: its words, the owner counted in, and the words after the type.
#[derive(Default)]
struct Entry {
    words: usize,
    is_ttl: bool,
    after_type: Option<usize>,
    is_soa: bool,
}

impl Entry {
    /// Whether the next word may be a time: that of `$TTL`, one before the type of a record, or one of the numbers of
    /// a SOA record, which follow two names.
    fn may_be_time(&mut self, word: &[u8]) -> bool {
        let at = self.words;
        self.words += 1;
        if at == 0 {
            self.is_ttl = word.eq_ignore_ascii_case(b"$TTL");
            return false;
        }
        if self.is_ttl {
            return at == 1;
        }
        if let Some(after) = &mut self.after_type {
            *after += 1;
            return self.is_soa && *after > 2;
        }
        let is_class =
            [&b"IN"[..], b"CH", b"HS"].iter().any(|class| word.eq_ignore_ascii_case(class));
        if word.first().is_some_and(u8::is_ascii_digit) {
            return true;
        }
        if !is_class {
            self.after_type = Some(0);
            self.is_soa = word.eq_ignore_ascii_case(b"SOA");
        }
        false
    }
}

/// The seconds of a time that has units.
fn seconds(word: &[u8]) -> Option<u32> {
    let (mut sum, mut number) = (0u32, None::<u32>);
    for byte in word {
        let unit = match byte.to_ascii_lowercase() {
            digit @ b'0'..=b'9' => {
                let more =
                    number.unwrap_or(0).checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
                number = Some(more);
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        sum = sum.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    // Without a unit at the end it is a plain number, or is wrong.
    number.is_none().then_some(sum).filter(|_| !word.is_empty())
}

struct Token {
    place: Range<usize>,
    /// It is the first one of an entry: of a line that is not within parentheses.
    begins_line: bool,
}

/// The words of a zone file, without comments. What is in quotes is one word.
fn tokens(text: &[u8]) -> impl Iterator<Item = Token> {
    let (mut at, mut depth, mut fresh) = (0, 0u32, true);
    std::iter::from_fn(move || {
        while let Some(byte) = text.get(at) {
            match byte {
                b'\n' => fresh |= depth == 0,
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                b';' => {
                    at += text[at..]
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .unwrap_or(text.len() - at);
                    continue;
                }
                b' ' | b'\t' | b'\r' => {}
                _ => {
                    let end = at + word_length(&text[at..]);
                    let token = Token { place: at..end, begins_line: std::mem::take(&mut fresh) };
                    at = end;
                    return Some(token);
                }
            }
            at += 1;
        }
        None
    })
}

/// The length of the word at the beginning.
fn word_length(text: &[u8]) -> usize {
    let (mut at, mut quoted) = (0, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => quoted = !quoted,
            b' ' | b'\t' | b'\r' | b'\n' | b';' | b'(' | b')' if !quoted => break,
            _ => {}
        }
        at += 1;
    }
    at.min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_units_become_seconds_and_nothing_else_changes() {
        let text = "$TTL 1h ; 2h\n@ IN SOA ns1 1h.example. (\n  5 ; 3h\n 1d 2H\n 1w2d3s 1m )\n1h 5m A 192.0.2.1\n\
                    \t1d IN TXT \"1h ; (\" 2h\nx IN 1M CNAME 1h\ny 60 A 192.0.2.2";
        let expected = "$TTL 3600 ; 2h\n@ IN SOA ns1 1h.example. (\n  5 ; 3h\n 86400 7200\n 777603 60 )\n1h 300 A 192.0.2.1\n\
                    \t86400 IN TXT \"1h ; (\" 2h\nx IN 60 CNAME 1h\ny 60 A 192.0.2.2";
        assert_eq!(String::from_utf8(in_seconds(text.as_bytes())).unwrap(), expected);
        for same in ["", "\\", "\"", "(", "$TTL 1x", "$TTL 99999999999h", "a 1h2 A", "; 1h"] {
            assert_eq!(in_seconds(same.as_bytes()), same.as_bytes(), "{same}");
        }
    }
}
