//! Conditions of VCL as the matchers of routes.

use std::collections::BTreeMap;

use crate::{matchers::Condition, tree::Kind};

/// Matchers that must hold together; several are alternatives.
pub(super) type Alternatives = Vec<Together>;

/// Hosts and the other parts of one alternative, and the status of the response that it is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Together {
    pub(super) hosts: Vec<String>,
    pub(super) condition: Condition,
    pub(super) status: Option<String>,
}

/// Reads the tokens of a condition, with its parentheses.
pub(super) fn read(
    tokens: &[Kind],
    lists: &BTreeMap<String, Vec<String>>,
) -> Result<Alternatives, String> {
    let mut reader = Reader { rest: tokens, lists, depth: 0 };
    let alternatives = reader.any()?;
    match reader.rest {
        [] => Ok(alternatives),
        [next, ..] => Err(format!("the condition goes on with `{}`", next.shown())),
    }
}

struct Reader<'a> {
    rest: &'a [Kind],
    lists: &'a BTreeMap<String, Vec<String>>,
    depth: usize,
}

impl Reader<'_> {
    fn skip(&mut self, sign: &str) -> bool {
        let found = matches!(self.rest.first(), Some(Kind::Sign(own)) if *own == sign);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn any(&mut self) -> Result<Alternatives, String> {
        let mut alternatives = self.all()?;
        while self.skip("||") {
            alternatives.extend(self.all()?);
        }
        Ok(alternatives)
    }

    fn all(&mut self) -> Result<Alternatives, String> {
        const MOST: usize = 64;
        let mut joined = self.one()?;
        while self.skip("&&") {
            let next = self.one()?;
            if joined.len() * next.len() > MOST {
                return Err("the condition has too many alternatives".to_owned());
            }
            let pairs =
                joined.iter().flat_map(|left| next.iter().map(move |right| join(left, right)));
            joined = pairs.collect::<Result<_, _>>()?;
        }
        Ok(joined)
    }

    fn one(&mut self) -> Result<Alternatives, String> {
        let negated = self.skip("!");
        if self.skip("(") {
            self.depth += 1;
            if self.depth > 32 {
                return Err("the condition is nested too deeply".to_owned());
            }
            let inner = self.any()?;
            if !self.skip(")") {
                return Err("there is no matcher for this condition".to_owned());
            }
            self.depth -= 1;
            return match negated {
                false => Ok(inner),
                true => others(&inner)
                    .map(|condition| vec![Together { condition, ..Together::everything() }])
                    .ok_or_else(|| "there is no matcher for this condition".to_owned()),
            };
        }
        let (Some(Kind::Word(variable)), after) =
            (self.rest.first(), self.rest.get(1..).unwrap_or_default())
        else {
            return Err("there is no matcher for this condition".to_owned());
        };
        let variable = variable.clone();
        let (operator, operand, after) = match after {
            [Kind::Sign(sign @ ("==" | "!=" | "~" | "!~")), operand, after @ ..] => {
                (*sign, Some(operand), after)
            }
            after => ("", None, after),
        };
        let operand = match operand {
            Some(Kind::Text(text) | Kind::Word(text)) => text.clone(),
            _ => String::new(),
        };
        self.rest = after;
        self.comparison(&variable, operator, &operand, negated).map(|one| vec![one])
    }

    fn comparison(
        &self,
        variable: &str,
        operator: &str,
        operand: &str,
        negated: bool,
    ) -> Result<Together, String> {
        self.compared(variable, operator, operand, negated).ok_or_else(|| {
            let not = if negated { "!" } else { "" };
            format!("there is no matcher for `{not}{variable} {operator} {operand}`")
        })
    }

    fn compared(
        &self,
        variable: &str,
        operator: &str,
        operand: &str,
        negated: bool,
    ) -> Option<Together> {
        let everything = Together::everything();
        let short = variable.strip_prefix("req.").or_else(|| variable.strip_prefix("bereq."));
        match (variable, operator) {
            ("client.ip" | "remote.ip", "~") => {
                let list = self.lists.get(operand).filter(|list| !list.is_empty())?;
                Together::of(Condition::clients(list), negated)
            }
            ("beresp.status", "==") if !negated => {
                Some(Together { status: Some(operand.to_owned()), ..everything })
            }
            // `!req.http.x` holds where there is no such field.
            (_, "") if negated => Together::of(in_nginx(short?, "==", "")?, false),
            _ => match hosts(short?, operator, operand) {
                Some(hosts) if !negated => Some(Together { hosts, ..everything }),
                _ => Together::of(in_nginx(short?, operator, operand)?, negated),
            },
        }
    }
}

