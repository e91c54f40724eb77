//! Access to a site and its limits: whether limits limit anything, and the files that rules are read from.

use std::{str::FromStr, sync::Arc};

use http::{HeaderName, Method};
use levada_access::{
    access::{AccessSettings, BasicSettings, LimitSettings},
    address_list::AddressRule,
    basic_auth::Users,
    cors::Cors,
    country::Countries,
    forward_auth::ForwardAuthSettings,
    rate::RateBounds,
    referers::Referers,
    signed::{BadMessage, Digest, Issuers, Link, Message, SignedUrls, Tokens},
};

use super::{
    Check,
    levels::KeyLevels,
    parts::{each, maybe, placed},
};
use crate::{
    file::{self, OneOrMany, OrOff},
    text::{Root, Upstream},
};
use levada_types::document::Path;

fn on<T>(switch: &Option<OrOff<T>>) -> Option<&T> {
    switch.as_ref().and_then(OrOff::on)
}

/// Fields that say how a request is read, and by which server.
const FRAMING: [&str; 15] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "content-encoding",
    "host",
    "expect",
    "range",
    "via",
    "cdn-loop",
    "max-forwards",
];

/// The largest size of a country database.
const LARGEST_DATABASE: u64 = 1 << 30;

impl Check<'_, '_> {
    /// The rules of a site, or of a route of this name. A rule that the route does not state is that of
    /// `around`, the rules of its site.
    pub(super) fn access(
        &mut self,
        of: &file::Clients,
        levels: &KeyLevels,
        (route, around): (Option<&str>, Option<&AccessSettings>),
    ) -> Option<AccessSettings> {
        let inherits = |check: &Self, key| {
            let is_own = route.is_none() || levels.nearest().have(check.findings, key);
            around.filter(|_| !is_own)
        };
        let at = |check: &Self, key| levels.key(check.findings, key);
        let rules = of.access.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
        let rules: Vec<AddressRule> = rules.iter().map(|rule| rule.0).collect();
        let countries = self.countries(&rules, &at(self, "access"));
        let owner = |is_own: bool| route.filter(|_| is_own).map(Into::into);
        let (limits, limits_of) = match inherits(self, "limit") {
            Some(around) => (Some(around.limits.clone()), around.limits_of.clone()),
            None => (self.limits(&of.limit, &at(self, "limit")), owner(true)),
        };
        let path = at(self, "basic_auth");
        let basic = match inherits(self, "basic_auth") {
            Some(around) => Some(around.basic.clone()),
            None => maybe(on(&of.basic_auth), |basic| self.basic_auth(basic, &path)),
        };
        let path = at(self, "forward_auth");
        let forward = match inherits(self, "forward_auth") {
            Some(around) => Some(around.forward.clone()),
            None => maybe(on(&of.forward_auth), |forward| self.forward_auth(forward, &path)),
        };
        let path = at(self, "cors");
        let cors = maybe(on(&of.cors), |cors| self.cors(cors, &path));
        let path = at(self, "signed_urls");
        let signed = match inherits(self, "signed_urls") {
            Some(around) => Some(around.signed.clone()),
            None => maybe(on(&of.signed_urls), |urls| self.signed_urls(urls, &path).map(Arc::new)),
        };
        let kinds = of.referers.as_ref().map(OneOrMany::as_slice);
        let referers = |kinds: &[crate::text::Referer]| {
            Referers::new(kinds.iter().map(|kind| kind.0.clone()).collect())
        };
        let bandwidth = levels.inside("bandwidth");
        let site_rate_of = owner(bandwidth.nearest().have(self.findings, "site"));
        if of.bandwidth.connection.is_none() && of.bandwidth.after > 0 {
            let message = "has no effect without `connection`";
            self.warning(&bandwidth.key(self.findings, "after"), message);
        }
        Some(AccessSettings {
            rules,
            countries: countries?,
            limits: limits?,
            max_body: of.max_body.map(|size| size.0),
            bandwidth: of.bandwidth,
            basic: basic?,
            referers: kinds.map(referers),
            cors: cors?,
            signed: signed?,
            forward: forward?,
            limits_of,
            site_rate_of,
        })
    }

    fn limits(&mut self, list: &[file::Limit], path: &Path) -> Option<Vec<LimitSettings>> {
        each(placed(list, path, false), |(path, limit)| self.limit(limit, &path))
    }

    /// The database, if a rule needs it. The outer `None` marks an error.
    fn countries(&mut self, rules: &[AddressRule], path: &Path) -> Option<Option<Arc<Countries>>> {
        if !rules.iter().any(AddressRule::needs_country) {
            return Some(None);
        }
        self.country_database(path).map(Some)
    }

