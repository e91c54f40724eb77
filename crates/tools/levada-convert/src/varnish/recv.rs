//! `vcl_recv`, and how statements and blocks of `if` are walked in all subroutines.

use super::{
    Case, Converter,
    concern::concern,
    condition::{self, Alternatives, Together},
    idioms,
};
use crate::{
    gate,
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    rows::{Row, find},
    table::{Table, Value},
    tree::{Kind, Statement},
    vocabulary::{self, ANSWERS, Edit},
};

/// How a statement of a subroutine becomes keys. A statement is looked up by its variable, with `set` or `unset`, or by
/// its verb, with its first word.
pub(crate) type Statements =
    &'static [Row<fn(&mut Converter, &Statement, &mut Table) -> Outcome>];

/// Blocks within blocks multiply their alternatives: as many are walked.
const MOST_BLOCKS: usize = 1_000;

/// Statements of `vcl_recv`.
pub(crate) const STATEMENTS: Statements = &[
    Row::writes(
        "req.backend_hint req.backend = set",
        "origin, servers, policy",
        |own, one, keys| {
            keys.lay_over(own.servers(one.word(3)).ok_or("there is no such backend")?);
            TAKEN
        },
    ),
    Row::left(
        "req.grace req.hash_always_miss req.hash_ignore_busy = set",
        "stale responses are chosen by the site, not by the request",
    ),
    Row::writes("req.http.cookie = unset", "strip_cookies", |_, _, keys| {
        idioms::strip_cookies(keys, "request")
    }),
    Row::left(
        "req.http.cookie = set",
        "single cookies are not removed: `cache_key` names those that count, `bypass` those that pass",
    ),
    Row::writes("req.url = set", "cache_key.sort_query", |_, one, keys| idioms::url(one, keys)),
    Row::writes("req.http.host = set", "origin_host", |_, one, keys| idioms::host(one, keys)),
    Row::writes("req.http.* = set unset", "request_headers", |_, one, keys| {
        edit(one, "req.http.", keys, vocabulary::edit_request)
    }),
    Row::writes("return = pass", "cache", |_, _, keys| {
        keys.set("cache", false);
        TAKEN
    }),
    Row::writes("return = hash lookup", "bypass, no_store", |_, _, keys| {
        // Not what Varnish's own vcl_recv says of cookies.
        use_the_cache(keys);
        needless("it is what a node does")
    }),
    Row::writes("return = pipe", "cache", |_, _, keys| {
        keys.set("cache", false);
        differs("the request passes the cache by, and stays HTTP")
    }),
    Row::writes("return = synth error", "redirect, respond", |own, one, keys| own.synth(one, keys)),
    Row::left("return", "Levada has nothing for this action"),
    Row::left("* = set unset", NO_VARIABLE),
    Row::left("*", NO_STATEMENT),
];

pub(super) const NO_VARIABLE: &str = "Levada has nothing for this variable";
pub(super) const NO_STATEMENT: &str = "Levada has nothing for this statement";

/// The name and the value by which the rows of a subroutine have a statement. Fields have names of any case.
fn name_and_value(statement: &Statement) -> (String, &str) {
    let (verb, variable) = (statement.word(0), statement.word(1));
    let variable = match variable {
        field if field.contains(".http.") => field.to_ascii_lowercase(),
        variable if variable.contains('.') => variable.to_owned(),
        // No variable is called as a verb is.
        _ => String::new(),
    };
    match (verb, statement.word(2)) {
        ("set", _) => (variable, "set"),
        ("unset" | "remove", _) => (variable, "unset"),
        (verb, "set" | "unset") => (verb.to_owned(), ""),
        (verb, value) => (verb.to_owned(), value),
    }
}

