//! `if`, `map` and `geo`: conditions as the matchers of a route.

use std::collections::{BTreeMap, BTreeSet};

use super::parse::Directive;
use crate::{ledger::Stated as _, matchers::Condition};

/// Blocks that give a variable its values.
pub(super) const MAPS: [&str; 2] = ["map", "geo"];

/// A `map` or a `geo` whose values are chosen by whole texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    /// The variable that it looks at, without `$`.
    pub(super) source: String,
    /// Patterns and values, in order.
    pub(super) entries: Vec<(String, String)>,
    pub(super) default: String,
}

impl Map {
    pub(super) fn read(directive: &Directive) -> Self {
        let source = match (directive.name.as_str(), directive.args.len()) {
            ("geo", 0..=1) => "$remote_addr",
            _ => directive.arg(0),
        };
        let source = source.trim_start_matches('$').to_owned();
        let mut map = Self { source, ..Self::default() };
        for entry in directive.inner() {
            match entry.name.as_str() {
                "default" => map.default = entry.arg(0).to_owned(),
                "hostnames" | "volatile" => {}
                pattern => map.entries.push((pattern.to_owned(), entry.arg(0).to_owned())),
            }
        }
        map
    }

    /// The name of the variable that a directive gives values to.
    pub(super) fn name(directive: &Directive) -> String {
        directive.args.last().map_or("", |name| name.trim_start_matches('$')).to_owned()
    }

    /// The requests that an entry is for.
    fn condition(&self, pattern: &str) -> Result<Condition, String> {
        let (operator, text) = match pattern.strip_prefix("~*") {
            Some(regex) => ("~*", regex),
            None => pattern.strip_prefix('~').map_or(("=", pattern), |regex| ("~", regex)),
        };
        Condition::comparison(&self.source, operator, text.trim_start_matches('\\'))
    }

    /// Whether a pattern can be used. Of networks in each other, the longest one counts: no two may have other values.
    fn names(&self, pattern: &str) -> bool {
        if self.source != "remote_addr" || pattern.starts_with('~') {
            return true;
        }
        let own = network(pattern);
        let value = self.entries.iter().find(|(other, _)| other == pattern).map(|(_, value)| value);
        let clashes = |(other, with): &(String, String)| {
            let (Some((one, bits)), Some((two, other_bits))) = (own, network(other)) else {
                return false;
            };
            let least = bits.min(other_bits);
            let shift = 128 - least.min(128);
            let same = shift >= 128 || one >> shift == two >> shift;
            same && Some(with) != value
        };
        own.is_some() && !self.entries.iter().any(clashes)
    }

    /// The value, if there is only one.
    pub(super) fn only_value(&self) -> Option<&str> {
        self.entries.is_empty().then_some(self.default.as_str())
    }
}

/// The bits of a network, from the left, and their number.
fn network(text: &str) -> Option<(u128, u32)> {
    let (address, bits) =
        text.split_once('/').map_or((text, None), |(one, bits)| (one, Some(bits)));
    let address: std::net::IpAddr = address.parse().ok()?;
    let (number, offset) = match address {
        std::net::IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), 96),
        std::net::IpAddr::V6(address) => (address.to_bits(), 0),
    };
    let bits = bits.map_or(Some(128 - offset), |bits| bits.parse().ok())?;
    Some((number, offset + bits))
}

/// The maps of a configuration, by the name of their variable.
pub(super) type Maps = BTreeMap<String, Map>;

/// The requests for which a condition holds; `value` is the value of a `map`'s variable there.
pub(super) struct Case {
    pub(super) condition: Condition,
    pub(super) value: Option<String>,
}

/// Variables that `set` gives a value within `if`, with the requests for which they have one.
pub(super) type Flags = BTreeMap<String, Vec<Condition>>;

/// Reads the arguments of `if`.
pub(super) fn cases(
    args: &[String],
    maps: &Maps,
    flags: &Flags,
    unknown: &BTreeSet<String>,
) -> Result<Vec<Case>, String> {
    let text = args.join(" ");
    let inner = text.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.ok_or("the condition has no parentheses")?.trim();
    let mut words = inner.splitn(3, char::is_whitespace).map(str::trim);
    let variable = words.next().unwrap_or_default();
    let (operator, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let Some(variable) = variable.strip_prefix('$') else {
        return Err("files are not looked for in conditions".to_owned());
    };
    let value = value.trim_matches(['"', '\'']);
    if unknown.contains(variable) {
        return Err("the requests that the variable is set for are not known".to_owned());
    }
    if let Some(map) = maps.get(variable) {
        return of_map(map, operator, value);
    }
    if let Some(flag) = flags.get(variable) {
        let holds = match (operator, value) {
            ("", _) | ("=", "1") => Condition::any(flag),
            ("=", "0") => Condition::any(flag).and_then(|one| one.negated()),
            _ => None,
        };
        let condition =
            holds.ok_or("the requests that the variable is set for cannot be listed")?;
        return Ok(vec![Case { condition, value: None }]);
    }
    let condition = Condition::comparison(variable, operator, value)?;
    Ok(vec![Case { condition, value: None }])
}

/// A route for each entry of the map for which the condition holds, and one for all others if it holds by the
/// default.
fn of_map(map: &Map, operator: &str, wanted: &str) -> Result<Vec<Case>, String> {
    let holds = |value: &str| match operator {
        "" => Ok(!value.is_empty() && value != "0"),
        "=" => Ok(value == wanted),
        "!=" => Ok(value != wanted),
        _ => Err("a map's variable is only compared with whole texts".to_owned()),
    };
    let values = || map.entries.iter().map(|(_, value)| value).chain([&map.default]);
    let is_unknown = |pattern: &str| pattern == "include" || !map.names(pattern);
    if values().any(|value| value.contains('$')) || map.entries.iter().any(|one| is_unknown(&one.0))
    {
        return Err("the map has entries, or values, that are not known here".to_owned());
    }
    let mut cases = Vec::new();
    for (pattern, value) in &map.entries {
        if holds(value)? {
            cases.push(Case { condition: map.condition(pattern)?, value: Some(value.clone()) });
        }
    }
    if holds(&map.default)? {
        let listed: Result<Vec<_>, _> =
            map.entries.iter().map(|(pattern, _)| map.condition(pattern)).collect();
        let others = Condition::any(&listed?).and_then(|one| one.negated());
        let condition = others.ok_or("the condition holds by the map's default")?;
        cases.push(Case { condition, value: Some(map.default.clone()) });
    }
    Ok(cases)
}

/// The requests for which a variable is neither empty nor 0.
pub(super) fn selected(
    variable: &str,
    maps: &Maps,
    flags: &Flags,
) -> Result<Option<Condition>, String> {
    let conditions: Vec<_> = cases(&[format!("(${variable})")], maps, flags, &BTreeSet::new())?
        .into_iter()
        .map(|case| case.condition)
        .collect();
    match conditions.as_slice() {
        [] => Ok(None),
        several => Condition::any(several)
            .map(Some)
            .ok_or_else(|| format!("requests are not selected by `${variable}`")),
    }
}
