//! One `server` block: its addresses, names, and what it does with requests.

use super::{
    Converter, Scope, conditions::cases, content::Match, directory::has_handler, parse::Directive,
    settings::RESTRICTING, tls, variables,
};
use crate::{
    ledger::{Fate, Outcome, Place, Stated as _, TAKEN, differs, left, needless},
    matchers::{checked_regex, narrowed},
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
        let mut server = Server { directive, listens: Vec::new(), hosts: Vec::new() };
        for inner in directive.inner() {
            let fate = match inner.name.as_str() {
                "listen" => match listen(inner, all_tls) {
                    Ok(listen) => {
                        if inner.has_arg("proxy_protocol") {
                            let _ = self.trust_proxy_protocol();
                        }
                        server.listens.push(listen);
                        TAKEN
                    }
                    Err(reason) => Err(reason),
                },
                "server_name" => names(inner, &mut server.hosts),
                "ssl" => TAKEN,
                _ => continue,
            };
            self.enter(inner, fate);
        }
        if server.listens.is_empty() {
            server.listens.push(Listen {
                address: "0.0.0.0:80".to_owned(),
                tls: false,
                http3: false,
                default: false,
            });
        }
        server
    }

    /// What the server does with a request, within `http`.
    pub(super) fn behaviour(&mut self, server: &Server<'_>, http: &Scope<'_>) -> Behaviour {
        let scope = Scope { directives: server.directive.inner(), outer: Some(http) };
        let mut behaviour = Behaviour::default();
        self.settings(&scope, &mut behaviour.table);
        if server.listens.iter().any(|listen| listen.tls) {
            self.site_tls(&scope, &mut behaviour.table);
        }
        self.close_by_certificate(&scope, &mut behaviour.table);
        behaviour.routes = self.conditional(&scope, &Table::default());
        let everything = Match::Prefix { path: "/".to_owned(), before_regexes: false };
        let locations: Vec<_> = self.locations(&scope, None, &Table::default());
        // A `return` of the server comes before its locations.
        let answers_all = scope.own("return").next().is_some();
        let own_content = {
            let mut table = Table::default();
            let has_root = locations.iter().any(|location| location.at.is_root());
            (!has_root || answers_all) && {
                let found = self.content(&scope, &everything, &mut table);
                behaviour.table.lay_over(table);
                found
            }
        };
        if answers_all {
            return behaviour;
        }
        if !own_content {
            self.claim_roots(&scope);
        }
        let mut catch_all = None;
        self.mark_shadowed(&locations);
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

    /// The routes of `if` and `rewrite`, which come before locations; `around` are the matchers and keys of
    /// the level that they stand in.
    fn conditional(&mut self, scope: &Scope<'_>, around: &Table) -> Vec<Route> {
        let mut routes = self.rewrites(scope, around);
        for directive in scope.own("if") {
            routes.extend(self.condition(scope, directive, around));
        }
        routes
    }

    fn rewrites(&mut self, scope: &Scope<'_>, around: &Table) -> Vec<Route> {
        let mut routes = Vec::new();
        for directive in scope.own("rewrite") {
            let mut table = around.clone();
            let fate = self.rewrite(scope, directive, &mut table);
            if matches!(fate, Ok(Fate::Taken | Fate::Differs(_))) {
                routes.push(Route { comment: directive.place.to_string(), table });
            }
            self.enter(directive, fate);
        }
        routes
    }

    fn condition(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        around: &Table,
    ) -> Vec<Route> {
        let argument = directive.args.join("");
        if directive.inner().iter().any(|inner| inner.name == "if") {
            self.enter_whole(directive, &left("conditions within conditions"));
            return Vec::new();
        }
        if sets_flags(directive) {
            return Vec::new();
        }
        if let Some(fate) = refusal_of_a_rule(scope, directive) {
            self.enter_whole(directive, &fate);
            return Vec::new();
        }
        let cases = match cases(&directive.args, &self.maps, &self.flags) {
            Ok(cases) => cases,
            Err(reason) => {
                self.enter_whole(directive, &Err(reason));
                return Vec::new();
            }
        };
        let name = argument.trim_matches(['(', ')', '$']).to_owned();
        let former = self.constants.get(&name).cloned();
        let mut routes = Vec::new();
        let inner = Scope { directives: directive.inner(), outer: Some(scope) };
        for case in cases {
            let Some(mut table) = narrowed(around, &case.condition) else {
                let reason = "the location and the condition look at the same part of a request";
                self.enter_whole(directive, &left(reason));
                return Vec::new();
            };
            if let Some(value) = case.value {
                self.constants.insert(name.clone(), value);
            }
            let everything = Match::Prefix { path: "/".to_owned(), before_regexes: false };
            self.settings(&inner, &mut table);
            let answers = inner.directives.iter().any(|d| ANSWERING.contains(&d.name.as_str()));
            if answers && self.content(&inner, &everything, &mut table) {
                routes.push(Route { comment: directive.place.to_string(), table });
            } else if !answers {
                routes.extend(self.rewrites(&inner, &table));
            }
        }
        match former {
            Some(value) => self.constants.insert(name, value),
            None => self.constants.remove(&name),
        };
        let fate = match routes.is_empty() {
            true => left("nothing in the block could be said as a route"),
            false => TAKEN,
        };
        self.enter(directive, fate);
        routes
    }

    /// Blocks of `if` that do nothing but `set` variables, for conditions that look at them.
    pub(super) fn read_flags(&mut self, scope: &Scope<'_>) {
        for directive in scope.own("if").filter(|directive| sets_flags(directive)) {
            let fate = match cases(&directive.args, &self.maps, &self.flags) {
                Ok(cases) => {
                    for set in directive.inner() {
                        let name = set.arg(0).trim_start_matches('$').to_owned();
                        self.constants.remove(&name);
                        let flag = self.flags.entry(name).or_default();
                        flag.extend(cases.iter().map(|case| case.condition.clone()));
                    }
                    TAKEN
                }
                Err(reason) => Err(reason),
            };
            self.enter_whole(directive, &fate);
        }
    }

    /// `rewrite` with a flag: a redirect, or another path at the origin.
    fn rewrite(&mut self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        let (pattern, to, flag) = (directive.arg(0), directive.arg(1), directive.arg(2));
        if pattern.contains("\\?") || table.get("path_regex").is_some() {
            return left("a route has one expression, for the path");
        }
        let pattern = checked_regex(pattern)?;
        let (to, drops_query) = to.strip_suffix('?').map_or((to, false), |to| (to, true));
        let mut to = variables::translate(to, &self.constants)?;
        let leads_away =
            ["http://", "https://", "{scheme}"].iter().any(|start| to.starts_with(start));
        let status = match flag {
            "permanent" => Some(301),
            "redirect" => Some(302),
            _ if leads_away => Some(302),
            _ => None,
        };
        table.set("path_regex", pattern);
        if let Some(status) = status {
            if !drops_query && !to.contains('?') {
                to.push_str("{?query}");
            }
            return vocabulary::redirect(table, status, to);
        }
        if table.get("files").is_some() {
            return left("files are found by the path that the client wrote");
        }
        let is_server = scope.own("location").next().is_some();
        match vocabulary::rewrite(table, to) {
            Ok(Fate::Taken) if is_server => differs(
                "the new path goes to the origin of the site; its locations are not looked at again",
            ),
            other => other,
        }
    }

    /// All locations in a block, nested ones too.
    fn locations(
        &mut self,
        scope: &Scope<'_>,
        within: Option<&Match>,
        inherited: &Table,
    ) -> Vec<Location> {
        let mut locations = Vec::new();
        for directive in scope.own("location") {
            let at = match Match::read(&directive.args) {
                Ok(at) => at,
                Err(mut reason) => {
                    if is_closed(directive) {
                        reason.push_str("; WARNING: what is around it answers its requests");
                    }
                    self.enter_whole(directive, &Err(reason));
                    continue;
                }
            };
            let inner = Scope { directives: directive.inner(), outer: Some(scope) };
            if inner.own("internal").next().is_some() {
                locations.push(self.internal(directive, &inner, at));
                continue;
            }
            let mut settings = inherited.clone();
            let mut own = Table::default();
            self.settings(&inner, &mut own);
            self.close_by_certificate(&inner, &mut own);
            settings.lay_over(own);
            let mut table = at.matchers();
            if let (Match::Regex(_), Some(Match::Prefix { path, .. })) = (&at, within) {
                table.set("path", format!("{path}**"));
            }
            table.lay_over(settings.clone());
            // A place that is closed stays closed, although the site around it would serve it.
            let has_content =
                self.content(&inner, &at, &mut table) || vocabulary::restricts(&settings);
            let before = self.conditional(&inner, &table_without_content(&table));
            locations.extend(self.locations(&inner, Some(&at), &settings));
            let nowhere = "where its answers come from could not be converted";
            let fate = match has_content || !before.is_empty() {
                _ if has_handler(inner.directives) => {
                    left("until you write where its answers come from, it has status 501")
                }
                true => TAKEN,
                false => left(nowhere),
            };
            self.enter(directive, fate);
            let route = Route { comment: directive.place.to_string(), table };
            let (place, statement) = (directive.place.clone(), directive.shown());
            locations.push(Location { place, statement, at, route, before, has_content });
        }
        locations
    }

    /// A location for questions to servers and for error pages. Those who use it look at it themselves; clients
    /// get 404.
    fn internal(&mut self, directive: &Directive, inner: &Scope<'_>, at: Match) -> Location {
        let is_used = |directive: &Directive| {
            matches!(directive.name.as_str(), "internal" | "proxy_pass" | "root")
                || ["proxy_", "grpc_"].iter().any(|module| directive.name.starts_with(module))
        };
        for one in inner.directives {
            let fate = match is_used(one) {
                true => needless("who uses the location looks at this: auth_request, error_page"),
                false => left("the location is not for clients"),
            };
            self.enter_whole(one, &fate);
        }
        let mut table = at.matchers();
        let _ = vocabulary::respond(&mut table, 404, None);
        self.enter(directive, TAKEN);
        Location {
            place: directive.place.clone(),
            statement: directive.shown(),
            at,
            route: Route { comment: directive.place.to_string(), table },
            before: Vec::new(),
            has_content: true,
        }
    }

    /// A `^~` location goes before expressions only where it is the longest prefix; a route is simply first.
    fn mark_shadowed(&mut self, locations: &[Location]) {
        if !locations.iter().any(|location| matches!(location.at, Match::Regex(_))) {
            return;
        }
        for location in locations {
            let first = matches!(&location.at, Match::Prefix { before_regexes: true, .. });
            let shadows = |other: &Location| {
                matches!(other.at, Match::Prefix { before_regexes: false, .. })
                    && other.at != location.at
                    && location.at.covers(&other.at)
            };
            if first && locations.iter().any(shadows) {
                let reason = "it comes before a longer location without `^~`, too";
                self.ledger.enter_line(&location.place, &location.statement, differs(reason));
            }
        }
    }
}

