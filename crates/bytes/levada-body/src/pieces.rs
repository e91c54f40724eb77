//! Large files and their pieces, as heads of responses describe them.
//!
//! A piece is an object of its own. The origin's 206 to the request for its bytes becomes a 200 (WORLDS'04, Sec. 3).

use std::time::SystemTime;

use http::{HeaderMap, HeaderValue, StatusCode, header, response::Parts};
use levada_cache::{ContentRange, Validators};
use levada_fetch::ChunkUrl;
use levada_types::{Key, hash64};
use parking_lot::RwLock;

use crate::part::content_length;

/// The number of a file's version; `None` if versions cannot be distinguished.
///
/// It is made of a strong entity tag. Without one, it is made of `Last-Modified` and the length: two
/// versions of one length made within one second then count as one. A weak entity tag does not promise
/// equal bytes, so it is only used in addition.
pub fn version_of(headers: &HeaderMap, validators: &Validators, length: u64) -> Option<u64> {
    let field = |name| headers.get(name).map(HeaderValue::as_bytes);
    let text = match validators.etag() {
        Some(tag) if !tag.weak => [b"strong ", tag.opaque].concat(),
        weak => {
            let modified = field(header::LAST_MODIFIED)?;
            let tag = weak.map_or(&b""[..], |tag| tag.opaque);
            [b"modified ", modified, b" ", tag].concat()
        }
    };
    Some(levada_types::weigh(Key(hash64(&text)), length))
}

/// A large file, as described by its head.
#[derive(Clone, Debug)]
pub struct LargeFile {
    /// Its length in bytes.
    pub length: u64,
    /// The number of its version.
    pub version: u64,
    /// Its validators.
    pub validators: Validators,
    /// The `If-Range` of requests to the origin (RFC 9110 Sec. 13.1.5).
    pub if_range: Option<HeaderValue>,
    /// The origin announces that it supports ranges.
    pub offers_ranges: bool,
}

impl LargeFile {
    /// The file of this length with this head; `None` if its versions cannot be distinguished.
    pub fn of(headers: &HeaderMap, length: u64) -> Option<Self> {
        let validators = Validators::of(headers, SystemTime::now());
        let strong = validators.is_strong();
        let validator = headers.get(header::ETAG).or_else(|| headers.get(header::LAST_MODIFIED));
        Some(Self {
            length,
            version: version_of(headers, &validators, length)?,
            if_range: validator.filter(|_| strong).cloned(),
            offers_ranges: headers.get(header::ACCEPT_RANGES).is_some_and(|units| units == "bytes"),
            validators,
        })
    }
}

/// Why an answer is not the piece that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceFault {
    /// The file is of another version, or gone.
    Changed,
    /// The server does not send pieces of it.
    None,
    /// The server answered with an error.
    Error(StatusCode),
    /// The node is full.
    Full,
    /// The answer is something else.
    Bad,
}

/// Whether the answer of a node is the piece. `told` is what it says of the piece: its version, or why there is none.
///
/// # Errors
/// When it is not.
pub fn judge_piece(
    url: &ChunkUrl,
    head: &Parts,
    told: Option<&HeaderValue>,
) -> Result<(), PieceFault> {
    let version = format!("{:016x}", url.version);
    match (head.status, told.map(HeaderValue::as_bytes)) {
        (_, Some(b"changed")) => Err(PieceFault::Changed),
        (_, Some(b"none")) => Err(PieceFault::None),
        (StatusCode::OK, Some(told)) if told == version.as_bytes() => {
            let is_whole = content_length(&head.headers) == Some(length(url));
            if is_whole { Ok(()) } else { Err(PieceFault::Bad) }
        }
        (StatusCode::SERVICE_UNAVAILABLE, _) => Err(PieceFault::Full),
        _ => Err(PieceFault::Bad),
    }
}

/// Converts the origin's answer to a request for a piece into the answer for an object. It must be a
/// 206 with exactly the requested bytes, of the requested version. Returns the text of the version.
///
/// # Errors
/// When it is something else.
pub fn piece_as_object(head: &mut Parts, url: &ChunkUrl) -> Result<String, PieceFault> {
    let headers = &mut head.headers;
    let part = ContentRange::of_part(headers);
    let whole = match (head.status, &part) {
        (StatusCode::PARTIAL_CONTENT, Some(part)) => part.length,
        (StatusCode::OK, _) => content_length(headers),
        (StatusCode::PARTIAL_CONTENT, None) => return Err(PieceFault::None),
        // A file that is gone, or is shorter, has changed.
        (status, _) if status.is_client_error() => return Err(PieceFault::Changed),
        (status, _) => return Err(PieceFault::Error(status)),
    };
    let validators = Validators::of(headers, SystemTime::now());
    let version = whole.and_then(|whole| version_of(headers, &validators, whole));
    if version != Some(url.version) {
        return Err(PieceFault::Changed);
    }
    if part.and_then(|part| part.range).as_ref() != Some(&url.range)
        || content_length(headers).is_some_and(|told| told != length(url))
    {
        return Err(PieceFault::None);
    }
    head.status = StatusCode::OK;
    headers.remove(header::CONTENT_RANGE);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length(url)));
    Ok(format!("{:016x}", url.version))
}

fn length(url: &ChunkUrl) -> u64 {
    url.range.end - url.range.start
}

/// Versions of recently served files, in a table of bounded size.
pub struct KnownFiles {
    slots: RwLock<Box<[(Key, Piecewise)]>>,
}

/// The facts that the places of a file's pieces follow from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piecewise {
    /// Its length in bytes.
    pub length: u64,
    /// The hash of its version.
    pub version: u64,
}

const SLOTS: usize = 1 << 10;

impl Default for KnownFiles {
    fn default() -> Self {
        Self { slots: RwLock::new(vec![(Key(0), Piecewise::default()); SLOTS].into()) }
    }
}

impl KnownFiles {
    /// Takes in what is known of the file with this key.
    pub fn remember(&self, key: Key, file: &LargeFile) {
        let known = Piecewise { length: file.length, version: file.version };
        let slot = key.0 as usize % SLOTS;
        if self.slots.read()[slot] != (key, known) {
            self.slots.write()[slot] = (key, known);
        }
    }

    /// The facts of the file with this key, if they are known.
    pub fn get(&self, key: Key) -> Option<Piecewise> {
        let (owner, known) = self.slots.read()[key.0 as usize % SLOTS];
        (owner == key && known.length > 0).then_some(known)
    }
}