/// A comparison in nginx's words.
fn in_nginx(variable: &str, operator: &str, original: &str) -> Option<Condition> {
    let sign = if operator == "==" { "=" } else { operator };
    let operand = match variable {
        "url" => {
            original.replace("(\\?.*)?$", "$").replace("(\\?|$)", "$").replace("(\\?.*|)$", "$")
        }
        _ => original.to_owned(),
    };
    // An expression that leaves the query open is one of the path.
    let name = match variable == "url" && operand != original {
        true => "uri".to_owned(),
        false => nginx_name(variable)?,
    };
    Condition::comparison(&name, sign, &operand).ok()
}

/// nginx's name of a part of a request.
fn nginx_name(variable: &str) -> Option<String> {
    match variable {
        "http.host" | "http.Host" => Some("host".to_owned()),
        "url" => Some("request_uri".to_owned()),
        "method" | "request" => Some("request_method".to_owned()),
        _ => Some(format!("http_{}", variable.strip_prefix("http.")?.replace('-', "_"))),
    }
}

/// The requests that no alternative takes.
pub(super) fn others(alternatives: &[Together]) -> Option<Condition> {
    let has_more = |one: &Together| !one.hosts.is_empty() || one.status.is_some();
    if alternatives.iter().any(has_more) {
        return None;
    }
    let conditions: Vec<_> = alternatives.iter().map(|one| one.condition.clone()).collect();
    Condition::any(&conditions)?.negated()
}

impl Together {
    fn of(condition: Condition, negated: bool) -> Option<Self> {
        let condition = if negated { condition.negated()? } else { condition };
        Some(Self { condition, ..Self::everything() })
    }

    fn everything() -> Self {
        Self { hosts: Vec::new(), condition: Condition::everything(), status: None }
    }
}

fn join(left: &Together, right: &Together) -> Result<Together, String> {
    let twice = || "a route looks at each part of a request once".to_owned();
    if !left.hosts.is_empty() && !right.hosts.is_empty() {
        return Err(twice());
    }
    let mut joined = left.clone();
    joined.condition = left.condition.and(&right.condition).ok_or_else(twice)?;
    joined.hosts.extend(right.hosts.clone());
    joined.status = joined.status.or_else(|| right.status.clone());
    Ok(joined)
}

/// The hosts of a comparison, if they can be listed.
fn hosts(variable: &str, operator: &str, operand: &str) -> Option<Vec<String>> {
    match (variable, operator) {
        ("http.host" | "http.Host", "==") if is_host(operand) => {
            Some(vec![operand.to_ascii_lowercase()])
        }
        ("http.host" | "http.Host", "~") => hosts_of(operand),
        _ => None,
    }
}

fn hosts_of(regex: &str) -> Option<Vec<String>> {
    let regex = regex.trim_start_matches("(?i)").strip_prefix('^')?.strip_suffix('$')?;
    let optional = regex.strip_prefix("(www\\.)?").or_else(|| regex.strip_prefix("(www.)?"));
    let host = optional.unwrap_or(regex).replace("\\.", ".");
    let rest = host.strip_prefix(".*.").or_else(|| host.strip_prefix(".+."));
    match (optional, rest) {
        (None, Some(rest)) if is_host(rest) => Some(vec![format!("*.{rest}")]),
        (Some(_), None) if is_host(&host) => Some(vec![host.clone(), format!("www.{host}")]),
        (None, None) if is_host(&host) => Some(vec![host]),
        _ => None,
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-".contains(&c))
}
