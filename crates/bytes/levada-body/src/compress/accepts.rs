//! The codings that a client accepts (RFC 9110 Sec. 12.5.3).

use http::{HeaderMap, HeaderName, HeaderValue, header::ACCEPT_ENCODING};

use crate::compress::coding::Coding;

/// The most members that are read. Real clients send six at most.
const MAX_MEMBERS: usize = 32;

/// The codings that a client gets, in order; none if it gets the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Accepts {
    codings: [Option<Coding>; Coding::ALL.len()],
    /// The client excludes the original.
    pub refuses_identity: bool,
    /// Codings with a dictionary that it has. An origin may use them; a node makes none.
    with_dictionary: [bool; DICTIONARY_CODINGS.len()],
}

/// The codings of RFC 9842.
const DICTIONARY_CODINGS: [&str; 2] = ["dcz", "dcb"];

/// The hash of the dictionary that the client has for this URL.
const AVAILABLE_DICTIONARY: HeaderName = HeaderName::from_static("available-dictionary");

/// Weights in thousandths, as far as they are stated.
#[derive(Default)]
struct Weights {
    codings: [Option<u16>; Coding::ALL.len()],
    with_dictionary: [Option<u16>; DICTIONARY_CODINGS.len()],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Accepts {
    /// The codings among `offered` that the client accepts: the highest weight first, then in the order of
    /// `offered`.
    pub fn of(request: &HeaderMap, offered: &[Coding]) -> Self {
        let weights = Weights::of(request);
        let identity = weights.identity.or(weights.any.filter(|weight| *weight == 0));
        let weight = |coding: Coding| weights.codings[coding.index()].or(weights.any).unwrap_or(0);
        // A client that states no weight for the original takes it if there is nothing else.
        let least = weights.identity.unwrap_or(0).max(1);
        let mut accepted: Vec<Coding> =
            offered.iter().copied().filter(|coding| weight(*coding) >= least).collect();
        accepted.sort_by_key(|coding| std::cmp::Reverse(weight(*coding)));
        accepted.dedup();
        let has_dictionary = request.contains_key(AVAILABLE_DICTIONARY);
        let usable =
            |weight: Option<u16>| has_dictionary && weight.is_some_and(|weight| weight > 0);
        let mut accepts = Self {
            codings: Default::default(),
            refuses_identity: identity == Some(0),
            with_dictionary: weights.with_dictionary.map(usable),
        };
        for (place, coding) in accepts.codings.iter_mut().zip(accepted) {
            *place = Some(coding);
        }
        accepts
    }

    /// Whether the client gets nothing but the original.
    pub fn is_empty(&self) -> bool {
        self.codings[0].is_none()
    }

    /// The codings, the best first.
    pub fn codings(&self) -> impl Iterator<Item = Coding> {
        self.codings.into_iter().flatten()
    }

    /// The field that states just these codings: one text for each set of them, so that clients that
    /// accept the same share an origin's variants.
    pub fn as_value(&self) -> HeaderValue {
        let with_dictionary = DICTIONARY_CODINGS.iter().zip(self.with_dictionary);
        let with_dictionary = with_dictionary.filter_map(|(name, usable)| usable.then_some(*name));
        let own = Coding::ALL.into_iter().filter(|coding| self.codings().any(|own| own == *coding));
        let names: Vec<&str> = with_dictionary.chain(own.map(Coding::as_str)).collect();
        let text = if names.is_empty() { "identity".to_owned() } else { names.join(", ") };
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("identity"))
    }
}

impl Weights {
    fn of(request: &HeaderMap) -> Self {
        let mut weights = Self::default();
        let lines = request.get_all(ACCEPT_ENCODING).iter();
        let members = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
        for member in members.take(MAX_MEMBERS) {
            let (token, weight) = match member.iter().position(|&byte| byte == b';') {
                None => (member.trim_ascii(), Some(1000)),
                Some(at) => (member[..at].trim_ascii(), quality(member[at + 1..].trim_ascii())),
            };
            let Some(weight) = weight else { continue };
            let place = match token {
                b"*" => &mut weights.any,
                _ if token.eq_ignore_ascii_case(b"identity") => &mut weights.identity,
                _ => match (Coding::of(token), dictionary_coding(token)) {
                    (Some(coding), _) => &mut weights.codings[coding.index()],
                    (None, Some(index)) => &mut weights.with_dictionary[index],
                    (None, None) => continue,
                },
            };
            place.get_or_insert(weight);
        }
        weights
    }
}

/// The place of a coding with this token in [`DICTIONARY_CODINGS`].
fn dictionary_coding(token: &[u8]) -> Option<usize> {
    DICTIONARY_CODINGS.iter().position(|name| token.eq_ignore_ascii_case(name.as_bytes()))
}

