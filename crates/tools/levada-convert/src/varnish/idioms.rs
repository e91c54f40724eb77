//! Blocks and statements that most files have, each with what stands for it: a key, or nothing.

use super::{Converter, PURGES, concern::concern, recv::use_the_cache};
use crate::{
    gate::Concern,
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    rows::Row,
    table::Table,
    tree::{Kind, Statement},
    vocabulary::{self, Edit},
};

/// A block that is known as a whole: its keys, and what becomes of its statements.
pub(super) struct Idiom {
    pub(super) keys: Table,
    pub(super) outcome: Outcome,
}

/// A block of `if`, as it is compared.
pub(crate) struct Block<'a> {
    statement: &'a Statement,
    text: String,
}

impl Block<'_> {
    /// Whether the condition has one of these parts.
    fn has(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.text.contains(part))
    }

    /// Whether each alternative of its condition has a method of purges.
    fn is_about_purges(&self) -> bool {
        let is_purge = |part: &str| {
            ["\"PURGE\"", "\"BAN\"", "\"URIBAN\""].iter().any(|method| part.contains(method))
                && part.contains("==")
        };
        self.text.split("||").all(is_purge)
    }

    fn all(&self, is: fn(&Statement) -> bool) -> bool {
        self.statement.inner().iter().all(is)
    }

    /// Whether all its statements are about this variable.
    fn sets(&self, variable: &str) -> bool {
        let sets = |inner: &Statement| inner.word(1).eq_ignore_ascii_case(variable);
        !self.statement.inner().is_empty() && self.statement.inner().iter().all(sets)
    }
}

type Looks = fn(&Block<'_>) -> bool;

/// Blocks that write no keys, by what they look like. The first one that fits counts.
const BLOCKS: &[(Looks, Row<()>)] = &[
    (
        |block| block.has(&["req.method !=", "req.request !="]) && block.has(&["\"GET\""]),
        Row::needless("", "methods other than GET and HEAD pass the cache by"),
    ),
    (|block| block.is_about_purges(), Row::left("", PURGES)),
    (
        |block| block.has(&["req.restarts"]),
        Row::needless("", "requests are not restarted; a node sends X-Forwarded-For itself"),
    ),
    (
        |block| block.has(&["pgrade"]) && block.has(&["websocket"]),
        Row::left("", "WebSocket is not there"),
    ),
    (
        |block| block.has(&["Accept-Encoding"]),
        Row::needless("", "a node normalises Accept-Encoding where it compresses"),
    ),
    (
        |block| block.has(&["Authorization"]) && !block.has(&["Cookie", "&&"]),
        Row::needless(
            "",
            "responses to requests with Authorization are not stored unless they say so (RFC 9111, 3.5)",
        ),
    ),
    (
        |block| block.sets("req.http.host") && block.all(removes_the_port),
        Row::needless("", SAME_PORT),
    ),
    (
        |block| block.sets("req.url") && block.has(&["\"\\#\"", "\"#\""]),
        Row::needless("", "clients send no fragments"),
    ),
    (
        |block| block.sets("req.http.cookie") && block.has(&["\"^\\s*$\""]) && block.all(is_unset),
        Row::needless("", "an empty field selects nothing"),
    ),
    (
        |block| block.has(&["beresp.ttl <="]) && block.all(passes_hits),
        Row::needless(
            "",
            "responses that cannot be stored are fetched beside each other: nothing has to be remembered",
        ),
    ),
];

/// Reads a block of `if`.
pub(super) fn block(statement: &Statement) -> Option<Idiom> {
    let block = Block { statement, text: statement.shown() };
    // A block that refuses requests is no idiom, but for that of purges, which have a token here.
    if concern(statement) == Concern::Access && !block.is_about_purges() {
        return None;
    }
    match BLOCKS.iter().find(|(is, _)| is(&block)) {
        Some((_, row)) => Some(Idiom { keys: Table::default(), outcome: row.outcome(|()| TAKEN) }),
        None if block.sets("req.url") => tracking(statement),
        None => hit_or_miss(&block),
    }
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
    Some(Idiom { keys, outcome: differs(FOR_THE_KEY) })
}

const FOR_THE_KEY: &str = "it holds for the key; the origin gets the URL as the client wrote it";

/// `set req.url = ...`
pub(super) fn url(statement: &Statement, keys: &mut Table) -> Outcome {
    if statement.word(3) != "std.querysort" {
        return left("write a route with `path_regex` and `rewrite`: docs/operate/rewrites.md");
    }
    keys.inline("cache_key").set("sort_query", true);
    differs(FOR_THE_KEY)
}

/// `set req.http.host = ...`
pub(super) fn host(statement: &Statement, keys: &mut Table) -> Outcome {
    match statement.value() {
        _ if removes_the_port(statement) => needless(SAME_PORT),
        [Kind::Text(host)] => {
            keys.set("origin_host", host.as_str());
            differs("it holds for the origin; the key keeps the client's host")
        }
        _ => left("the host is not made of other things"),
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
fn hit_or_miss(block: &Block<'_>) -> Option<Idiom> {
    let [set] = block.statement.inner() else { return None };
    let name = set.word(1).strip_prefix("resp.http.")?;
    let is_about_hits = block.has(&["obj.hits"]) || block.statement.word(0) == "else";
    let [Kind::Text(text)] = set.value() else { return None };
    if !is_about_hits || !["hit", "miss"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return None;
    }
    let mut keys = Table::default();
    let outcome = vocabulary::edit_response(&mut keys, name, Edit::Set("{cache}".to_owned()));
    let outcome = outcome.and_then(|_| differs("`{cache}` has other words than these two"));
    Some(Idiom { keys, outcome })
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
