//! The sites of a Caddyfile: their addresses, certificates and options.

use std::collections::BTreeMap;

use levada_conversion::{
    comparisons,
    decisions::Decisions,
    gate::{self, Concern},
    ledger::{Ledger, MISSED, Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::Condition,
    plan::{Plan, Site},
    rows::{Row, find},
    table::{Table, Value},
    units, vocabulary,
};

use crate::{
    matchers,
    parse::Node,
    site::{Shared, Walk},
    tables,
};

/// Hosts, and the sites that have them: whether over TLS, and the place in the list.
type Group = (Vec<String>, Vec<(bool, usize)>);

/// An address of a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    host: String,
    is_tls: bool,
    port: u16,
}

pub(crate) struct Converter {
    pub(crate) plan: Plan,
    pub(crate) ledger: Ledger,
    users: BTreeMap<String, String>,
    file: String,
    http_port: u16,
    https_port: u16,
    redirects: bool,
    has_tls: bool,
    email: Option<String>,
    orders: bool,
}

impl Converter {
    pub(crate) fn new(ledger: Ledger, file: &str) -> Self {
        Self {
            plan: Plan::default(),
            ledger,
            users: BTreeMap::new(),
            file: file.to_owned(),
            http_port: 80,
            https_port: 443,
            redirects: true,
            has_tls: true,
            email: None,
            orders: false,
        }
    }

    pub(crate) fn convert(&mut self, nodes: &[Node]) {
        self.plan.top.set("name", "edge");
        self.plan.defaults.set("cache", false);
        let (options, sites): (Vec<_>, Vec<_>) =
            nodes.iter().partition(|node| node.words.is_empty() && node.block.is_some());
        for one in options {
            self.ledger.enter(one, TAKEN);
            one.inner().iter().for_each(|option| self.option(option));
        }
        let sites = self.with_addresses(&sites);
        let mut known: Vec<(Address, String)> = Vec::new();
        let is_local = |node: &Node| binds(node).iter().any(|one| is_loopback(one));
        let all_local = sites.iter().all(|(_, node)| is_local(node));
        let mut merged: BTreeMap<String, Vec<(bool, usize)>> = BTreeMap::new();
        for (number, (addresses, node)) in sites.iter().enumerate() {
            let taken = addresses.iter().find(|address| {
                known
                    .iter()
                    .any(|(other, _)| other.host == address.host && other.is_tls == address.is_tls)
            });
            if let Some(address) = taken {
                let outcome = left(format!(
                    "a node has one site for `{}` at all of its ports: give this one a node of its own",
                    address.host
                ));
                self.ledger.enter_whole(node, &outcome);
                continue;
            }
            for address in addresses {
                known.push((address.clone(), address.host.clone()));
                merged.entry(address.host.clone()).or_default().push((address.is_tls, number));
            }
            self.listen(addresses, node);
        }
        self.without_covered();
        // Hosts of the same site stand together.
        let mut groups: Vec<Group> = Vec::new();
        for (host, of) in merged {
            match groups.iter_mut().find(|(_, other)| *other == of) {
                Some((hosts, _)) => hosts.push(host),
                None => groups.push((vec![host], of)),
            }
        }
        groups.sort_by_key(|(_, of)| of.iter().map(|(_, number)| *number).min());
        for (hosts, of) in groups {
            let mut site = Site::default();
            site.table.set("hosts", hosts);
            self.site(&mut site, &of, &sites, is_local, all_local);
            self.plan.sites.push(site);
        }
        self.account(nodes);
    }

    /// Takes out addresses of this machine whose port another site has at all addresses.
    fn without_covered(&mut self) {
        let address = |table: &Table| {
            table.get("address").map(|one| one.texts().join("")).unwrap_or_default()
        };
        let all: Vec<_> = self.plan.listen.iter().map(address).collect();
        self.plan.listen.retain(|table| {
            let own = address(table);
            let port = own.rsplit_once(':').map_or("", |(_, port)| port);
            let any = format!("0.0.0.0:{port}");
            own == any || own.starts_with('[') || !all.contains(&any)
        });
    }

