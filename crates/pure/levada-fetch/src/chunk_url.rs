//! The URL of a piece: that of the file with the range affixed (WORLDS'04, Sec. 3).
//!
//! ```text
//!   /debian.iso~levada~1048576ab-2097151~9f86d081884c7d65~sha-256-9f86...
//!    the file  marker  start,   last     version          the client's digest, if it gave one
//!                      letters
//! ```
//!
//! To the CDN each piece is an object of its own, so that policy, replication and cache treat it as
//! any small object. The letters mean nothing: each further try of a piece has one more of them, so
//! that it is another object and goes to another node. The version is a number made of the file's
//! validator, and the digest is Cosync's: with either, a piece of another version is another object,
//! and cannot be mixed in.
//!
//! There is one way to write a piece, and only that is read.

use std::{fmt, ops::Range};

use crate::digest::{Algorithm, Digest};

/// The text between the file's URL and the piece's own part.
pub const MARKER: &str = "~levada~";

/// The letters that a piece's URL can have: one for each further try.
pub const MAX_RETRIES: u8 = 26;

/// The properties of a piece that its URL has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkUrl {
    /// The bytes of the file; never empty.
    pub range: Range<u64>,
    /// How many tries went before, at most [`MAX_RETRIES`].
    pub retries: u8,
    /// The version of the file, as a number.
    pub version: u64,
    /// The digest of the whole file, where the client knows it.
    pub digest: Option<Digest>,
}

impl ChunkUrl {
    /// The file's request target with the piece affixed.
    pub fn affix(&self, target: &str) -> String {
        format!("{target}{MARKER}{self}")
    }

    /// Divides a request target into that of the file and the piece; `None` when it ends in no piece
    /// as [`affix`](Self::affix) writes it.
    pub fn split(target: &str) -> Option<(&str, Self)> {
        let (file, piece) = target.rsplit_once(MARKER)?;
        let piece = Self::parse(piece)?;
        (!file.is_empty()).then_some((file, piece))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('~');
        let (first, last) = fields.next()?.split_once('-')?;
        let letters = first.bytes().rev().take_while(u8::is_ascii_lowercase).count();
        let (start, letters) = first.split_at(first.len() - letters);
        let retries = u8::try_from(letters.len()).ok().filter(|n| *n <= MAX_RETRIES)?;
        let end = number(last)?.checked_add(1)?;
        let range = number(start)?..end;
        let version = fields.next().filter(|version| version.len() == 16)?;
        let version = u64::from_str_radix(version, 16).ok()?;
        let digest = match fields.next() {
            None => None,
            Some(text) => Some(digest(text)?),
        };
        let read = Self { range, retries, version, digest };
        // A text with another spelling of the same piece (letters, a sign, upper case) is refused.
        (fields.next().is_none() && !read.range.is_empty() && read.to_string() == text)
            .then_some(read)
    }
}

impl fmt::Display for ChunkUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, retries, version, digest } = self;
        write!(f, "{}", range.start)?;
        for letter in (b'a'..=b'z').take(usize::from(*retries)) {
            write!(f, "{}", char::from(letter))?;
        }
        write!(f, "-{}~{version:016x}", range.end.saturating_sub(1))?;
        match digest {
            None => Ok(()),
            Some(digest) => write!(f, "~{}-{}", digest.algorithm().as_str(), digest.hex()),
        }
    }
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn digest(text: &str) -> Option<Digest> {
    let (name, hex) = text.rsplit_once('-')?;
    let algorithms = [Algorithm::Sha256, Algorithm::Md5];
    let algorithm = algorithms.into_iter().find(|algorithm| algorithm.as_str() == name)?;
    Digest::from_hex(algorithm, hex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(range: Range<u64>, retries: u8) -> ChunkUrl {
        ChunkUrl { range, retries, version: 0xabc, digest: None }
    }

    #[test]
    fn each_try_has_one_more_letter() {
        let url = |retries| piece(60_000..120_000, retries).affix("/f?x=1");
        assert_eq!(url(0), "/f?x=1~levada~60000-119999~0000000000000abc");
        assert_eq!(url(2), "/f?x=1~levada~60000ab-119999~0000000000000abc");
    }

    #[test]
    fn file_whose_own_url_has_the_marker_is_told_from_its_pieces() {
        let file = piece(0..1, 0).affix("/f");
        let (of, read) = ChunkUrl::split(&piece(5..9, 1).affix(&file)).map(owned).unwrap();
        assert_eq!((of, read), (file, piece(5..9, 1)));
    }

    fn owned((file, piece): (&str, ChunkUrl)) -> (String, ChunkUrl) {
        (file.to_owned(), piece)
    }

    #[test]
    fn what_is_written_otherwise_is_no_piece() {
        let version = "0000000000000abc";
        for piece in [
            String::new(),
            format!("0-9~{version}0"),
            format!("0-9~{}", &version[1..]),
            "0-9".to_owned(),
            format!("00-9~{version}"),
            format!("+0-9~{version}"),
            format!("0b-9~{version}"),
            format!("0ba-9~{version}"),
            format!("0A-9~{version}"),
            format!("9-8~{version}"),
            format!("-9~{version}"),
            format!("0-~{version}"),
            format!("0-18446744073709551615~{version}"),
            format!("0-18446744073709551616~{version}"),
            format!("0-9~{}", version.to_uppercase()),
            format!("0-9~{version}~"),
            format!("0-9~{version}~md5-00"),
            format!("0-9~{version}~md5-{}~", "0".repeat(32)),
            format!("0-9~{version}~sha-1-{}", "0".repeat(40)),
            format!("0{}-9~{version}", "abcdefghijklmnopqrstuvwxyza"),
        ] {
            assert_eq!(ChunkUrl::split(&format!("/f{MARKER}{piece}")), None, "{piece}");
        }
        assert_eq!(ChunkUrl::split(&format!("{MARKER}0-9~{version}")), None, "no file");
        assert!(ChunkUrl::split(&format!("/f{MARKER}0-9~{version}")).is_some());
    }

    proptest! {
        #[test]
        fn pieces_are_read_as_they_are_written(
            file in "/[ -~]{0,40}",
            start in 0..u64::MAX - 1,
            length in 1..u64::MAX,
            retries in 0..=MAX_RETRIES,
            version: u64,
            digest: Option<[u8; 32]>,
        ) {
            let range = start..start.saturating_add(length).min(u64::MAX - 1).max(start + 1);
            let hex = |bytes: [u8; 32]| {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Digest::from_hex(Algorithm::Sha256, &hex)
            };
            let piece = ChunkUrl { range, retries, version, digest: digest.and_then(hex) };
            let target = piece.affix(&file);
            prop_assert_eq!(ChunkUrl::split(&target), Some((&*file, piece)));
        }

        #[test]
        fn whatever_is_read_would_be_written_alike(target in "/f~levada~[0-9a-f~-]{0,60}") {
            if let Some((file, piece)) = ChunkUrl::split(&target) {
                prop_assert_eq!(piece.affix(file), target);
            }
        }
    }
}