/// A weight in thousandths; `None` if it is not well formed (RFC 9110 Sec. 12.4.2).
fn quality(text: &[u8]) -> Option<u16> {
    let (name, number) = text.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let (whole, rest) = number.split_first()?;
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths = digits.iter().chain(b"000").take(3);
    let fraction = thousandths.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match whole {
        b'0' => Some(fraction),
        b'1' if fraction == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accepts(lines: &[&str]) -> Accepts {
        let value = |line: &&str| (ACCEPT_ENCODING, HeaderValue::from_str(line).unwrap());
        Accepts::of(&lines.iter().map(value).collect(), &Coding::ALL)
    }

    fn names(lines: &[&str]) -> Vec<&'static str> {
        accepts(lines).codings().map(Coding::as_str).collect()
    }

    #[test]
    fn highest_weight_comes_first_and_then_the_configured_order() {
        assert_eq!(names(&["gzip, deflate, br, zstd"]), ["zstd", "br", "gzip"]);
        assert_eq!(names(&["gzip;q=1.0, br;q=0.5, zstd;q=0.501"]), ["gzip", "zstd", "br"]);
        assert_eq!(names(&["GZIP;Q=0.3", "x-gzip, Br"]), ["br", "gzip"]);
        assert_eq!(names(&["*"]), ["zstd", "br", "gzip"]);
        assert_eq!(names(&["*;q=0.2, br;q=0, gzip"]), ["gzip", "zstd"]);
    }

    #[test]
    fn client_that_wants_the_original_gets_it() {
        for line in ["", "identity", "deflate", "gzip;q=0", "*;q=0", "identity, gzip;q=0.5"] {
            assert!(accepts(&[line]).is_empty(), "{line}");
        }
        assert!(accepts(&[]).is_empty());
        assert_eq!(names(&["identity;q=0.5, gzip;q=0.5"]), ["gzip"]);
    }

    #[test]
    fn original_is_refused_by_name_or_by_star() {
        assert!(accepts(&["gzip, identity;q=0"]).refuses_identity);
        assert!(accepts(&["gzip, *;q=0"]).refuses_identity);
        assert!(!accepts(&["gzip, *;q=0, identity;q=0.1"]).refuses_identity);
        assert!(!accepts(&["gzip"]).refuses_identity);
    }

    #[test]
    fn weight_that_is_not_well_formed_skips_its_member() {
        for line in
            ["gzip;q=2", "gzip;q=0.1234", "gzip;q=", "gzip;p=1", "gzip;q=1.001", "gzip;q=.5"]
        {
            assert!(accepts(&[line]).is_empty(), "{line}");
        }
        assert_eq!(names(&["gzip;q=x, br"]), ["br"]);
    }

    #[test]
    fn clients_that_accept_the_same_state_the_same() {
        for line in ["gzip, br", "br;q=0.9,gzip;q=0.1", "br, gzip, deflate", "x-gzip , BR"] {
            assert_eq!(accepts(&[line]).as_value(), "br, gzip", "{line}");
        }
        assert_eq!(accepts(&["identity"]).as_value(), "identity");
    }

    #[test]
    fn codings_with_a_dictionary_are_stated_if_the_client_has_one() {
        let field = |name: HeaderName, value| (name, HeaderValue::from_static(value));
        let codings = field(ACCEPT_ENCODING, "gzip, br, DCB, dcz;q=0.1, zstd;q=0");
        let without: HeaderMap = [codings.clone()].into_iter().collect();
        assert_eq!(Accepts::of(&without, &Coding::ALL).as_value(), "br, gzip");
        let dictionary = field(AVAILABLE_DICTIONARY, ":AAAA:");
        let with: HeaderMap = [codings, dictionary.clone()].into_iter().collect();
        assert_eq!(Accepts::of(&with, &Coding::ALL).as_value(), "dcz, dcb, br, gzip");
        let refused = field(ACCEPT_ENCODING, "*, dcz;q=0");
        let refused: HeaderMap = [refused, dictionary].into_iter().collect();
        assert_eq!(Accepts::of(&refused, &Coding::ALL).as_value(), "zstd, br, gzip");
    }

    proptest! {
        #[test]
        fn no_field_panics(lines in prop::collection::vec("[ -~\t]{0,40}", 0..4)) {
            let value = |line: &String| (ACCEPT_ENCODING, HeaderValue::from_str(line).unwrap());
            Accepts::of(&lines.iter().map(value).collect(), &Coding::ALL).as_value();
        }
    }
}
