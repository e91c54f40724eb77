//! The declarations before subroutines: backends, probes, access lists, directors.

use std::net::IpAddr;

use super::{Converter, Director};
use crate::{
    ledger::{Fate, Outcome, Stated as _, TAKEN, differs, left, needless},
    pool::{self, Member},
    rows::{Row, find},
    table::{Table, Value},
    tree::{Kind, Statement},
    units::{self, Read},
};

/// A backend while its fields are read.
pub(crate) struct Backend {
    host: Option<String>,
    port: Option<String>,
    scheme: &'static str,
    keys: Table,
}

/// How a field of a backend is read.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    /// As the value of the key that its row names.
    Value(Read),
    Sets(fn(&mut Backend, &str)),
    Probe,
}

use Field::{Probe, Sets};

const fn value(names: &'static str, key: &'static str, read: Read) -> Row<Field> {
    Row::writes(names, key, Field::Value(read))
}

pub(crate) const BACKEND: &[Row<Field>] = &[
    Row::writes("host", "origin", Sets(|own, value| own.host = Some(value.to_owned()))),
    Row::writes("port", "origin", Sets(|own, value| own.port = Some(value.to_owned()))),
    Row::writes("ssl = 1 true", "origin", Sets(|own, _| own.scheme = "https")),
    value("path", "origin", |path| Ok(format!("unix:{path}").into())),
    value("host_header", "origin_host", units::text),
    value("connect_timeout", "limits.connect_timeout", time),
    value("first_byte_timeout", "limits.response_timeout", time),
    value("between_bytes_timeout", "limits.response_body_timeout", time),
    value("max_connections", "limits.server_connections", units::number),
    Row::writes("probe", "health_check", Probe),
    Row::left("*", "a server has no such key"),
];

fn time(text: &str) -> Result<Value, String> {
    Ok(units::bounded(units::vcl_time(text).ok_or("is no time")?))
}

/// A probe while its fields are read.
pub(crate) struct ProbeKeys {
    keys: Table,
    window: u64,
}

type ReadProbe = fn(&mut ProbeKeys, &Statement, &str) -> Outcome;

pub(crate) const PROBE: &[Row<ReadProbe>] = &[
    Row::writes("url", "health_check.path", |probe, _, value| {
        probe.keys.set("path", value);
        TAKEN
    }),
    Row::writes(
        "interval timeout",
        "health_check.interval, health_check.timeout",
        |probe, field, value| {
            probe.keys.set(
                field_name(field),
                units::vcl_time(value).map(units::duration).ok_or("is no time")?,
            );
            TAKEN
        },
    ),
    Row::writes("window", "health_check.fall", |probe, _, value| {
        probe.window = value.parse().map_err(|_| NO_KEY)?;
        differs("`rise` and `fall` count probes in a row, not in a window")
    }),
    Row::writes("threshold", "health_check.rise, health_check.fall", |probe, _, value| {
        let count = value.parse::<u64>().map_err(|_| NO_KEY)?;
        probe.keys.set("rise", count.clamp(1, 100));
        probe.keys.set("fall", (probe.window.saturating_sub(count) + 1).clamp(1, 100));
        TAKEN
    }),
    Row::writes("request", "health_check.path", |probe, field, _| {
        probe.keys.set("path", request_path(field).ok_or("a health check asks for a path")?);
        differs("probes are GET requests with the site's host")
    }),
    Row::needless("initial", "a server is up until a probe fails"),
    Row::needless("expected_response = 200", "a probe must get a response below 400"),
    Row::left("*", NO_KEY),
];

const NO_KEY: &str = "a health check has no such key";

type Declare = fn(&mut Converter, &Statement) -> Outcome;

pub(crate) const DECLARATIONS: &[Row<Declare>] = &[
    Row::writes("vcl", "the versions 4.0 and 4.1 of the language", |_, _| TAKEN),
    Row::needless("import", "modules are not imported: their calls are told where they stand"),
    Row::writes("backend", "origin", Converter::backend),
    Row::writes("acl", "client", Converter::access_list),
    Row::left("director", "directors of VCL 3: write them with `new` in vcl_init first"),
    Row::left("*", "Levada has nothing for this declaration"),
];

