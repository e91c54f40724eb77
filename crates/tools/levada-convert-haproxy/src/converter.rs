//! The sections of a configuration, and the sites that they become.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use levada_conversion::{
    comparisons,
    decisions::Decisions,
    files::Includes,
    gate::{self, Concern},
    ledger::{Ledger, MISSED, Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::Condition,
    plan::{Plan, Site},
    rows::find,
    table::{Table, Value},
    units, vocabulary,
};

use crate::{
    condition::{self, Words},
    hosts::{self, HostTest, Hosts},
    listen::{self, Bind},
    parse::{Line, Section},
    rules::Walk,
    sample::{Part, SampleTest},
    servers::{self, Pool},
    tables::{self, Statement},
};

/// A section that passes requests on, with the statements of its defaults before its own.
#[derive(Clone, Debug)]
struct Proxy {
    head: Line,
    lines: Rc<Vec<Line>>,
}

pub(crate) struct Converter<'a> {
    pub(crate) plan: Plan,
    pub(crate) ledger: Ledger,
    pub(crate) includes: &'a dyn Includes,
    proxies: BTreeMap<String, Proxy>,
    /// The proxies in the order of the file.
    order: Vec<String>,
    users: BTreeMap<String, Vec<Line>>,
    used_users: BTreeSet<String>,
    caches: BTreeMap<String, u64>,
    /// The pools of backends that were read, or the reason why there is none.
    pools: BTreeMap<String, Result<Table, String>>,
    pub(crate) bases: BTreeMap<String, String>,
    pub(crate) min_version: Option<&'static str>,
    pub(crate) skips_verification: bool,
}

/// More hosts than these have no sites of their own.
const MOST_HOSTS: usize = 1_000;

impl<'a> Converter<'a> {
    pub(crate) fn new(includes: &'a dyn Includes) -> Self {
        Self {
            plan: Plan::default(),
            ledger: Ledger::default(),
            includes,
            proxies: BTreeMap::new(),
            order: Vec::new(),
            users: BTreeMap::new(),
            used_users: BTreeSet::new(),
            caches: BTreeMap::new(),
            pools: BTreeMap::new(),
            bases: BTreeMap::new(),
            min_version: None,
            skips_verification: false,
        }
    }

    pub(crate) fn convert(&mut self, sections: &[Section]) {
        self.plan.top.set("name", "edge");
        self.plan.defaults.set("cache", false);
        self.read(sections);
        let fronts = self.fronts();
        self.sites(&fronts);
        self.account(sections);
    }

    /// Reads all sections but the rules of proxies.
    fn read(&mut self, sections: &[Section]) {
        let mut defaults: Vec<Line> = Vec::new();
        let mut named: BTreeMap<String, Vec<Line>> = BTreeMap::new();
        for section in sections {
            let (kind, name) = (section.head.word(0), section.head.word(1).to_owned());
            match kind {
                "global" => self.global(&section.lines),
                "defaults" => {
                    let mut lines = match section.head.word(2) {
                        "from" => named.get(section.head.word(3)).cloned().unwrap_or_default(),
                        _ => Vec::new(),
                    };
                    lines.extend(section.lines.iter().cloned());
                    named.insert(name, lines.clone());
                    defaults = lines;
                }
                "frontend" | "backend" | "listen" => {
                    let own = match section.head.word(2) {
                        "from" => named.get(section.head.word(3)).cloned().unwrap_or_default(),
                        _ => defaults.clone(),
                    };
                    let mut lines = own;
                    lines.extend(section.lines.iter().cloned());
                    // A frontend and a backend may have one name.
                    let key = if kind == "frontend" { format!("frontend {name}") } else { name };
                    if kind != "backend" {
                        self.order.push(key.clone());
                    }
                    self.proxies
                        .insert(key, Proxy { head: section.head.clone(), lines: lines.into() });
                }
                "userlist" => drop(self.users.insert(name, section.lines.clone())),
                "cache" => self.cache(&name, &section.lines),
                _ => {}
            }
        }
    }

