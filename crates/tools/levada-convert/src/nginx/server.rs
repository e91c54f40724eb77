//! One `server` block: its addresses, names, and what it does with requests.

use super::{
    conditions::{Case, cases},
    content::{ANSWERING, Match},
    converter::{Converter, Scope},
    directives::{has_handler, is_rule},
    parse::Directive,
    tls, variables,
};
use crate::{
    ledger::{Outcome, Place, Stated as _, TAKEN, differs, left, needless},
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
            let outcome = match inner.name.as_str() {
                "listen" => listen(inner, all_tls).and_then(|listen| {
                    if inner.has_arg("proxy_protocol") {
                        self.trusted().set("proxy_protocol", true);
                    }
                    server.listens.push(listen);
                    TAKEN
                }),
                "server_name" => names(inner, &mut server.hosts),
                "ssl" => TAKEN,
                _ => continue,
            };
            self.enter(inner, outcome);
        }
        if server.listens.is_empty() {
            let address = "0.0.0.0:80".to_owned();
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
        behaviour.routes = self.conditional(&scope, &Table::default());
        let locations: Vec<_> = self.locations(&scope, None, &Table::default());
        // A `return` of the server comes before its locations.
        let answers_all = scope.own("return").next().is_some();
        let has_root = locations.iter().any(|location| location.at.is_root());
        let mut table = Table::default();
        let own_content =
            (!has_root || answers_all) && self.content(&scope, &Match::everything(), &mut table);
        behaviour.table.lay_over(table);
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
            let outcome = self.rewrite(scope, directive, &mut table);
            if outcome.is_ok() {
                routes.push(Route { comment: directive.place.to_string(), table });
            }
            self.enter(directive, outcome);
        }
        routes
    }

    fn condition(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        around: &Table,
    ) -> Vec<Route> {
        if sets_flags(directive) {
            return Vec::new();
        }
        if let Some(outcome) = refusal_of_a_rule(scope, directive) {
            self.enter_whole(directive, &outcome);
            return Vec::new();
        }
        match self.tables(directive, around) {
            Ok(tables) => self.routes(scope, directive, tables),
            Err(reason) => {
                self.enter_whole(directive, &left(reason));
                Vec::new()
            }
        }
    }

    /// The keys around a block for the requests of its condition, with the value of a map's variable there.
    fn tables(
        &self,
        directive: &Directive,
        around: &Table,
    ) -> Result<Vec<(Table, Option<String>)>, String> {
        const TWICE: &str = "the location and the condition look at the same part of a request";
        if directive.inner().iter().any(|inner| inner.name == "if") {
            return Err("conditions within conditions".to_owned());
        }
        let cases = cases(&directive.args, &self.maps, &self.flags)?.into_iter();
        let table = |case: Case| Some((narrowed(around, &case.condition)?, case.value));
        cases.map(|case| table(case).ok_or_else(|| TWICE.to_owned())).collect()
    }

    fn routes(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        tables: Vec<(Table, Option<String>)>,
    ) -> Vec<Route> {
        let name = directive.args.join("").trim_matches(['(', ')', '$']).to_owned();
        let former = self.constants.get(&name).cloned();
        let mut routes = Vec::new();
        let inner = scope.within(directive);
        let answers = inner.directives.iter().any(|d| ANSWERING.contains(&d.name.as_str()));
        for (mut table, value) in tables {
            if let Some(value) = value {
                self.constants.insert(name.clone(), value);
            }
            self.settings(&inner, &mut table);
            if !answers {
                routes.extend(self.rewrites(&inner, &table));
            } else if self.content(&inner, &Match::everything(), &mut table) {
                routes.push(Route { comment: directive.place.to_string(), table });
            }
        }
        match former {
            Some(value) => self.constants.insert(name, value),
            None => self.constants.remove(&name),
        };
        let outcome = match routes.is_empty() {
            true => left("nothing in the block could be said as a route"),
            false => TAKEN,
        };
        self.enter(directive, outcome);
        routes
    }

    /// Blocks of `if` that do nothing but `set` variables, for conditions that look at them.
    pub(super) fn read_flags(&mut self, scope: &Scope<'_>) {
        for directive in scope.own("if").filter(|directive| sets_flags(directive)) {
            let outcome = cases(&directive.args, &self.maps, &self.flags).and_then(|cases| {
                for set in directive.inner() {
                    let name = set.arg(0).trim_start_matches('$').to_owned();
                    self.constants.remove(&name);
                    let flag = self.flags.entry(name).or_default();
                    flag.extend(cases.iter().map(|case| case.condition.clone()));
                }
                TAKEN
            });
            self.enter_whole(directive, &outcome);
        }
    }

    /// `rewrite` with a flag: a redirect, or another path at the origin.
    fn rewrite(&mut self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        let (pattern, to, flag) = (directive.arg(0), directive.arg(1), directive.arg(2));
        if pattern.contains("\\?") || table.has_any(&["path_regex"]) {
            return left("a route has one expression, for the path");
        }
        let pattern = checked_regex(pattern)?;
        let (to, drops_query) = to.strip_suffix('?').map_or((to, false), |to| (to, true));
        let mut to = variables::translate(to, &self.constants)?;
        let leads_away =
            ["http://", "https://", "{scheme}"].iter().any(|start| to.starts_with(start));
        table.set("path_regex", pattern);
        if leads_away || ["permanent", "redirect"].contains(&flag) {
            if !drops_query && !to.contains('?') {
                to.push_str("{?query}");
            }
            vocabulary::redirect(table, if flag == "permanent" { 301 } else { 302 }, to);
            return TAKEN;
        }
        if table.has_any(&["files"]) {
            return left("files are found by the path that the client wrote");
        }
        table.set("rewrite", to);
        match scope.own("location").next() {
            Some(_) => differs(
                "the new path goes to the origin of the site; its locations are not looked at again",
            ),
            None => TAKEN,
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
                    self.enter_whole(directive, &left(reason));
                    continue;
                }
            };
            let inner = scope.within(directive);
            if inner.own("internal").next().is_some() {
                locations.push(self.internal(directive, &inner, at));
                continue;
            }
            let mut own = Table::default();
            self.settings(&inner, &mut own);
            self.close_by_certificate(&inner, &mut own);
            let mut settings = inherited.clone();
            settings.lay_over(own);
            let mut table = at.matchers();
            if let (Match::Regex(_), Some(Match::Prefix { path, .. })) = (&at, within) {
                table.set("path", format!("{path}**"));
            }
            table.lay_over(settings.clone());
            // A place that is closed stays closed, although the site around it would serve it.
            let has_content =
                self.content(&inner, &at, &mut table) || vocabulary::restricts(&settings);
            let mut around = table.clone();
            around.remove_all(vocabulary::ANSWERS);
            let before = self.conditional(&inner, &around);
            locations.extend(self.locations(&inner, Some(&at), &settings));
            let outcome = if has_handler(inner.directives) {
                left("until you write where its answers come from, it has status 501")
            } else if has_content || !before.is_empty() {
                TAKEN
            } else {
                left("where its answers come from could not be converted")
            };
            self.enter(directive, outcome);
            locations.push(Location::new(directive, at, table, before, has_content));
        }
        locations
    }

    /// A location for questions to servers and for error pages. The directives that use it look at it themselves; clients
    /// get 404.
    fn internal(&mut self, directive: &Directive, inner: &Scope<'_>, at: Match) -> Location {
        let is_used = |directive: &Directive| {
            matches!(directive.name.as_str(), "internal" | "proxy_pass" | "root")
                || ["proxy_", "grpc_"].iter().any(|module| directive.name.starts_with(module))
        };
        for one in inner.directives {
            let outcome = match is_used(one) {
                true => needless("who uses the location looks at this: auth_request, error_page"),
                false => left("the location is not for clients"),
            };
            self.enter_whole(one, &outcome);
        }
        let mut table = at.matchers();
        vocabulary::respond(&mut table, 404, None);
        self.enter(directive, TAKEN);
        Location::new(directive, at, table, Vec::new(), true)
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

/// Whether a block of `if` does nothing but `set` variables to what is neither empty nor 0.
fn sets_flags(directive: &Directive) -> bool {
    let sets = |inner: &Directive| {
        inner.name == "set" && !["", "0"].contains(&inner.arg(1)) && !inner.arg(1).contains('$')
    };
    !directive.inner().is_empty() && directive.inner().iter().all(sets)
}

/// Whether a location is not for everybody, or its files are programs.
fn is_closed(location: &Directive) -> bool {
    !location.arg(0).starts_with('@')
        && (has_handler(location.inner()) || location.inner().iter().any(is_rule))
}

/// `if ($invalid_referer)` and `if ($secure_link = "")` refuse what a key of the site refuses.
fn refusal_of_a_rule(scope: &Scope<'_>, directive: &Directive) -> Option<Outcome> {
    let [refusal] = directive.inner() else { return None };
    if let Some(outcome) = tls::fate_of_demand(scope, directive) {
        return Some(outcome);
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

impl Location {
    fn new(
        directive: &Directive,
        at: Match,
        table: Table,
        before: Vec<Route>,
        has_content: bool,
    ) -> Self {
        let route = Route { comment: directive.place.to_string(), table };
        let (place, statement) = (directive.place.clone(), directive.shown());
        Self { place, statement, at, route, before, has_content }
    }
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

/// `location /` is the site itself, where it does not disturb other routes.
fn site_content(behaviour: &mut Behaviour, mut route: Route) {
    if behaviour.routes.is_empty() {
        behaviour.table.lay_over(route.table);
        return;
    }
    // A route with servers of its own would inherit what it does not state of those of the site.
    let disturbs = |other: &Route| {
        let lacks = |key: &&str| route.table.has_any(&[key]) && !other.table.has_any(&[key]);
        other.table.has_any(&CONTENT[..3]) && CONTENT[3..].iter().any(lacks)
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
    const NO_ADDRESS: &str = "is no IP address and port";
    let text = directive.arg(0);
    let has = |word: &str| directive.args.iter().skip(1).any(|arg| arg == word);
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
