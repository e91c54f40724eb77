//! VCL: backends, directors, access lists, and the statements that most files have.
//!
//! VCL is a program, a `levada.toml` is not. Statements become keys of the site, blocks of `if` become routes
//! where a route can hold the condition. Everything else is left.

mod condition;
mod idioms;
mod lex;
mod recv;
mod response;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{
    conversion::Conversion,
    conversion::Unreadable,
    files::Includes,
    files::InputFile,
    ledger::{Ledger, Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::Condition,
    plan::{Plan, Route, Site},
    table::{Table, Value},
    tree::{Kind, Parser, Statement},
    units,
};
use lex::GRAMMAR;
use recv::COOKIES_PASS;

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
    converter.ledger.enter_missed(&statements, |_| true);
    Ok(Conversion::new(converter.plan, converter.ledger))
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
}

#[derive(Default)]
struct Converter {
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
}

impl Converter {
    fn enter(&mut self, statement: &Statement, fate: Outcome) {
        self.ledger.enter(statement, fate);
    }

    fn enter_whole(&mut self, statement: &Statement, fate: &Outcome) {
        self.ledger.enter_whole(statement, fate);
    }

    fn declarations(&mut self, statements: &[Statement]) {
        // Probes may stand after the backends that name them.
        for statement in statements.iter().filter(|statement| statement.word(0) == "probe") {
            let probe = self.probe(statement.inner());
            self.probes.insert(statement.word(1).to_owned(), probe);
            self.enter(statement, TAKEN);
        }
        for statement in statements {
            let fate = match statement.word(0) {
                "vcl" => TAKEN,
                "import" => {
                    needless("modules are not imported: their calls are told where they stand")
                }
                "backend" => self.backend(statement),
                "acl" => self.access_list(statement),
                "probe" | "sub" => continue,
                "director" => left("directors of VCL 3: write them with `new` in vcl_init first"),
                _ => left("Levada has nothing for this declaration"),
            };
            self.enter(statement, fate);
        }
    }

    fn backend(&mut self, statement: &Statement) -> Outcome {
        let name = statement.word(1).to_owned();
        let (mut host, mut port, mut scheme) = (None, None, "http");
        let mut keys = Table::default();
        for field in statement.inner() {
            let value = match field.head.last() {
                Some(Kind::Text(text)) => text.clone(),
                Some(Kind::Word(word)) => word.clone(),
                _ => String::new(),
            };
            let fate = match field_name(field) {
                "host" => {
                    host = Some(value);
                    TAKEN
                }
                "port" => {
                    port = Some(value);
                    TAKEN
                }
                "path" => {
                    keys.set("origin", format!("unix:{value}"));
                    TAKEN
                }
                "host_header" => {
                    keys.set("origin_host", value);
                    TAKEN
                }
                "ssl" if value == "1" || value == "true" => {
                    scheme = "https";
                    TAKEN
                }
                "probe" => {
                    let probe = match &field.block {
                        Some(block) => Some(self.probe(block)),
                        None => self.probes.get(&value).cloned(),
                    };
                    match probe {
                        Some(probe) => {
                            keys.set("health_check", probe);
                            TAKEN
                        }
                        None => left("there is no such probe"),
                    }
                }
                name @ ("connect_timeout" | "first_byte_timeout" | "between_bytes_timeout") => {
                    self.timeout(name, &value)
                }
                "max_connections" => match value.parse::<u64>() {
                    Ok(most) => {
                        self.node_limit("server_connections", most.to_string(), Value::Number(most))
                    }
                    Err(_) => left("is no number"),
                },
                _ => left("a server has no such key"),
            };
            self.enter(field, fate);
        }
        if keys.get("origin").is_none() {
            let Some(host) = host else { return left("the backend has no host") };
            if host == "none" {
                return left("a site has an origin");
            }
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let default = if scheme == "https" { ":443" } else { ":80" };
            let port = if port == default || port == ":http" { String::new() } else { port };
            keys.set("origin", format!("{scheme}://{host}{port}"));
        }
        if self.first_backend.is_none() || name == "default" {
            self.first_backend = Some(name.clone());
        }
        self.backends.insert(name, keys);
        TAKEN
    }