    fn global(&mut self, lines: &[Line]) {
        for line in lines {
            let outcome = match find(tables::GLOBAL, line.word(0), line.word(1)) {
                _ if line.has_variable => left(tables::VARIABLE),
                _ if line.word(0).starts_with('.') => {
                    let outcome = left("conditions of the file are not followed");
                    gate::pass(Concern::Access, line, outcome, &mut self.plan.defaults)
                }
                Some(row) => row.outcome(|read| read(self, line)),
                None => {
                    let concern = gate::smell(&line.words.join(" "));
                    gate::pass(concern, line, left(MISSED), &mut self.plan.defaults)
                }
            };
            self.ledger.enter(line, outcome);
        }
    }

    fn cache(&mut self, name: &str, lines: &[Line]) {
        let mut age = 60_000;
        for line in lines {
            let number = line.word(1).parse::<u64>();
            let outcome = match (line.word(0), number) {
                ("total-max-size", Ok(number)) => {
                    self.plan.cache.set("memory", units::size(number.clamp(1, 1 << 20) << 20));
                    TAKEN
                }
                ("max-object-size", Ok(number)) => {
                    self.plan.cache.set("max_object", units::size(number.max(1)));
                    TAKEN
                }
                ("max-age", Ok(number)) => {
                    age = number.saturating_mul(1_000);
                    differs("it is the lifetime of responses without one; it bounds no other")
                }
                ("process-vary" | "max-secondary-entries", _) => {
                    needless("a response has variants")
                }
                _ => left("the cache has no such key"),
            };
            self.ledger.enter(line, outcome);
        }
        self.caches.insert(name.to_owned(), age);
    }

    /// The mode of a proxy, which is TCP if nothing is said.
    fn is_http(&self, name: &str) -> bool {
        let mode = self
            .lines(name)
            .iter()
            .rev()
            .find(|line| line.word(0) == "mode")
            .map(|line| line.word(1).to_owned());
        mode.as_deref() == Some("http")
    }

    /// The statements of a section, after those of its defaults.
    pub(crate) fn lines(&self, name: &str) -> Rc<Vec<Line>> {
        self.proxies.get(name).map(|proxy| proxy.lines.clone()).unwrap_or_default()
    }

    pub(crate) fn access_lists(&self, name: &str) -> BTreeMap<String, Vec<Line>> {
        let mut lists: BTreeMap<String, Vec<Line>> = BTreeMap::new();
        for line in self.lines(name).iter() {
            if line.word(0) == "acl" {
                lists.entry(line.word(1).to_owned()).or_default().push(line.clone());
            }
        }
        lists
    }

    /// The section of plain HTTP and that of TLS, which may be one.
    fn fronts(&mut self) -> [Option<String>; 2] {
        let mut found: [Option<String>; 2] = [None, None];
        for name in self.order.clone() {
            let lines = self.lines(&name);
            let reason = if lines.iter().any(|line| line.word(0) == "disabled") {
                Some(needless("it is disabled"))
            } else if !self.is_http(&name) {
                Some(left("there is no TCP mode: a node speaks HTTP"))
            } else if !lines.iter().any(|line| line.word(0) == "bind") {
                Some(left("no address is bound"))
            } else {
                let binds: Vec<_> = lines.iter().filter(|line| line.word(0) == "bind").collect();
                let is_taken =
                    binds.iter().any(|line| found[usize::from(line.has("ssl"))].is_some());
                is_taken.then(|| left("a node has one set of sites for all of its ports: give this section a node of its own"))
            };
            match reason {
                Some(outcome) => {
                    self.enter_proxy(&name, &outcome);
                }
                None => {
                    for line in lines.iter().filter(|line| line.word(0) == "bind") {
                        found[usize::from(line.has("ssl"))] = Some(name.clone());
                    }
                }
            }
        }
        found
    }

    fn enter_proxy(&mut self, name: &str, outcome: &Outcome) {
        let Some(proxy) = self.proxies.get(name).cloned() else { return };
        self.ledger.enter(&proxy.head, outcome.clone());
        // The statements of the defaults may be for others.
        let own = proxy.lines.iter().filter(|line| line.place > proxy.head.place);
        for line in own {
            self.ledger.enter(line, outcome.clone());
        }
    }

