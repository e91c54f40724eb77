//! Routes: their matchers, and whether each can ever be the first to match.

use std::{collections::BTreeMap, sync::Arc};

use crate::settings::{SiteRoute, SiteRoutes};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use levada_access::access::AccessSettings;
use levada_redirector::PolicyChoice;
use levada_rules::{
    Conditions, FieldPattern, PathPattern, PathRegex, PatternError, Purpose, RespondBody,
    RouteAnswer, RouteTable, Scheme, Template, TemplateError, TemplateKind, TemplateScope,
    TextPattern,
};
use levada_types::document::Path;

use super::{
    Check,
    levels::KeyLevels,
    parts::{each, maybe},
};
use crate::{
    file::{self, ClientScheme, FieldMatch, OneOrMany},
    inherit,
};

impl Check<'_, '_> {
    pub(super) fn routes(
        &mut self,
        (site, access): (&file::Site, Option<&AccessSettings>),
        default: Option<&PolicyChoice>,
        path: &Path,
    ) -> Option<SiteRoutes> {
        if site.route.is_empty() {
            return Some(SiteRoutes::default());
        }
        let list = path.key("route");
        self.route_names(&site.route, &list);
        let own = &*inherit::SERVERS_KEYS;
        let of_site = self.mappings.clone();
        let mut routes = Vec::new();
        for (at, route) in site.route.iter().enumerate() {
            let place = list.index(at);
            if route.handling.variables != site.handling.variables {
                let levels = KeyLevels::of_route(&place, path, &self.root);
                let own = self.variables(&route.handling.variables, &levels);
                if own.is_none() {
                    routes.push(None);
                }
                self.mappings = own.unwrap_or_default();
            } else {
                self.mappings = of_site.clone();
            }
            let conditions = self.conditions(route, &place);
            let none = Conditions::default();
            let known = conditions.as_ref().unwrap_or(&none);
            let settings = self.route_of_site((at, route), known, (site, path), default, own);
            let settings = settings
                .and_then(|of| self.route_access(of, route, (site, access), (&place, path)));
            let Some(conditions) = conditions else {
                routes.push(None);
                continue;
            };
            let answer = self.answer(route, &conditions, &place);
            let reroute = self.reroute(route, &conditions, &place);
            routes.push(settings.zip(answer).zip(reroute).map(|((settings, answer), reroute)| {
                (conditions, SiteRoute { answer, reroute, ..settings })
            }));
        }
        let routes: Option<Vec<(Conditions, SiteRoute)>> = routes.into_iter().collect();
        let (conditions, all): (Vec<_>, Vec<_>) = routes?.into_iter().unzip();
        self.covered_routes(&conditions, &all, &list);
        match RouteTable::new(conditions) {
            Ok(table) => self.with_an_end(SiteRoutes { table: Arc::new(table), all }, &list),
            Err(error) => {
                self.error(&list, error.to_string())
                    .help("write what the path begins with, as in `/img/**.jpg`");
                None
            }
        }
    }

    fn route_of_site(
        &mut self,
        (at, route): (usize, &file::SiteRoute),
        conditions: &Conditions,
        (site, path): (&file::Site, &Path),
        default: Option<&PolicyChoice>,
        own: &[String],
    ) -> Option<SiteRoute> {
        let place = path.key("route").index(at);
        let levels = KeyLevels::of_route(&place, path, &self.root);
        let states = |check: &Self, key: &str| check.findings.has(&place.key(key.to_owned()));
        let servers = if own.iter().any(|key| states(self, key)) {
            let replaces =
                ["origin", "servers", "server", "files"].iter().any(|key| states(self, key));
            let levels = if replaces { levels.nearest() } else { levels.clone() };
            Some(self.site_servers((site, &route.servers), default, &levels)?)
        } else {
            None
        };
        let handling = self.handling(&route.handling, conditions, &levels)?;
        let asks = route.redirect.is_none() && route.respond.is_none() && route.reroute.is_none();
        let without_file = match asks {
            true => self.without_file((&route.servers, true), conditions, &levels)?,
            false => None,
        };
        let handling = handling.with_destination(without_file);
        let name = self.route_names[at].as_str().into();
        Some(SiteRoute { name, handling, answer: None, reroute: None, servers })
    }

