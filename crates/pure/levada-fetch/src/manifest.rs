//! The entries of a tree, as a text that can be published next to it (Cosync, WORLDS'04, Sec. 4).
//!
//! ```text
//! levada-manifest 1
//! root tree/
//! tar 10240 sha-256=<hex> tree.tar
//! dir 755 bin
//! file 5 755 1700000000.000000000 sha-256=<hex> bin/hello
//! link bin/hi hello
//! end 3 sha-256=<hex>
//! ```
//!
//! Paths are percent-encoded, so that they have no spaces and can be put into URLs as they are; they are
//! relative, sorted and different. The last line counts entries and has the digest of everything before
//! it: a manifest that was cut or edited is refused as a whole. `root` and `tar` are relative to the
//! manifest's own URL.
//!
//! A manifest comes from the network, and a tree is written as it says. So everything that could lead out of
//! the tree is refused here: `..`, absolute paths, links that leave, and entries below anything but a
//! directory.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{Algorithm, Digest};

/// A tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Where the files are, relative to the manifest.
    pub root: String,
    /// One file with everything in it, for the first time.
    pub tar: Option<Archive>,
    /// The entries of the tree, by path: bytes, not encoded, separated by `/`.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// A tar file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// Its length.
    pub size: u64,
    /// Its digest.
    pub digest: Digest,
    /// Where it is, relative to the manifest.
    pub reference: String,
}

/// The entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory with these permissions.
    Directory {
        /// The lower twelve bits.
        mode: u32,
    },
    /// A file.
    File {
        /// Its length.
        size: u64,
        /// The lower twelve bits of its permissions.
        mode: u32,
        /// Seconds and nanoseconds.
        modified: (i64, u32),
        /// The digest of its bytes.
        digest: Digest,
    },
    /// A symbolic link to this target, within the tree.
    Link {
        /// As the link has it.
        target: Vec<u8>,
    },
}

/// Why a text is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is something else.
    #[error("this is no manifest: it does not begin with `{HEAD}`")]
    Foreign,
    /// Its last line is missing.
    #[error("the manifest is cut off: its last line is missing")]
    Cut,
    /// The last line does not fit the others.
    #[error("the manifest was edited or damaged: its digest is another")]
    Damaged,
    /// A line is wrong.
    #[error("line {line} of the manifest: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The reason.
        why: &'static str,
    },
}

impl Manifest {
    /// Reads a manifest; `sha256` computes that digest, which must be a SHA-256.
    ///
    /// # Errors
    /// With the first thing that is wrong. Nothing of such a manifest is to be used.
    pub fn parse(text: &str, sha256: impl FnOnce(&[u8]) -> Digest) -> Result<Self, ManifestError> {
        if text.lines().next() != Some(HEAD) {
            return Err(ManifestError::Foreign);
        }
        let body = text.strip_suffix('\n').ok_or(ManifestError::Cut)?;
        let (before, last) = body.rsplit_once('\n').ok_or(ManifestError::Cut)?;
        let end = last.strip_prefix("end ").and_then(|end| end.split_once(' '));
        let (count, digest) = end.ok_or(ManifestError::Cut)?;
        let covered = &text[..=before.len()];
        let told = Digest::parse(digest).filter(|d| d.algorithm() == Algorithm::Sha256);
        if told != Some(sha256(covered.as_bytes())) {
            return Err(ManifestError::Damaged);
        }
        let mut manifest = Self::default();
        for (number, line) in before.lines().enumerate().skip(1) {
            let wrong = |why| ManifestError::Line { line: number + 1, why };
            manifest.read(line).map_err(wrong)?;
        }
        if count.parse() != Ok(manifest.entries.len()) {
            return Err(ManifestError::Damaged);
        }
        Ok(manifest)
    }

