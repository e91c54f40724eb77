//! Matchers: paths, named sets of conditions, `not`.

use std::collections::BTreeMap;

use levada_conversion::{
    comparisons::{self, Comparison, Named, Test, named_groups},
    matchers::{Condition, checked_regex},
};

use crate::parse::Node;

/// Conditions of which one must hold; none never holds.
pub(crate) type Verdict = Vec<Condition>;

/// The surroundings of a matcher.
pub(crate) struct Matchers {
    pub(crate) named: BTreeMap<String, Node>,
    /// Whether proxies are trusted, so that the address of a client is not that of the connection.
    pub(crate) has_trusted: bool,
}

const PRIVATE: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.1/8", "fd00::/8", "::1"];

impl Matchers {
    /// The matcher of a directive: none, `*`, a path, or a name. Returns the words after it as well.
    pub(crate) fn of<'n>(&self, node: &'n Node) -> Result<(Verdict, &'n [String]), String> {
        match node.word(1) {
            "*" => Ok((vec![Condition::everything()], node.from(2))),
            path if path.starts_with('/') => Ok((vec![paths(&[path.to_owned()])?], node.from(2))),
            name if name.starts_with('@') => Ok((self.named(name)?, node.from(2))),
            _ => Ok((vec![Condition::everything()], node.from(1))),
        }
    }

    pub(crate) fn named(&self, name: &str) -> Result<Verdict, String> {
        let node = self.named.get(name).ok_or_else(|| format!("there is no matcher `{name}`"))?;
        match &node.block {
            Some(block) if node.words.len() == 1 => self.set(block),
            None if node.words.len() > 1 => {
                let inner = Node { words: node.from(1).to_vec(), ..node.clone() };
                self.set(&[inner])
            }
            _ => Err("the matcher cannot be read".to_owned()),
        }
    }

    /// All conditions of a set; those of one kind are alternatives.
    fn set(&self, nodes: &[Node]) -> Result<Verdict, String> {
        let mut all = vec![Condition::everything()];
        let mut done: Vec<String> = Vec::new();
        for node in nodes {
            let kind = kind(node);
            if done.contains(&kind) {
                continue;
            }
            let mut any = Verdict::new();
            for same in nodes.iter().filter(|other| self::kind(other) == kind) {
                any = either(any, self.one(same)?);
            }
            all = both(&all, &any)?;
            done.push(kind);
        }
        Ok(all)
    }

    fn one(&self, node: &Node) -> Result<Verdict, String> {
        if node.has_variable() {
            return Err("a variable of the environment: write its value".to_owned());
        }
        let words = node.from(1);
        if node.word(0) != "not" && (words.is_empty() || node.block.is_some()) {
            return Err("a condition has a value".to_owned());
        }
        let placeholder = words.iter().any(|word| crate::texts::has_placeholder(word));
        if placeholder && node.word(0) != "expression" && !node.word(0).ends_with("_regexp") {
            return Err("a condition is compared with a text, not with a variable".to_owned());
        }
        let one = |condition: Condition| Ok(vec![condition]);
        match node.word(0) {
            "path" => one(paths(words)?),
            "path_regexp" => {
                let regex =
                    named_groups(&checked_regex(words.last().map_or("", String::as_str))?).0;
                one(comparisons::path(&comparison(Test::Matches, &[regex]))?)
            }
            "method" => {
                let upper: Vec<_> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
                one(comparisons::method(&upper)?)
            }
            "host" => one(hosts(words)?),
            "protocol" => match node.word(1) {
                scheme @ ("http" | "https") => one(comparisons::scheme(scheme)),
                "grpc" => {
                    let texts = ["application/grpc".to_owned()];
                    one(comparisons::named(
                        Named::Header,
                        "content-type",
                        &comparison(Test::Begins, &texts),
                    )?)
                }
                _ => Err("a route does not look at the version of HTTP".to_owned()),
            },
            "remote_ip" | "client_ip" => {
                let forwarded = node.word(1) == "forwarded";
                if node.word(0) == "remote_ip" && (self.has_trusted || forwarded) {
                    return Err(
                        "the address is that of the client behind trusted proxies".to_owned()
                    );
                }
                one(Condition::clients(&addresses(words)?))
            }
            "header" => self.header(node.word(1), &words[1..]),
            "header_regexp" => {
                let (field, regex) = match words {
                    [field, regex] | [_, field, regex] => (field, regex),
                    _ => return Err("a field and an expression are named".to_owned()),
                };
                one(comparisons::joined_field(field, regex)?)
            }
            "query" => {
                let mut any = Verdict::new();
                for word in words {
                    let (name, value) = word.split_once('=').ok_or("an argument has a value")?;
                    let condition = match value {
                        "*" => comparisons::exists(Named::Query, name)?,
                        value => {
                            let texts = [value.to_owned()];
                            comparisons::named(Named::Query, name, &comparison(Test::Is, &texts))?
                        }
                    };
                    any = either(any, vec![condition]);
                }
                Ok(any)
            }
            "not" => {
                let verdict = match &node.block {
                    Some(block) => self.set(block)?,
                    None => {
                        let inner = Node { words: words.to_vec(), ..node.clone() };
                        self.set(&[inner])?
                    }
                };
                negated(&verdict)
            }
            "expression" => expression(&words.join(" ")).and_then(one),
            name => Err(format!("no route looks at `{name}`")),
        }
    }

    fn header(&self, name: &str, values: &[String]) -> Result<Verdict, String> {
        if let Some(name) = name.strip_prefix('!') {
            return negated(&vec![comparisons::exists(Named::Header, name)?]);
        }
        if values.is_empty() {
            return Ok(vec![comparisons::exists(Named::Header, name)?]);
        }
        let mut any = Verdict::new();
        for value in values {
            let begins = value.ends_with('*');
            let ends = value.starts_with('*') && value.len() > 1;
            let text = [value.trim_matches('*').to_owned()];
            let test = match (begins, ends) {
                _ if value == "*" => {
                    any = either(any, vec![comparisons::exists(Named::Header, name)?]);
                    continue;
                }
                (true, true) => Test::Contains,
                (true, false) => Test::Begins,
                (false, true) => Test::Ends,
                (false, false) => Test::Is,
            };
            any = either(
                any,
                vec![comparisons::named(Named::Header, name, &comparison(test, &text))?],
            );
        }
        Ok(any)
    }
}

