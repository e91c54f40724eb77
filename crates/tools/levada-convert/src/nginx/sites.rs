//! `server` blocks as sites: Levada finds a site by the host alone, nginx a server by address and host.

use std::collections::BTreeMap;

use super::{
    converter::{Converter, Scope},
    directives::concern,
    parse::Directive,
    server::{Behaviour, Listen, Server, certificate},
};
use crate::{
    gate::{self, Concern},
    ledger::{Fate, Stated as _, TAKEN, left, needless},
    plan::{Route, Site},
    table::{Table, Value},
    vocabulary,
};

/// The servers that answer for a host, in plain text and over TLS, by their places in the list.
type Answering = (Option<usize>, Option<usize>);

impl Converter {
    pub(super) fn sites(&mut self, http: &Scope<'_>) {
        let servers: Vec<_> = http.own("server").map(|directive| self.server(directive)).collect();
        self.listeners(&servers, http);
        let mut behaviours = BTreeMap::new();
        for (answering, hosts) in by_host(&servers) {
            for index in [answering.0, answering.1].into_iter().flatten() {
                behaviours.entry(index).or_insert_with(|| self.behaviour(&servers[index], http));
            }
            self.site(answering, hosts, &servers, &behaviours);
        }
        self.close_by_address(&servers, &behaviours);
        for (index, server) in servers.iter().enumerate() {
            let outcome = match behaviours.contains_key(&index) {
                true => TAKEN,
                false => left(
                    "another server has its hosts: a site is found by the host, not by the port",
                ),
            };
            match &outcome {
                Ok(Fate::Taken) => self.enter(server.directive, outcome),
                _ => self.enter_whole(server.directive, &outcome),
            }
        }
    }

