//! Variables of the operator: a text with variables, and the value that a table or shares of requests give for it.
//!
//! ```text
//! from: "{host}" ──► exact values ──► patterns, the longest first ──► expressions in order ──► default
//!                └─► the part of the hash that it falls into (A/B tests)
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use levada_types::hash64;

use crate::{NamedTexts, PathRegex, RequestFacts, RequestText, Template, TextPattern};

/// The most mappings that one may lead to, itself included: each use of one costs its evaluation.
pub const MOST_MAPPINGS: usize = 64;

/// A variable of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The text that decides.
    pub from: Template,
    /// The values.
    pub values: MappedValues,
    /// The value of all other texts.
    pub default: Template,
}

/// The values of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub enum MappedValues {
    /// By the text.
    Table(ValueTable),
    /// By the hash of the text: the end of each part, in the order of their names, and its value.
    Parts(Vec<(u64, Template)>),
}

/// Values by text. Upper and lower case are the same in texts and patterns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueTable {
    exact: HashMap<String, Template>,
    /// The longest first.
    patterns: Vec<(TextPattern, Template)>,
    regexes: Vec<(PathRegex, Template)>,
}

/// The mappings that texts and expressions can name.
pub type Mappings = BTreeMap<String, Arc<Mapping>>;

impl Mapping {
    /// The text that stands for the variable.
    pub fn value(&self, facts: &RequestFacts<'_>) -> String {
        self.choose(facts).text(facts)
    }

    /// The value for a request.
    pub(crate) fn choose(&self, facts: &RequestFacts<'_>) -> &Template {
        let text = self.from.text(facts);
        let found = match &self.values {
            MappedValues::Table(table) => table.find(&text),
            MappedValues::Parts(parts) => {
                let place = hash64(text.as_bytes());
                parts.iter().find(|(end, _)| place < *end).map(|(_, value)| value)
            }
        };
        found.unwrap_or(&self.default)
    }

    /// The mappings that its evaluation may evaluate, itself included.
    pub fn weight(&self) -> usize {
        let values: Box<dyn Iterator<Item = &Template>> = match &self.values {
            MappedValues::Table(table) => Box::new(table.values()),
            MappedValues::Parts(parts) => Box::new(parts.iter().map(|(_, value)| value)),
        };
        let weight = |template: &Template| template.mappings().map(|one| one.weight()).sum();
        let heaviest = values.chain([&self.default]).map(weight).max();
        1 + weight(&self.from) + heaviest.unwrap_or(0)
    }
}

impl RequestText for Mapping {
    fn text(&self, facts: &RequestFacts<'_>) -> String {
        self.value(facts)
    }

    fn weight(&self) -> usize {
        self.weight()
    }
}

impl NamedTexts for Mappings {
    fn named(&self, name: &str) -> Option<Arc<dyn RequestText>> {
        let mapping = self.get(name)?.clone();
        Some(mapping)
    }
}

impl MappedValues {
    /// The values of parts in hundredths of a percent, the rest of which is the default's.
    pub fn parts(shares: impl IntoIterator<Item = (u32, Template)>) -> Self {
        let mut sum = 0;
        let parts = shares.into_iter().map(|(share, value)| {
            sum += u128::from(share);
            let end = u128::from(u64::MAX) * sum / 10_000;
            (u64::try_from(end).unwrap_or(u64::MAX), value)
        });
        Self::Parts(parts.collect())
    }
}