/// The kind of a condition: those of one kind are alternatives, fields each by their name.
fn kind(node: &Node) -> String {
    match node.word(0) {
        "header" | "header_regexp" => format!("{} {}", node.word(0), node.word(1)),
        "not" | "expression" => format!("{} {}", node.place, node.words.join(" ")),
        kind => kind.to_owned(),
    }
}

fn comparison(test: Test, texts: &[String]) -> Comparison<'_> {
    Comparison { test, texts, ignores_case: false }
}

/// Patterns of paths, whose case does not count.
pub(crate) fn paths(patterns: &[String]) -> Result<Condition, String> {
    let mut all = Vec::new();
    for pattern in patterns {
        if crate::texts::has_placeholder(pattern) || pattern.contains('%') {
            return Err("a path is a pattern without variables and escapes".to_owned());
        }
        if pattern == "*" || pattern == "/*" {
            return Ok(Condition::everything());
        }
        let inner = pattern.trim_matches('*');
        let one = match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            _ if inner.contains(['*', '?', '[']) => {
                if inner.contains('[') {
                    return Err("there is no pattern for classes of characters".to_owned());
                }
                let escaped = regex::escape(pattern).replace("\\*", "[^/]*").replace("\\?", "[^/]");
                format!("^{escaped}$")
            }
            (Some(_), Some(_)) => regex::escape(inner),
            (Some(_), None) => format!("{}$", regex::escape(inner)),
            (None, Some(_)) => format!("^{}", regex::escape(inner)),
            (None, None) => format!("^{}$", regex::escape(pattern)),
        };
        all.push(one);
    }
    comparisons::path(&Comparison { test: Test::Matches, texts: &all, ignores_case: true })
}

