//! The paths of a manifest, and the targets of its links: how they are written, and which are refused.

use std::fmt::Write as _;

pub(super) fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.len() > LONGEST_PATH {
        return Err("the path is too long");
    }
    let mut parts = path.split(|&byte| byte == b'/');
    if parts.clone().next() == Some(RESERVED) {
        return Err("the path is where a destination keeps its own files");
    }
    parts.try_for_each(check_part)
}

fn check_part(part: &[u8]) -> Result<(), &'static str> {
    match part {
        b"" => Err("the path is absolute, or has an empty part"),
        b"." | b".." => Err("the path has a part `.` or `..`"),
        _ if part.contains(&0) => Err("the path has a null byte"),
        _ if part.len() > 255 => Err("a part of the path is too long"),
        _ => Ok(()),
    }
}

/// A link may go up at its beginning only, and no further than the root. Then it stays within the tree even
/// if what it passes are links: where it turns round is a directory of the tree, not a link's target.
pub(super) fn check_target(path: &[u8], target: &[u8]) -> Result<(), &'static str> {
    if target.len() > LONGEST_PATH || target.contains(&0) {
        return Err("the link's target is no path");
    }
    let depth = path.iter().filter(|&&byte| byte == b'/').count();
    let mut parts = target.split(|&byte| byte == b'/').peekable();
    let mut up = 0;
    while parts.next_if(|part| part == b"..").is_some() {
        up += 1;
    }
    if up > depth {
        return Err("the link leads out of the tree");
    }
    parts
        .try_for_each(check_part)
        .map_err(|_| "the link leads out of the tree, or in a roundabout way")
}

/// As in a URL's path (RFC 3986): everything but unreserved characters and `/` by its code.
pub fn encoded(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Undoes [`encoded`]; `None` for what it never writes.
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            _ => byte,
        });
    }
    (encoded(&path) == text).then_some(path)
}

const LONGEST_PATH: usize = 4000;
/// Where a destination keeps what is not complete, and what it knows of its files.
pub const RESERVED: &[u8] = b".levada-sync";
