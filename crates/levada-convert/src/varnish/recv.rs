//! `vcl_recv`, and how statements and blocks of `if` are walked in all subroutines.

use super::{Case, Converter, condition, lex::Kind, parse::Statement};
use crate::{
    ledger::Fate,
    table::Table,
    vocabulary::{self, Edit},
};

/// Fills keys for one statement of a subroutine.
pub(super) type Speaker<'a> = &'a mut dyn FnMut(&mut Converter, &Statement, &mut Table) -> Fate;

impl Converter {
    /// Walks the statements of a block, for the requests of `around`.
    pub(super) fn statements(&mut self, block: &Statement, around: &Case, speaker: Speaker<'_>) {
        let mut keys = Table::default();
        let mut former: Option<Case> = None;
        for statement in block.inner() {
            match statement.word(0) {
                "if" => former = self.condition(statement, around, speaker),
                "else" | "elseif" | "elsif" | "elif" => {
                    self.otherwise(statement, former.as_ref(), around, speaker)
                }
                _ => {
                    let fate = speaker(self, statement, &mut keys);
                    self.enter(statement, fate);
                }
            }
        }
        if keys.is_empty() {
            return;
        }
        if around.hosts.is_empty() && around.matchers.is_empty() {
            self.keys.lay_over(keys);
            return;
        }
        let same =
            |case: &&mut Case| case.hosts == around.hosts && case.matchers == around.matchers;
        match self.cases.iter_mut().find(same) {
            Some(case) => case.keys.lay_over(keys),
            None => self.cases.push(Case { keys, ..around.clone() }),
        }
    }

    /// A block for some requests. Returns them, for the branches after it.
    fn condition(
        &mut self,
        statement: &Statement,
        around: &Case,
        speaker: Speaker<'_>,
    ) -> Option<Case> {
        // Blocks within blocks multiply their alternatives.
        const MOST: usize = 10_000;
        self.walked += 1;
        if self.walked > MOST {
            self.enter_whole(statement, &Fate::left("the conditions have too many alternatives"));
            return None;
        }
        let tokens = &statement.head[1..];
        if let Some(fate) = usual(statement) {
            self.enter_whole(statement, &fate);
            return None;
        }
        let alternatives = match condition::read(tokens, &self.access_lists) {
            Ok(alternatives) => alternatives,
            Err(reason) => {
                self.enter_whole(statement, &Fate::Left(reason));
                return None;
            }
        };
        let mut last = None;
        for one in alternatives {
            let overlaps = one.matchers.iter().any(|(key, _)| around.matchers.get(key).is_some());
            if overlaps || !one.hosts.is_empty() && !around.hosts.is_empty() {
                self.enter_whole(
                    statement,
                    &Fate::left("a route looks at each part of a request once"),
                );
                return None;
            }
            if let Some(status) = one.status {
                self.by_status(statement, around, &status);
                continue;
            }
            self.walked += 1;
            let mut case = around.clone();
            case.matchers.lay_over(one.matchers);
            case.hosts.extend(one.hosts);
            case.comment = statement.place.to_string();
            self.statements(statement, &case, speaker);
            last = Some(case);
        }
        self.enter(
            statement,
            Fate::differs("the first route that matches counts; VCL runs all blocks that match"),
        );
        last
    }

    /// Branches after an `if`: routes come in the same order, so that the first that holds counts.
    fn otherwise(
        &mut self,
        statement: &Statement,
        former: Option<&Case>,
        around: &Case,
        speaker: Speaker<'_>,
    ) {
        let by_host = former.is_some_and(|former| !former.hosts.is_empty());
        let mut branch = statement.clone();
        if statement.word(0) == "else" && statement.word(1) == "if" {
            branch.head.remove(0);
        } else if statement.word(0) != "else" {
            branch.head[0] = Kind::Word("if".to_owned());
        } else if by_host && around.matchers.is_empty() {
            // All other hosts.
            self.statements(statement, around, speaker);
            self.enter(statement, Fate::Taken);
            return;
        } else {
            self.enter_whole(
                statement,
                &Fate::left("there is no matcher for all other requests here"),
            );
            return;
        }
        if former.is_none() {
            self.enter_whole(statement, &Fate::left("the `if` before it was not converted"));
            return;
        }
        self.condition(&branch, around, speaker);
    }