    /// One `[[listen]]` for each address, with the certificates of all servers there.
    fn listeners(&mut self, servers: &[Server<'_>], http: &Scope<'_>) {
        for server in servers {
            let scope = http.within(server.directive);
            let certificate = certificate(&scope);
            for name in ["ssl_certificate", "ssl_certificate_key"] {
                for directive in scope.nearest(name) {
                    self.enter(directive, TAKEN);
                }
            }
            self.stapling(&scope);
            for listen in &server.listens {
                let table = self.plan.listener(&listen.address);
                if listen.http3 {
                    table.set("http3", true);
                }
                let (true, Some(pair)) = (listen.tls, &certificate) else { continue };
                add_certificate(table, pair.clone(), listen.default);
            }
        }
    }

    fn stapling(&mut self, scope: &Scope<'_>) {
        let file = scope.nearest("ssl_stapling_file");
        for directive in scope.nearest("ssl_stapling") {
            let outcome = match directive.arg(0) {
                "on" if file.is_empty() => left(
                    "answers are not fetched; most authorities have given them up: docs/operate/tls.md",
                ),
                "on" => TAKEN,
                _ => needless("it is the default"),
            };
            for directive in &file {
                self.enter(directive, outcome.clone());
            }
            self.enter(directive, outcome);
        }
    }

    fn site(
        &mut self,
        (plain, tls): Answering,
        hosts: Vec<String>,
        servers: &[Server<'_>],
        behaviours: &BTreeMap<usize, Behaviour>,
    ) {
        let Some(base) = tls.or(plain) else { return };
        let mut behaviour = behaviours[&base].clone();
        let mut comment = format!("server at {}", servers[base].directive.place);
        if let Some(other) = plain.filter(|plain| *plain != base) {
            comment += &format!(", in plain text {}", servers[other].directive.place);
            let mut routes = over_plain_text(&behaviours[&other], &behaviour.table);
            routes.append(&mut behaviour.routes);
            behaviour.routes = routes;
        }
        complete(&mut behaviour);
        let mut table = Table::default();
        table.set("hosts", hosts);
        table.lay_over(behaviour.table);
        // Without an answer of its own, a host would be answered by the site for all the rest.
        if !answers(&table) {
            vocabulary::respond(&mut table, 501, None);
            let reason = "until you write where its answers come from, it has status 501";
            self.enter(servers[base].directive, left(reason));
        }
        if !table.has_any(vocabulary::SERVERS) && !table.has_any(&["files"]) {
            for route in behaviour.routes.iter_mut().filter(|route| !answers(&route.table)) {
                vocabulary::respond(&mut route.table, 501, None);
                let reason = "some of its routes ask servers, and it has none of its own: they have status 501";
                self.enter(servers[base].directive, left(reason));
            }
        }
        self.plan.sites.push(Site { comment, table, routes: behaviour.routes });
    }

    /// Closes the sites of a server that only clients of the machine could reach, and of one that keeps clients out at
    /// another port: a site has one treatment for all ports.
    fn close_by_address(
        &mut self,
        servers: &[Server<'_>],
        behaviours: &BTreeMap<usize, Behaviour>,
    ) {
        let is_inner = |listen: &Listen| {
            let address = listen.address.parse::<std::net::SocketAddr>();
            address.is_ok_and(|address| address.ip().is_loopback())
        };
        let all_are_inner = servers.iter().flat_map(|server| &server.listens).all(is_inner);
        for (index, server) in servers.iter().enumerate() {
            let refuses = |one: &Directive| one.name == "return" && one.arg(0) >= "4";
            let rest = vec!["*".to_owned()];
            let own = if server.hosts.is_empty() || server.has_other_names {
                [server.hosts.clone(), rest.clone()].concat()
            } else {
                server.hosts.clone()
            };
            let is_rule = || {
                concern(server.directive) == Concern::Access
                    || server.directive.inner().iter().any(refuses)
            };
            let (reason, hosts) = if server.listens.iter().all(is_inner) && !all_are_inner {
                (
                    "clients of other machines could not reach it, and would: a site is found by the host",
                    own,
                )
            } else if !behaviours.contains_key(&index) && is_rule() {
                (
                    "another server has its hosts, and its rules of access: a site is found by the host",
                    own,
                )
            } else if server.has_other_names && is_rule() {
                ("the server for all the rest answers for its other names, without its rules", rest)
            } else {
                continue;
            };
            for site in &mut self.plan.sites {
                let all = site.table.get("hosts").map(Value::texts).unwrap_or_default();
                if all.iter().any(|one| hosts.iter().any(|host| host == one)) {
                    let outcome = left(reason);
                    let outcome =
                        gate::pass(Concern::Access, server.directive, outcome, &mut site.table);
                    self.ledger.enter(server.directive, outcome);
                }
            }
        }
    }
}

/// The first certificate is for clients without a server name: that of the default server.
fn add_certificate(listen: &mut Table, pair: Value, default: bool) {
    let mut list = match listen.remove("tls") {
        Some(Value::List(list)) => list,
        _ => Vec::new(),
    };
    let is_same = |own: &Value| own.inner("certificate") == pair.inner("certificate");
    let known = list.iter().position(is_same);
    let pair = match known.map(|at| list[at].clone()) {
        // One server staples an answer, and another one does not.
        Some(own) if own.inner("ocsp").is_some() => own,
        _ => pair,
    };
    match known {
        Some(at) if !default => list[at] = pair,
        known => {
            known.map(|at| list.remove(at));
            let at = if default { 0 } else { list.len() };
            list.insert(at, pair);
        }
    }
    listen.set("tls", Value::List(list));
}

/// The hosts that the same servers answer for, in the order of the file.
fn by_host(servers: &[Server<'_>]) -> Vec<(Answering, Vec<String>)> {
    let mut hosts: Vec<String> = Vec::new();
    for server in servers {
        for host in &server.hosts {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
    }
    if servers.iter().any(Server::is_default_by_word) || has_one_port(servers) {
        hosts.push("*".to_owned());
    }
    let mut groups: Vec<(Answering, Vec<String>)> = Vec::new();
    for host in hosts {
        let answering = (answering(servers, &host, false), answering(servers, &host, true));
        match groups.iter_mut().find(|(own, _)| *own == answering) {
            Some((_, hosts)) => hosts.push(host),
            None => groups.push((answering, vec![host])),
        }
    }
    groups
}

/// The server for a host: by name, or the one that is declared for all the rest.
fn answering(servers: &[Server<'_>], host: &str, tls: bool) -> Option<usize> {
    let listens = |server: &&Server<'_>| server.listens.iter().any(|listen| listen.tls == tls);
    let find = |wanted: &dyn Fn(&Server<'_>) -> bool| {
        servers.iter().position(|server| listens(&server) && wanted(server))
    };
    find(&|server| server.hosts.iter().any(|own| own == host))
        .or_else(|| {
            find(&|server| server.listens.iter().any(|listen| listen.default && listen.tls == tls))
        })
        .or_else(|| find(&|server| server.hosts.is_empty()))
        .or_else(|| find(&|_| has_one_port(servers)))
}

/// Whether clients come to one port in plain text and one over TLS at most: then the first server of each is the
/// one for all the rest, as in nginx. Of several ports, a site could not tell which one a client came to.
fn has_one_port(servers: &[Server<'_>]) -> bool {
    [false, true].into_iter().all(|tls| {
        let listens = servers.iter().flat_map(|server| &server.listens);
        let mut ports = listens.filter(|listen| listen.tls == tls).map(Listen::port);
        let first = ports.next();
        ports.all(|port| Some(port) == first)
    })
}

/// The routes of a server without TLS, within a site that has another server over TLS.
fn over_plain_text(behaviour: &Behaviour, tls: &Table) -> Vec<Route> {
    let mut routes: Vec<_> = behaviour
        .routes
        .iter()
        .map(|route| {
            let mut table = behaviour.table.clone();
            table.remove_all(&["redirect", "respond", "rewrite"]);
            table.lay_over(route.table.clone());
            Route { comment: route.comment.clone(), table }
        })
        .collect();
    if !routes.iter().any(Route::takes_all) {
        let comment = "all other requests in plain text".to_owned();
        routes.push(Route { comment, table: behaviour.table.clone() });
    }
    for route in &mut routes {
        vocabulary::keep_those_of(tls, &mut route.table);
        let mut table = Table::from_iter([("scheme", "http".into())]);
        table.lay_over(std::mem::take(&mut route.table));
        table.set("scheme", "http");
        route.table = table;
    }
    routes
}

/// A site whose routes answer, but that has nothing for other requests: those get 404, as in nginx.
fn complete(behaviour: &mut Behaviour) {
    if !answers(&behaviour.table) && behaviour.routes.iter().any(|route| answers(&route.table)) {
        vocabulary::respond(&mut behaviour.table, 404, None);
    }
}

/// Whether a table says where answers come from.
fn answers(table: &Table) -> bool {
    table.has_any(vocabulary::SERVERS)
        || table.has_any(vocabulary::ANSWERS)
        || table.has_any(&["files"])
}
