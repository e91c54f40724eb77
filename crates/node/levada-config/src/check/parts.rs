//! Many checks look at each part of a list, or at a part that may be absent.

use levada_types::document::Path;

use super::Check;

/// Why a text is not valid, and the remedy where there is one.
pub(super) type Wrong = (String, Option<String>);

/// All parts, if each is good. Each is looked at, so that all problems are reported.
pub(super) fn each<T, U>(
    parts: impl IntoIterator<Item = T>,
    check: impl FnMut(T) -> Option<U>,
) -> Option<Vec<U>> {
    parts.into_iter().map(check).collect::<Vec<_>>().into_iter().collect()
}

/// The outer `None` marks an error, the inner an absent part.
pub(super) fn maybe<T, U>(
    part: Option<T>,
    check: impl FnOnce(T) -> Option<U>,
) -> Option<Option<U>> {
    part.map_or(Some(None), |part| check(part).map(Some))
}

/// The parts of a list with their places; `alone`: of one that may stand without brackets.
pub(super) fn placed<'a, T>(
    list: &'a [T],
    path: &Path,
    alone: bool,
) -> impl Iterator<Item = (Path, &'a T)> {
    let place = move |at| if alone { path.clone() } else { path.index(at) };
    list.iter().enumerate().map(move |(at, part)| (place(at), part)).collect::<Vec<_>>().into_iter()
}

impl Check<'_, '_> {
    /// Reads each text of a list.
    pub(super) fn read_each<T>(
        &mut self,
        texts: &[String],
        path: &Path,
        read: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Option<Vec<T>> {
        each(texts.iter().enumerate(), |(at, text)| match read(text) {
            Ok(value) => Some(value),
            Err((message, help)) => self.error(&path.index(at), message).maybe_help(help).none(),
        })
    }
}