    /// Statements of `vcl_recv`.
    pub(super) fn recv(&mut self, statement: &Statement, keys: &mut Table) -> Fate {
        match (statement.word(0), statement.word(1)) {
            ("set", "req.backend_hint" | "req.backend") => match self.servers(statement.word(3)) {
                Some(servers) => {
                    keys.lay_over(servers);
                    Fate::Taken
                }
                None => Fate::left("there is no such backend"),
            },
            ("set", "req.url") => Fate::left("a path is rewritten by a route with `rewrite`"),
            ("set", "req.grace" | "req.hash_always_miss" | "req.hash_ignore_busy") => {
                Fate::left("stale responses are chosen by the site, not by the request")
            }
            ("set" | "unset" | "remove", variable) => {
                edit(statement, variable, "req.http.", keys, vocabulary::edit_request)
            }
            ("return", _) => returned(statement, keys),
            ("call", _) => Fate::left("subroutines of your own are not followed"),
            _ => Fate::left("Levada has nothing for this statement"),
        }
    }
}

/// Conditions that most files have, and that a node needs no rule for.
fn usual(statement: &Statement) -> Option<Fate> {
    let text = statement.shown();
    let has = |part: &str| text.contains(part);
    if (has("req.method !=") || has("req.request !=")) && has("\"GET\"") {
        return Some(Fate::needless("methods other than GET and HEAD pass the cache by"));
    }
    if has("\"PURGE\"") || has("\"BAN\"") {
        return Some(Fate::left(
            "purges have a token, or come over the admin address: docs/operate/purging.md",
        ));
    }
    if has("req.restarts") {
        return Some(Fate::needless(
            "requests are not restarted; a node sends X-Forwarded-For itself",
        ));
    }
    if has("Upgrade") && has("websocket") {
        return Some(Fate::left("WebSocket is not there"));
    }
    if has("Accept-Encoding") {
        return Some(Fate::needless("a node normalises Accept-Encoding where it compresses"));
    }
    (has("Authorization") && !has("Cookie") && !has("&&")).then(|| {
        Fate::needless("responses to requests with Authorization are not stored unless they say so (RFC 9111, 3.5)")
    })
}

fn returned(statement: &Statement, keys: &mut Table) -> Fate {
    let verb = statement.word(2);
    match verb {
        "pass" => {
            keys.set("cache", false);
            Fate::Taken
        }
        "hash" | "lookup" => Fate::needless("it is what a node does"),
        "pipe" => {
            keys.set("cache", false);
            Fate::differs("the request passes the cache by, and stays HTTP")
        }
        "synth" | "error" => {
            let Ok(status) = statement.word(4).parse::<u64>() else {
                return Fate::left("is no status");
            };
            match statement.head.get(6) {
                Some(Kind::Text(to)) if (301..=308).contains(&status) && to.starts_with("http") => {
                    vocabulary::redirect(keys, status, to.clone())
                }
                _ if (200..=599).contains(&status) => vocabulary::respond(keys, status, None),
                _ => Fate::left("is no status of a response: vcl_synth decides about it"),
            }
        }
        _ => Fate::left("Levada has nothing for this action"),
    }
}

/// `set` and `unset` of a field.
pub(super) fn edit(
    statement: &Statement,
    variable: &str,
    prefix: &str,
    keys: &mut Table,
    apply: fn(&mut Table, &str, Edit) -> Fate,
) -> Fate {
    let Some(name) = variable.strip_prefix(prefix) else {
        return Fate::left("Levada has nothing for this variable");
    };
    if statement.word(0) != "set" {
        return apply(keys, name, Edit::Remove);
    }
    if name.eq_ignore_ascii_case("x-forwarded-for") {
        return Fate::needless("a node sends this field itself");
    }
    match text(&statement.head[3..]) {
        Some(text) => apply(keys, name, Edit::Set(text)),
        None => {
            Fate::left("the text is made by functions, or of variables that Levada does not have")
        }
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
