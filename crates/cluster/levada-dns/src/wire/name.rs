//! Names on the wire (RFC 1035 Sec. 3.1): labels with their lengths, and an empty one at the end.
//!
//! A name is compared as its bytes in lower case (RFC 4343), so that look-ups need no parsing.

use std::{borrow::Borrow, fmt, str::FromStr};

/// The most bytes of a name, with the lengths of its labels (RFC 1035 Sec. 3.1).
pub const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: usize = 63;

/// A name in lower case, as it is on the wire without compression.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

/// The text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name: labels of up to 63 letters, digits, `-` and `_`, with dots between")]
pub struct NoName(String);

impl Name {
    /// The name of these bytes, which are a name on the wire.
    pub fn from_wire(wire: &[u8]) -> Self {
        Self(wire.to_ascii_lowercase().into())
    }

    /// Its bytes.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// The text `relative`, below this name; `@` is this name.
    ///
    /// # Errors
    /// When the text is no name, or the whole is too long.
    pub fn below(&self, relative: &str) -> Result<Self, NoName> {
        if relative == "@" {
            return Ok(self.clone());
        }
        let mut wire = relative.parse::<Self>()?.0.into_vec();
        wire.pop();
        wire.extend_from_slice(&self.0);
        if wire.len() > LONGEST_NAME {
            return Err(NoName(relative.to_owned()));
        }
        Ok(Self(wire.into()))
    }

    /// The name with `*` in the place of its first label; `None` for the root.
    pub fn star_beside(&self) -> Option<Self> {
        let mut wire = b"\x01*".to_vec();
        wire.extend_from_slice(parent(&self.0)?);
        Some(Self(wire.into()))
    }

    /// Whether the name is `apex` or below it.
    pub fn is_within(&self, apex: &[u8]) -> bool {
        suffixes(&self.0).any(|suffix| suffix == apex)
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let wrong = || NoName(text.to_owned());
        let mut wire = Vec::with_capacity(text.len() + 2);
        let labels = text.strip_suffix('.').unwrap_or(text);
        for (at, label) in labels.split('.').enumerate().filter(|_| !labels.is_empty()) {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let is_good = label.bytes().all(plain) || (at == 0 && label == "*");
            if label.is_empty() || label.len() > LONGEST_LABEL || !is_good {
                return Err(wrong());
            }
            wire.push(label.len() as u8);
            wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        wire.push(0);
        if wire.len() > LONGEST_NAME {
            return Err(wrong());
        }
        Ok(Self(wire.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= 1 {
            return f.write_str(".");
        }
        for (at, label) in labels(&self.0).enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            label.escape_ascii().fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The name, then its parents up to the root.
pub fn suffixes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| parent(name))
}

/// The name without its first label; `None` for the root.
pub fn parent(name: &[u8]) -> Option<&[u8]> {
    match name.first() {
        None | Some(0) => None,
        Some(length) => name.get(1 + usize::from(*length)..),
    }
}

/// The first label of a name; empty for the root.
pub fn first_label(name: &[u8]) -> &[u8] {
    labels(name).next().unwrap_or_default()
}

/// The labels of a name without the empty one.
pub fn labels(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    suffixes(name)
        .filter_map(|name| name.get(1..1 + usize::from(*name.first()?)))
        .take_while(|label| !label.is_empty())
}

/// The length of the name that is at the beginning of `bytes`, if it is one without compression.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match usize::from(*bytes.get(at)?) {
            0 => return Some(at + 1),
            length if length <= LONGEST_LABEL && at + length + 2 <= LONGEST_NAME => {
                at += 1 + length
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_read_written_and_extended() {
        let name: Name = "WWW.Example.com.".parse().unwrap();
        assert_eq!(name.wire(), b"\x03www\x07example\x03com\0");
        assert_eq!(name.to_string(), "www.example.com");
        assert_eq!(labels(name.wire()).collect::<Vec<_>>(), [&b"www"[..], b"example", b"com"]);
        assert_eq!(suffixes(name.wire()).count(), 4);
        let below = |relative| name.below(relative).map(|name| name.to_string());
        assert_eq!(below("*.a").as_deref(), Ok("*.a.www.example.com"));
        assert_eq!(below("@").as_deref(), Ok("www.example.com"));
        assert!(name.is_within(b"\x03com\0") && !name.is_within(b"\x02om\0"));
        assert_eq!(".".parse::<Name>().unwrap().wire(), [0]);
        for wrong in ["a..b", "a b", "ä", "a.*", &"a".repeat(64), &"a.".repeat(128)] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn length_of_a_name_ends_with_the_root_and_knows_no_pointers() {
        assert_eq!(length(b"\x01a\0rest"), Some(3));
        assert_eq!(length(b"\x01a"), None);
        assert_eq!(length(b"\x01a\xc0\x0c"), None);
        assert_eq!(
            length(&[[63; 64].as_slice(), &[63; 64], &[63; 64], &[63; 64], &[0]].concat()),
            None
        );
    }
}