impl Converter {
    /// Walks the statements of a block, for the requests of `around`.
    pub(super) fn statements(&mut self, block: &Statement, around: &Case, rows: Statements) {
        let mut keys = Table::default();
        let mut former: Option<Alternatives> = None;
        let mut has_ended = false;
        for statement in block.inner() {
            if has_ended {
                self.enter_whole(statement, &needless("`return` stands before it"));
                continue;
            }
            has_ended = matches!(statement.word(0), "return" | "error");
            match statement.word(0) {
                "call" => self.call_of(statement, around, rows),
                "if" => former = self.condition(statement, around, rows),
                "else" | "elseif" | "elsif" | "elif" => {
                    former = self.otherwise(statement, former.take(), around, rows);
                }
                _ => {
                    let (name, value) = name_and_value(statement);
                    let outcome = match find(rows, &name, value) {
                        Some(row) => row.outcome(|read| read(self, statement, &mut keys)),
                        None => left(NO_STATEMENT),
                    };
                    let outcome = gate::pass(concern(statement), statement, outcome, &mut keys);
                    self.enter(statement, outcome);
                }
            }
        }
        self.add(&Case { ends: has_ended && self.in_recv, ..around.clone() }, keys);
    }

    /// Walks a subroutine of the file where it is called.
    fn call_of(&mut self, statement: &Statement, around: &Case, rows: Statements) {
        let name = statement.word(1).to_owned();
        let sub = self.subs.get(&name).filter(|_| !self.calls.contains(&name)).cloned();
        let Some(sub) = sub.filter(|_| self.walked < MOST_BLOCKS) else {
            return self.refuse(
                statement,
                around,
                "there is no such subroutine, or it calls itself",
            );
        };
        self.walked += 1;
        self.called.insert(name.clone());
        self.calls.push(name);
        self.statements(&sub, around, rows);
        self.calls.pop();
        self.enter(statement, TAKEN);
    }

    /// Enters a block that is not converted, for the requests of `around`.
    fn refuse(&mut self, statement: &Statement, around: &Case, reason: impl Into<String>) {
        let mut keys = Table::default();
        let outcome = gate::pass(concern(statement), statement, left(reason), &mut keys);
        self.add(around, keys);
        self.enter_whole(statement, &outcome);
    }

    /// Adds keys for the requests of `around`.
    pub(super) fn add(&mut self, around: &Case, keys: Table) {
        if around.hosts.is_empty() && around.condition.holds_always() {
            add_to(&mut self.keys, keys);
            return;
        }
        let same =
            |case: &&mut Case| case.hosts == around.hosts && case.condition == around.condition;
        match self.cases.iter_mut().find(same) {
            Some(case) => add_to(&mut case.keys, keys),
            None if keys.is_empty() && !around.ends => {}
            None => self.cases.push(Case { keys, ..around.clone() }),
        }
    }

    /// A block for some requests. Returns them, for the branches after it, if the block was converted.
    fn condition(
        &mut self,
        statement: &Statement,
        around: &Case,
        rows: Statements,
    ) -> Option<Alternatives> {
        self.walked += 1;
        if self.walked > MOST_BLOCKS {
            self.refuse(statement, around, "the conditions have too many alternatives");
            return None;
        }
        if let Some(idiom) = idioms::block(statement) {
            self.add(around, idiom.keys);
            self.enter_whole(statement, &idiom.outcome);
            return None;
        }
        let tokens = statement.head.get(1..).unwrap_or_default();
        let walked = condition::read(tokens, &self.access_lists).and_then(|alternatives| {
            for one in alternatives.clone() {
                self.alternative(statement, one, around, rows)?;
            }
            Ok(alternatives)
        });
        match walked {
            Ok(alternatives) => {
                let reason = "the first route that matches counts; VCL runs all blocks that match";
                self.enter(statement, differs(reason));
                Some(alternatives)
            }
            Err(reason) => {
                self.refuse(statement, around, reason);
                None
            }
        }
    }

    /// A block, for the requests of one alternative of its condition.
    fn alternative(
        &mut self,
        statement: &Statement,
        one: Together,
        around: &Case,
        rows: Statements,
    ) -> Result<(), String> {
        let condition = around.condition.and(&one.condition);
        let condition = condition.filter(|_| one.hosts.is_empty() || around.hosts.is_empty());
        let condition = condition.ok_or("a route looks at each part of a request once")?;
        if let Some(status) = one.status {
            self.by_status(statement, around, &status);
            return Ok(());
        }
        self.walked += 1;
        let mut case = Case { ends: false, ..around.clone() };
        case.condition = condition;
        case.hosts.extend(one.hosts);
        case.comment = statement.place.to_string();
        self.statements(statement, &case, rows);
        Ok(())
    }