    fn read(&mut self, line: &str) -> Result<(), &'static str> {
        let (kind, rest) = line.split_once(' ').ok_or("it has one word only")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        match (kind, fields.as_slice()) {
            ("root", [reference]) if self.entries.is_empty() => {
                self.root = (*reference).to_owned();
                Ok(())
            }
            ("tar", [size, digest, reference]) if self.entries.is_empty() => {
                let size = size.parse().map_err(|_| "the size is no number")?;
                let digest = Digest::parse(digest).ok_or("the digest cannot be read")?;
                self.tar = Some(Archive { size, digest, reference: (*reference).to_owned() });
                Ok(())
            }
            ("dir", [mode, path]) => self.add(path, Entry::Directory { mode: octal(mode)? }),
            ("file", [size, mode, modified, digest, path]) => {
                let size = size.parse().map_err(|_| "the size is no number")?;
                let digest = Digest::parse(digest).ok_or("the digest cannot be read")?;
                let modified = time(modified).ok_or("the time cannot be read")?;
                self.add(path, Entry::File { size, mode: octal(mode)?, modified, digest })
            }
            ("link", [path, target]) => {
                let target = decoded(target).ok_or("the target is not encoded as it should be")?;
                self.add(path, Entry::Link { target })
            }
            _ => Err("it is neither dir, file nor link with their fields"),
        }
    }

    fn add(&mut self, path: &str, entry: Entry) -> Result<(), &'static str> {
        let path = decoded(path).ok_or("the path is not encoded as it should be")?;
        self.insert(path, entry)
    }

    /// Adds an entry behind all others.
    ///
    /// # Errors
    /// When the path, or where a link leads, has no place in a tree.
    pub fn insert(&mut self, path: Vec<u8>, entry: Entry) -> Result<(), &'static str> {
        check_path(&path)?;
        if let Entry::Link { target } = &entry {
            check_target(&path, target)?;
        }
        if self.entries.last_key_value().is_some_and(|(last, _)| *last >= path) {
            return Err("the paths are not sorted, or one is there twice");
        }
        // Directories sort before what is in them, so that a parent is here already.
        if let Some(slash) = path.iter().rposition(|&byte| byte == b'/')
            && !matches!(self.entries.get(&path[..slash]), Some(Entry::Directory { .. }))
        {
            return Err("it is not below a directory of the manifest");
        }
        self.entries.insert(path, entry);
        Ok(())
    }

    /// Writes it.
    pub fn write(&self, sha256: impl FnOnce(&[u8]) -> Digest) -> String {
        let mut text = format!("{HEAD}\nroot {}\n", self.root);
        // Writing to a string cannot fail.
        if let Some(Archive { size, digest, reference }) = &self.tar {
            let _ = writeln!(text, "tar {size} {digest} {reference}");
        }
        for (path, entry) in &self.entries {
            let path = encoded(path);
            let _ = match entry {
                Entry::Directory { mode } => writeln!(text, "dir {mode:o} {path}"),
                Entry::File { size, mode, modified: (seconds, nanoseconds), digest } => {
                    writeln!(
                        text,
                        "file {size} {mode:o} {seconds}.{nanoseconds:09} {digest} {path}"
                    )
                }
                Entry::Link { target } => writeln!(text, "link {path} {}", encoded(target)),
            };
        }
        let digest = sha256(text.as_bytes());
        let _ = writeln!(text, "end {} {digest}", self.entries.len());
        text
    }

    /// Two paths that are one where letters' case does not count.
    pub fn same_but_for_case(&self) -> Option<(&[u8], &[u8])> {
        let mut seen: BTreeMap<String, &[u8]> = BTreeMap::new();
        for path in self.entries.keys() {
            let folded = String::from_utf8_lossy(path).to_lowercase();
            if let Some(other) = seen.insert(folded, path) {
                return Some((other, path));
            }
        }
        None
    }
}

fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.len() > LONGEST_PATH {
        return Err("the path is too long");
    }
    let mut parts = path.split(|&byte| byte == b'/');
    if parts.clone().next() == Some(RESERVED) {
        return Err("the path is where unfinished files are kept");
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
fn check_target(path: &[u8], target: &[u8]) -> Result<(), &'static str> {
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

fn octal(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).map_err(|_| "the mode is no octal number")?;
    // No file becomes set-user-ID because a manifest says so.
    if mode > 0o777 { Err("the mode has more than permissions") } else { Ok(mode) }
}