    /// The database of countries, which the key at `path` needs.
    pub(super) fn country_database(&mut self, path: &Path) -> Option<Arc<Countries>> {
        let Some(given) = &self.file.country_database else {
            self.error(path, "is about countries, and there is no `country_database`")
                .help("name a file in MaxMind's format, such as GeoLite2-Country.mmdb");
            return None;
        };
        if let Some(known) = &self.countries {
            return Some(known.clone());
        }
        let place = self.root.key("country_database");
        let file = self.directory.join(given);
        let size = std::fs::metadata(&file).map_or(0, |file| file.len());
        let content = match std::fs::read(&file) {
            _ if size > LARGEST_DATABASE => {
                return self
                    .error(&place, format!("{} is larger than 1 GiB", file.display()))
                    .none();
            }
            Ok(content) => content,
            Err(error) => {
                return self
                    .error(&place, format!("cannot read {}: {error}", file.display()))
                    .none();
            }
        };
        match Countries::new(content) {
            Ok(countries) => {
                let countries = Arc::new(countries);
                self.countries = Some(countries.clone());
                Some(countries)
            }
            Err(error) => self.error(&place, format!("{} {error}", file.display())).none(),
        }
    }

    fn limit(&mut self, limit: &file::Limit, path: &Path) -> Option<LimitSettings> {
        let file::Limit { key, rate, burst, nodelay, concurrent, keys, scope } = limit;
        let given = |key: &'static str| self.findings.has(&path.key(key));
        if !given("rate") && !given("concurrent") {
            self.error(path, "limits nothing")
                .help("give `rate`, such as \"10r/s\", or `concurrent`, such as 10");
            return None;
        }
        for key in ["burst", "nodelay", "keys", "scope"] {
            if rate.is_none()
                && !self.findings.has(&path.key("rate"))
                && self.findings.has(&path.key(key))
            {
                self.warning(&path.key(key), "has no effect without `rate`");
            }
        }
        let cluster = *scope == file::LimitScope::Cluster;
        if cluster && self.file.peering.is_none() {
            self.warning(&path.key("scope"), "has no effect on a node that stands alone");
        }
        let (burst, nodelay) = (*burst, *nodelay);
        let rate = rate.map(|rate| RateBounds { rate: rate.0, burst, nodelay });
        let keys = *keys as usize;
        Some(LimitSettings { key: key.clone()?.0, rate, concurrent: *concurrent, keys, cluster })
    }

    fn basic_auth(&mut self, basic: &file::BasicAuth, path: &Path) -> Option<BasicSettings> {
        let path = path.key("users_file");
        let (file, content) = self.content(basic.users_file.as_deref()?, &path)?;
        let users = match Users::read(&content) {
            Ok(users) => users,
            Err(error) => {
                self.error(&path, format!("{}: {error}", file.display()))
                    .help("write it with `htpasswd -B`");
                return None;
            }
        };
        if users.is_empty() {
            self.warning(&path, format!("{} has no user: nobody can use the site", file.display()));
        }
        Some(BasicSettings { realm: basic.realm.clone(), users: Arc::new(users) })
    }

    fn forward_auth(
        &mut self,
        forward: &file::ForwardAuth,
        path: &Path,
    ) -> Option<ForwardAuthSettings> {
        let url = forward.url.as_deref()?;
        let (root, target) = Root::of_url(url, &['/', '?']);
        let server = root.map(|root| super::site::origin(&Upstream::Root(root)));
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let is_target = target.parse::<http::uri::PathAndQuery>().is_ok() && !target.contains('#');
        let server = server.filter(|_| is_target);
        if server.is_none() {
            let message = format!("{url:?} is no URL with http or https and a host");
            self.error(&path.key("url"), message)
                .help("for example \"http://10.0.3.1:9091/api/verify\"");
        }
        let key = path.key("request_headers");
        let names = forward.request_headers.as_ref();
        let request_headers = maybe(names, |names| self.names(names, "a field", &key));
        let place = path.key("copy_headers");
        let copy_headers = self.names::<HeaderName>(&forward.copy_headers, "a field", &place);
        for (at, name) in copy_headers.iter().flatten().enumerate() {
            if FRAMING.contains(&name.as_str()) || name.as_str().starts_with("x-forwarded-") {
                let message = format!("{name} frames requests, and no other server may set it");
                self.error(&place.index(at), message);
            }
        }
        let (timeout, fail_open) = (forward.timeout.0, forward.fail_open);
        let (server, request_headers, copy_headers) = (server?, request_headers?, copy_headers?);
        Some(ForwardAuthSettings {
            server,
            target,
            request_headers,
            copy_headers,
            timeout,
            fail_open,
        })
    }