    /// The hosts that any section looks at.
    fn hosts(&self) -> Vec<Hosts> {
        let mut found = BTreeSet::new();
        for name in self.proxies.keys() {
            for line in self.lines(name).iter() {
                let (head, rest) = line.split_condition();
                let mut all: Vec<Vec<String>> = Vec::new();
                if line.word(0) == "acl" {
                    all.push(line.from(2).to_vec());
                }
                for (_, term) in
                    condition::terms(rest.get(1..).unwrap_or_default()).unwrap_or_default().concat()
                {
                    if term[0] == "{" {
                        all.push(term[1..].to_vec());
                    }
                }
                for word in head.iter().filter(|word| word.starts_with("%[")) {
                    let inner = word.trim_start_matches("%[").trim_end_matches(']');
                    all.push(vec![inner.to_owned()]);
                }
                all.iter().for_each(|words| self.add_hosts(words, &mut found));
            }
        }
        if found.len() > MOST_HOSTS {
            return vec![Hosts::Any];
        }
        found.into_iter().chain([Hosts::Others]).collect()
    }

    fn add_hosts(&self, words: &[String], found: &mut BTreeSet<Hosts>) {
        let Ok(words) = Words::read(words, self.includes) else { return };
        let (values, test) = match &words.sample.map {
            Some((kind, arguments)) => {
                let path = arguments.first().map_or("", String::as_str);
                let Ok(pairs) = crate::files::map(self.includes, path) else { return };
                let keys: Vec<_> = pairs.into_iter().map(|(key, _)| key).collect();
                (keys, condition::map_test(kind).ok())
            }
            None => (words.values.clone(), words.test),
        };
        let by = match test {
            None | Some(SampleTest::Text(comparisons::Test::Is)) => {
                HostTest::Text(comparisons::Test::Is)
            }
            Some(SampleTest::Text(test)) => HostTest::Text(test),
            Some(SampleTest::Domain) => HostTest::Domain,
            Some(_) => return,
        };
        for value in values {
            match words.sample.part {
                Part::Host => hosts::add(found, by, condition::without_port(&value)),
                Part::Base => {
                    let host = value.split('/').next().unwrap_or_default();
                    hosts::add(
                        found,
                        HostTest::Text(comparisons::Test::Is),
                        condition::without_port(host),
                    );
                }
                _ => {}
            }
        }
    }

    /// A site for each of the hosts; those that are alike are one.
    fn sites(&mut self, fronts: &[Option<String>; 2]) {
        let clients = self.binds(fronts);
        let [plain, tls] = fronts;
        if plain.is_none() && tls.is_none() {
            return;
        }
        let mut sites: Vec<(Vec<Hosts>, Site)> = Vec::new();
        for own in self.hosts() {
            let mut site = Site::default();
            if let Some(clients) = &clients {
                site.table.set("client_certificates", clients.clone());
            }
            match (plain, tls) {
                (Some(plain), Some(tls)) if plain != tls => {
                    let scheme = comparisons::scheme("http");
                    let before = Decisions::default().within(&scheme).unwrap_or_default();
                    let (mut block, last, comment) = self.walk(plain, &own, before);
                    if let Err(reason) = block.answer(&Condition::everything(), &last, &comment) {
                        self.refuse(&mut site, plain, &reason);
                    }
                    let (mut list, last, comment) = self.walk(tls, &own, Decisions::default());
                    list.prepend(block);
                    if let Err(reason) = list.finish(&mut site, &last, &comment) {
                        self.refuse(&mut site, tls, &reason);
                    }
                }
                _ => {
                    let name = tls.as_ref().or(plain.as_ref()).map_or("", String::as_str);
                    let (list, last, comment) = self.walk(name, &own, Decisions::default());
                    if let Err(reason) = list.finish(&mut site, &last, &comment) {
                        self.refuse(&mut site, name, &reason);
                    }
                }
            }
            match sites.iter_mut().find(|(_, known)| same(known, &site)) {
                Some((hosts, _)) => hosts.push(own),
                None => sites.push((vec![own], site)),
            }
        }
        let has_families =
            sites.iter().flat_map(|(hosts, _)| hosts).any(|one| matches!(one, Hosts::Below(_)));
        for (mut hosts, mut site) in sites {
            if !has_families && hosts.contains(&Hosts::Others) {
                hosts = vec![Hosts::Others];
            }
            let names: Vec<_> = hosts.iter().map(Hosts::shown).collect();
            let mut table = Table::default();
            table.set("hosts", names);
            table.lay_over(std::mem::take(&mut site.table));
            site.table = table;
            self.plan.sites.push(site);
        }
    }

