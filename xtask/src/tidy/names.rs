//! Two types of one name in a crate are a question to every reader: which one is meant?

use std::collections::BTreeMap;

use super::allowance::Limit;
use crate::source::{Source, Token};

/// The share is held down in the node and the crates that were split from it.
const HELD: &[&str] = &[
    "levada-access",
    "levada-body",
    "levada-cluster",
    "levada-control",
    "levada-edge",
    "levada-http",
    "levada-http3",
    "levada-lab",
    "levada-node",
    "levada-redirector",
    "levada-store",
    "levada-testbed",
    "levada-upstream",
];

const LIMIT: Limit = Limit {
    figure: "the share of its types whose name another type has too, in percent,",
    most: 10.0,
    allowances: &[],
};

/// Where each name is defined, by crate and name.
type Names<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<String>>>;

/// A line for each crate in which too many types share a name.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, types) in names(sources).iter().filter(|(name, _)| HELD.contains(name)) {
        let Some(line) = LIMIT.check(name, percent(types)) else { continue };
        let shared = types.iter().filter(|(_, places)| places.len() > 1);
        let list: Vec<_> =
            shared.map(|(name, places)| format!("{name} {}", places.len())).collect();
        wrong.push(format!("{line} ({})", list.join(", ")));
    }
    wrong
}

/// The share of the types of each crate whose name another type of it has too, in percent.
pub(super) fn shares(sources: &[Source]) -> BTreeMap<&str, f64> {
    names(sources).into_iter().map(|(name, types)| (name, percent(&types))).collect()
}

fn names(sources: &[Source]) -> Names<'_> {
    let mut names = Names::new();
    for source in sources.iter().filter(|source| source.is_shipped()) {
        let types = names.entry(source.package()).or_default();
        for token in definitions(&source.production()) {
            let place = format!("{}:{}", source.path.display(), token.line);
            types.entry(token.text).or_default().push(place);
        }
    }
    names
}

fn percent(types: &BTreeMap<&str, Vec<String>>) -> f64 {
    let all: usize = types.values().map(Vec::len).sum();
    let shared: usize = types.values().map(Vec::len).filter(|&places| places > 1).sum();
    100.0 * shared as f64 / all.max(1) as f64
}

/// The names of the types that are defined here. The types of an `impl` or a trait belong to it.
fn definitions<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut depth = 0;
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let defines = match token.text {
            "{" if token.is("{") => {
                depth += 1;
                false
            }
            "}" if token.is("}") => {
                depth -= 1;
                false
            }
            "struct" | "enum" | "trait" | "union" => token.is_word(),
            "type" => token.is_word() && depth == 0,
            _ => false,
        };
        let name = tokens.get(at + 1).filter(|name| defines && name.is_word());
        found.extend(name.copied());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_name_are_counted() {
        let text = "struct A; mod m { enum A {} trait B {} } type C = u8;\n\
                    impl T for A { type C = u8; }\n#[cfg(test)] mod t { struct B; }";
        let path = "crates/bytes/levada-store/src/lib.rs";
        let sources = [Source { path: path.into(), text: text.into() }];
        assert_eq!(shares(&sources)["levada-store"], 50.0);
        assert!(check(&sources)[0].contains("(A 2)"), "{:?}", check(&sources));
    }
}