    fn cors(&mut self, cors: &file::Cors, path: &Path) -> Option<Cors> {
        let origins: Vec<String> =
            cors.origins.as_ref()?.as_slice().iter().map(|origin| origin.0.clone()).collect();
        if cors.credentials && origins.iter().any(|origin| origin == "*") {
            let message = "lets every page on the web use the site in the name of its visitor";
            self.warning(&path.key("credentials"), message)
                .help("list the origins of your own pages");
        }
        let methods = self.names::<Method>(&cors.methods, "a method", &path.key("methods"));
        let key = path.key("headers");
        let headers = maybe(cors.headers.as_ref(), |names| self.names(names, "a field", &key));
        let expose = self.names::<HeaderName>(&cors.expose, "a field", &path.key("expose"));
        let (credentials, max_age) = (cors.credentials, cors.max_age.0);
        Some(Cors {
            origins,
            methods: methods?,
            headers: headers?,
            expose: expose?,
            credentials,
            max_age,
        })
    }

    fn signed_urls(&mut self, signed: &file::SignedUrls, path: &Path) -> Option<SignedUrls> {
        let link = ["secret_file", "message", "signature", "expires"];
        let (own, others) = match signed.form? {
            file::SignedForm::Token => ("keys_file", &link[..]),
            _ => ("secret_file", &["keys_file", "audience"][..]),
        };
        for place in others.iter().map(|key| path.key(*key)) {
            if self.findings.has(&place) {
                self.warning(&place, "has no effect on signatures of this form");
            }
        }
        if !self.findings.has(&path.key(own)) {
            return self
                .error(path, format!("needs `{own}`: without keys, no URL is valid"))
                .none();
        }
        match signed.form? {
            file::SignedForm::Token => self.tokens(signed, path).map(SignedUrls::Token),
            file::SignedForm::SecureLink => {
                let defaults = ("{expires}{path}{client} {secret}", "md5");
                self.link(signed, Digest::Md5, defaults, path).map(SignedUrls::Link)
            }
            file::SignedForm::Hmac => {
                let defaults = ("{expires}{path}", "signature");
                self.link(signed, Digest::HmacSha256, defaults, path).map(SignedUrls::Link)
            }
        }
    }

    fn tokens(&mut self, signed: &file::SignedUrls, path: &Path) -> Option<Tokens> {
        let path = path.key("keys_file");
        let (file, content) = self.content(signed.keys_file.as_deref()?, &path)?;
        match Issuers::read(&content) {
            Ok(issuers) => Some(Tokens { issuers, audience: signed.audience.clone() }),
            Err(error) => {
                let help = "a set of JSON Web Keys for each issuer: docs/operate/access.md";
                self.error(&path, format!("{}: {error}", file.display())).help(help).none()
            }
        }
    }

    fn link(
        &mut self,
        signed: &file::SignedUrls,
        digest: Digest,
        (message, signature): (&str, &str),
        path: &Path,
    ) -> Option<Link> {
        let files = signed.secret_file.as_ref()?.as_slice();
        let mut secrets = Vec::new();
        for (place, file) in placed(files, &path.key("secret_file"), files.len() == 1) {
            let content = self.content(file, &place).map(|(_, content)| content.trim().to_owned());
            if content.as_ref().is_some_and(String::is_empty) {
                return self.error(&place, "is an empty file").none();
            }
            secrets.push(content);
        }
        let text = signed.message.as_deref().unwrap_or(message);
        let place = path.key("message");
        let message: Message = match text.parse() {
            Ok(message) => message,
            Err(error) => {
                let error: BadMessage = error;
                return self.error(&place, error.to_string()).none();
            }
        };
        if digest == Digest::Md5 && !message.has_secret() {
            return self.error(&place, "has no {secret}, so that anyone could sign").none();
        }
        if message.is_ambiguous() {
            let message =
                "has {expires} directly after {path}: a link to /part12 would be good for /part1";
            self.error(&place, message).help("put {expires} first, or a space between them");
            return None;
        }
        if !message.has_path() {
            self.warning(&place, "has no {path}: one signature is good for every URL");
        }
        let signature = signed.signature.as_deref().unwrap_or(signature).to_owned();
        let expires = signed.expires.as_deref().unwrap_or("expires").to_owned();
        if signature == expires {
            let message = format!("is the argument of the end, too: {expires:?}");
            return self.error(&path.key("signature"), message).none();
        }
        let secrets = secrets.into_iter().collect::<Option<_>>()?;
        Some(Link { digest, message, secrets, signature, expires })
    }

    /// Names of methods or fields.
    fn names<T: FromStr>(&mut self, given: &[String], kind: &str, path: &Path) -> Option<Vec<T>> {
        self.read_each(given, path, |text| {
            text.parse().map_err(|_| (format!("{text:?} is not the name of {kind}"), None))
        })
    }
}
