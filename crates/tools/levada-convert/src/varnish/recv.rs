//! `vcl_recv`, and how statements and blocks of `if` are walked in all subroutines.

use std::collections::BTreeMap;

use super::{
    Case, Converter,
    condition::{self, Alternatives},
    idioms,
};
use crate::{
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    table::{Table, Value},
    tree::{Kind, Statement},
    vocabulary::{self, Edit},
};

/// Fills keys for one statement of a subroutine.
pub(super) type Speaker<'a> = &'a mut dyn FnMut(&mut Converter, &Statement, &mut Table) -> Outcome;

impl Converter {
    /// Walks the statements of a block, for the requests of `around`.
    pub(super) fn statements(&mut self, block: &Statement, around: &Case, speaker: Speaker<'_>) {
        let mut keys = Table::default();
        let mut former: Option<Alternatives> = None;
        let mut has_ended = false;
        for statement in block.inner() {
            if has_ended {
                self.enter_whole(statement, &needless("`return` stands before it"));
                continue;
            }
            has_ended = statement.word(0) == "return";
            match statement.word(0) {
                "if" => former = self.condition(statement, around, speaker),
                "else" | "elseif" | "elsif" | "elif" => {
                    former = self.otherwise(statement, former.take(), around, speaker);
                }
                _ => {
                    let fate = speaker(self, statement, &mut keys);
                    self.enter(statement, fate);
                }
            }
        }
        self.add(around, keys);
    }

    /// Adds keys for the requests of `around`.
    fn add(&mut self, around: &Case, mut keys: Table) {
        let answers = ["redirect", "respond"];
        if around.hosts.is_empty() && around.condition.holds_always() {
            // Only the first answer counts.
            if answers.iter().any(|key| self.keys.get(key).is_some()) {
                answers.iter().for_each(|key| drop(keys.remove(key)));
            }
            self.keys.lay_over(keys);
            return;
        }
        let same =
            |case: &&mut Case| case.hosts == around.hosts && case.condition == around.condition;
        match self.cases.iter_mut().find(same) {
            Some(case) => {
                if answers.iter().any(|key| case.keys.get(key).is_some()) {
                    answers.iter().for_each(|key| drop(keys.remove(key)));
                }
                case.keys.lay_over(keys);
            }
            None if keys.is_empty() => {}
            None => self.cases.push(Case { keys, ..around.clone() }),
        }
    }

    /// A block for some requests. Returns them, for the branches after it, if the block was converted.
    fn condition(
        &mut self,
        statement: &Statement,
        around: &Case,
        speaker: Speaker<'_>,
    ) -> Option<Alternatives> {
        // Blocks within blocks multiply their alternatives.
        const MOST: usize = 1_000;
        self.walked += 1;
        if self.walked > MOST {
            self.enter_whole(statement, &left("the conditions have too many alternatives"));
            return None;
        }
        let tokens = &statement.head[1..];
        if let Some(idiom) = idioms::block(statement) {
            self.add(around, idiom.keys);
            self.enter_whole(statement, &idiom.fate);
            return None;
        }
        let alternatives = match condition::read(tokens, &self.access_lists) {
            Ok(alternatives) => alternatives,
            Err(reason) => {
                self.enter_whole(statement, &Err(reason));
                return None;
            }
        };
        for one in alternatives.clone() {
            let condition = around.condition.and(&one.condition);
            let condition = condition.filter(|_| one.hosts.is_empty() || around.hosts.is_empty());
            let Some(condition) = condition else {
                self.enter_whole(statement, &left("a route looks at each part of a request once"));
                return None;
            };
            if let Some(status) = one.status {
                self.by_status(statement, around, &status);
                continue;
            }
            self.walked += 1;
            let mut case = around.clone();
            case.condition = condition;
            case.hosts.extend(one.hosts);
            case.comment = statement.place.to_string();
            self.statements(statement, &case, speaker);
        }
        self.enter(
            statement,
            differs("the first route that matches counts; VCL runs all blocks that match"),
        );
        Some(alternatives)
    }

    /// Branches after an `if`: routes come in the same order, so that the first that holds counts. Returns the
    /// requests of all branches so far.
    fn otherwise(
        &mut self,
        statement: &Statement,
        former: Option<Alternatives>,
        around: &Case,
        speaker: Speaker<'_>,
    ) -> Option<Alternatives> {
        if let Some(idiom) = idioms::block(statement).filter(|_| former.is_none()) {
            self.add(around, idiom.keys);
            self.enter_whole(statement, &idiom.fate);
            return None;
        }
        let Some(mut former) = former else {
            self.enter_whole(statement, &left("the `if` before it was not converted"));
            return None;
        };
        let mut branch = statement.clone();
        if statement.word(0) == "else" && statement.word(1) == "if" {
            branch.head.remove(0);
        } else if statement.word(0) != "else" {
            branch.head[0] = Kind::Word("if".to_owned());
        } else {
            self.rest(statement, &former, around, speaker);
            return None;
        }
        let own = self.condition(&branch, around, speaker)?;
        former.extend(own);
        Some(former)
    }

