//! `if` and `map`: conditions as the matchers of a route.

use std::collections::BTreeMap;

use super::parse::Directive;
use crate::{matchers::matchers, table::Table};

/// A `map` whose values are chosen by whole texts.
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
        let mut map =
            Self { source: directive.arg(0).trim_start_matches('$').to_owned(), ..Self::default() };
        for entry in directive.inner() {
            match entry.name.as_str() {
                "default" => map.default = entry.arg(0).to_owned(),
                "hostnames" | "volatile" => {}
                pattern => map.entries.push((pattern.to_owned(), entry.arg(0).to_owned())),
            }
        }
        map
    }

    /// The value, if there is only one.
    pub(super) fn only_value(&self) -> Option<&str> {
        self.entries.is_empty().then_some(self.default.as_str())
    }
}

/// The maps of a configuration, by the name of their variable.
pub(super) type Maps = BTreeMap<String, Map>;

/// The matchers of the routes that take the requests for which the condition holds; `value` is the value of
/// a `map`'s variable there.
pub(super) struct Case {
    pub(super) matchers: Table,
    pub(super) value: Option<String>,
}

/// Reads the arguments of `if`.
pub(super) fn cases(args: &[String], maps: &Maps) -> Result<Vec<Case>, String> {
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
    if let Some(map) = maps.get(variable) {
        return of_map(map, operator, value);
    }
    let matchers = matchers(variable, operator, value)?;
    Ok(vec![Case { matchers, value: None }])
}

/// A route for each entry of the map for which the condition holds.
fn of_map(map: &Map, operator: &str, wanted: &str) -> Result<Vec<Case>, String> {
    let holds = |value: &str| match operator {
        "" => Ok(!value.is_empty() && value != "0"),
        "=" => Ok(value == wanted),
        "!=" => Ok(value != wanted),
        _ => Err("a map's variable is only compared with whole texts".to_owned()),
    };
    if holds(&map.default)? {
        return Err(
            "the condition holds by the map's default: there is no matcher for the rest".to_owned()
        );
    }
    let mut cases = Vec::new();
    for (pattern, value) in &map.entries {
        if !holds(value)? {
            continue;
        }
        let (operator, text) = match pattern.strip_prefix("~*") {
            Some(regex) => ("~*", regex),
            None => pattern.strip_prefix('~').map_or(("=", pattern.as_str()), |regex| ("~", regex)),
        };
        let matchers = matchers(&map.source, operator, text.trim_start_matches('\\'))?;
        cases.push(Case { matchers, value: Some(value.clone()) });
    }
    Ok(cases)
}
