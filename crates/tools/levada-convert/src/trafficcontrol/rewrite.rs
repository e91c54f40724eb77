//! Texts of plugins of Traffic Server within a delivery service: `header_rewrite`, `regex_remap`, and the rest of the
//! line of `remap.config`.

use super::service::Closed;
use crate::{
    gate::Concern,
    ledger::{Outcome, TAKEN, left},
    plan::Route,
    table::Table,
    trafficserver::{HARMLESS, OF_THE_CACHE, access_options},
    vocabulary::{self, Edit, edit_request, edit_response},
};

/// Beginnings of operators of `header_rewrite` that may refuse a request, or send it elsewhere.
const DECIDING: &[&str] =
    &["set-status", "set-redirect", "set-destination", "skip-remap", "run-plugin"];

/// The lines of a text. Traffic Ops once wrote `__RETURN__` between them.
pub(super) fn lines(text: &str) -> impl Iterator<Item = String> {
    let text = text.replace("__RETURN__", "\n");
    let lines: Vec<_> = text.lines().map(|line| line.trim().to_owned()).collect();
    lines.into_iter().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Rules of `header_rewrite`: those without conditions about the request.
pub(super) fn header_rules(table: &mut Table, text: &str) -> Result<Outcome, Closed> {
    let mut others = Vec::new();
    // A condition holds for the operators that follow it, up to the next condition.
    let (mut is_response, mut is_conditional, mut was_condition) = (false, false, false);
    for line in lines(text) {
        let words: Vec<_> = line.split_whitespace().filter(|word| !is_flag(word)).collect();
        let is_condition = words[..].first() == Some(&"cond");
        if is_condition && !was_condition {
            (is_response, is_conditional) = (false, false);
        }
        was_condition = is_condition;
        let outcome = match words[..] {
            ["cond", hook] if hook.ends_with("_HOOK}") => {
                is_response = hook.contains("_RESPONSE_");
                TAKEN
            }
            ["cond", ..] => {
                is_conditional = true;
                left("")
            }
            [name, ..] if DECIDING.iter().any(|own| name.starts_with(own)) => {
                return Err(Closed(format!("`{line}` may refuse requests")));
            }
            [operator, field, ref value @ ..] if !is_conditional => {
                let value = value.join(" ");
                let value = value.trim_matches('"');
                edit(table, operator, field, value, is_response)
            }
            _ => left(""),
        };
        if outcome.is_err() {
            others.push(format!("`{line}`"));
        }
    }
    Ok(match others.is_empty() {
        true => TAKEN,
        false => left(format!("the rest is there, but not {}", others.join(", "))),
    })
}

/// Such as `[L]` or `[AND]`.
fn is_flag(word: &str) -> bool {
    let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    inner.is_some_and(|inner| inner.bytes().all(|c| c.is_ascii_uppercase() || c == b','))
}

fn edit(table: &mut Table, operator: &str, field: &str, value: &str, response: bool) -> Outcome {
    let has_variables = value.contains(['%', '{', '}', '<', '$']);
    let edit = match operator {
        _ if has_variables => return left("the value has variables"),
        "set-header" => Edit::Set(value.to_owned()),
        "add-header" => Edit::Add(value.to_owned()),
        "rm-header" => Edit::Remove,
        _ => return left("there is no such operator"),
    };
    match response {
        true => edit_response(table, field, edit),
        false => edit_request(table, field, edit),
    }
}

/// Lines of `regex_remap` as routes: an expression for the path, and the URL in its place. A line that is not
/// understood may have kept requests from the origin.
pub(super) fn regex_remap(routes: &mut Vec<Route>, text: &str) -> Result<Outcome, Closed> {
    for line in lines(text) {
        let route = remapped(&line).ok_or_else(|| Closed(format!("`{line}` is not understood")))?;
        routes.push(Route { comment: format!("regexRemap: {line}"), table: route });
    }
    Ok(TAKEN)
}

fn remapped(line: &str) -> Option<Table> {
    let words: Vec<_> = line.split_whitespace().filter(|word| *word != "map").collect();
    let (expression, url, status) = match words[..] {
        [expression, url] => (expression, url, None),
        [expression, url, status] => (expression, url, Some(status.strip_prefix("@status=")?)),
        _ => return None,
    };
    regex::Regex::new(expression).ok()?;
    let mut route = Table::from_iter([("path_regex", expression.into())]);
    let (scheme, rest) = url.split_once("://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = groups(if path.is_empty() { "/" } else { path })?;
    if !matches!(scheme, "http" | "https") || host.contains(['$', '{', '@', '?', '#']) {
        return None;
    }
    let server = format!("{scheme}://{host}");
    match status.map(|status| status.parse().ok()) {
        Some(status @ Some(301 | 302 | 307 | 308)) => {
            vocabulary::redirect(&mut route, status?, server + &path + "{?query}");
        }
        Some(_) => return None,
        None => {
            route.set("rewrite", path);
            route.set("origin", server);
            route.set("origin_host", host);
        }
    }
    Some(route)
}

/// `$1` as `{1}`; none if there is anything else with a dollar or a brace.
fn groups(text: &str) -> Option<String> {
    let mut written = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        let digit = after.chars().next().filter(|c| ('1'..='9').contains(c))?;
        written += &format!("{before}{{{digit}}}");
        rest = &after[1..];
    }
    (!text.contains(['{', '}'])).then(|| written + rest)
}

/// The rest of a line of `remap.config`: rules about addresses, and plugins that refuse no request.
pub(super) fn raw_remap(table: &mut Table, text: &str) -> Result<Outcome, Closed> {
    let mut harmless = Vec::new();
    let mut options = Vec::new();
    for word in text.split_whitespace() {
        let plugin = word.strip_prefix("@plugin=");
        if let Some(plugin) = plugin.filter(|plugin| OF_THE_CACHE.contains(plugin)) {
            let reason = format!("remapText: `{plugin}` changes the cache key, or what is stored");
            table.1.add(Concern::Storing, reason);
        }
        let is_known = |plugin: &&str| HARMLESS.contains(plugin) || OF_THE_CACHE.contains(plugin);
        match plugin.filter(is_known) {
            Some(plugin) => harmless.push(plugin),
            None if word.starts_with("@pparam=") || word.ends_with("_DIRECTIVE__") => {}
            None if word.starts_with('@') => options.push(word),
            None => return Err(Closed(format!("`{word}` is not understood"))),
        }
    }
    let is_known = |option: &&str| option.starts_with("@action=") || option.starts_with("@src_ip=");
    let actions = options.iter().filter(|option| option.starts_with("@action=")).count();
    if let Some(other) = options.iter().find(|option| !is_known(option)) {
        return Err(Closed(format!("`{other}` may refuse requests")));
    }
    if actions != usize::from(!options.is_empty()) {
        return Err(Closed("the rules about addresses need one `@action`".to_owned()));
    }
    access_options(&options, table).map_err(Closed)?;
    Ok(match harmless.is_empty() {
        true => TAKEN,
        false => left(format!("the rest is there, but not {}", harmless.join(", "))),
    })
}
