//! Values of clients and servers within a line: nothing in them can end a field or the line.

use std::fmt::Write as _;

/// The way in which a value is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Text between quotes: quotes, backslashes, control characters and bytes beyond ASCII are written
    /// `\xHH`, as nginx does.
    Quoted,
    /// Text between spaces: a space is escaped as well.
    Bare,
    /// Within a JSON string.
    Json,
}

impl Escape {
    /// Appends `value`, escaped.
    pub(crate) fn push(self, out: &mut String, value: &[u8]) {
        match self {
            Self::Json => push_json(out, value),
            Self::Quoted => push_text(out, value, false),
            Self::Bare => push_text(out, value, true),
        }
    }

    /// Appends a value that is absent.
    pub(crate) fn push_absent(self, out: &mut String) {
        if self != Self::Json {
            out.push('-');
        }
    }
}

fn push_text(out: &mut String, value: &[u8], is_bare: bool) {
    let is_plain =
        |byte: &u8| matches!(byte, b'!' | 0x23..=0x5b | 0x5d..=0x7e) || (*byte == b' ' && !is_bare);
    let mut rest = value;
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| !is_plain(byte)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(plain);
        // A plain run is ASCII.
        out.push_str(std::str::from_utf8(run).unwrap_or_default());
        if let Some((byte, after)) = after.split_first() {
            let _ = write!(out, "\\x{byte:02X}");
            rest = after;
        } else {
            rest = after;
        }
    }
}

fn push_json(out: &mut String, value: &[u8]) {
    for chunk in value.utf8_chunks() {
        push_json_text(out, chunk.valid());
        if !chunk.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

fn push_json_text(out: &mut String, mut text: &str) {
    // Controls of the second block could change a terminal as well.
    let is_special = |c: char| c == '"' || c == '\\' || c.is_control();
    while let Some(at) = text.find(is_special) {
        let (plain, rest) = text.split_at(at);
        out.push_str(plain);
        let Some(special) = rest.chars().next() else { break };
        match special {
            '"' | '\\' => out.extend(['\\', special]),
            _ => {
                let _ = write!(out, "\\u{:04x}", u32::from(special));
            }
        }
        text = &rest[special.len_utf8()..];
    }
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: Escape, value: &[u8]) -> String {
        let mut out = String::new();
        escape.push(&mut out, value);
        out
    }

    #[test]
    fn nothing_a_client_sends_ends_a_field_or_a_line() {
        let hostile = b"a\"b\\c\n\r\t\x1b[2J \xff\x7f";
        let quoted = r"a\x22b\x5Cc\x0A\x0D\x09\x1B[2J \xFF\x7F";
        assert_eq!(escaped(Escape::Quoted, hostile), quoted);
        assert_eq!(escaped(Escape::Bare, hostile), quoted.replace(' ', r"\x20"));
    }

    #[test]
    fn json_strings_are_read_back_as_they_were() {
        let text = "a\"b\\c\n\u{1b}\u{85} \u{e9}\u{1f600}";
        let json = format!("\"{}\"", escaped(Escape::Json, text.as_bytes()));
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        let broken = format!("\"{}\"", escaped(Escape::Json, b"\xff\xfea\xc3"));
        assert_eq!(serde_json::from_str::<String>(&broken).unwrap(), "\u{fffd}\u{fffd}a\u{fffd}");
    }

    #[test]
    fn every_byte_survives_in_every_form() {
        for byte in 0..=255_u8 {
            for escape in [Escape::Quoted, Escape::Bare] {
                let line = escaped(escape, &[byte]);
                assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'"'), "{line}");
            }
            let json = format!("\"{}\"", escaped(Escape::Json, &[byte]));
            serde_json::from_str::<String>(&json).unwrap();
        }
    }
}