fn hosts(names: &[String]) -> Result<Condition, String> {
    let mut any: Option<Condition> = None;
    for name in names {
        let (test, text) = match name.strip_prefix('*') {
            Some(rest) if !rest.contains('*') && !rest.is_empty() => (Test::Ends, rest),
            None if !name.contains('*') => (Test::Is, name.as_str()),
            _ => return Err("a host has one star, at its beginning".to_owned()),
        };
        let one = comparisons::host(&comparison(test, &[text.to_owned()]))?;
        any = match any {
            Some(any) => any.or(&one),
            None => Some(one),
        };
    }
    any.ok_or_else(|| "a host is named".to_owned())
}

/// Addresses and prefixes.
pub(crate) fn addresses(words: &[String]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for word in words {
        if word == "private_ranges" {
            found.extend(PRIVATE.iter().map(|one| (*one).replace("127.0.0.1/8", "127.0.0.0/8")));
            continue;
        }
        let (address, length) = word.split_once('/').unwrap_or((word, "0"));
        match (address.parse::<std::net::IpAddr>(), length.parse::<u8>()) {
            (Ok(std::net::IpAddr::V4(_)), Ok(0..=32))
            | (Ok(std::net::IpAddr::V6(_)), Ok(0..=128)) => {
                found.push(word.clone());
            }
            _ => return Err(format!("`{word}` is neither an address nor a prefix")),
        }
    }
    match found.is_empty() {
        true => Err("an address is named".to_owned()),
        false => Ok(found),
    }
}

/// An expression in CEL, whose variables are named otherwise.
fn expression(text: &str) -> Result<Condition, String> {
    const NAMES: [(&str, &str); 8] = [
        ("{method}", "request.method"),
        ("{http.request.method}", "request.method"),
        ("{host}", "request.host"),
        ("{http.request.host}", "request.host"),
        ("{path}", "request.path"),
        ("{http.request.uri.path}", "request.path"),
        ("{query}", "request.query"),
        ("{scheme}", "request.scheme"),
    ];
    let mut made = text.to_owned();
    for (name, own) in NAMES {
        made = made.replace(name, own);
    }
    // Functions of Caddy's own, and variables that are left, are no CEL of Levada.
    let calls = [
        "path(",
        "path_regexp(",
        "method(",
        "header(",
        "header_regexp(",
        "host(",
        "remote_ip(",
        "client_ip(",
        "protocol(",
        "query(",
        "file(",
        "vars(",
    ];
    if made.contains('{') || calls.iter().any(|call| made.contains(call)) {
        return Err("the expression has names that Levada's have not".to_owned());
    }
    Condition::of(None, Some(made)).ok_or_else(|| "the expression is too long".to_owned())
}

pub(crate) fn both(one: &Verdict, other: &Verdict) -> Result<Verdict, String> {
    const MOST: usize = 64;
    let mut joined = Verdict::new();
    for left in one {
        for right in other {
            joined.push(left.and(right).ok_or("a route cannot look at all of this together")?);
        }
    }
    match joined.len() > MOST {
        true => Err("the condition has too many alternatives".to_owned()),
        false => Ok(joined),
    }
}

fn either(mut any: Verdict, more: Verdict) -> Verdict {
    for one in more {
        let listed = any.last().and_then(|last| last.or(&one));
        match (
            listed.filter(|both| both.table().is_some_and(|table| !table.has_any(&["when"]))),
            any.last_mut(),
        ) {
            (Some(both), Some(last)) => *last = both,
            _ => any.push(one),
        }
    }
    any
}

pub(crate) fn negated(verdict: &Verdict) -> Result<Verdict, String> {
    if verdict.is_empty() {
        return Ok(vec![Condition::everything()]);
    }
    if verdict.iter().any(Condition::holds_always) {
        return Ok(Vec::new());
    }
    let any = Condition::any(verdict).and_then(|any| any.negated());
    any.map(|one| vec![one]).ok_or_else(|| "no route takes all other requests".to_owned())
}
