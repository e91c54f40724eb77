//! Lists and maps that are files of their own.

use levada_conversion::files::{Includes, included};

/// As many entries of a file are read.
const MOST: usize = 10_000;

/// The lines of a list, without comments.
pub(crate) fn list(includes: &dyn Includes, path: &str) -> Result<Vec<String>, String> {
    if path.starts_with("opt@") || path.starts_with("virt@") {
        return Err(format!("{path}: the list is made while HAProxy runs"));
    }
    let path = path.strip_prefix("file@").unwrap_or(path);
    let files = included(includes, path, 0, 0).map_err(|reason| format!("{path}: {reason}"))?;
    let lines = files.iter().flat_map(|file| file.text.lines()).map(str::trim);
    let lines: Vec<_> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .take(MOST + 1)
        .collect();
    match lines.len() {
        0 => Err(format!("{path}: has no entries")),
        length if length > MOST => Err(format!("{path}: has more than {MOST} entries")),
        _ => Ok(lines),
    }
}

/// The pairs of a map.
pub(crate) fn map(includes: &dyn Includes, path: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |line: String| {
        let (key, value) = line.split_once(char::is_whitespace)?;
        Some((key.to_owned(), value.trim().to_owned()))
    };
    let lines = list(includes, path)?.into_iter();
    let pairs: Option<Vec<_>> = lines.map(pair).collect();
    pairs.ok_or_else(|| format!("{path}: a line has a key and a value"))
}