    /// Gives a route its rules of access: those that it states, and for the rest those of its site.
    fn route_access(
        &mut self,
        settings: SiteRoute,
        route: &file::SiteRoute,
        (site, around): (&file::Site, Option<&AccessSettings>),
        (place, path): (&Path, &Path),
    ) -> Option<SiteRoute> {
        let levels = KeyLevels::of_route(place, path, &self.root);
        let access =
            self.access(&route.handling.clients, &levels, (Some(&settings.name), around))?;
        let handling = self.handled(settings.handling, access, (site, &levels))?;
        Some(SiteRoute { handling, ..settings })
    }

    /// The outer `None` marks an error, the inner a route that asks a server.
    fn answer(
        &mut self,
        route: &file::SiteRoute,
        conditions: &Conditions,
        path: &Path,
    ) -> Option<Option<RouteAnswer>> {
        match (&route.redirect, &route.respond) {
            (None, None) => Some(None),
            (Some(redirect), None) => {
                let path = path.key("redirect");
                self.redirect(redirect, conditions, &path).map(Some)
            }
            (None, Some(respond)) => {
                self.respond(respond, conditions, &path.key("respond")).map(Some)
            }
            (Some(_), Some(_)) => {
                let message = "stands beside `redirect`: a route has the one or the other";
                self.error(&path.key("respond"), message).none()
            }
        }
    }

    fn redirect(
        &mut self,
        redirect: &file::Redirect,
        conditions: &Conditions,
        path: &Path,
    ) -> Option<RouteAnswer> {
        let text = redirect.to.as_ref()?;
        if HeaderValue::from_str(text).is_err() {
            return self.error(&path.key("to"), "cannot be the value of a header field").none();
        }
        let to = self.url(text, conditions, &path.key("to"));
        let status = StatusCode::from_u16(redirect.status).ok();
        let status = status.filter(|status| [301, 302, 303, 307, 308].contains(&status.as_u16()));
        if status.is_none() {
            self.error(&path.key("status"), format!("{} is no redirect", redirect.status))
                .help("301, 302, 303, 307 or 308");
        }
        let answer = RouteAnswer::Redirect { status: status?, to: to? };
        if answer.is_loop(conditions) && !conditions.internal {
            self.error(&path.key("to"), "leads to this route again, and so on")
                .help("let a route before this one take the target, or exclude it");
            return None;
        }
        Some(answer)
    }

    /// A template of a URL.
    pub(super) fn url(&mut self, text: &str, route: &Conditions, path: &Path) -> Option<Template> {
        let (kind, mappings) = (TemplateKind::Url, &*self.mappings.clone());
        let scope = TemplateScope { route, kind, countries: None, mappings };
        let read = match Template::parse(text, &scope) {
            Err(TemplateError::NoCountries) => {
                let countries = self.client_countries(path)?;
                Template::parse(text, &TemplateScope { countries: Some(&countries), ..scope })
            }
            read => read,
        };
        read.map_err(|error| self.template_error(&error, scope.kind, path)).ok()
    }

    fn respond(
        &mut self,
        respond: &file::Respond,
        conditions: &Conditions,
        path: &Path,
    ) -> Option<RouteAnswer> {
        let status = StatusCode::from_u16(respond.status).ok()?;
        let Ok(content_type) = HeaderValue::try_from(&respond.content_type) else {
            return self
                .error(&path.key("content_type"), "cannot be the value of a header field")
                .none();
        };
        let body = match &respond.template {
            None => RespondBody::Fixed(respond.body.clone()),
            Some(_) if !respond.body.is_empty() => {
                let message = "stands beside `body`: a response has one body";
                return self.error(&path.key("template"), message).none();
            }
            Some(text) => {
                RespondBody::Template(self.url(text, conditions, &path.key("template"))?)
            }
        };
        Some(RouteAnswer::Respond { status, content_type, body })
    }