    fn probe(&mut self, fields: &[Statement]) -> Table {
        let mut probe = Table::default();
        let mut window = 8;
        for field in fields {
            let value = field.head.last().map(Kind::shown).unwrap_or_default();
            let value = value.trim_matches('"');
            let time = || units::vcl_time(value).map(units::duration);
            let fate = match (field_name(field), value.parse::<u64>()) {
                ("url", _) => {
                    probe.set("path", value);
                    TAKEN
                }
                (name @ ("interval" | "timeout"), _) => match time() {
                    Some(time) => {
                        probe.set(name, time);
                        TAKEN
                    }
                    None => left("is no time"),
                },
                ("window", Ok(count)) => {
                    window = count;
                    differs("`rise` and `fall` count probes in a row, not in a window")
                }
                ("threshold", Ok(count)) => {
                    probe.set("rise", count.clamp(1, 100));
                    probe.set("fall", (window.saturating_sub(count) + 1).clamp(1, 100));
                    TAKEN
                }
                ("request", _) => match request_path(field) {
                    Some(path) => {
                        probe.set("path", path);
                        differs("probes are GET requests with the site's host")
                    }
                    None => left("a health check asks for a path"),
                },
                ("initial", _) => needless("a server is up until a probe fails"),
                ("expected_response", Ok(200)) => needless("a probe must get a response below 400"),
                _ => left("a health check has no such key"),
            };
            self.enter(field, fate);
        }
        probe
    }

    fn timeout(&mut self, name: &str, value: &str) -> Outcome {
        let key = match name {
            "connect_timeout" => "connect_timeout",
            "first_byte_timeout" => "response_timeout",
            _ => "response_body_timeout",
        };
        match units::vcl_time(value) {
            Some(time) => {
                let text = units::duration(time.clamp(1, 3_600_000));
                self.node_limit(key, text.clone(), Value::Text(text))
            }
            None => left("is no time"),
        }
    }

    fn node_limit(&mut self, key: &str, shown: String, value: Value) -> Outcome {
        match self.plan.limits.get(key) {
            Some(own) if *own != value => left(format!(
                "the node has one such limit, and another value than {shown} is stated for it"
            )),
            _ => {
                self.plan.limits.set(key, value);
                differs("the limit holds for all servers of the node")
            }
        }
    }

    fn access_list(&mut self, statement: &Statement) -> Outcome {
        let mut addresses = Vec::new();
        for entry in statement.inner() {
            let texts: Vec<_> = entry.head.iter().map(Kind::shown).collect();
            let text = texts.join("").replace('"', "");
            let is_address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
            let fate = match text.split_once('/') {
                _ if text.starts_with('!') => left("an address that is taken out of a list"),
                _ if text == "localhost" => {
                    addresses.extend(["127.0.0.0/8".to_owned(), "::1".to_owned()]);
                    TAKEN
                }
                Some((address, bits)) if is_address(address) && bits.parse::<u8>().is_ok() => {
                    addresses.push(text.clone());
                    TAKEN
                }
                None if is_address(&text) => {
                    addresses.push(text.clone());
                    TAKEN
                }
                _ => left("an entry is an address or a prefix of addresses"),
            };
            self.enter(entry, fate);
        }
        self.access_lists.insert(statement.word(1).to_owned(), addresses);
        TAKEN
    }

