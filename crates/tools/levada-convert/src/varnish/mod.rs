//! VCL: backends, directors, access lists, and the statements that most files have.
//!
//! VCL is a program, a `levada.toml` is not. Statements become keys of the site, blocks of `if` become routes
//! where a route can hold the condition. Everything else is left.

mod backends;
mod concern;
mod condition;
mod idioms;
mod lex;
mod recv;
mod response;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    conversion::{Conversion, Unreadable},
    files::{Includes, InputFile},
    gate::{self, Concern},
    ledger::{Ledger, MISSED, Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::Condition,
    plan::{Plan, Route, Site},
    rows::{self, Described, Row, find},
    table::{Table, Value},
    tree::{Parser, Statement},
    vocabulary::{self, ANSWERS, SERVERS},
};
use concern::concern;
use lex::GRAMMAR;
use recv::{COOKIES_PASS, Statements};

/// Converts the file and the files that it includes.
///
/// # Errors
/// When a file is not written in VCL's grammar.
pub fn convert(file: &InputFile, includes: &dyn Includes) -> Result<Conversion, Unreadable> {
    let mut ledger = Ledger::default();
    let statements =
        Parser::new(&GRAMMAR, includes, &mut ledger).file(&file.name, &file.text, 0)?;
    let mut converter = Converter { ledger, ..Converter::default() };
    converter.declarations(&statements);
    converter.subroutines(&statements);
    converter.finish();
    let Converter { ledger, plan, .. } = &mut converter;
    let mut missed =
        |one: &Statement| gate::pass(concern(one), one, left(MISSED), &mut plan.defaults);
    ledger.enter_missed(&statements, |_| true, &mut missed);
    Ok(Conversion::new(converter.plan, converter.ledger))
}

/// The fates of statements, for the documentation.
pub fn described() -> Vec<Described> {
    [
        rows::described("", backends::DECLARATIONS),
        rows::described("backend", backends::BACKEND),
        rows::described("probe", backends::PROBE),
        rows::described("new", backends::DIRECTORS),
        rows::described("vcl_recv", recv::STATEMENTS),
        rows::described("vcl_backend_response", response::BACKEND),
        rows::described("vcl_deliver", response::DELIVER),
        rows::described("vcl_hash", HASH),
    ]
    .concat()
}

/// A server, or several with the policy that chooses among them.
#[derive(Clone, Debug, Default)]
struct Director {
    servers: Vec<(String, u64)>,
    /// The policy; without one, the first server that is up.
    policy: Option<&'static str>,
}

/// The rules for the requests of some matchers.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    hosts: Vec<String>,
    condition: Condition,
    keys: Table,
    comment: String,
    /// Whether vcl_recv is left here: no statement after it is for these requests.
    ends: bool,
}

#[derive(Default)]
pub(crate) struct Converter {
    plan: Plan,
    ledger: Ledger,
    backends: BTreeMap<String, Table>,
    first_backend: Option<String>,
    probes: BTreeMap<String, Table>,
    directors: BTreeMap<String, Director>,
    access_lists: BTreeMap<String, Vec<String>>,
    /// Keys of every request.
    keys: Table,
    cases: Vec<Case>,
    /// Statuses that vcl_synth turns into redirects.
    redirects: BTreeMap<u64, u64>,
    /// Whether errors of the origin are given up, so that stale responses stand for them.
    abandons: bool,
    /// Blocks that were walked.
    walked: usize,
    /// Subroutines of the file itself, those that were called, and those that are walked now.
    subs: BTreeMap<String, Statement>,
    called: BTreeSet<String>,
    calls: Vec<String>,
    in_recv: bool,
}

impl Converter {
    fn enter(&mut self, statement: &Statement, outcome: Outcome) {
        self.ledger.enter(statement, outcome);
    }

    fn enter_whole(&mut self, statement: &Statement, outcome: &Outcome) {
        self.ledger.enter_whole(statement, outcome);
    }

    fn subroutines(&mut self, statements: &[Statement]) {
        let subs = || statements.iter().filter(|statement| statement.word(0) == "sub");
        let named = |name| subs().filter(move |sub| sub.word(1) == name);
        for statement in named("vcl_init").flat_map(Statement::inner) {
            let outcome = self.init(statement);
            self.enter(statement, outcome);
        }
        named("vcl_synth").for_each(|sub| self.read_redirects(sub));
        let (own, others): (Vec<_>, Vec<_>) =
            subs().partition(|sub| !sub.word(1).starts_with("vcl_"));
        self.subs = own.iter().map(|sub| (sub.word(1).to_owned(), (*sub).clone())).collect();
        for sub in others {
            let row = find(SUBROUTINES, sub.word(1), "");
            self.in_recv = sub.word(1) == "vcl_recv";
            match row.and_then(Row::keys) {
                Some(Body::Statements(rows)) => self.statements(sub, &Case::everything(), rows),
                Some(Body::Each(read)) => self.each(sub, read),
                None => {}
            }
            self.enter(sub, TAKEN);
        }
        for sub in own {
            match self.called.contains(sub.word(1)) {
                true => self.enter(sub, TAKEN),
                false => self.enter_whole(sub, &needless("nothing calls it")),
            }
        }
        let recv: Vec<_> = named("vcl_recv").collect();
        self.cookies_pass(&recv);
    }