fn time(text: &str) -> Option<(i64, u32)> {
    let (seconds, nanoseconds) = text.split_once('.')?;
    let digits = nanoseconds.len() == 9 && nanoseconds.bytes().all(|byte| byte.is_ascii_digit());
    Some((seconds.parse().ok()?, nanoseconds.parse().ok().filter(|_| digits)?))
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
fn decoded(text: &str) -> Option<Vec<u8>> {
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

const HEAD: &str = "levada-manifest 1";
const LONGEST_PATH: usize = 4000;
/// Where a destination keeps what is not complete.
pub const RESERVED: &[u8] = b".levada-sync";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Not SHA-256, but as good for these tests.
    fn hash(bytes: &[u8]) -> Digest {
        let hash = levada_types::hash64(bytes);
        Digest::from_hex(Algorithm::Sha256, &format!("{hash:064x}")).unwrap()
    }

    fn file() -> Entry {
        Entry::File { size: 5, mode: 0o644, modified: (-1, 5), digest: hash(b"hello") }
    }

    /// A manifest with these lines, its last line right.
    fn parse(lines: &str) -> Result<Manifest, ManifestError> {
        let text = format!("{HEAD}\nroot t/\n{lines}");
        let count = lines.lines().count();
        let text = format!("{text}end {count} {}\n", hash(text.as_bytes()));
        Manifest::parse(&text, hash)
    }

    fn tree() -> Manifest {
        let mut tree = Manifest { root: "t/".to_owned(), ..Manifest::default() };
        tree.tar = Some(Archive { size: 9, digest: hash(b""), reference: "t.tar".to_owned() });
        tree.insert(b"a b".to_vec(), Entry::Directory { mode: 0o755 }).unwrap();
        tree.insert("a b/\u{e9}\n".as_bytes().to_vec(), file()).unwrap();
        tree.insert(b"z".to_vec(), Entry::Link { target: b"a b/x".to_vec() }).unwrap();
        tree
    }

    #[test]
    fn what_is_written_is_read() {
        let text = tree().write(hash);
        assert_eq!(Manifest::parse(&text, hash).unwrap(), tree());
        assert!(text.contains("file 5 644 -1.000000005 "), "{text}");
        assert!(text.contains(" a%20b/%C3%A9%0A\n"), "{text}");
    }

    #[test]
    fn a_manifest_that_was_cut_or_edited_is_refused() {
        let text = tree().write(hash);
        for end in 0..text.len() {
            assert!(Manifest::parse(&text[..end], hash).is_err(), "cut at {end}");
        }
        for (at, _) in text.char_indices() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            let Ok(other) = String::from_utf8(other) else { continue };
            assert!(Manifest::parse(&other, hash).is_err(), "edited at {at}");
        }
    }

    #[test]
    fn nothing_leads_out_of_the_tree() {
        for path in ["../a", "a/../b", "/a", "a//b", ".", "", "a/", "%00", "..", ".levada-sync/a"] {
            assert!(parse(&format!("dir 755 a\ndir 755 {path}\n")).is_err(), "{path}");
        }
        for (path, target) in [
            ("l", "../x"),
            ("l", "/etc"),
            ("d/l", "../../x"),
            // Through a link that leads up, this would leave.
            ("d/l", "x/../../.."),
            ("l", "d/.."),
            ("l", ""),
        ] {
            let lines = format!("dir 755 d\nlink {path} {target}\n");
            assert!(parse(&lines).is_err(), "{path} -> {target}");
        }
        assert!(parse("dir 755 d\nlink d/l ../x\n").is_ok());
        // Nothing is written through a link.
        assert!(parse("link d x\ndir 755 d/a\n").is_err());
        assert!(parse("dir 755 d/a\n").is_err());
    }

    #[test]
    fn what_is_odd_is_refused() {
        for line in [
            "dir 4755 a",
            "dir 9 a",
            "dir 755 a b",
            "dir 755 a%2fb",
            "dir 755 a%2",
            "fifo 755 a",
            "file 1 644 0.0 md5=00 a",
            "",
        ] {
            assert!(parse(&format!("{line}\n")).is_err(), "{line}");
        }
        assert!(parse("dir 755 b\ndir 755 a\n").is_err());
        assert!(parse("dir 755 a\ndir 755 a\n").is_err());
        assert_eq!(Manifest::parse("<html>", hash), Err(ManifestError::Foreign));
    }

    #[test]
    fn paths_that_differ_in_case_are_found() {
        let manifest = parse("dir 755 A\ndir 755 a\n").unwrap();
        assert_eq!(manifest.same_but_for_case(), Some((&b"A"[..], &b"a"[..])));
        assert_eq!(tree().same_but_for_case(), None);
    }

    proptest! {
        #[test]
        fn any_path_is_encoded_so_that_it_can_be_read(path in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decoded(&encoded(&path)), Some(path));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(levada-manifest 1\n)?(.|\n){0,200}") {
            let _ = Manifest::parse(&text, hash);
        }
    }
}