/// The policies of directors; without one, the first server that is up.
pub(crate) const DIRECTORS: &[Row<Option<&'static str>>] = &[
    Row::writes("round_robin", "policy", Some("round_robin")),
    Row::writes("random", "policy", Some("random")),
    Row::writes("hash shard", "policy", Some("ring_hash")),
    Row::writes("fallback", "origin", None),
    Row::left("*", "there is no such director"),
];

impl Converter {
    pub(super) fn declarations(&mut self, statements: &[Statement]) {
        // Probes may stand after the backends that name them.
        for statement in statements.iter().filter(|statement| statement.word(0) == "probe") {
            let probe = self.probe(statement.inner());
            self.probes.insert(statement.word(1).to_owned(), probe);
            self.enter(statement, TAKEN);
        }
        let others = statements.iter().filter(|one| !["probe", "sub"].contains(&one.word(0)));
        for statement in others {
            if let Some(row) = find(DECLARATIONS, statement.word(0), "") {
                let outcome = row.outcome(|read| read(self, statement));
                self.enter(statement, outcome);
            }
        }
    }

    fn backend(&mut self, statement: &Statement) -> Outcome {
        let keys = Table::default();
        let mut backend = Backend { host: None, port: None, scheme: "http", keys };
        for field in statement.inner() {
            if let Some(row) = find(BACKEND, field_name(field), last_text(field)) {
                let outcome = row.outcome(|how| self.field(row, how, field, &mut backend));
                self.enter(field, outcome);
            }
        }
        let keys = backend.with_origin()?;
        let name = statement.word(1).to_owned();
        if self.first_backend.is_none() || name == "default" {
            self.first_backend = Some(name.clone());
        }
        self.backends.insert(name, keys);
        TAKEN
    }

    fn field(
        &mut self,
        row: &Row<Field>,
        how: Field,
        field: &Statement,
        backend: &mut Backend,
    ) -> Outcome {
        let text = last_text(field);
        match how {
            Sets(set) => set(backend, text),
            Probe => {
                let probe = match &field.block {
                    Some(block) => Some(self.probe(block)),
                    None => self.probes.get(text).cloned(),
                };
                backend.keys.set("health_check", probe.ok_or("there is no such probe")?);
            }
            Field::Value(read) => {
                let value = read(text)?;
                for key in row.key_names() {
                    match key.strip_prefix("limits.") {
                        Some(key) => return self.node_limit(key, value),
                        None => backend.keys.set(key, value.clone()),
                    }
                }
            }
        }
        TAKEN
    }

    fn node_limit(&mut self, key: &str, value: Value) -> Outcome {
        if self.plan.limit(&[key], &value) {
            return differs("the limit holds for all servers of the node");
        }
        let value = value.to_string();
        let shown = value.trim_matches('"');
        left(format!(
            "the node has one such limit, and another value than {shown} is stated for it"
        ))
    }

    fn probe(&mut self, fields: &[Statement]) -> Table {
        let mut probe = ProbeKeys { keys: Table::default(), window: 8 };
        for field in fields {
            let value = field.head.last().map(Kind::shown).unwrap_or_default();
            let value = value.trim_matches('"');
            if let Some(row) = find(PROBE, field_name(field), value) {
                let outcome = row.outcome(|read| read(&mut probe, field, value));
                self.enter(field, outcome);
            }
        }
        probe.keys
    }

    fn access_list(&mut self, statement: &Statement) -> Outcome {
        let (mut addresses, mut is_whole) = (Vec::new(), true);
        for entry in statement.inner() {
            let texts: Vec<_> = entry.head.iter().map(Kind::shown).collect();
            let found = addresses_of(&texts.join("").replace('"', ""));
            is_whole &= found.is_ok();
            let outcome = found.map(|found| {
                addresses.extend(found);
                Fate::Taken
            });
            self.enter(entry, outcome);
        }
        // A list without some of its addresses would let in, or refuse, other clients.
        if !is_whole {
            return left("a list is used as a whole, or not at all");
        }
        self.access_lists.insert(statement.word(1).to_owned(), addresses);
        TAKEN
    }