    /// The blocks of sites. A file with one site needs no braces.
    fn with_addresses(&mut self, nodes: &[&Node]) -> Vec<(Vec<Address>, Node)> {
        let mut sites = Vec::new();
        let is_bare =
            nodes.first().is_some_and(|first| first.block.is_none() && first.word(0) != "import");
        let all: Vec<Node> = match is_bare {
            true => {
                let mut one = nodes[0].clone();
                one.block = Some(nodes[1..].iter().map(|node| (*node).clone()).collect());
                vec![one]
            }
            false => nodes.iter().map(|node| (*node).clone()).collect(),
        };
        for node in all {
            if node.word(0) == "import" {
                let outcome = left(MISSED);
                let outcome = gate::pass(Concern::Access, &node, outcome, &mut self.plan.defaults);
                self.ledger.enter_whole(&node, &outcome);
                continue;
            }
            match self.addresses(&node) {
                Ok(addresses) => {
                    self.ledger.enter(&node, TAKEN);
                    sites.push((addresses, node));
                }
                Err(reason) => self.ledger.enter_whole(&node, &left(reason)),
            }
        }
        sites
    }

    fn addresses(&self, node: &Node) -> Result<Vec<Address>, String> {
        if node.words.iter().any(|word| word.contains("{$") || word.contains("{env.")) {
            return Err(tables::VARIABLE.to_owned());
        }
        let words =
            node.words.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty());
        let mut found: Vec<Address> = Vec::new();
        for word in words {
            found.push(self.address(word)?);
        }
        match found.is_empty() {
            true => Err("a site has an address".to_owned()),
            false => Ok(found),
        }
    }

    fn address(&self, word: &str) -> Result<Address, String> {
        let (scheme, rest) = word.split_once("://").unwrap_or(("", word));
        if rest.contains('/') || rest.contains('{') || !["", "http", "https"].contains(&scheme) {
            return Err(format!("`{word}` is no address of a site: it has a host and a port"));
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| "a site has one port")?))
            }
            _ => (rest, None),
        };
        let is_tls = match (scheme, port) {
            ("https", _) => true,
            ("http", _) => false,
            (_, Some(port)) if port == self.http_port => false,
            (_, Some(_)) if host.is_empty() => port == Some(self.https_port),
            _ => self.has_tls,
        };
        let host = match host {
            "" | "*" => "*".to_owned(),
            host => host.to_ascii_lowercase(),
        };
        let is_name = host == "*"
            || host.strip_prefix("*.").unwrap_or(&host).split('.').all(|label| {
                !label.is_empty()
                    && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
            });
        if !is_name {
            return Err(format!("`{host}` is no host of a site"));
        }
        let usual = if is_tls { self.https_port } else { self.http_port };
        Ok(Address { host, is_tls, port: port.unwrap_or(usual) })
    }

    /// The `[[listen]]` tables of a site, with its certificates.
    fn listen(&mut self, addresses: &[Address], node: &Node) {
        let hosts = binds(node);
        // `bind` says so where it is read.
        if hosts.iter().any(|host| host.parse::<std::net::IpAddr>().is_err()) {
            return;
        }
        let hosts = if hosts.is_empty() { vec!["0.0.0.0".to_owned()] } else { hosts };
        let certificates = self.certificates(node);
        for address in addresses {
            for host in &hosts {
                let text = match host.contains(':') {
                    true => format!("[{host}]:{}", address.port),
                    false => format!("{host}:{}", address.port),
                };
                // Caddy's own authority, or one that asks for records in DNS, has no counterpart without keys.
                let is_ordered = address.host.contains('.') && !address.host.contains('*');
                if address.is_tls && certificates.is_none() && !is_ordered {
                    let reason =
                        format!("no certificate is ordered for `{}`: name one", address.host);
                    self.ledger.enter(node, left(reason));
                    continue;
                }
                let redirects = self.redirects && address.is_tls && address.port == self.https_port;
                if redirects {
                    let plain = match host.contains(':') {
                        true => format!("[{host}]:{}", self.http_port),
                        false => format!("{host}:{}", self.http_port),
                    };
                    self.plan.listener(&plain);
                }
                let listen = self.plan.listener(&text);
                if !address.is_tls {
                    continue;
                }
                match &certificates {
                    Some(pair) => {
                        let is_known = matches!(listen.get("tls"), Some(Value::List(list)) if list.contains(pair));
                        if !is_known {
                            listen.push("tls", pair.clone());
                        }
                    }
                    None => {
                        listen.set("acme", true);
                        self.orders = true;
                    }
                }
            }
        }
    }

    /// The certificate of `tls CERTIFICATE KEY`; none if it is ordered.
    fn certificates(&self, node: &Node) -> Option<Value> {
        let tls = node.inner().iter().find(|inner| inner.word(0) == "tls")?;
        let [certificate, key] = tls.from(1) else { return None };
        let pair = [("certificate", certificate.as_str().into()), ("key", key.as_str().into())];
        Some(Table::from_iter(pair).into())
    }

    /// The routes of a site; those of plain HTTP stand before the others.
    fn site(
        &mut self,
        site: &mut Site,
        of: &[(bool, usize)],
        sites: &[(Vec<Address>, Node)],
        is_local: impl Fn(&Node) -> bool,
        all_local: bool,
    ) {
        let plain = of.iter().find(|(is_tls, _)| !is_tls).map(|(_, number)| &sites[*number].1);
        let tls = of.iter().find(|(is_tls, _)| *is_tls).map(|(_, number)| &sites[*number].1);
        for node in [plain, tls].into_iter().flatten() {
            self.options_of(node, site);
            if is_local(node) && !all_local {
                let reason =
                    "clients of this machine's addresses would become clients of all addresses";
                let outcome = gate::pass(Concern::Access, node, left(reason), &mut site.table);
                self.ledger.enter(node, outcome);
            }
        }
        let mut before = Decisions::default();
        let scheme = comparisons::scheme("http");
        match (plain, tls) {
            (Some(plain), Some(tls)) if !std::ptr::eq(plain, tls) => {
                let within = Decisions::default().within(&scheme).unwrap_or_default();
                let (mut block, last, comment) = self.decide(plain, within);
                if let Err(reason) = block.answer(&Condition::everything(), &last, &comment) {
                    self.refuse(plain, &reason, site);
                }
                before.prepend(block);
            }
            (None, Some(_)) if self.redirects => {
                let mut keys = Table::default();
                vocabulary::redirect(&mut keys, 308, "https://{host}{uri}".to_owned());
                let _ = before.answer(&scheme, &keys, "Caddy sends clients to HTTPS");
            }
            _ => {}
        }
        let Some(node) = tls.or(plain) else { return };
        let (mut list, last, comment) = self.decide(node, before);
        let answers = last.has_any(vocabulary::ANSWERS) || last.1.is_closed();
        let finished = match answers {
            true => list.answer(&Condition::everything(), &last, &comment),
            false => Ok(()),
        };
        let finished = finished.and_then(|()| list.finish(site, &last, &comment));
        if let Err(reason) = finished {
            self.refuse(node, &reason, site);
        }
    }

    fn decide(&mut self, node: &Node, list: Decisions) -> (Decisions, Table, String) {
        let has_trusted = !self.plan.trusted.is_empty();
        let mut shared =
            Shared { ledger: &mut self.ledger, users: &mut self.users, file: &self.file };
        Walk::new(&mut shared, list, has_trusted).decide(node.inner())
    }

    /// A site whose requests cannot be said is closed.
    fn refuse(&mut self, node: &Node, reason: &str, site: &mut Site) {
        let outcome = gate::pass(Concern::Access, node, left(reason), &mut site.table);
        self.ledger.enter(node, outcome);
    }

    /// `tls`, `bind` and `log`.
    fn options_of(&mut self, node: &Node, site: &mut Site) {
        for inner in node.inner() {
            let outcome = match inner.word(0) {
                "tls" | "bind" | "log" if inner.has_variable() => left(tables::VARIABLE),
                "tls" => self.tls(inner, site),
                "bind" => {
                    match inner.from(1).iter().find(|one| one.parse::<std::net::IpAddr>().is_err())
                    {
                        Some(other) => left(format!("`{other}` is no IP address")),
                        None => TAKEN,
                    }
                }
                "log" => self.log(inner),
                _ => continue,
            };
            let concern = tables::row(inner).map_or(Concern::Other, Row::concern);
            let outcome = gate::pass(concern, inner, outcome, &mut site.table);
            self.ledger.enter_whole(inner, &outcome);
        }
    }

    fn tls(&mut self, node: &Node, site: &mut Site) -> Outcome {
        match node.from(1) {
            [] | [_, _] => {}
            [one] if one.contains('@') => self.email = Some(one.clone()),
            [one] if one == "internal" => {
                return left("a node is no authority of its own: name a certificate");
            }
            _ => return left("a certificate and its key are files"),
        }
        let mut outcome = TAKEN;
        for inner in node.inner() {
            match (inner.word(0), inner.from(1)) {
                ("protocols", versions) => {
                    let has = |version: &str| versions.iter().any(|one| one == version);
                    let mut shaken = Table::default();
                    if versions.first().is_some_and(|one| one == "tls1.3") {
                        shaken.set("min_version", "1.3");
                    }
                    if !has("tls1.3") && versions.len() == 2 {
                        shaken.set("max_version", "1.2");
                    }
                    if !shaken.is_empty() {
                        site.table.set("handshake", shaken);
                    }
                }
                ("client_auth", _) => {
                    let clients = client_auth(inner)?;
                    site.table.set("client_certificates", clients);
                    outcome = differs(
                        "over plain HTTP a site that requires certificates answers with 403",
                    );
                }
                (
                    "ciphers"
                    | "curves"
                    | "alpn"
                    | "resolvers"
                    | "propagation_timeout"
                    | "propagation_delay"
                    | "dns_ttl"
                    | "key_type",
                    _,
                ) => {}
                (other, _) => {
                    return left(format!("docs/operate/certificates.md has no `{other}`"));
                }
            }
        }
        outcome
    }

    fn log(&mut self, node: &Node) -> Outcome {
        let output = node.inner().iter().find(|inner| inner.word(0) == "output");
        let to = match output.map(|output| (output.word(1), output.word(2))) {
            Some(("file", path)) => path,
            None | Some(("stdout" | "stderr", _)) => "stdout",
            Some(("discard", _)) => "off",
            Some(_) => return left("the log goes to a file, to standard output, or to syslog"),
        };
        let known = self.plan.log.get("access").cloned();
        if known.is_some_and(|known| known != Value::from(to)) {
            return left("the node has one access log");
        }
        self.plan.log.set("access", to);
        self.plan.log.set("format", "json");
        differs("lines have the form of `json`: docs/operate/logs.md")
    }

    /// An option of the whole file.
    fn option(&mut self, node: &Node) {
        let row = find(tables::OPTIONS, node.word(0), "");
        let outcome = match (node.word(0), row.and_then(Row::without_keys)) {
            _ if node.has_variable() => left(tables::VARIABLE),
            (_, Some(outcome)) => outcome,
            ("email", _) => {
                self.email = Some(node.word(1).to_owned());
                TAKEN
            }
            (name @ ("http_port" | "https_port"), _) => match node.word(1).parse::<u16>() {
                Ok(port) => {
                    *(if name == "http_port" {
                        &mut self.http_port
                    } else {
                        &mut self.https_port
                    }) = port;
                    TAKEN
                }
                Err(_) => left("is no port"),
            },
            ("auto_https", _) => {
                match node.word(1) {
                    "off" => (self.redirects, self.has_tls) = (false, true),
                    "disable_redirects" => self.redirects = false,
                    _ => {}
                }
                TAKEN
            }
            ("servers", _) => {
                node.inner().iter().for_each(|inner| self.server_option(inner));
                TAKEN
            }
            _ => left(MISSED),
        };
        let concern = match row {
            Some(row) => row.concern(),
            None => gate::smell(&node.all_words()),
        };
        let outcome = gate::pass(concern, node, outcome, &mut self.plan.defaults);
        self.ledger.enter(node, outcome.clone());
        if node.word(0) != "servers" {
            self.ledger.enter_whole(node, &outcome);
        }
    }

    fn server_option(&mut self, node: &Node) {
        let outcome = match (node.word(0), node.word(1)) {
            ("trusted_proxies", "static") => matchers::addresses(node.from(2)).map(|addresses| {
                let mut table = Table::default();
                table.set("addresses", addresses);
                self.plan.trusted.push(table);
                levada_conversion::ledger::Fate::Taken
            }),
            ("timeouts", _) => {
                for inner in node.inner() {
                    let keys: &[&str] = match inner.word(0) {
                        "read_body" => &["body_timeout"],
                        "read_header" => &["head_timeout"],
                        "write" => &["send_timeout"],
                        "idle" => &["idle_timeout"],
                        _ => &[],
                    };
                    let outcome = match units::go_time(inner.word(1)) {
                        Some(time) if !keys.is_empty() => {
                            self.plan.limit(keys, &units::bounded(time));
                            TAKEN
                        }
                        _ => left("is no time of the node"),
                    };
                    self.ledger.enter(inner, outcome);
                }
                TAKEN
            }
            ("max_header_size", _) => match crate::proxy::size(node.word(1)) {
                Some(size) => {
                    self.plan.limits.set("head_size", units::size(size.clamp(8 << 10, 1 << 20)));
                    TAKEN
                }
                None => left("is no size"),
            },
            (
                "protocols" | "protocol" | "metrics" | "name" | "keepalive_interval"
                | "log_credentials" | "enable_full_duplex",
                _,
            ) => needless("a node has its own way for it"),
            ("listener_wrappers", _) => {
                left("name the balancers: `[[trusted]]` with `proxy_protocol = true`")
            }
            _ => left(MISSED),
        };
        let concern = match node.word(0) {
            "trusted_proxies"
            | "client_ip_headers"
            | "trusted_proxies_strict"
            | "strict_sni_host" => Concern::Access,
            "listener_wrappers" | "timeouts" => Concern::Other,
            other => gate::smell(other),
        };
        let outcome = gate::pass(concern, node, outcome, &mut self.plan.defaults);
        self.ledger.enter(node, outcome.clone());
        if node.word(0) != "timeouts" {
            self.ledger.enter_whole(node, &outcome);
        }
    }

    /// The fate of all directives that nothing has read.
    fn account(&mut self, nodes: &[Node]) {
        if self.orders {
            let mut acme = Table::default();
            if let Some(email) = &self.email {
                acme.set("email", email.as_str());
            }
            acme.set("agree", true);
            self.plan.top.set("acme", acme);
        }
        let mut missed = |one: &Node| {
            gate::pass(gate::smell(&one.all_words()), one, left(MISSED), &mut self.plan.defaults)
        };
        self.ledger.enter_missed(nodes, |_| true, &mut missed);
    }
}

/// The addresses of `bind`.
fn binds(node: &Node) -> Vec<String> {
    let bind = node.inner().iter().filter(|inner| inner.word(0) == "bind");
    bind.flat_map(|bind| bind.from(1).iter().cloned()).collect()
}

fn is_loopback(address: &str) -> bool {
    address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `client_auth { mode require_and_verify; trusted_ca_cert_file FILE }`.
fn client_auth(node: &Node) -> Result<Table, String> {
    let (mut mode, mut authorities) = ("required", Vec::new());
    for inner in node.inner() {
        match (inner.word(0), inner.word(1)) {
            ("mode", "require_and_verify") => mode = "required",
            ("mode", "verify_if_given") => mode = "optional",
            ("trusted_ca_cert_file", file) => authorities.push(file.to_owned()),
            (other, _) => return Err(format!("certificates of clients have no `{other}`")),
        }
    }
    if authorities.is_empty() {
        return Err("certificates of clients need their authorities".to_owned());
    }
    let mut clients = Table::from_iter([("mode", mode.into())]);
    clients.set("authorities", authorities);
    clients.set("fields", Value::List(Vec::new()));
    Ok(clients)
}
