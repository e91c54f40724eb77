//! `vcl_backend_response` and `vcl_deliver`.

use super::{
    Case, Converter,
    concern::concern,
    idioms,
    recv::{NO_STATEMENT, NO_VARIABLE, Statements, edit},
};
use crate::{
    gate::{self, Concern},
    ledger::{Outcome, Stated as _, TAKEN, differs, left},
    rows::Row,
    table::{Table, Value},
    tree::Statement,
    units, vocabulary,
};

/// Statements about the response of the origin.
pub(crate) const BACKEND: Statements = &[
    Row::writes("beresp.ttl = set", "ttl", |_, one, keys| {
        force_ttl(keys, "any", time(one).ok_or("a lifetime is a time")?)
    }),
    Row::writes(
        "beresp.grace = set",
        "stale_while_revalidate, stale_if_unreachable",
        |_, one, keys| {
            let window = time(one).ok_or("a window is a time")?;
            keys.set("stale_while_revalidate", units::duration(window));
            keys.set("stale_if_unreachable", units::duration(window));
            TAKEN
        },
    ),
    Row::needless("beresp.keep = set", "responses with a validator are kept while there is room"),
    Row::needless("beresp.do_stream = set", "bodies pass while they arrive"),
    Row::writes("beresp.do_gzip = set", "compress.codings", |_, _, keys| {
        keys.inline("compress").set("codings", Value::List(vec!["gzip".into()]));
        TAKEN
    }),
    Row::left("beresp.do_esi = set", "bodies are not changed"),
    Row::writes("beresp.uncacheable = set", "cache", |_, _, keys| {
        keys.set("cache", false);
        TAKEN
    }),
    Row::writes("beresp.http.set-cookie = unset", "strip_cookies", |_, _, keys| {
        idioms::strip_cookies(keys, "response")
    }),
    Row::writes("beresp.http.* = set unset", "response_headers", |_, one, keys| {
        edit(one, "beresp.http.", keys, vocabulary::edit_response)
    }),
    Row::left("* = set unset", NO_VARIABLE),
    Row::left("return = synth error abandon fail", "a response is not refused here"),
    Row::needless("return", "it is what a node does"),
    Row::left("*", NO_STATEMENT),
];

/// Statements about the response to the client.
pub(crate) const DELIVER: Statements = &[
    Row::writes("resp.http.* = set unset", "response_headers", |_, one, keys| {
        edit(one, "resp.http.", keys, vocabulary::edit_response)
    }),
    Row::left("* = set unset", NO_VARIABLE),
    Row::left("return = synth error abandon fail", "a response is not refused here"),
    Row::needless("return", "it is what a node does"),
    Row::left("*", NO_STATEMENT),
];

/// The time of `set NAME = TIME`.
fn time(statement: &Statement) -> Option<u64> {
    units::vcl_time(statement.word(3))
}

/// Stores responses with a status for a time, whatever the origin states.
fn force_ttl(keys: &mut Table, statuses: &str, time: u64) -> Outcome {
    keys.push("ttl", format!("{statuses} {}", units::duration(time)));
    TAKEN
}

impl Converter {
    /// `if (beresp.status == 404) { set beresp.ttl = 10s; }`
    pub(super) fn by_status(&mut self, statement: &Statement, around: &Case, status: &str) {
        for inner in statement.inner() {
            let is_lifetime = inner.word(0) == "set" && inner.word(1) == "beresp.ttl";
            let is_abandoned = inner.word(0) == "return" && inner.word(2) == "abandon";
            let is_everywhere = around.condition.holds_always() && around.hosts.is_empty();
            let outcome = match time(inner).filter(|_| is_lifetime && is_everywhere) {
                _ if is_abandoned && status.starts_with('5') => {
                    self.abandons = true;
                    differs(
                        "stale responses stand for errors of the origin; without one, the error is passed on",
                    )
                }
                Some(time) => force_ttl(&mut self.keys, status, time),
                None => left("only a lifetime of the whole site goes by the status"),
            };
            // That of an error is no refusal.
            let concern = match is_abandoned {
                true => Concern::Other,
                false => concern(inner),
            };
            let mut keys = Table::default();
            let outcome = gate::pass(concern, inner, outcome, &mut keys);
            self.add(around, keys);
            self.enter_whole(inner, &outcome);
        }
    }
}
