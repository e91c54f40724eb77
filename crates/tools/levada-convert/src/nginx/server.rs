//! One `server` block: its addresses, names, and what it does with requests.

use super::{
    content::Match,
    converter::{Converter, Scope},
    fields,
    locations::in_order,
    parse::Directive,
};
use crate::{
    ledger::{Outcome, Stated as _, TAKEN, left},
    plan::Route,
    table::{Table, Value},
    vocabulary,
};

/// A `listen` of a server.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    /// As Levada writes it.
    pub(super) address: String,
    pub(super) tls: bool,
    pub(super) http3: bool,
    pub(super) default: bool,
}

impl Listen {
    pub(super) fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap_or_default()
    }
}

/// The names and addresses of a server.
#[derive(Clone, Debug)]
pub(super) struct Server<'a> {
    pub(super) directive: &'a Directive,
    pub(super) listens: Vec<Listen>,
    pub(super) hosts: Vec<String>,
    /// Whether some of its names are no hosts: the server for all the rest answers for them.
    pub(super) has_other_names: bool,
}

impl Server<'_> {
    pub(super) fn is_default_by_word(&self) -> bool {
        self.hosts.is_empty() || self.listens.iter().any(|listen| listen.default)
    }
}

/// The work of a server: keys of its own, and routes in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Behaviour {
    pub(super) table: Table,
    pub(super) routes: Vec<Route>,
}

impl Converter {
    /// Reads addresses and names.
    pub(super) fn server<'a>(&mut self, directive: &'a Directive) -> Server<'a> {
        let scope = Scope { directives: directive.inner(), outer: None };
        let all_tls = scope.nearest_arg("ssl") == Some("on");
        let (listens, hosts) = (Vec::new(), Vec::new());
        let mut server = Server { directive, listens, hosts, has_other_names: false };
        for inner in directive.inner() {
            let outcome = match inner.name.as_str() {
                "listen" => listen(inner, all_tls).and_then(|listen| {
                    if inner.has_arg("http2") && !listen.tls {
                        self.plan.listener(&listen.address).set("h2c", true);
                    }
                    server.listens.push(listen);
                    if !inner.has_arg("proxy_protocol") {
                        return TAKEN;
                    }
                    if self.proxies.is_empty() {
                        return left("name the balancers that send the header: [[trusted]]");
                    }
                    self.trusted().set("proxy_protocol", true);
                    TAKEN
                }),
                "server_name" => {
                    let outcome = names(inner, &mut server.hosts);
                    server.has_other_names |= outcome.is_err();
                    outcome
                }
                "ssl" => TAKEN,
                _ => continue,
            };
            self.enter(inner, outcome);
        }
        // One that listens at a socket only is not for clients of the network.
        if scope.own("listen").next().is_none() {
            let address = EVERYWHERE.to_owned();
            server.listens.push(Listen { address, tls: false, http3: false, default: false });
        }
        server
    }

    /// The keys and routes of a server, within `http`.
    pub(super) fn behaviour(&mut self, server: &Server<'_>, http: &Scope<'_>) -> Behaviour {
        let scope = http.within(server.directive);
        let mut behaviour = Behaviour::default();
        self.settings(&scope, &mut behaviour.table);
        if server.listens.iter().any(|listen| listen.tls) {
            self.site_tls(&scope, &mut behaviour.table);
        }
        self.close_by_certificate(&scope, &mut behaviour.table);
        let mut here = Table::default();
        behaviour.routes = self.conditional(&scope, &mut here);
        let locations = self.locations(&scope, None, &Table::default(), &mut here);
        behaviour.table.1.merge(&here.1);
        // A `return` of the server comes before its locations.
        let answers_all = scope.own("return").next().is_some();
        let has_root = locations.iter().any(|location| location.at.is_root());
        let mut table = Table::default();
        let own_content =
            (!has_root || answers_all) && self.content(&scope, &Match::everything(), &mut table);
        if answers_all && !own_content {
            vocabulary::respond(&mut table, 501, None);
        }
        behaviour.table.lay_over(table);
        if answers_all {
            return behaviour;
        }
        if !own_content {
            self.claim_roots(&scope);
        }
        let mut catch_all = None;
        for location in in_order(locations) {
            behaviour.routes.extend(location.before);
            match location.at.is_root() {
                true => catch_all = Some(location.route),
                false if location.has_content => behaviour.routes.push(location.route),
                false => {}
            }
        }
        if let Some(route) = catch_all {
            site_content(&mut behaviour, route);
        }
        behaviour
    }
}

