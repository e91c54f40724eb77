//! Blocks and statements that most files have, each with what stands for it: a key, or nothing.

use super::{Converter, recv::use_the_cache};
use crate::{
    ledger::{Fate, Outcome, Stated as _, TAKEN, differs, left, needless},
    table::Table,
    tree::{Kind, Statement},
    vocabulary::{self, Edit},
};

/// A block that is known as a whole: its keys, and what becomes of its statements.
pub(super) struct Idiom {
    pub(super) keys: Table,
    pub(super) fate: Outcome,
}

impl Idiom {
    fn fate(fate: Outcome) -> Option<Self> {
        Some(Self { keys: Table::default(), fate })
    }

    fn needless(reason: &str) -> Option<Self> {
        Self::fate(needless(reason))
    }

    fn left(reason: &str) -> Option<Self> {
        Self::fate(left(reason))
    }
}

/// Reads a block of `if`.
pub(super) fn block(statement: &Statement) -> Option<Idiom> {
    let text = statement.shown();
    let has = |part: &str| text.contains(part);
    let sets = |variable: &str| {
        !statement.inner().is_empty()
            && statement.inner().iter().all(|inner| inner.word(1).eq_ignore_ascii_case(variable))
    };
    if (has("req.method !=") || has("req.request !=")) && has("\"GET\"") {
        return Idiom::needless("methods other than GET and HEAD pass the cache by");
    }
    if has("\"PURGE\"") || has("\"BAN\"") || has("\"URIBAN\"") {
        return Idiom::left(
            "purges have a token, or come over the admin address: docs/operate/purging.md",
        );
    }
    if has("req.restarts") {
        return Idiom::needless("requests are not restarted; a node sends X-Forwarded-For itself");
    }
    if has("pgrade") && has("websocket") {
        return Idiom::left("WebSocket is not there");
    }
    if has("Accept-Encoding") {
        return Idiom::needless("a node normalises Accept-Encoding where it compresses");
    }
    if has("Authorization") && !has("Cookie") && !has("&&") {
        return Idiom::needless(
            "responses to requests with Authorization are not stored unless they say so (RFC 9111, 3.5)",
        );
    }
    if sets("req.http.host") && statement.inner().iter().all(removes_the_port) {
        return Idiom::needless(SAME_PORT);
    }
    if sets("req.url") && (has("\"\\#\"") || has("\"#\"")) {
        return Idiom::needless("clients send no fragments");
    }
    if sets("req.url") {
        return tracking(statement);
    }
    if sets("req.http.cookie") && has("\"^\\s*$\"") && statement.inner().iter().all(is_unset) {
        return Idiom::needless("an empty field selects nothing");
    }
    if has("beresp.ttl <=") && statement.inner().iter().all(passes_hits) {
        return Idiom::needless(
            "responses that cannot be stored are fetched beside each other: nothing has to be remembered",
        );
    }
    hit_or_miss(statement)
}

const SAME_PORT: &str = "a site is found by the host alone, and the scheme's port is not in keys";

/// `set req.http.Host = regsub(req.http.Host, ":[0-9]+", "");`
fn removes_the_port(statement: &Statement) -> bool {
    statement
        .head
        .iter()
        .any(|kind| matches!(kind, Kind::Text(text) if text.starts_with(":[0-9]+")))
}

fn is_unset(statement: &Statement) -> bool {
    matches!(statement.word(0), "unset" | "remove")
}

/// Statements of a block for hit-for-pass.
fn passes_hits(statement: &Statement) -> bool {
    matches!(
        (statement.word(0), statement.word(1)),
        ("set", "beresp.ttl" | "beresp.uncacheable" | "beresp.grace") | ("return", _)
    )
}