    /// The last `else`: the requests that no branch before it takes.
    fn rest(
        &mut self,
        statement: &Statement,
        former: &Alternatives,
        around: &Case,
        speaker: Speaker<'_>,
    ) {
        let by_host = former.iter().all(|one| !one.hosts.is_empty());
        if by_host && around.condition.holds_always() {
            self.statements(statement, around, speaker);
            self.enter(statement, TAKEN);
            return;
        }
        let others = condition::others(former).and_then(|others| around.condition.and(&others));
        let Some(condition) = others else {
            let reason = "there is no matcher for all other requests here";
            self.enter_whole(statement, &left(reason));
            return;
        };
        let comment = statement.place.to_string();
        self.statements(statement, &Case { condition, comment, ..around.clone() }, speaker);
        self.enter(statement, TAKEN);
    }

    /// Statements of `vcl_recv`.
    pub(super) fn recv(&mut self, statement: &Statement, keys: &mut Table) -> Outcome {
        match (statement.word(0), statement.word(1)) {
            ("set", "req.backend_hint" | "req.backend") => match self.servers(statement.word(3)) {
                Some(servers) => {
                    keys.lay_over(servers);
                    TAKEN
                }
                None => left("there is no such backend"),
            },
            ("set", "req.grace" | "req.hash_always_miss" | "req.hash_ignore_busy") => {
                left("stale responses are chosen by the site, not by the request")
            }
            ("unset" | "remove", cookie) if cookie.eq_ignore_ascii_case("req.http.cookie") => {
                idioms::strip_cookies(keys, "request")
            }
            ("set", cookie) if cookie.eq_ignore_ascii_case("req.http.cookie") => left(
                "single cookies are not removed: `cache_key` names those that count, `bypass` those that pass",
            ),
            ("set" | "unset" | "remove", variable) => {
                match (statement.word(0) == "set").then(|| idioms::url_or_host(statement, keys)) {
                    Some(Some(fate)) => fate,
                    _ => edit(statement, variable, "req.http.", keys, vocabulary::edit_request),
                }
            }
            ("return", _) => returned(statement, keys, &self.redirects),
            ("call", _) => left("subroutines of your own are not followed"),
            _ => left("Levada has nothing for this statement"),
        }
    }
}

/// Lets requests with cookies use the cache, where others with cookies pass it by.
pub(super) fn use_the_cache(keys: &mut Table) {
    for key in COOKIES_PASS {
        keys.set(key, Value::List(Vec::new()));
    }
}

/// The keys by which requests with cookies pass the cache by.
pub(super) const COOKIES_PASS: [&str; 2] = ["bypass", "no_store"];

fn returned(statement: &Statement, keys: &mut Table, redirects: &BTreeMap<u64, u64>) -> Outcome {
    let verb = statement.word(2);
    match verb {
        "pass" => {
            keys.set("cache", false);
            TAKEN
        }
        "hash" | "lookup" => {
            // Not what Varnish's own vcl_recv says of cookies.
            use_the_cache(keys);
            needless("it is what a node does")
        }
        "pipe" => {
            keys.set("cache", false);
            differs("the request passes the cache by, and stays HTTP")
        }
        "synth" | "error" => {
            let Ok(status) = statement.word(4).parse::<u64>() else {
                return left("is no status");
            };
            let to = statement.head.get(6..).map(|rest| &rest[..rest.len().saturating_sub(2)]);
            let redirect = redirects.get(&status).copied();
            match (redirect.or((301..=308).contains(&status).then_some(status)), to.and_then(text))
            {
                (Some(status), Some(to)) if to.starts_with(['h', '/', '{']) => {
                    vocabulary::redirect(keys, status, to)
                }
                (Some(_), _) => left("where clients are sent is not said here"),
                _ if (200..=599).contains(&status) => vocabulary::respond(keys, status, None),
                _ => left("is no status of a response: vcl_synth decides about it"),
            }
        }
        _ => left("Levada has nothing for this action"),
    }
}

/// `set` and `unset` of a field.
pub(super) fn edit(
    statement: &Statement,
    variable: &str,
    prefix: &str,
    keys: &mut Table,
    apply: fn(&mut Table, &str, Edit) -> Outcome,
) -> Outcome {
    let Some(name) = variable.strip_prefix(prefix) else {
        return left("Levada has nothing for this variable");
    };
    if statement.word(0) != "set" {
        return apply(keys, name, Edit::Remove);
    }
    if name.eq_ignore_ascii_case("x-forwarded-for") {
        return needless("a node sends this field itself");
    }
    match text(statement.value()) {
        Some(text) => apply(keys, name, Edit::Set(text)),
        None => left("the text is made by functions, or of variables that Levada does not have"),
    }
}

/// A text of VCL, with its variables.
fn text(tokens: &[Kind]) -> Option<String> {
    let mut made = String::new();
    for token in tokens {
        match token {
            Kind::Text(text) if !text.contains(['{', '}']) => made.push_str(text),
            Kind::Word(variable) => made.push_str(&match variable.as_str() {
                "client.ip" | "remote.ip" => "{client}".to_owned(),
                "req.url" | "bereq.url" => "{uri}".to_owned(),
                "req.http.host" | "req.http.Host" | "bereq.http.host" => "{host}".to_owned(),
                "req.method" | "bereq.method" => "{method}".to_owned(),
                "req.xid" => "{request_id}".to_owned(),
                other => format!(
                    "{{header.{}}}",
                    other.strip_prefix("req.http.").or_else(|| other.strip_prefix("bereq.http."))?
                ),
            }),
            Kind::Sign("+") => {}
            _ => return None,
        }
    }
    Some(made)
}