    fn subroutines(&mut self, statements: &[Statement]) {
        let subs = || statements.iter().filter(|statement| statement.word(0) == "sub");
        for sub in subs().filter(|sub| sub.word(1) == "vcl_init") {
            self.enter(sub, TAKEN);
            for statement in sub.inner() {
                let fate = self.init(statement);
                self.enter(statement, fate);
            }
        }
        for sub in subs().filter(|sub| sub.word(1) == "vcl_synth") {
            self.read_redirects(sub);
        }
        for sub in subs() {
            match sub.word(1) {
                "vcl_init" => continue,
                "vcl_recv" => self.statements(sub, &Case::everything(), &mut Self::recv),
                "vcl_backend_response" | "vcl_fetch" => {
                    self.statements(sub, &Case::everything(), &mut Self::backend_response);
                }
                "vcl_deliver" => self.statements(sub, &Case::everything(), &mut Self::deliver),
                "vcl_hash" => {
                    for statement in sub.inner() {
                        let fate = hash(statement, &mut self.keys);
                        self.enter_whole(statement, &fate);
                    }
                }
                name => {
                    for statement in sub.inner() {
                        self.enter_whole(statement, &in_other_subroutine(name, statement));
                    }
                }
            }
            self.enter(sub, TAKEN);
        }
        let recv: Vec<_> = subs().filter(|sub| sub.word(1) == "vcl_recv").collect();
        self.cookies_pass(&recv);
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

    /// `new x = directors.round_robin(); x.add_backend(a);`
    fn init(&mut self, statement: &Statement) -> Outcome {
        if statement.word(0) == "new" {
            let policy = match statement.word(3).trim_start_matches("directors.") {
                "round_robin" => Some("round_robin"),
                "random" => Some("random"),
                "hash" | "shard" => Some("ring_hash"),
                "fallback" => None,
                _ => return left("there is no such director"),
            };
            self.directors
                .insert(statement.word(1).to_owned(), Director { servers: Vec::new(), policy });
            return TAKEN;
        }
        if statement.word(0) == "return" {
            return needless("it is the end");
        }
        let Some((name, call)) = statement.word(0).rsplit_once('.') else {
            return left("Levada has nothing for this statement");
        };
        match (self.directors.get_mut(name), call) {
            (Some(director), "add_backend") => {
                let weight = statement
                    .word(4)
                    .parse::<f64>()
                    .map_or(1, |weight| weight.round().max(1.0) as u64);
                director.servers.push((statement.word(2).to_owned(), weight.min(1000)));
                TAKEN
            }
            (Some(_), "reconfigure") => needless("servers may change at a reload"),
            _ => left("Levada has nothing for this call"),
        }
    }

    /// The keys of a backend or director, by its name.
    fn servers(&self, name: &str) -> Option<Table> {
        let name = name.strip_suffix(".backend").unwrap_or(name);
        let Some(director) = self.directors.get(name) else {
            return self.backends.get(name).cloned();
        };
        let mut keys = Table::default();
        let members: Vec<_> = director
            .servers
            .iter()
            .filter_map(|(name, weight)| Some((self.backends.get(name)?, weight)))
            .collect();
        let urls = || members.iter().filter_map(|(backend, _)| backend.get("origin").cloned());
        match director.policy {
            None => keys.set("origin", Value::List(urls().collect())),
            Some(_) if members.len() < 2 => keys.set("origin", urls().next()?),
            Some(policy) if members.iter().all(|(_, weight)| **weight == 1) => {
                keys.set("servers", Value::List(urls().collect()));
                keys.inline("policy").set("name", policy);
            }
            Some(policy) => {
                for (url, (_, weight)) in urls().zip(&members) {
                    keys.push(
                        "server",
                        Table::from_iter([("url", url), ("weight", (**weight).into())]),
                    );
                }
                let policy = if policy == "round_robin" { "weighted_round_robin" } else { policy };
                keys.inline("policy").set("name", policy);
            }
        }
        let first = members.first()?.0;
        for key in ["health_check", "origin_host"] {
            if let Some(value) = first.get(key) {
                keys.set(key, value.clone());
            }
        }
        Some(keys)
    }

    /// Sites for the hosts of conditions, and one for all others.
    fn finish(&mut self) {
        self.plan.top.set("name", "edge");
        self.plan.listen.push(Table::from_iter([("address", "0.0.0.0:80".into())]));
        let mut hosts: Vec<Vec<String>> = Vec::new();
        for case in &self.cases {
            if !case.hosts.is_empty() && !hosts.contains(&case.hosts) {
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
        for hosts in hosts {
            let mut site = Site::default();
            site.table.set("hosts", hosts.clone());
            site.table.lay_over(default.clone().unwrap_or_default());
            override_servers(&mut site.table, &self.keys);
            site.table.lay_over(self.keys.clone());
            for case in
                self.cases.iter().filter(|case| case.hosts.is_empty() || case.hosts == hosts)
            {
                if case.condition.holds_always() {
                    override_servers(&mut site.table, &case.keys);
                    let answers = ["redirect", "respond"];
                    if answers.iter().any(|key| case.keys.get(key).is_some()) {
                        answers.iter().for_each(|key| drop(site.table.remove(key)));
                    }
                    site.table.lay_over(case.keys.clone());
                    continue;
                }
                let Some(mut table) = case.condition.table() else { continue };
                table.lay_over(case.keys.clone());
                site.routes.push(Route { comment: case.comment.clone(), table });
            }
            self.plan.sites.push(site);
        }
    }
}

/// Servers in place of others take the keys of the others away.
fn override_servers(table: &mut Table, by: &Table) {
    let keys = ["origin", "servers", "server"];
    if keys.iter().any(|key| by.get(key).is_some()) {
        for key in keys.into_iter().chain(["policy", "health_check", "origin_host"]) {
            table.remove(key);
        }
    }
}

impl Case {
    fn everything() -> Self {
        Self {
            hosts: Vec::new(),
            condition: Condition::everything(),
            keys: Table::default(),
            comment: String::new(),
        }
    }
}

/// The path of `.request = "HEAD /path HTTP/1.1" ...`.
fn request_path(field: &Statement) -> Option<&str> {
    let first = field.head.iter().find_map(|kind| match kind {
        Kind::Text(text) => Some(text.as_str()),
        _ => None,
    });
    first?.split_whitespace().nth(1).filter(|path| path.starts_with('/'))
}

/// `.host` of `.host = "..."`.
fn field_name(field: &Statement) -> &str {
    match field.head.as_slice() {
        [Kind::Sign("."), Kind::Word(name), ..] => name,
        _ => "",
    }
}

fn hash(statement: &Statement, keys: &mut Table) -> Outcome {
    const SAME: &str = "the key is scheme, host, path and query";
    match (statement.word(0), statement.word(2)) {
        ("hash_data", "req.url" | "req.http.host" | "req.http.Host" | "server.ip")
        | ("hash_data", "req.http.X-Forwarded-Proto" | "req.http.x-forwarded-proto")
        | ("return", _) => needless(SAME),
        ("hash_data", field) if field.starts_with("req.http.") => {
            keys.inline("cache_key").push("headers", &field["req.http.".len()..]);
            TAKEN
        }
        ("if" | "else", _) => {
            let fates: Vec<_> = statement.inner().iter().map(|inner| hash(inner, keys)).collect();
            let left = fates.iter().find(|fate| fate.is_err());
            match left.or(fates.iter().find(|fate| **fate == TAKEN)) {
                Some(fate) => fate.clone(),
                None => needless(SAME),
            }
        }
        _ => left("there is no rule for this part of the key"),
    }
}

/// Statements of subroutines that a node has no place for.
fn in_other_subroutine(name: &str, statement: &Statement) -> Outcome {
    let text = statement.shown();
    let is_about_lifetimes =
        ["obj.ttl", "obj.grace", "std.healthy"].iter().any(|part| text.contains(part));
    match (name, statement.word(0)) {
        (_, "return") if statement.word(2) != "restart" => needless("a node goes on as it should"),
        ("vcl_hit", _) if is_about_lifetimes => {
            needless("stale responses are used within the windows of the site")
        }
        ("vcl_hit", "else") => needless("stale responses are used within the windows of the site"),
        ("vcl_pipe", _) => left("WebSocket is not there"),
        ("vcl_purge", _) => {
            left("purges have a token, or come over the admin address: docs/operate/purging.md")
        }
        _ => left(format!("`{name}` has no counterpart")),
    }
}