/// `if (req.url ~ "(\?|&)(utm_source|gclid)=") { set req.url = regsuball(...); }`
fn tracking(statement: &Statement) -> Option<Idiom> {
    let [_, _, Kind::Word(url), Kind::Sign("~"), Kind::Text(regex), ..] = &statement.head[..]
    else {
        return None;
    };
    let inner = regex.strip_prefix("(\\?|&)(").or_else(|| regex.strip_prefix("[?&]("))?;
    let (names, rest) = inner.split_once(')')?;
    if url != "req.url" || !["=", ""].contains(&rest) {
        return None;
    }
    let mut keys = Table::default();
    for name in names.split('|') {
        let name = name.replace("[a-z]+", "*").replace(".*", "*").replace("\\w+", "*");
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-*".contains(c)) {
            return None;
        }
        keys.inline("cache_key").push("query_without", name);
    }
    Some(Idiom { keys, fate: differs(FOR_THE_KEY) })
}

const FOR_THE_KEY: &str = "it holds for the key; the origin gets the URL as the client wrote it";

/// Reads a statement of `vcl_recv` about the URL or the host.
pub(super) fn url_or_host(statement: &Statement, keys: &mut Table) -> Option<Outcome> {
    let value = statement.value();
    match statement.word(1) {
        "req.url" if statement.word(3) == "std.querysort" => {
            match vocabulary::put_inner(keys, "cache_key", "sort_query", true) {
                Ok(Fate::Taken) => Some(differs(FOR_THE_KEY)),
                fate => Some(fate),
            }
        }
        "req.url" => {
            Some(left("write a route with `path_regex` and `rewrite`: docs/operate/rewrites.md"))
        }
        host if host.eq_ignore_ascii_case("req.http.host") => match value {
            _ if removes_the_port(statement) => Some(needless(SAME_PORT)),
            [Kind::Text(host)] => {
                keys.set("origin_host", host.as_str());
                Some(differs("it holds for the origin; the key keeps the client's host"))
            }
            _ => Some(left("the host is not made of other things")),
        },
        _ => None,
    }
}

/// Takes cookies out of requests or responses: the one does not undo the other.
pub(super) fn strip_cookies(keys: &mut Table, from: &'static str) -> Outcome {
    let both = keys.get("strip_cookies").is_some_and(|own| *own != from.into());
    if from == "request" {
        use_the_cache(keys);
    }
    keys.set("strip_cookies", if both { "both" } else { from });
    TAKEN
}

/// The two blocks that say whether a response came from the cache.
fn hit_or_miss(statement: &Statement) -> Option<Idiom> {
    let [set] = statement.inner() else { return None };
    let name = set.word(1).strip_prefix("resp.http.")?;
    let is_about_hits = statement.shown().contains("obj.hits") || statement.word(0) == "else";
    let [Kind::Text(text)] = set.head.get(3..)? else { return None };
    let says = ["hit", "miss"].iter().any(|word| text.eq_ignore_ascii_case(word));
    if !is_about_hits || !says {
        return None;
    }
    let mut keys = Table::default();
    let fate = match vocabulary::edit_response(&mut keys, name, Edit::Set("{cache}".to_owned())) {
        Ok(Fate::Taken) => differs("`{cache}` has other words than these two"),
        fate => fate,
    };
    Some(Idiom { keys, fate })
}

impl Converter {
    /// `if (resp.status == 720) { set resp.http.Location = resp.reason; set resp.status = 301; }`: redirects by
    /// statuses of their own.
    pub(super) fn read_redirects(&mut self, synth: &Statement) {
        for block in synth.inner() {
            let code = block.head.iter().find_map(|kind| match kind {
                Kind::Word(word) => word.parse::<u64>().ok(),
                _ => None,
            });
            let set = |variable: &str| {
                block.inner().iter().find(|inner| inner.word(1) == variable).map(|set| set.word(3))
            };
            let status = set("resp.status").and_then(|status| status.parse::<u64>().ok());
            let (Some(code), Some(status)) = (code, status) else { continue };
            let location = set("resp.http.Location").or(set("resp.http.location"));
            if matches!(location, Some("resp.reason" | "req.http.x-redir" | "obj.response")) {
                self.redirects.insert(code, status);
                self.enter_whole(block, &needless("redirects are made where they are asked for"));
            }
        }
    }
}