    /// Branches after an `if`: routes come in the same order, so that the first that holds counts. Returns the
    /// requests of all branches so far.
    fn otherwise(
        &mut self,
        statement: &Statement,
        former: Option<Alternatives>,
        around: &Case,
        rows: Statements,
    ) -> Option<Alternatives> {
        if let Some(idiom) = idioms::block(statement).filter(|_| former.is_none()) {
            self.add(around, idiom.keys);
            self.enter_whole(statement, &idiom.outcome);
            return None;
        }
        let Some(mut former) = former else {
            self.refuse(statement, around, "the `if` before it was not converted");
            return None;
        };
        let mut branch = statement.clone();
        if statement.word(0) == "else" && statement.word(1) == "if" {
            branch.head.remove(0);
        } else if statement.word(0) != "else" {
            branch.head[0] = Kind::Word("if".to_owned());
        } else {
            self.rest(statement, &former, around, rows);
            return None;
        }
        let own = self.condition(&branch, around, rows)?;
        former.extend(own);
        Some(former)
    }

    /// The last `else`: the requests that no branch before it takes.
    fn rest(
        &mut self,
        statement: &Statement,
        former: &Alternatives,
        around: &Case,
        rows: Statements,
    ) {
        let by_host = former.iter().all(|one| !one.hosts.is_empty());
        if by_host && around.condition.holds_always() {
            self.statements(statement, around, rows);
            self.enter(statement, TAKEN);
            return;
        }
        let others = condition::others(former).and_then(|others| around.condition.and(&others));
        let Some(condition) = others else {
            return self.refuse(
                statement,
                around,
                "there is no matcher for all other requests here",
            );
        };
        let comment = statement.place.to_string();
        self.statements(statement, &Case { condition, comment, ..around.clone() }, rows);
        self.enter(statement, TAKEN);
    }

    /// A response of the file itself, or a redirect.
    fn synth(&self, statement: &Statement, keys: &mut Table) -> Outcome {
        let status = statement.word(4).parse::<u64>().map_err(|_| "is no status")?;
        let to = statement.head.get(6..).map(|rest| &rest[..rest.len().saturating_sub(2)]);
        let redirect = self.redirects.get(&status).copied();
        match redirect.or((301..=308).contains(&status).then_some(status)) {
            Some(status) => {
                let to = to.and_then(text).filter(|to| to.starts_with(['h', '/', '{']));
                vocabulary::redirect(
                    keys,
                    status,
                    to.ok_or("where clients are sent is not said here")?,
                );
            }
            None if (200..=599).contains(&status) => vocabulary::respond(keys, status, None),
            None => return left("is no status of a response: vcl_synth decides about it"),
        }
        TAKEN
    }
}

/// Only the first answer counts.
fn add_to(table: &mut Table, mut keys: Table) {
    if table.has_any(ANSWERS) {
        keys.remove_all(ANSWERS);
    }
    table.lay_over(keys);
}

/// Lets requests with cookies use the cache, where others with cookies pass it by.
pub(super) fn use_the_cache(keys: &mut Table) {
    for key in COOKIES_PASS {
        keys.set(key, Value::List(Vec::new()));
    }
}

/// The keys by which requests with cookies pass the cache by.
pub(super) const COOKIES_PASS: [&str; 2] = ["bypass", "no_store"];

/// `set` and `unset` of a field.
pub(super) fn edit(
    statement: &Statement,
    prefix: &str,
    keys: &mut Table,
    apply: fn(&mut Table, &str, Edit) -> Outcome,
) -> Outcome {
    let name = statement.word(1).get(prefix.len()..).unwrap_or_default();
    if statement.word(0) != "set" {
        return apply(keys, name, Edit::Remove);
    }
    if name.eq_ignore_ascii_case("x-forwarded-for") {
        return needless("a node sends this field itself");
    }
    let text = text(statement.value());
    let text =
        text.ok_or("the text is made by functions, or of variables that Levada does not have")?;
    apply(keys, name, Edit::Set(text))
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