    /// Checks that no two routes have the same name.
    fn route_names(&mut self, routes: &[file::SiteRoute], list: &Path) {
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, route) in routes.iter().enumerate() {
            let Some(name) = &route.name else { continue };
            if let Some(other) = taken.insert(name, at) {
                let message = format!("{name:?} is the name of {} already", list.index(other));
                self.error(&list.index(at).key("name"), message);
            }
        }
    }

    /// Warns of routes that never match, because one before them takes all of their requests.
    fn covered_routes(&mut self, routes: &[Conditions], all: &[SiteRoute], list: &Path) {
        let keeps = |number: usize| all[number].handling.without_file().is_none();
        for (at, route) in routes.iter().enumerate().filter(|(_, route)| !route.internal) {
            let covers = |before: &usize| routes[*before].covers(route) && keeps(*before);
            let Some(before) = (0..at).find(covers) else { continue };
            let message = format!("never matches: {} takes all its requests", list.index(before));
            self.warning(&list.index(at), message)
                .help("the first route that matches counts: put the narrower one first");
        }
    }

    fn conditions(&mut self, route: &file::SiteRoute, path: &Path) -> Option<Conditions> {
        let paths = self.patterns(&route.path, &path.key("path"), PathPattern::parse);
        let path_regex = maybe(route.path_regex.as_ref(), |text| {
            let at = path.key("path_regex");
            PathRegex::parse(text).map_err(|e| self.pattern_error(&e, &at)).ok()
        });
        let text = |text: &str| TextPattern::parse(text, true);
        let hosts = self.patterns(&route.host, &path.key("host"), text);
        let methods = self.methods(&route.method, &path.key("method"));
        let header_name = |name: &str| HeaderName::try_from(name).ok();
        let headers = self.fields(&route.header, &path.key("header"), header_name);
        let word = |name: &str| {
            let wrong = |byte: u8| !byte.is_ascii_graphic() || b"=;&,\"".contains(&byte);
            (!name.is_empty() && !name.bytes().any(wrong)).then(|| name.to_owned())
        };
        let query = self.fields(&route.query, &path.key("query"), word);
        let cookies = self.fields(&route.cookie, &path.key("cookie"), word);
        let when = self.expression(&route.when, Purpose::When, &path.key("when"));
        let clients = route.client.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
        Some(Conditions {
            paths: paths?,
            path_regex: path_regex?,
            hosts: hosts?,
            scheme: route.scheme.map(|scheme| match scheme {
                ClientScheme::Http => Scheme::Http,
                ClientScheme::Https => Scheme::Https,
            }),
            methods: methods?,
            headers: headers?,
            query: query?,
            cookies: cookies?,
            clients: clients.iter().map(|prefix| prefix.0).collect(),
            when: when?,
            internal: route.internal,
        })
    }

    fn patterns<T>(
        &mut self,
        texts: &Option<OneOrMany<String>>,
        path: &Path,
        parse: impl Fn(&str) -> Result<T, PatternError>,
    ) -> Option<Vec<T>> {
        let Some(texts) = texts else { return Some(Vec::new()) };
        each(texts.placed(path), |(at, text)| {
            parse(text).map_err(|error| self.pattern_error(&error, &at)).ok()
        })
    }

    pub(super) fn pattern_error(&mut self, error: &PatternError, path: &Path) {
        let help = match error {
            PatternError::Syntax(_) => Some(
                "as in Rust's regex crate: no look-around, no references back; write it in single \
                 quotes",
            ),
            PatternError::TooLarge => Some("repeat less: `{1000}` copies its expression"),
            PatternError::NoSlash => Some("for example `/img/**`, or `**.jpg`"),
            _ => None,
        };
        self.error(path, error.to_string()).maybe_help(help.map(str::to_owned));
    }

    fn methods(&mut self, methods: &Option<OneOrMany<String>>, path: &Path) -> Option<Vec<Method>> {
        let methods = methods.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
        each(methods, |method| {
            let parsed = Method::try_from(method.to_ascii_uppercase().as_str()).ok();
            if parsed.is_none() {
                self.error(path, format!("{method:?} is no method"));
            }
            parsed
        })
    }

    fn fields<T>(
        &mut self,
        fields: &BTreeMap<String, FieldMatch>,
        path: &Path,
        name: impl Fn(&str) -> Option<T>,
    ) -> Option<Vec<(T, FieldPattern)>> {
        let mut read = Vec::new();
        for (key, wanted) in fields {
            let at = path.key(key.clone());
            let pattern = match wanted {
                FieldMatch::Present(true) => Some(FieldPattern::Present),
                FieldMatch::Present(false) => Some(FieldPattern::Absent),
                FieldMatch::Value(text) => match TextPattern::parse(text, false) {
                    Ok(pattern) => Some(FieldPattern::Value(pattern)),
                    Err(error) => {
                        self.pattern_error(&error, &at);
                        None
                    }
                },
            };
            let name = name(key);
            if name.is_none() {
                let place = self.findings.key_place(&at);
                let message = format!("{key:?} cannot be the name of one");
                self.findings.error_at(place, &at, message);
            }
            read.push(name.zip(pattern));
        }
        read.into_iter().collect()
    }
}
