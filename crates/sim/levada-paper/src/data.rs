//! Published numbers, as files of comma-separated values next to the code.

/// The lines of a file, each cut at its commas; comments, the line of headings and empty ones aside.
pub(super) fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.skip(1).map(|line| line.split(',').collect())
}

/// A number of such a line.
pub(super) fn number(field: &str) -> Option<f64> {
    field.parse().ok()
}
