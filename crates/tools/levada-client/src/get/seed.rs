//! Bytes of a file that are known from elsewhere: a transfer then fetches the others.

use super::{
    GetRequest,
    target::{Target, TargetError},
};

/// Writes `parts`, each with its offset, into the incomplete file of `request`, next to what an earlier
/// run has fetched. The file has `length` bytes. The digest of the request decides in the end whether the
/// parts were right; if not, the transfer starts again without them. Returns the number of gaps.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn seed(
    request: &GetRequest,
    length: u64,
    parts: impl Iterator<Item = (u64, Vec<u8>)>,
) -> Result<usize, TargetError> {
    let url = request.url.to_string();
    let (mut target, mut known) = Target::open(&request.path, &url, false, false)?;
    for (at, bytes) in parts {
        let end = at + bytes.len() as u64;
        if known.held.around(at).is_none_or(|held| held.end < end) {
            target.write(at, &bytes)?;
            known.held.insert(at..end);
        }
    }
    known.total = Some(length);
    target.save(&known)?;
    Ok(known.held.gaps(length).len())
}
