//! Conditions in one word, on a cookie, a field or an argument: `cookie.session`, `header.x-preview=1`,
//! `query.nocache=*`.

use http::{HeaderMap, HeaderName};

use crate::{PatternError, TextPattern, key_rules::cookie};

/// A condition on one value of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    of: SelectedValue,
    /// `None`: it is there.
    pattern: Option<TextPattern>,
}

#[derive(Clone, Debug, PartialEq)]
enum SelectedValue {
    Cookie(String),
    Header(HeaderName),
    Query(String),
}

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It does not say of what.
    #[error("`{0}` begins with neither `cookie.`, `header.` nor `query.`")]
    Kind(String),
    /// It has no name, or one that cannot be sent.
    #[error("`{0}` is no name of a cookie, a field or an argument")]
    Name(String),
    /// The pattern is too large.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl Selector {
    /// Reads `kind.name`, or `kind.name=pattern`.
    ///
    /// # Errors
    /// With the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let (what, pattern) = match text.split_once('=') {
            Some((what, pattern)) => (what, Some(TextPattern::parse(pattern, false)?)),
            None => (text, None),
        };
        let wrong = || SelectorError::Kind(text.to_owned());
        let (kind, name) = what.split_once('.').ok_or_else(wrong)?;
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && !b";,&\"".contains(&b))
        };
        let no_name = || SelectorError::Name(name.to_owned());
        if !is_name(name) {
            return Err(no_name());
        }
        let of = match kind {
            "cookie" => SelectedValue::Cookie(name.to_owned()),
            "header" => SelectedValue::Header(name.parse().map_err(|_| no_name())?),
            "query" => SelectedValue::Query(name.to_owned()),
            _ => return Err(wrong()),
        };
        Ok(Self { of, pattern })
    }

    /// Whether a request for `target`, a path and an optional query, meets the condition.
    pub fn holds(&self, target: &str, headers: &HeaderMap) -> bool {
        let fits = |value: &[u8]| self.pattern.as_ref().is_none_or(|one| one.matches(value));
        match &self.of {
            SelectedValue::Cookie(name) => cookie(headers, name).is_some_and(fits),
            SelectedValue::Header(name) => {
                headers.get_all(name).iter().any(|value| fits(value.as_bytes()))
            }
            SelectedValue::Query(name) => {
                let query = target.split_once('?').map_or("", |(_, query)| query);
                let arguments =
                    query.split('&').map(|one| one.split_once('=').unwrap_or((one, "")));
                arguments.into_iter().any(|(own, value)| own == name && fits(value.as_bytes()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_where_the_selector_says() {
        let fields = [("cookie", "a=1; session=x"), ("x-preview", "yes")];
        let headers: HeaderMap = fields
            .into_iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let holds =
            |text: &str| Selector::parse(text).unwrap().holds("/p?nocache=1&flag", &headers);
        for text in [
            "cookie.session",
            "cookie.a=1",
            "header.X-Preview",
            "header.x-preview=y*",
            "query.nocache",
            "query.nocache=1",
            "query.flag",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in ["cookie.b", "cookie.a=2", "header.x", "query.nocache=", "query.p"] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn texts_that_select_nothing_are_refused() {
        for text in ["", "session", "session=x", "body.a"] {
            assert!(matches!(Selector::parse(text), Err(SelectorError::Kind(_))), "{text}");
        }
        for text in ["cookie.", "header.a b", "query.a&b", "header.a:b"] {
            assert!(matches!(Selector::parse(text), Err(SelectorError::Name(_))), "{text}");
        }
    }
}