impl ValueTable {
    /// The table of these values.
    pub fn new(
        plain: impl IntoIterator<Item = (TextPattern, Template)>,
        regexes: Vec<(PathRegex, Template)>,
    ) -> Self {
        let (exact, mut patterns): (Vec<_>, Vec<_>) =
            plain.into_iter().partition(|(pattern, _)| !pattern.as_str().contains('*'));
        patterns.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.as_str().len()));
        let exact = exact.into_iter().map(|(text, value)| (text.as_str().to_owned(), value));
        Self { exact: exact.collect(), patterns, regexes }
    }

    fn find(&self, text: &str) -> Option<&Template> {
        let lower = || self.exact.get(&text.to_ascii_lowercase());
        let by_pattern = || {
            let found = self.patterns.iter().find(|(own, _)| own.matches(text.as_bytes()));
            found.map(|(_, value)| value)
        };
        let by_regex = || self.regexes.iter().find(|(own, _)| own.matches(text)).map(|(_, v)| v);
        self.exact.get(text).or_else(lower).or_else(by_pattern).or_else(by_regex)
    }

    fn values(&self) -> impl Iterator<Item = &Template> {
        let exact = self.exact.values();
        let patterns = self.patterns.iter().map(|(_, value)| value);
        exact.chain(patterns).chain(self.regexes.iter().map(|(_, value)| value))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;
    use crate::{Conditions, Scheme, TemplateKind, TemplateScope};

    fn template(text: &str, mappings: &Mappings) -> Template {
        let (route, kind) = (Conditions::default(), TemplateKind::Url);
        let scope = TemplateScope { route: &route, kind, countries: None, mappings };
        Template::parse(text, &scope).unwrap()
    }

    fn with<T>(host: &str, then: impl FnOnce(&RequestFacts<'_>) -> T) -> T {
        let (client, none) = ("192.0.2.1".parse().unwrap(), HeaderMap::new());
        then(&RequestFacts::new(client, (Scheme::Http, host), (&Method::GET, "/a?x=1&y"), &none))
    }

    fn mapping(values: MappedValues) -> Mapping {
        let none = Mappings::new();
        Mapping { from: template("{host}", &none), values, default: template("{path}", &none) }
    }

    #[test]
    fn exact_texts_come_before_patterns_and_these_before_expressions() {
        let none = Mappings::new();
        let value = |text: &str| template(text, &none);
        let plain = [("a.test", "exact"), ("*.test", "short"), ("*.b.test", "long")];
        let plain = plain.map(|(text, to)| (TextPattern::parse(text, true).unwrap(), value(to)));
        let regexes = [("^a", "first"), ("", "last")];
        let regexes = regexes.map(|(text, to)| (PathRegex::parse(text).unwrap(), value(to)));
        let of = mapping(MappedValues::Table(ValueTable::new(plain, regexes.to_vec())));
        for (host, expected) in [
            ("a.test", "exact"),
            ("A.TEST", "exact"),
            ("x.b.test", "long"),
            ("x.test", "short"),
            ("a.com", "first"),
            ("b.com", "last"),
        ] {
            assert_eq!(with(host, |facts| of.value(facts)), expected, "{host}");
        }
        let none = mapping(MappedValues::Table(ValueTable::default()));
        assert_eq!(with("a", |facts| none.value(facts)), "/a");
    }

    #[test]
    fn parts_get_their_share_and_a_text_keeps_its_part() {
        let none = Mappings::new();
        let shares = [(1_000, template("a", &none)), (2_550, template("b", &none))];
        let of = mapping(MappedValues::parts(shares));
        let mut counts = BTreeMap::new();
        for number in 0..20_000 {
            let value = |host: &str| with(host, |facts| of.value(facts));
            let host = format!("h{number}");
            assert_eq!(value(&host), value(&host));
            *counts.entry(value(&host)).or_insert(0) += 1;
        }
        for (value, share) in [("a", 0.1), ("b", 0.255), ("/a", 0.645)] {
            let got = f64::from(counts[value]) / 20_000.0;
            assert!((got - share).abs() < 0.02, "{value}: {got}");
        }
    }

    #[test]
    fn one_mapping_can_lead_to_another_and_weighs_for_both() {
        let inner = mapping(MappedValues::parts([]));
        let mappings = Mappings::from([("inner".to_owned(), Arc::new(inner))]);
        let from = template("{vars.inner}{vars.inner}", &mappings);
        let outer = Mapping { from, ..mapping(MappedValues::parts([])) };
        assert_eq!(outer.weight(), 3);
    }
}
