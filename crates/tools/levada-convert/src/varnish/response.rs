//! `vcl_backend_response` and `vcl_deliver`.

use super::{Case, Converter, idioms, recv::edit};
use crate::{
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    table::Table,
    tree::{Kind, Statement},
    units, vocabulary,
};

impl Converter {
    /// Statements about the response of the origin.
    pub(super) fn backend_response(&mut self, statement: &Statement, keys: &mut Table) -> Outcome {
        let time = || units::vcl_time(statement.word(3)).map(units::duration);
        match (statement.word(0), statement.word(1)) {
            ("set", "beresp.ttl") => match time() {
                Some(ttl) => vocabulary::force_ttl(keys, "any", &ttl),
                None => left("a lifetime is a time"),
            },
            ("set", "beresp.grace") => match time() {
                Some(window) => {
                    keys.set("stale_while_revalidate", window.as_str());
                    keys.set("stale_if_unreachable", window);
                    TAKEN
                }
                None => left("a window is a time"),
            },
            ("set", "beresp.keep") => {
                needless("responses with a validator are kept while there is room")
            }
            ("set", "beresp.do_stream") => needless("bodies pass while they arrive"),
            ("set", "beresp.do_gzip") => {
                let codings = crate::table::Value::List(vec!["gzip".into()]);
                vocabulary::put_inner(keys, "compress", "codings", codings)
            }
            ("set", "beresp.do_esi") => left("bodies are not changed"),
            ("set", "beresp.uncacheable") => {
                keys.set("cache", false);
                TAKEN
            }
            ("unset" | "remove", "beresp.http.Set-Cookie" | "beresp.http.set-cookie") => {
                idioms::strip_cookies(keys, "response")
            }
            ("set" | "unset" | "remove", variable) => {
                edit(statement, variable, "beresp.http.", keys, vocabulary::edit_response)
            }
            ("return", _) => needless("it is what a node does"),
            _ => left("Levada has nothing for this statement"),
        }
    }

    /// Statements about the response to the client.
    pub(super) fn deliver(&mut self, statement: &Statement, keys: &mut Table) -> Outcome {
        match (statement.word(0), statement.word(1)) {
            ("set" | "unset" | "remove", variable) => {
                edit(statement, variable, "resp.http.", keys, vocabulary::edit_response)
            }
            ("return", _) => needless("it is what a node does"),
            _ => left("Levada has nothing for this statement"),
        }
    }

    /// `if (beresp.status == 404) { set beresp.ttl = 10s; }`
    pub(super) fn by_status(&mut self, statement: &Statement, around: &Case, status: &str) {
        for inner in statement.inner() {
            let time = match (inner.word(0), inner.word(1), inner.head.get(3)) {
                ("set", "beresp.ttl", Some(Kind::Word(time))) => units::vcl_time(time),
                _ => None,
            };
            if inner.word(0) == "return" && inner.word(2) == "abandon" && status.starts_with('5') {
                self.abandons = true;
                let reason = "stale responses stand for errors of the origin; without one, the error is passed on";
                self.enter(inner, differs(reason));
                continue;
            }
            let fate = match time {
                Some(time) if around.condition.holds_always() && around.hosts.is_empty() => {
                    vocabulary::force_ttl(&mut self.keys, status, &units::duration(time))
                }
                _ => left("only a lifetime of the whole site goes by the status"),
            };
            self.enter(inner, fate);
        }
    }
}