    /// A section whose requests cannot be said closes the site.
    fn refuse(&mut self, site: &mut Site, name: &str, reason: &str) {
        let Some(proxy) = self.proxies.get(name).cloned() else { return };
        let outcome = gate::pass(Concern::Access, &proxy.head, left(reason), &mut site.table);
        self.ledger.enter(&proxy.head, outcome);
    }

    /// Reads the addresses. Returns the certificates of clients that are asked for.
    fn binds(&mut self, fronts: &[Option<String>; 2]) -> Option<Table> {
        let names: BTreeSet<_> = fronts.iter().flatten().cloned().collect();
        let mut clients = None;
        for name in self.order.clone().into_iter().filter(|name| names.contains(name)) {
            for line in self.lines(&name).iter().filter(|line| line.word(0) == "bind") {
                let outcome = match line.has_variable {
                    true => left(tables::VARIABLE),
                    false => self.bind(line, &mut clients),
                };
                self.ledger.enter(line, outcome);
            }
        }
        clients
    }

    fn bind(&mut self, line: &Line, clients: &mut Option<Table>) -> Outcome {
        let (addresses, bind): (_, Bind) = listen::read(self, line)?;
        let own = bind.clients().filter(|_| bind.is_tls);
        if let Some(own) = own {
            *clients = Some(own);
        }
        bind.write(self, &addresses)
    }

    /// The certificates that a path names: a file, or those of a directory.
    pub(crate) fn certificates(&self, path: &str) -> Vec<String> {
        let path = self.based("crt-base", path);
        let is_other = |name: &str| {
            [".key", ".ocsp", ".issuer", ".sctl", ".dh"].iter().any(|end| name.ends_with(end))
                || name.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
        };
        let inside = self.includes.matching(&format!("{}/*", path.trim_end_matches('/')));
        let inside: Vec<_> = inside.unwrap_or_default().into_iter().map(|file| file.name).collect();
        let inside: Vec<_> = inside.into_iter().filter(|name| !is_other(name)).collect();
        if inside.is_empty() { vec![path] } else { inside }
    }

    /// A certificate with its key, which is in the same file or in one next to it.
    pub(crate) fn pair(&self, path: &str) -> Value {
        let key = format!("{path}.key");
        let key = match self.includes.matching(&key) {
            Ok(files) if !files.is_empty() => key,
            _ => path.to_owned(),
        };
        Table::from_iter([("certificate", path.into()), ("key", key.into())]).into()
    }

    /// A path below the directory of `crt-base` or `ca-base`.
    pub(crate) fn based(&self, base: &str, path: &str) -> String {
        match self.bases.get(base).filter(|_| !path.starts_with('/')) {
            Some(base) => format!("{}/{path}", base.trim_end_matches('/')),
            None => path.to_owned(),
        }
    }

    /// Runs the rules of a section, and returns the keys of the requests that none of them takes.
    fn walk(&mut self, name: &str, hosts: &Hosts, before: Decisions) -> (Decisions, Table, String) {
        self.once(name);
        let Some(proxy) = self.proxies.get(name).cloned() else {
            return (before, Table::default(), String::new());
        };
        let mut walk = Walk::new(self, hosts, name);
        walk.list = before;
        walk.run();
        let default = proxy.lines.iter().rev().find(|line| line.word(0) == "default_backend");
        let is_listen = proxy.head.word(0) == "listen";
        let (last, line) = match default {
            Some(line) => (walk.last(line.word(1), false), line),
            None if is_listen => (walk.last(name, true), &proxy.head),
            None => (Err(String::new()), &proxy.head),
        };
        let mut list = walk.list;
        let keys = match last {
            Ok(keys) => {
                if default.is_some() {
                    self.ledger.enter(line, TAKEN);
                }
                keys
            }
            Err(reason) => {
                let mut keys = Table::default();
                vocabulary::respond(&mut keys, 503, None);
                if !reason.is_empty() && !list.has_ended() {
                    list.mark(Concern::Other, line.place(), &line.shown(), &reason);
                    self.ledger.enter(line, left(format!("{reason}; the status is 503")));
                } else if default.is_some() {
                    self.ledger.enter(line, needless("a rule before it takes all requests"));
                }
                keys
            }
        };
        (list, keys, line.place.to_string())
    }