    /// `new x = directors.round_robin(); x.add_backend(a);`
    pub(super) fn init(&mut self, statement: &Statement) -> Outcome {
        match statement.word(0) {
            "new" => {
                let kind = statement.word(3).trim_start_matches("directors.");
                let row = find(DIRECTORS, kind, "").ok_or("there is no such director")?;
                row.outcome(|policy| {
                    let director = Director { servers: Vec::new(), policy };
                    self.directors.insert(statement.word(1).to_owned(), director);
                    TAKEN
                })
            }
            "return" => needless("it is the end"),
            word => {
                let (name, call) =
                    word.rsplit_once('.').ok_or("Levada has nothing for this statement")?;
                self.call(name, call, statement)
            }
        }
    }

    fn call(&mut self, name: &str, call: &str, statement: &Statement) -> Outcome {
        match (self.directors.get_mut(name), call) {
            (Some(director), "add_backend") => {
                let weight = statement.word(4).parse::<f64>();
                let weight = weight.map_or(1, |weight| weight.round().max(1.0) as u64);
                director.servers.push((statement.word(2).to_owned(), weight.min(1000)));
                TAKEN
            }
            (Some(_), "reconfigure") => needless("servers may change at a reload"),
            _ => left("Levada has nothing for this call"),
        }
    }

    /// The keys of a backend or director, by its name.
    pub(super) fn servers(&self, name: &str) -> Option<Table> {
        let name = name.strip_suffix(".backend").unwrap_or(name);
        let Some(director) = self.directors.get(name) else {
            return self.backends.get(name).cloned();
        };
        let backends: Vec<_> = director
            .servers
            .iter()
            .filter_map(|(name, weight)| Some((self.backends.get(name)?, *weight)))
            .collect();
        let url = |keys: &Table| keys.get("origin").cloned();
        let mut keys = Table::default();
        match director.policy {
            None => {
                let urls = backends.iter().filter_map(|(backend, _)| url(backend));
                keys.set("origin", Value::List(urls.collect()));
            }
            Some(_) if backends.len() < 2 => keys.set("origin", url(backends.first()?.0)?),
            Some(policy) => {
                let member = |(backend, weight): &(&Table, u64)| match url(backend)? {
                    Value::Text(url) => {
                        Some(Member { url, weight: Some(*weight), max_conns: None })
                    }
                    _ => None,
                };
                keys = pool::keys(backends.iter().filter_map(member).collect(), policy);
            }
        }
        let first = backends.first()?.0;
        for key in ["health_check", "origin_host"] {
            if let Some(value) = first.get(key) {
                keys.set(key, value.clone());
            }
        }
        Some(keys)
    }
}

impl Backend {
    /// Its keys, with the server.
    fn with_origin(mut self) -> Result<Table, String> {
        if self.keys.has_any(&["origin"]) {
            return Ok(self.keys);
        }
        let host = self.host.ok_or("the backend has no host")?;
        if host == "none" {
            return Err("a site has an origin".to_owned());
        }
        let usual = if self.scheme == "https" { "443" } else { "80" };
        let port = self.port.filter(|port| port != usual && port != "http");
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        self.keys.set("origin", format!("{}://{host}{port}", self.scheme));
        Ok(self.keys)
    }
}

/// The addresses of an entry of a list.
fn addresses_of(entry: &str) -> Result<Vec<String>, String> {
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    match entry.split_once('/') {
        _ if entry.starts_with('!') => Err("an address that is taken out of a list".to_owned()),
        _ if entry == "localhost" => Ok(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()]),
        Some((address, bits)) if is_address(address) && bits.parse::<u8>().is_ok() => {
            Ok(vec![entry.to_owned()])
        }
        None if is_address(entry) => Ok(vec![entry.to_owned()]),
        _ => Err("an entry is an address or a prefix of addresses".to_owned()),
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

/// The last word or text of a field.
fn last_text(field: &Statement) -> &str {
    match field.head.last() {
        Some(Kind::Text(text) | Kind::Word(text)) => text,
        _ => "",
    }
}

/// `.host` of `.host = "..."`.
fn field_name(field: &Statement) -> &str {
    match field.head.as_slice() {
        [Kind::Sign("."), Kind::Word(name), ..] => name,
        _ => "",
    }
}