/// Directives that say where answers come from.
const ANSWERING: [&str; 3] = ["return", "proxy_pass", "grpc_pass"];

/// Whether a block of `if` does nothing but `set` variables to what is neither empty nor 0.
fn sets_flags(directive: &Directive) -> bool {
    let sets = |inner: &Directive| {
        inner.name == "set" && !["", "0"].contains(&inner.arg(1)) && !inner.arg(1).contains('$')
    };
    !directive.inner().is_empty() && directive.inner().iter().all(sets)
}

/// Whether a location is not for everybody, or its files are programs.
fn is_closed(location: &Directive) -> bool {
    let restricts = |inner: &Directive| RESTRICTING.contains(&inner.name.as_str());
    !location.arg(0).starts_with('@')
        && (has_handler(location.inner()) || location.inner().iter().any(restricts))
}

/// `if ($invalid_referer)` and `if ($secure_link = "")` refuse what a key of the site refuses.
fn refusal_of_a_rule(scope: &Scope<'_>, directive: &Directive) -> Option<Outcome> {
    let [refusal] = directive.inner() else { return None };
    if let Some(fate) = tls::fate_of_demand(scope, directive) {
        return Some(fate);
    }
    let condition = directive.args.join("");
    let (rule, is_known) = match condition.as_str() {
        "($invalid_referer)" => ("valid_referers", true),
        text => ("secure_link", text.starts_with("($secure_link=") || text == "(!$secure_link)"),
    };
    if !is_known || refusal.name != "return" || scope.nearest(rule).is_empty() {
        return None;
    }
    Some(match refusal.arg(0) {
        "403" => TAKEN,
        _ => differs("the refusal has status 403"),
    })
}

