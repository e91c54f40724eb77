//! The cache-related fields of a request, found in one pass.
//!
//! Most requests have none of these fields. Looking each field up would cost more than the
//! decision; one pass that compares lengths first finds which fields are present.

use crate::RequestDirectives;
use http::HeaderMap;

/// The cache directives of a request, and which other cache-related fields it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCacheFields {
    /// The directives of `Cache-Control` or `Pragma`.
    pub directives: RequestDirectives,
    /// Whether the request has a condition. Without one, [`crate::Validators::evaluate`] returns
    /// [`crate::Condition::Send`] and need not be called.
    pub conditional: bool,
    /// Whether the request has a `Range`. Without one, [`crate::RangeSet::of`] returns `None`.
    pub range: bool,
}

impl RequestCacheFields {
    /// Reads the fields of a request.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut asked = Self::default();
        let mut directives = false;
        for name in headers.keys() {
            let name = name.as_str();
            // Names are in lower case, so comparing bytes is enough.
            match name.len() {
                5 => asked.range |= name == "range",
                6 => directives |= name == "pragma",
                8 => asked.conditional |= name == "if-match",
                13 if name == "if-none-match" => asked.conditional = true,
                13 => directives |= name == "cache-control",
                17 => asked.conditional |= name == "if-modified-since",
                19 => asked.conditional |= name == "if-unmodified-since",
                _ => {}
            }
        }
        if directives {
            asked.directives = RequestDirectives::of(headers);
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, RangeSet, Validators, testing::headers};
    use std::time::SystemTime;

    #[test]
    fn walk_finds_what_lookups_find() {
        let fields = [
            ("range", "bytes=0-1"),
            ("pragma", "no-cache"),
            ("if-match", "*"),
            ("if-none-match", "*"),
            ("cache-control", "max-age=0"),
            ("if-modified-since", "Fri, 15 Jan 2100 08:00:00 GMT"),
            ("if-unmodified-since", "Fri, 15 Jan 2100 08:00:00 GMT"),
            ("host", "a"),
            ("accept-charset", "x"),
        ];
        let validators = Validators::of(&HeaderMap::new(), SystemTime::UNIX_EPOCH);
        for field in fields {
            let request = headers(&[("accept", "*/*"), field]);
            let asked = RequestCacheFields::of(&request);
            assert_eq!(asked.directives, RequestDirectives::of(&request), "{field:?}");
            assert_eq!(asked.range, RangeSet::of(&request).is_some(), "{field:?}");
            let sent = validators.evaluate(&request) == Condition::Send;
            assert_eq!(asked.conditional, !sent, "{field:?}");
        }
    }
}
