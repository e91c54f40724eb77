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
        let none = || {
            format!(
                "there is no matcher for `{}{variable} {operator} {operand}`",
                if negated { "!" } else { "" }
            )
        };
        let mut together = Together::everything();
        let short = variable.strip_prefix("req.").or_else(|| variable.strip_prefix("bereq."));
        let sign = match operator {
            "==" => "=",
            other => other,
        };
        let compared = |name: &str, operand: &str| {
            let (sign, operand) = match (sign, negated) {
                // `!req.http.x` holds where there is no such field.
                ("", true) => ("=", ""),
                (sign, _) => (sign, operand),
            };
            let condition = Condition::comparison(name, sign, operand).map_err(|_| none())?;
            match negated && !operator.is_empty() {
                true => condition.negated().ok_or_else(none),
                false => Ok(condition),
            }
        };
        match (variable, short) {
            ("client.ip" | "remote.ip", _) if operator == "~" => {
                let list =
                    self.lists.get(operand).filter(|list| !list.is_empty()).ok_or_else(none)?;
                let condition = Condition::clients(list);
                together.condition = match negated {
                    true => condition.negated().ok_or_else(none)?,
                    false => condition,
                };
            }
            ("beresp.status", _) if operator == "==" && !negated => {
                together.status = Some(operand.to_owned())
            }
            (_, Some("http.host" | "http.Host")) => match hosts(operator, operand) {
                Some(hosts) if !negated => together.hosts = hosts,
                _ => together.condition = compared("host", operand)?,
            },
            (_, Some("url")) => {
                let pattern = operand
                    .replace("(\\?.*)?$", "$")
                    .replace("(\\?|$)", "$")
                    .replace("(\\?.*|)$", "$");
                together.condition = compared("request_uri", &pattern)?;
            }
            (_, Some("method" | "request")) => {
                together.condition = compared("request_method", operand)?;
            }
            (_, Some(field)) if field.starts_with("http.") => {
                let name = format!("http_{}", field["http.".len()..].replace('-', "_"));
                together.condition = compared(&name, operand)?;
            }
            _ => return Err(none()),
        }
        Ok(together)
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