    /// The statements of a subroutine that become no keys of a route. What restricts there holds for all requests.
    fn each(&mut self, sub: &Statement, read: ReadEach) {
        // These make the responses of refusals that are decided elsewhere.
        let makes_responses =
            ["vcl_synth", "vcl_error", "vcl_backend_error"].contains(&sub.word(1));
        for statement in sub.inner() {
            let outcome = read(self, sub.word(1), statement);
            let concern = match sub.word(1) {
                "vcl_hash" => concern(statement).max(Concern::Storing),
                _ if makes_responses => Concern::Other,
                _ => concern(statement),
            };
            let outcome = gate::pass(concern, statement, outcome, &mut self.keys);
            self.enter_whole(statement, &outcome);
        }
    }

    /// Varnish's own vcl_recv comes after that of the file: requests with cookies pass the cache by, unless the file
    /// has decided about them.
    fn cookies_pass(&mut self, recv: &[&Statement]) {
        let returns = |sub: &&Statement| sub.inner().iter().any(|inner| inner.word(0) == "return");
        let decides = recv.iter().any(returns);
        if let (Some(recv), false) = (recv.last(), decides) {
            let reason = "requests with cookies pass the cache by, as Varnish's own vcl_recv says";
            self.enter(recv, differs(reason));
        }
        let all_use_it = self.keys.get(COOKIES_PASS[0]).is_some();
        for key in COOKIES_PASS {
            self.keys.remove(key);
            if decides || all_use_it {
                self.cases.iter_mut().for_each(|case| drop(case.keys.remove(key)));
            } else {
                self.keys.set(key, Value::List(vec!["header.Cookie".into()]));
            }
        }
        self.cases.retain(|case| !case.keys.is_empty());
    }

    /// Sites for the hosts of conditions, and one for all others.
    fn finish(&mut self) {
        self.plan.top.set("name", "edge");
        self.plan.listen.push(Table::from_iter([("address", "0.0.0.0:80".into())]));
        let mut hosts: Vec<Vec<String>> = Vec::new();
        for case in self.cases.iter().filter(|case| !case.hosts.is_empty()) {
            if !hosts.contains(&case.hosts) {
                hosts.push(case.hosts.clone());
            }
        }
        hosts.push(vec!["*".to_owned()]);
        if let (true, Some(window)) =
            (self.abandons, self.keys.get("stale_if_unreachable").cloned())
        {
            self.keys.set("stale_if_error", window);
        }
        let default = self.first_backend.as_ref().and_then(|name| self.servers(name));
        let default = default.unwrap_or_default();
        let sites: Vec<_> = hosts.into_iter().map(|hosts| self.site(hosts, &default)).collect();
        self.plan.sites = sites;
    }

    fn site(&self, hosts: Vec<String>, default: &Table) -> Site {
        let mut site = Site::default();
        site.table.set("hosts", hosts.clone());
        site.table.lay_over(default.clone());
        override_servers(&mut site.table, &self.keys);
        site.table.lay_over(self.keys.clone());
        let is_here = |case: &&Case| case.hosts.is_empty() || case.hosts == hosts;
        // Of several blocks that match, VCL runs all up to a `return`: the first route must be one that ends.
        let (ending, others): (Vec<_>, Vec<_>) =
            self.cases.iter().filter(is_here).partition(|case| case.ends());
        let rest = Case { keys: answers_of(&self.keys), ..Case::everything() };
        let all =
            ending.into_iter().chain([&rest].into_iter().filter(|rest| rest.ends())).chain(others);
        for case in all {
            if case.condition.holds_always() && case.keys.has_any(ANSWERS) {
                let mut table = answers_of(&case.keys);
                vocabulary::keep_those_of(&self.keys, &mut table);
                site.table.remove_all(ANSWERS);
                site.table.1.merge(&case.keys.1);
                site.routes.push(Route { comment: case.comment.clone(), table });
                break;
            } else if case.condition.holds_always() {
                override_servers(&mut site.table, &case.keys);
                site.table.lay_over(case.keys.clone());
            } else if let Some(mut table) = case.condition.table() {
                table.lay_over(case.keys.clone());
                // vcl_deliver is not for responses of vcl_synth.
                if case.keys.has_any(ANSWERS) {
                    vocabulary::keep_those_of(&self.keys, &mut table);
                }
                site.routes.push(Route { comment: case.comment.clone(), table });
            }
        }
        site
    }
}