/// A `location` as a route.
#[derive(Clone, Debug)]
struct Location {
    place: Place,
    statement: String,
    at: Match,
    route: Route,
    before: Vec<Route>,
    has_content: bool,
}

/// nginx's order: whole paths, the longest prefix if it says so, expressions, the longest prefix.
fn in_order(mut locations: Vec<Location>) -> Vec<Location> {
    let rank = |location: &Location| match &location.at {
        Match::Exact(_) => (0, 0),
        Match::Prefix { path, before_regexes: true } => (1, usize::MAX - path.len()),
        Match::Regex(_) => (2, 0),
        Match::Prefix { path, before_regexes: false } => (3, usize::MAX - path.len()),
    };
    locations.sort_by_key(rank);
    locations
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

fn table_without_content(table: &Table) -> Table {
    let mut table = table.clone();
    for key in ["redirect", "respond"] {
        table.remove(key);
    }
    table
}

/// `location /` is the site itself, where it does not disturb other routes.
fn site_content(behaviour: &mut Behaviour, mut route: Route) {
    if behaviour.routes.is_empty() {
        behaviour.table.lay_over(route.table);
        return;
    }
    // A route with servers of its own would inherit what it does not state of those of the site.
    let disturbs = |other: &Route| {
        let has_servers = CONTENT[..3].iter().any(|key| other.table.get(key).is_some());
        let lacks = |key: &str| route.table.get(key).is_some() && other.table.get(key).is_none();
        has_servers && CONTENT[3..].iter().any(|key| lacks(key))
    };
    if !behaviour.routes.iter().any(disturbs) {
        for key in CONTENT {
            if let Some(value) = route.table.remove(key) {
                behaviour.table.set(key, value);
            }
        }
    }
    if !route.table.is_empty() {
        behaviour.routes.push(route);
    }
}

fn listen(directive: &Directive, all_tls: bool) -> Result<Listen, String> {
    let text = directive.arg(0);
    let has = |word: &str| directive.args.iter().skip(1).any(|arg| arg == word);
    let address = if text.starts_with("unix:") {
        return Err("clients come over TCP".to_owned());
    } else if text.parse::<u16>().is_ok() {
        format!("0.0.0.0:{text}")
    } else if let Some(port) = text.strip_prefix("*:") {
        format!("0.0.0.0:{port}")
    } else if text.parse::<std::net::SocketAddr>().is_ok() {
        text.to_owned()
    } else if text.parse::<std::net::Ipv4Addr>().is_ok()
        || text.starts_with('[') && text.ends_with(']')
    {
        format!("{text}:80")
    } else if let Some(port) = text.strip_prefix("localhost") {
        format!("127.0.0.1{}", if port.is_empty() { ":80" } else { port })
    } else {
        return Err("is no IP address and port".to_owned());
    };
    if address.parse::<std::net::SocketAddr>().is_err() {
        return Err("is no IP address and port".to_owned());
    }
    Ok(Listen {
        address,
        tls: all_tls || has("ssl") || has("quic"),
        http3: has("quic"),
        default: has("default_server") || has("default"),
    })
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