/// Keys that say where answers come from. A site has them, so that its routes need not.
const CONTENT: [&str; 10] = [
    "origin",
    "servers",
    "server",
    "policy",
    "key",
    "health_check",
    "origin_host",
    "protocol",
    "origin_tls",
    "files",
];

/// `location /` is the site itself, where it does not disturb other routes.
fn site_content(behaviour: &mut Behaviour, mut route: Route) {
    if behaviour.routes.is_empty() {
        fields::give_way(&mut behaviour.table, &mut route.table);
        behaviour.table.lay_over(route.table);
        return;
    }
    // Other locations do not inherit the way on where there is no file.
    if let Some(Value::Inline(files)) = route.table.get("files").cloned() {
        let mut of_site = files.clone();
        of_site.remove_all(&["else", "fallback", "listing"]);
        if of_site == files {
            route.table.remove("files");
        }
        behaviour.table.set("files", of_site);
    }
    // A route with servers of its own would inherit what it does not state of those of the site.
    let disturbs = |other: &Route| {
        let lacks = |key: &&str| route.table.has_any(&[key]) && !other.table.has_any(&[key]);
        other.table.has_any(&CONTENT[..3]) && CONTENT[3..].iter().any(lacks)
    };
    if !behaviour.routes.iter().any(disturbs) {
        for key in CONTENT {
            if let Some(value) = route.table.get(key).filter(|_| key != "files").cloned() {
                route.table.remove(key);
                behaviour.table.set(key, value);
            }
        }
    }
    if !route.table.is_empty() {
        behaviour.routes.push(route);
    }
}

fn listen(directive: &Directive, all_tls: bool) -> Result<Listen, String> {
    let has = |word: &str| directive.args.iter().skip(1).any(|arg| arg == word);
    Ok(Listen {
        address: address(directive.arg(0))?,
        tls: all_tls || has("ssl") || has("quic"),
        http3: has("quic"),
        default: has("default_server") || has("default"),
    })
}

/// The address of a server that names none.
pub(super) const EVERYWHERE: &str = "0.0.0.0:80";

/// An address of nginx as Levada writes it.
pub(super) fn address(text: &str) -> Result<String, String> {
    const NO_ADDRESS: &str = "is no IP address and port";
    if text.starts_with("unix:") {
        return Err("clients come over TCP".to_owned());
    }
    let address = if text.parse::<u16>().is_ok() {
        format!("0.0.0.0:{text}")
    } else if let Some(port) = text.strip_prefix("*:") {
        format!("0.0.0.0:{port}")
    } else if let Some(port) = text.strip_prefix("localhost") {
        format!("127.0.0.1{}", if port.is_empty() { ":80" } else { port })
    } else if text.parse::<std::net::Ipv4Addr>().is_ok() || text.ends_with(']') {
        format!("{text}:80")
    } else {
        text.to_owned()
    };
    address.parse::<std::net::SocketAddr>().map_err(|_| NO_ADDRESS)?;
    Ok(address)
}

fn names(directive: &Directive, hosts: &mut Vec<String>) -> Outcome {
    let mut refused = Vec::new();
    for name in &directive.args {
        let name = name.to_ascii_lowercase();
        let plain = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c))
                && !host.starts_with('.')
        };
        if let Some(domain) = name.strip_prefix('.').filter(|domain| plain(domain)) {
            hosts.extend([domain.to_owned(), format!("*.{domain}")]);
        } else if name.is_empty() || !name.contains(|c: char| c.is_ascii_alphanumeric()) {
            // `_` and the like: names that no client asks for, in servers for all the rest.
        } else if plain(name.strip_prefix("*.").unwrap_or(&name)) {
            hosts.push(name);
        } else {
            refused.push(name);
        }
    }
    match refused.is_empty() {
        true => TAKEN,
        false => left(format!("hosts are names, or `*.` and a name: {}", refused.join(", "))),
    }
}

/// Certificates of a listener.
pub(super) fn certificate(scope: &Scope<'_>) -> Option<Value> {
    let certificate = scope.nearest_arg("ssl_certificate")?;
    let key = scope.nearest_arg("ssl_certificate_key")?;
    let mut pair = Table::from_iter([("certificate", certificate.into()), ("key", key.into())]);
    if let (Some("on"), Some(answer)) =
        (scope.nearest_arg("ssl_stapling"), scope.nearest_arg("ssl_stapling_file"))
    {
        pair.set("ocsp", answer);
    }
    Some(pair.into())
}