/// The keys by which all requests are answered.
fn answers_of(keys: &Table) -> Table {
    let mut answers = Table::default();
    for key in ANSWERS {
        if let Some(value) = keys.get(key) {
            answers.set(key, value.clone());
        }
    }
    answers
}

/// Servers in place of others take the keys of the others away.
fn override_servers(table: &mut Table, by: &Table) {
    if by.has_any(SERVERS) {
        table.remove_all(SERVERS);
        table.remove_all(&["policy", "health_check", "origin_host"]);
    }
}

impl Case {
    fn everything() -> Self {
        Self {
            hosts: Vec::new(),
            condition: Condition::everything(),
            keys: Table::default(),
            comment: String::new(),
            ends: false,
        }
    }

    fn ends(&self) -> bool {
        self.ends || self.keys.has_any(ANSWERS) || self.keys.1.is_closed()
    }
}

/// How the statements of a subroutine are read.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// As keys, by these rows.
    Statements(Statements),
    /// One by one.
    Each(ReadEach),
}

type ReadEach = fn(&mut Converter, &str, &Statement) -> Outcome;

pub(crate) const SUBROUTINES: &[Row<Body>] = &[
    Row::needless("vcl_init", "it is read before the others"),
    Row::writes("vcl_recv", "the site and its routes", Body::Statements(recv::STATEMENTS)),
    Row::writes(
        "vcl_backend_response vcl_fetch",
        "the site and its routes",
        Body::Statements(response::BACKEND),
    ),
    Row::writes("vcl_deliver", "the site and its routes", Body::Statements(response::DELIVER)),
    Row::writes(
        "vcl_hash",
        "cache_key",
        Body::Each(|own, _, statement| hash(statement, &mut own.keys)),
    ),
    Row::writes("*", "", Body::Each(|_, name, statement| in_other_subroutine(name, statement))),
];

const SAME: &str = "the key is scheme, host, path and query";

type WriteKey = fn(&str, &mut Table);

/// Parts of the key.
pub(crate) const HASH: &[Row<WriteKey>] = &[
    Row::needless("req.url req.http.host req.http.Host server.ip", SAME),
    Row::needless("req.http.X-Forwarded-Proto req.http.x-forwarded-proto", SAME),
    Row::writes("req.http.*", "cache_key.headers", |field, keys| {
        keys.inline("cache_key").push("headers", &field["req.http.".len()..]);
    }),
    Row::left("*", "there is no rule for this part of the key"),
];

fn hash(statement: &Statement, keys: &mut Table) -> Outcome {
    match statement.word(0) {
        "hash_data" => {
            let part = statement.word(2);
            let row = find(HASH, part, "").ok_or("there is no rule for this part of the key")?;
            row.outcome(|write| {
                write(part, keys);
                TAKEN
            })
        }
        "return" if concern(statement) != Concern::Access => needless(SAME),
        "if" | "else" => {
            let outcomes: Vec<_> =
                statement.inner().iter().map(|inner| hash(inner, keys)).collect();
            let left = outcomes.iter().find(|outcome| outcome.is_err());
            let found = left.or(outcomes.iter().find(|outcome| **outcome == TAKEN));
            found.cloned().unwrap_or_else(|| needless(SAME))
        }
        _ => left("there is no rule for this part of the key"),
    }
}

/// Statements of subroutines that a node has no place for.
fn in_other_subroutine(name: &str, statement: &Statement) -> Outcome {
    const WINDOWS: &str = "stale responses are used within the windows of the site";
    let text = statement.shown();
    let is_about_lifetimes =
        ["obj.ttl", "obj.grace", "std.healthy"].iter().any(|part| text.contains(part));
    match (name, statement.word(0)) {
        _ if concern(statement) == Concern::Access => left(format!("`{name}` has no counterpart")),
        (_, "return") if statement.word(2) != "restart" => needless("a node goes on as it should"),
        ("vcl_hit", word) if is_about_lifetimes || word == "else" => needless(WINDOWS),
        ("vcl_pipe", _) => left("WebSocket is not there"),
        ("vcl_purge", _) => left(PURGES),
        _ => left(format!("`{name}` has no counterpart")),
    }
}

const PURGES: &str = "purges have a token, or come over the admin address: docs/operate/purging.md";