    /// The statements of a section that are about the whole node.
    fn once(&mut self, name: &str) {
        for line in self.lines(name).iter() {
            let Some(row) = tables::row(line) else { continue };
            if let Some(Statement::Once(read)) = row.keys() {
                let outcome =
                    if line.has_variable { left(tables::VARIABLE) } else { read(self, line) };
                self.ledger.enter(line, outcome);
            }
        }
    }

    /// The servers of a backend.
    pub(crate) fn pool(&mut self, name: &str) -> Result<Table, String> {
        if let Some(known) = self.pools.get(name) {
            return known.clone();
        }
        let made = self.make_pool(name);
        self.pools.insert(name.to_owned(), made.clone());
        made
    }

    fn make_pool(&mut self, name: &str) -> Result<Table, String> {
        let Some(proxy) = self.proxies.get(name).cloned() else {
            return Err(format!("there is no backend `{name}`"));
        };
        if !self.is_http(name) {
            self.enter_proxy(name, &left("there is no TCP mode: a node speaks HTTP"));
            return Err(format!("the backend `{name}` is not in HTTP mode"));
        }
        self.once(name);
        let mut pool = Pool::default();
        let (mut policy, mut key, mut probe) = ("round_robin", None, Table::default());
        let mut checked = None;
        for line in proxy.lines.iter() {
            let outcome = match line.word(0) {
                _ if line.has_variable => left(tables::VARIABLE),
                "default-server" => pool.default_server(line),
                "server" => pool.server(line),
                "hash-type" => servers::hash_type(line),
                "hash-balance-factor" => {
                    policy = "bounded_hash";
                    differs("the bound is the policy's own")
                }
                "balance" => match servers::balance(line) {
                    Ok((name, own, outcome)) => {
                        (policy, key) = (name, own);
                        outcome
                    }
                    Err(reason) => Err(reason),
                },
                "http-check" => servers::probe(line, &mut probe),
                "option" if line.word(1) == "httpchk" => servers::probe(line, &mut probe),
                "timeout" if line.word(1) == "check" => {
                    checked = Some(line.clone());
                    match units::haproxy_time(line.word(2)) {
                        Some(time) => {
                            probe.set("timeout", units::duration(time.clamp(1, 60_000)));
                            TAKEN
                        }
                        None => left("is no time"),
                    }
                }
                "stick-table" => needless("a limit has a table of its own"),
                _ => continue,
            };
            self.ledger.enter(line, outcome);
        }
        if !pool.has_check() {
            for line in proxy.lines.iter().filter(|line| {
                line.word(0) == "http-check"
                    || line.word(1) == "httpchk"
                    || Some(*line) == checked.as_ref()
            }) {
                self.ledger.enter(line, needless("no server is checked"));
            }
        }
        if let Some(reason) = pool.lacks() {
            self.ledger.enter(&proxy.head, differs(reason));
        } else {
            self.ledger.enter(&proxy.head, TAKEN);
        }
        let mut keys = pool.keys(policy, key.as_ref(), &probe)?;
        if self.skips_verification && keys.get("origin_tls").is_none() {
            keys.inline("origin_tls").set("insecure_skip_verification", true);
        }
        Ok(keys)
    }

    /// Whether a section keeps clients out, so that its requests must not go elsewhere.
    pub(crate) fn any_keeps_out(&self) -> bool {
        self.proxies.keys().any(|name| {
            self.lines(name).iter().any(|line| {
                let concern = tables::row(line).map(levada_conversion::rows::Row::concern);
                concern.unwrap_or_else(|| gate::smell(&line.words.join(" "))) == Concern::Access
                    && line.word(0) != "bind"
            })
        })
    }

    pub(crate) fn has_users(&mut self, name: &str) -> bool {
        let is_known = self.users.contains_key(name);
        if is_known {
            self.used_users.insert(name.to_owned());
        }
        is_known
    }

    pub(crate) fn cache_age(&self, name: &str) -> Option<u64> {
        self.caches.get(name).copied()
    }

    /// The counters of a table, as `store` names them.
    pub(crate) fn stick_table(&self, name: &str) -> Option<String> {
        let lines = self.lines(name);
        let line = lines.iter().rev().find(|line| line.word(0) == "stick-table")?;
        line.after("store", 1).map(str::to_owned)
    }

