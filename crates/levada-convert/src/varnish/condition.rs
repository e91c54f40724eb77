//! Conditions of VCL as the matchers of routes.

use std::collections::BTreeMap;

use super::lex::Kind;
use crate::{matchers, table::Table};

/// Matchers that must hold together; several are alternatives.
pub(super) type Alternatives = Vec<Together>;

/// Hosts and other matchers of one alternative, and the status of the response that it is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Together {
    pub(super) hosts: Vec<String>,
    pub(super) matchers: Table,
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
            return Ok(inner);
        }
        let negated = self.skip("!");
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
        let none = || {
            format!(
                "there is no matcher for `{}{variable} {operator} {operand}`",
                if negated { "!" } else { "" }
            )
        };
        let mut together = Together::default();
        let short = variable.strip_prefix("req.").or_else(|| variable.strip_prefix("bereq."));
        let sign = match operator {
            "==" => "=",
            other => other,
        };
        match (variable, short) {
            ("client.ip" | "remote.ip", _) if operator == "~" && !negated => {
                let list =
                    self.lists.get(operand).filter(|list| !list.is_empty()).ok_or_else(none)?;
                together.matchers.set("client", list.clone());
            }
            ("beresp.status", _) if operator == "==" && !negated => {
                together.status = Some(operand.to_owned())
            }
            (_, Some("http.host" | "http.Host")) if !negated => {
                together.hosts = hosts(operator, operand).ok_or_else(none)?;
            }
            (_, Some("url")) if !negated => {
                let pattern = operand
                    .replace("(\\?.*)?$", "$")
                    .replace("(\\?|$)", "$")
                    .replace("(\\?.*|)$", "$");
                together.matchers =
                    matchers::matchers("request_uri", sign, &pattern).map_err(|_| none())?;
            }
            (_, Some("method" | "request")) if !negated => {
                together.matchers =
                    matchers::matchers("request_method", sign, operand).map_err(|_| none())?;
            }
            (_, Some(field)) if field.starts_with("http.") => {
                let name = format!("http_{}", field["http.".len()..].replace('-', "_"));
                let (sign, operand) = match (sign, negated) {
                    ("", true) => ("=", ""),
                    (_, true) => return Err(none()),
                    (sign, false) => (sign, operand),
                };
                together.matchers = matchers::matchers(&name, sign, operand).map_err(|_| none())?;
            }
            _ => return Err(none()),
        }
        Ok(together)
    }
}

fn join(left: &Together, right: &Together) -> Result<Together, String> {
    let mut joined = left.clone();
    if right.matchers.iter().any(|(key, _)| {
        left.matchers.get(key).is_some() && !["header", "cookie", "query"].contains(&key)
    }) || !left.hosts.is_empty() && !right.hosts.is_empty()
    {
        return Err("a route looks at each part of a request once".to_owned());
    }
    joined.matchers.lay_over(right.matchers.clone());
    joined.hosts.extend(right.hosts.clone());
    joined.status = joined.status.or_else(|| right.status.clone());
    Ok(joined)
}

/// The hosts of a comparison, if they can be listed.
fn hosts(operator: &str, operand: &str) -> Option<Vec<String>> {
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-".contains(&c))
    };
    match operator {
        "==" if is_host(operand) => Some(vec![operand.to_ascii_lowercase()]),
        "~" => {
            let regex = operand.trim_start_matches("(?i)").strip_prefix('^')?.strip_suffix('$')?;
            let optional =
                regex.strip_prefix("(www\\.)?").or_else(|| regex.strip_prefix("(www.)?"));
            let host = optional.unwrap_or(regex).replace("\\.", ".");
            let subdomains = host
                .strip_prefix(".*.")
                .or_else(|| host.strip_prefix(".+."))
                .map(|rest| format!("*.{rest}"));
            match (optional, subdomains) {
                (Some(_), _) if is_host(&host) => Some(vec![host.clone(), format!("www.{host}")]),
                (None, Some(wild)) if is_host(&wild[2..]) => Some(vec![wild]),
                (None, None) if is_host(&host) => Some(vec![host]),
                _ => None,
            }
        }
        _ => None,
    }
}