    /// `timeout NAME TIME`.
    pub(crate) fn time(&mut self, line: &Line, keys: &[&str]) -> Outcome {
        let time = units::haproxy_time(line.word(2)).ok_or("is no time")?;
        self.limit(keys, units::bounded(time))
    }

    /// A bound of the whole node.
    pub(crate) fn limit(&mut self, keys: &[&str], value: Value) -> Outcome {
        match self.plan.limit(keys, &value) {
            true => TAKEN,
            false => left("the node has one such limit, and another value is stated for it"),
        }
    }

    /// `log ADDRESS FACILITY`.
    pub(crate) fn log(&mut self, line: &Line) -> Outcome {
        let to = match line.word(1) {
            "stdout" | "stderr" => "stdout".to_owned(),
            path if path.starts_with('/') => "syslog".to_owned(),
            "127.0.0.1" | "localhost" => "syslog".to_owned(),
            address if address.contains('@') || address.contains('$') || address.is_empty() => {
                return left("the log goes to a file, to standard output, or to syslog");
            }
            address => {
                let port = if address
                    .rsplit_once(':')
                    .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
                {
                    ""
                } else {
                    ":514"
                };
                format!("syslog:udp://{address}{port}")
            }
        };
        let known = self.plan.log.get("access").cloned();
        if known.is_some_and(|known| known != Value::from(to.as_str())) {
            return left("the node has one access log");
        }
        self.plan.log.set("access", to);
        let facility = line.from(2).iter().find(|word| word.starts_with("local"));
        if let Some(facility) = facility {
            self.plan.log.set("facility", facility.as_str());
        }
        differs("lines have the form `combined`: `log.format`")
    }

    /// The fate of all statements that nothing has read.
    fn account(&mut self, sections: &[Section]) {
        for (list, lines) in self.users.clone() {
            for line in lines {
                let is_used = self.used_users.contains(&list);
                let outcome = match line.word(0) {
                    _ if !is_used => needless("no rule names the list"),
                    "user" => left(format!(
                        "write the user with a hash of the password into {list}.htpasswd: `htpasswd -B {list}.htpasswd {}`",
                        line.word(1)
                    )),
                    _ => left("users have no groups"),
                };
                self.ledger.enter(&line, outcome);
            }
        }
        for section in sections {
            let row = find(tables::SECTIONS, section.head.word(0), "");
            let without = row.and_then(levada_conversion::rows::Row::without_keys);
            let is_unused = ["frontend", "backend", "listen"].contains(&section.head.word(0))
                && self.ledger.has_taken(&section.head).is_none()
                && section.head.word(0) == "backend";
            let used = names_in_conditions(&section.lines);
            for line in &section.lines {
                if self.ledger.has_taken(line).is_some() {
                    continue;
                }
                let outcome = match (&without, line.word(0)) {
                    (Some(outcome), _) => outcome.clone(),
                    _ if is_unused => needless("nothing uses this backend"),
                    (_, "acl") if used.contains(line.word(1)) => TAKEN,
                    (_, "acl") => needless("no rule names it"),
                    (_, "mode") => TAKEN,
                    _ => self.missed(line),
                };
                self.ledger.enter(line, outcome);
            }
            if self.ledger.has_taken(&section.head).is_none() {
                let outcome = match &without {
                    Some(outcome) => outcome.clone(),
                    None if is_unused => needless("nothing uses this backend"),
                    None => TAKEN,
                };
                self.ledger.enter(&section.head, outcome);
            }
        }
    }

    /// A statement that no part has read: of defaults that no section has, or of nothing that is used.
    fn missed(&mut self, line: &Line) -> Outcome {
        match tables::row(line) {
            Some(row) => row.without_keys().unwrap_or_else(|| needless("no section uses it")),
            None => {
                let concern = gate::smell(&line.words.join(" "));
                gate::pass(concern, line, left(MISSED), &mut self.plan.defaults)
            }
        }
    }
}

/// The access lists that rules name.
fn names_in_conditions(lines: &[Line]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in lines {
        let rest = line.split_condition().1;
        let terms = condition::terms(rest.get(1..).unwrap_or_default()).unwrap_or_default();
        names.extend(terms.into_iter().flatten().map(|(_, term)| term[0].clone()));
    }
    names
}

/// Whether two sites differ in nothing but their hosts and where they come from.
fn same(one: &Site, other: &Site) -> bool {
    one.table == other.table && one.routes == other.routes
}
