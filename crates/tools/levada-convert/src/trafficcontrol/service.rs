//! Delivery services, as the API of Traffic Ops and the snapshot state them: a row for each field.

use super::{json::Json, rewrite};
use crate::{
    ledger::{Outcome, Place, TAKEN, differs, left},
    plan::{Route, Site},
    rows::Row,
    table::Table,
    units, vocabulary,
};

/// The reason why nobody may use a site: something restricts it that could not be converted.
pub(super) struct Closed(pub(super) String);

/// The fate of a field.
pub(crate) type Take = fn(&mut Service, &Json) -> Result<Outcome, Closed>;

/// A delivery service.
#[derive(Default)]
pub(crate) struct Service {
    pub(super) name: String,
    /// Its first place.
    pub(super) place: Option<Place>,
    pub(super) site: Site,
    pub(super) hosts: Vec<String>,
    pub(super) routing: String,
    pub(super) domain: String,
    /// The sets of the snapshot, or else those of the API.
    pub(super) sets: Vec<Set>,
    pub(super) kind: Kind,
    pub(super) is_dns: bool,
    /// Whether there are Traffic Routers, so that HTTP routing goes on.
    pub(super) is_redirected: bool,
    /// As in the API: 0 for http, 1 for https, 2 for both, 3 for http that is sent to https.
    protocol: u8,
    /// The path of the origin's URL.
    base: String,
    pub(super) limit: u8,
    pub(super) countries: Vec<String>,
    /// Why nobody may use it.
    pub(super) closed: Vec<String>,
    pub(super) is_inactive: bool,
    pub(super) is_deep: bool,
    pub(super) ttl: Option<u64>,
    pub(super) max_answers: Option<u64>,
    pub(super) miss: Option<(f64, f64)>,
    pub(super) profile: String,
    /// Records of its domain: a name, and the rest of the line.
    pub(super) records: Vec<(String, String)>,
}

/// Conditions of requests that are for the service.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    number: String,
    hosts: Vec<String>,
    paths: Vec<String>,
    has_headers: bool,
}

/// The type of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Through edges and mids.
    #[default]
    Cached,
    /// From edges to the origin.
    Direct,
    /// To another service.
    Steering,
    /// None that is routed.
    Other,
}

const fn takes(names: &'static str, keys: &'static str, take: Take) -> Row<Take> {
    Row::writes(names, keys, take)
}

/// A field that closes the service, for this reason.
const fn closes(names: &'static str, reason: &'static str, take: Take) -> Row<Take> {
    Row::writes(names, reason, take)
}

const NO_BYPASS: &str =
    "there is no threshold beyond which clients go elsewhere: [limits], `misses`";
const NO_MARKS: &str = "packets are not marked: a rule of nftables for the node's port can";
const HASH: &str = "an object's node is chosen by its cache key";
const KEYS: &str = "the keys are in Traffic Vault: files in `tls` of a listener, or [acme]";
const ECS: &str = "the client's subnet counts where a resolver states it";
const URL_SIG: &str = "closed: `signed_urls` has other forms of signatures than url_sig";
const TOKENS: &str = "closed: write `signed_urls` with `form = \"token\"` and the file of the keys";

/// The fields of the API, versions 3 to 5.
pub(crate) const FIELDS: &[Row<Take>] = &[
    takes("xmlId", "the name of its file", |_, _| Ok(TAKEN)),
    Row::writes("active = true ACTIVE", "the site", |_, _| Ok(TAKEN)),
    Row::writes("active", "nothing: it serves no clients", |service, _| {
        service.is_inactive = true;
        Ok(left("it serves no clients: there is no site for it"))
    }),
    takes("orgServerFqdn", "origin, origin_host", Service::origin),
    takes("routingName", "hosts", |service, value| {
        service.routing = value.text().to_ascii_lowercase();
        Ok(TAKEN)
    }),
    takes("exampleURLs", "hosts", Service::example),
    takes("matchList", "hosts, path_regex", Service::match_list),
    takes("type = HTTP", "the site, `redirects` in dns.toml", |service, _| {
        match service.is_redirected {
            true => Ok(TAKEN),
            false => Ok(differs("clients get the addresses of nodes by DNS, and no redirect")),
        }
    }),
    takes("type = DNS", "the site", |service, _| {
        service.is_dns = true;
        Ok(TAKEN)
    }),
    takes("type = HTTP_LIVE DNS_LIVE", "the site, without shield", |service, value| {
        service.kind = Kind::Direct;
        service.is_dns = value.text().starts_with("DNS");
        Ok(differs("responses are kept in memory and on disk, not in memory alone"))
    }),
    takes("type = HTTP_LIVE_NATNL DNS_LIVE_NATNL", "the site", |service, value| {
        service.is_dns = value.text().starts_with("DNS");
        Ok(differs("responses are kept in memory and on disk, not in memory alone"))
    }),
    takes("type = HTTP_NO_CACHE", "cache", |service, _| {
        service.kind = Kind::Direct;
        service.site.table.set("cache", false);
        Ok(TAKEN)
    }),
    takes(
        "type = STEERING CLIENT_STEERING",
        "`steering` in dns.toml, or `redirect`",
        |service, _| {
            service.kind = Kind::Steering;
            Ok(TAKEN)
        },
    ),
    Row::writes(
        "type = ANY_MAP",
        "nothing: its remap.config is converted by `levada convert trafficserver`",
        |service, _| {
            service.kind = Kind::Other;
            Ok(left("it is a line of remap.config: see `levada convert trafficserver`"))
        },
    ),
    Row::writes("type", "nothing: the type is unknown", |service, value| {
        service.kind = Kind::Other;
        Ok(left(format!("there is no type {} of delivery services", value.text())))
    }),
    takes("protocol = 0 1 2 3", "scheme, redirect, respond", |service, value| {
        service.protocol = value.text().parse().unwrap_or(2);
        Ok(TAKEN)
    }),
    closes("protocol", "closed: the number is unknown", |_, _| {
        Err(Closed("the number of the protocol is unknown".to_owned()))
    }),
    Row::needless("qstringIgnore = 0", "the query is a part of the cache key"),
    takes("qstringIgnore = 1", "cache_key.query", |service, _| {
        service.site.table.set_path("cache_key.query", "none");
        Ok(TAKEN)
    }),
    takes("qstringIgnore = 2", "cache_key.query, rewrite", |service, _| {
        service.site.table.set_path("cache_key.query", "none");
        service.site.table.set("rewrite", "{path}?");
        Ok(TAKEN)
    }),
    Row::needless("rangeRequestHandling = 0 1 2", "ranges are answered from blocks of the object"),
    takes("rangeRequestHandling = 3", "large.enabled", |service, _| {
        service.site.table.set_path("large.enabled", true);
        Ok(TAKEN)
    }),
    takes("rangeSliceBlockSize", "large.chunk_size", Service::slices),
    closes("signingAlgorithm = url_sig", URL_SIG, |_, _| Err(Closed(URL_SIG.to_owned()))),
    closes("signingAlgorithm = uri_signing", TOKENS, |_, _| Err(Closed(TOKENS.to_owned()))),
    closes("signingAlgorithm", "closed: the algorithm is unknown", |_, _| {
        Err(Closed("the algorithm is unknown".to_owned()))
    }),
    Row::needless("signed = false", "there is no signature"),
    closes("signed", URL_SIG, |_, _| Err(Closed(URL_SIG.to_owned()))),
    Row::needless("geoLimit = 0", "there is no limit"),
    takes("geoLimit = 1 2", "access", |service, value| {
        service.limit = service.limit.max(value.text().parse().unwrap_or(2));
        Ok(TAKEN)
    }),
    closes("geoLimit", "closed: the number is unknown", |_, _| {
        Err(Closed("the number of the limit is unknown".to_owned()))
    }),
    takes("geoLimitCountries", "access", |service, value| {
        let texts = value.items().iter().map(Json::text).chain(value.text().split(','));
        let codes = texts.map(|text| text.trim().to_ascii_uppercase());
        service.countries.extend(codes.filter(|code| !code.is_empty()));
        Ok(TAKEN)
    }),
    Row::left("geoLimitRedirectURL", "refused clients get 403, and are not sent elsewhere"),
    Row::needless("regionalGeoBlocking anonymousBlockingEnabled = false", "nothing is blocked"),
    closes("regionalGeoBlocking", "closed: rules by postal codes are not there", |_, _| {
        Err(Closed("rules by postal codes are not there".to_owned()))
    }),
    closes("anonymousBlockingEnabled", "closed: there is no list of proxies", |_, _| {
        Err(Closed("there is no list of the proxies that it refuses".to_owned()))
    }),
    takes("tlsVersions", "what a node speaks: TLS 1.2 and 1.3", Service::tls_versions),
    takes(
        "edgeHeaderRewrite firstHeaderRewrite innerHeaderRewrite lastHeaderRewrite midHeaderRewrite",
        "request_headers, response_headers",
        |service, value| rewrite::header_rules(&mut service.site.table, value.text()),
    ),
    takes("regexRemap", "path_regex, rewrite, redirect", |service, value| {
        rewrite::regex_remap(&mut service.site.routes, value.text())
    }),
    takes("remapText", "access", |service, value| {
        rewrite::raw_remap(&mut service.site.table, value.text())
    }),
    takes("maxOriginConnections != 0", "misses.at_once", |service, value| {
        let most = value.text().parse().map(|most: u64| most.clamp(1, 1_000_000));
        let Ok(most) = most else { return Ok(left("is no number")) };
        service.site.table.set_path("misses.at_once", most);
        Ok(differs("it holds for each node, and for requests"))
    }),
    takes("fqPacingRate != 0", "bandwidth.connection", |service, value| {
        let rate: Result<u64, _> = value.text().parse();
        let Ok(rate) = rate else { return Ok(left("is no number")) };
        let rate = format!("{}B/s", rate.max(1024));
        service.site.table.set_path("bandwidth.connection", rate);
        Ok(TAKEN)
    }),
    takes("ccrDnsTtl", "the TTL in dns.toml", |service, value| {
        service.ttl = value.text().parse().ok();
        Ok(TAKEN)
    }),
    takes("maxDnsAnswers != 0", "the answers in dns.toml", |service, value| {
        service.max_answers = value.text().parse().ok();
        Ok(TAKEN)
    }),
    takes("deepCachingType = ALWAYS", "the deep zones in dns.toml", |service, _| {
        service.is_deep = true;
        Ok(differs("deep coverage zones hold for all names"))
    }),
    takes("missLat", "the default region in dns.toml", |service, value| {
        service.miss.get_or_insert_default().0 = value.text().parse().unwrap_or_default();
        Ok(TAKEN)
    }),
    takes("missLong", "the default region in dns.toml", |service, value| {
        service.miss.get_or_insert_default().1 = value.text().parse().unwrap_or_default();
        Ok(TAKEN)
    }),
    takes("profileName", "the parameters of the profile", |service, value| {
        value.text().clone_into(&mut service.profile);
        Ok(TAKEN)
    }),
    Row::needless("initialDispersion = 1", HASH),
    Row::needless("initialDispersion", "the policy `adaptive` gives a hot object more nodes"),
    Row::needless("consistentHashRegex consistentHashQueryParams", HASH),
    Row::needless("multiSiteOrigin = false", "there is one origin"),
    Row::left("multiSiteOrigin", "servers of origins are not in these files: `origin = [...]`"),
    Row::left(
        "originShield",
        "a proxy between mids and origin is not there: `shield` names a region",
    ),
    Row::left("cacheurl", "a key that several services share is not there: `cache_key`"),
    Row::needless("dscp = 0", NO_MARKS),
    Row::left("dscp", NO_MARKS),
    Row::needless("globalMaxMbps globalMaxTps = 0", NO_BYPASS),
    Row::left("globalMaxMbps globalMaxTps httpBypassFqdn", NO_BYPASS),
    Row::left("dnsBypassCname dnsBypassIp dnsBypassIp6 dnsBypassTtl", NO_BYPASS),
    Row::needless("maxRequestHeaderBytes", "`limits.head_size` holds for the whole node"),
    Row::needless("maxOriginConnections maxDnsAnswers fqPacingRate = 0", "there is no bound"),
    Row::needless("geoProvider = 0", "databases are in MaxMind's format"),
    Row::left("geoProvider", "databases are in MaxMind's format"),
    Row::left("sslKeyVersion", KEYS),
    Row::left(
        "trResponseHeaders trRequestHeaders",
        "there is no redirect of a router: `response_headers`",
    ),
    Row::left("topology", "every site is on all nodes; its shield is one region"),
    Row::left("requiredCapabilities", "every site is on all nodes"),
    Row::needless(
        "ipv6RoutingEnabled = true",
        "names have the addresses of nodes in both versions of IP",
    ),
    Row::left("ipv6RoutingEnabled", "names have the addresses of nodes in both versions of IP"),
    Row::needless("deepCachingType", "it is off"),
    Row::needless("ecsEnabled", ECS),
    Row::needless("regional", "`misses.at_once` is a bound of each node"),
    Row::needless(
        "cdnId cdnName displayName id infoUrl checkPath lastUpdated logsEnabled longDesc longDesc1 longDesc2 profileId profileDescription tenant tenantId typeId serviceCategory",
        "it describes the service, or links it to others",
    ),
];

/// The fields of the snapshot, and what of them the API has as well.
pub(crate) const SNAPSHOT_FIELDS: &[Row<Take>] = &[
    takes("routingName", "hosts", |service, value| {
        service.routing = value.text().to_ascii_lowercase();
        Ok(TAKEN)
    }),
    takes("domains", "hosts", |service, value| {
        let first = value.items().first().map_or("", Json::text);
        first.to_ascii_lowercase().clone_into(&mut service.domain);
        Ok(TAKEN)
    }),
    takes("matchsets", "hosts, path_regex", Service::match_sets),
    Row::needless("coverageZoneOnly = false", "there is no limit"),
    takes("coverageZoneOnly", "access", |service, _| {
        service.limit = 1;
        Ok(TAKEN)
    }),
    takes("geoEnabled", "access", |service, value| {
        service.limit = service.limit.max(2);
        let codes = value.items().iter().map(|one| one.member("countryCode").to_ascii_uppercase());
        service.countries = codes.filter(|code| !code.is_empty()).collect();
        Ok(TAKEN)
    }),
    Row::left("geoLimitRedirectURL", "refused clients get 403, and are not sent elsewhere"),
    Row::needless("regionalGeoBlocking anonymousBlockingEnabled = false", "nothing is blocked"),
    closes(
        "regionalGeoBlocking anonymousBlockingEnabled",
        "closed: such rules are not there",
        |_, _| Err(Closed("such rules are not there".to_owned())),
    ),
    takes("protocol", "scheme, redirect, respond", Service::schemes),
    takes("ttls ttl", "the TTL in dns.toml", |service, value| {
        let own = [value.member("A"), value.text()].into_iter().find_map(|ttl| ttl.parse().ok());
        service.ttl = own.or(service.ttl);
        Ok(TAKEN)
    }),
    takes("maxDnsIpsForLocation != 0", "the answers in dns.toml", |service, value| {
        service.max_answers = value.text().parse().ok();
        Ok(TAKEN)
    }),
    takes("missLocation", "the default region in dns.toml", |service, value| {
        service.miss = value.number("lat").zip(value.number("long"));
        Ok(TAKEN)
    }),
    takes("deepCachingType = ALWAYS", "the deep zones in dns.toml", |service, _| {
        service.is_deep = true;
        Ok(differs("deep coverage zones hold for all names"))
    }),
    takes("staticDnsEntries", "the zone file", |service, value| {
        let entry = |one: &Json| {
            let kind = one.member("type").trim_end_matches("_RECORD");
            let ttl = one.number("ttl").unwrap_or(3600.0);
            let (name, value) = (one.member("name"), one.member("value"));
            let is_plain = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
            let is_good =
                matches!(kind, "A" | "AAAA" | "CNAME") && is_plain(name) && is_plain(value);
            is_good.then(|| (name.to_owned(), format!("{ttl:.0} {kind} {value}")))
        };
        let found: Vec<_> = value.items().iter().map(entry).collect();
        let is_whole = found.iter().all(Option::is_some);
        service.records.extend(found.into_iter().flatten());
        Ok(if is_whole { TAKEN } else { left("only records of type A, AAAA and CNAME are there") })
    }),
    Row::left("bypassDestination", NO_BYPASS),
    Row::left("topology requiredCapabilities", "every site is on all nodes"),
    Row::left(
        "requestHeaders responseHeaders",
        "there is no redirect of a router: `response_headers`",
    ),
    Row::needless("consistentHashRegex consistentHashQueryParams dispersion", HASH),
    Row::needless("ecsEnabled", ECS),
    Row::needless("sslEnabled = false", "there is no certificate"),
    Row::needless("maxDnsIpsForLocation = 0", "there is no bound"),
    Row::left("sslEnabled", KEYS),
    Row::needless("soa geolocationProvider deepCachingType", "it is in dns.toml, or off"),
    Row::needless(
        "ip6RoutingEnabled = true",
        "names have the addresses of nodes in both versions of IP",
    ),
    Row::left("ip6RoutingEnabled", "names have the addresses of nodes in both versions of IP"),
    Row::left("disabledLocations locationFailoverLimit", "every site is on all nodes"),
];

impl Service {
    fn origin(&mut self, value: &Json) -> Result<Outcome, Closed> {
        let Some((scheme, rest)) = value.text().split_once("://") else {
            return Ok(left("is no URL"));
        };
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        self.site.table.set("origin", format!("{scheme}://{host}"));
        self.site.table.set("origin_host", host);
        path.trim_end_matches('/').clone_into(&mut self.base);
        Ok(TAKEN)
    }

    fn example(&mut self, value: &Json) -> Result<Outcome, Closed> {
        let url = value.items().first().map_or("", Json::text);
        let host = url.split_once("://").map_or(url, |(_, host)| host).trim_end_matches('/');
        if let Some((_, domain)) = host.split_once('.').filter(|_| self.domain.is_empty()) {
            domain.clone_into(&mut self.domain);
        }
        Ok(TAKEN)
    }

    fn slices(&mut self, value: &Json) -> Result<Outcome, Closed> {
        const BLOCK: u64 = 1 << 20;
        let size = value.text().parse::<u64>().map_err(|_| Closed("is no number".to_owned()))?;
        self.site.table.set_path("large.chunk_size", units::size(size.clamp(1024, BLOCK)));
        Ok(if size > BLOCK { differs("pieces are blocks of 1 MiB") } else { TAKEN })
    }

    /// A node speaks 1.2 and 1.3 where it has certificates. `handshake` needs them.
    fn tls_versions(&mut self, value: &Json) -> Result<Outcome, Closed> {
        let versions: Vec<_> = value.items().iter().map(Json::text).collect();
        match (versions.contains(&"1.2"), versions.contains(&"1.3")) {
            (true, true) if versions.len() == 2 => Ok(TAKEN),
            (true, _) => Ok(differs("a node speaks TLS 1.2 and 1.3, and no older ones")),
            _ => Err(Closed(
                "write `handshake` for its versions of TLS together with a listener for https"
                    .to_owned(),
            )),
        }
    }

    fn schemes(&mut self, value: &Json) -> Result<Outcome, Closed> {
        let is = |key: &str, without: bool| match value.member(key) {
            "" => without,
            text => text == "true",
        };
        self.protocol = match (is("acceptHttp", true), is("acceptHttps", false)) {
            (_, true) if is("redirectToHttps", false) => 3,
            (true, true) => 2,
            (false, true) => 1,
            (true, false) => 0,
            (false, false) => return Err(Closed("it accepts neither http nor https".to_owned())),
        };
        Ok(TAKEN)
    }

    fn match_list(&mut self, value: &Json) -> Result<Outcome, Closed> {
        if self.sets.is_empty() {
            for one in value.items() {
                self.condition(one.member("setNumber"), one.member("type"), one.member("pattern"));
            }
        }
        Ok(TAKEN)
    }

    fn match_sets(&mut self, value: &Json) -> Result<Outcome, Closed> {
        self.sets.clear();
        for (number, set) in value.items().iter().enumerate() {
            let list = set.get("matchlist").map_or(&[][..], Json::items);
            for one in list {
                let (kind, pattern) = (one.member("match-type"), one.member("regex"));
                self.condition(&number.to_string(), kind, pattern);
            }
            self.is_dns |= set.member("protocol") == "DNS";
        }
        Ok(TAKEN)
    }

    fn condition(&mut self, number: &str, kind: &str, pattern: &str) {
        let at = self.sets.iter().position(|set| set.number == number).unwrap_or_else(|| {
            self.sets.push(Set { number: number.to_owned(), ..Set::default() });
            self.sets.len() - 1
        });
        match kind.trim_end_matches("_REGEXP") {
            "HOST" => self.sets[at].hosts.push(pattern.to_owned()),
            "PATH" => self.sets[at].paths.push(pattern.to_owned()),
            _ => self.sets[at].has_headers = true,
        }
    }

    /// The hosts of its sets, and routes for those with paths. Returns what is no host.
    pub(super) fn settle_sets(&mut self, cdn: &str) -> Vec<String> {
        let (mut hosts, mut wrong, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let has_routes = !self.site.routes.is_empty();
        for set in std::mem::take(&mut self.sets) {
            let found = set.hosts.iter().map(|pattern| (pattern, self.host(pattern, cdn)));
            let (good, bad): (Vec<_>, Vec<_>) = found.partition(|(_, host)| host.is_some());
            wrong.extend(bad.into_iter().map(|(pattern, _)| pattern.clone()));
            let own: Vec<String> = good.into_iter().filter_map(|(_, host)| host).collect();
            hosts.extend(own.iter().cloned());
            let Set { paths, has_headers, .. } = set;
            if paths.is_empty() && !has_headers && own.len() < 2 {
                continue;
            }
            let is_bad =
                paths.len() > 1 || paths.iter().any(|path| regex::Regex::new(path).is_err());
            let ([host], [path], false) =
                (&own[..], &paths[..], has_headers || has_routes || is_bad)
            else {
                self.closed.push("which requests it takes must be written as routes".to_owned());
                continue;
            };
            let of_host = || Table::from_iter([("host", host.as_str().into())]);
            let (mut route, mut rest) = (of_host(), of_host());
            route.set("path_regex", format!("^(?:{path})$"));
            vocabulary::respond(&mut rest, 404, None);
            let comment = format!("matchsets: {path}");
            self.site.routes.push(Route { comment: comment.clone(), table: route });
            others.push(Route { comment: format!("{comment}, no other path"), table: rest });
        }
        self.site.routes.extend(others);
        hosts.sort();
        hosts.dedup();
        self.hosts = hosts;
        wrong
    }

    fn host(&self, pattern: &str, cdn: &str) -> Option<String> {
        let is_name = |name: &str| {
            let is_part = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
            !name.is_empty() && name.bytes().all(is_part)
        };
        let label = pattern.strip_prefix(r".*\.").and_then(|rest| rest.strip_suffix(r"\..*"));
        let host = match label {
            Some(label) if label == self.name && !self.domain.is_empty() => {
                format!("{}.{}", self.routing, self.domain)
            }
            Some(label) if !cdn.is_empty() => format!("{}.{label}.{cdn}", self.routing),
            Some(_) => return None,
            None => pattern.replace(r"\.", "."),
        };
        is_name(&host).then(|| host.to_ascii_lowercase())
    }

    /// Routes for the protocols that it does not serve, before all others, and the path of the origin.
    pub(super) fn settle(&mut self) {
        match self.site.table.has_any(&["rewrite"]) {
            true => self.site.table.set("rewrite", format!("{}{{path}}?", self.base)),
            false if self.base.is_empty() => {}
            false => self.site.table.set("add_prefix", self.base.as_str()),
        }
        let mut route = Table::default();
        match self.protocol {
            // A router redirects; the addresses of a name cannot.
            3 if self.is_dns => {
                route.set("scheme", "http");
                vocabulary::respond(&mut route, 403, None);
            }
            0 => {
                route.set("scheme", "https");
                vocabulary::respond(&mut route, 403, None);
            }
            1 => {
                route.set("scheme", "http");
                vocabulary::respond(&mut route, 403, None);
            }
            3 => {
                route.set("scheme", "http");
                vocabulary::redirect(&mut route, 302, "https://{host}{uri}".to_owned());
            }
            _ => return,
        }
        self.site.routes.insert(0, Route { comment: "protocol".to_owned(), table: route });
    }
}

/// A field that restricts, and has no counterpart, closes the service.
pub(super) fn outcome_of(service: &mut Service, taken: Result<Outcome, Closed>) -> Outcome {
    taken.unwrap_or_else(|Closed(reason)| {
        let reason = reason.trim_start_matches("closed: ").to_owned();
        service.closed.push(reason.clone());
        left(format!("{reason}; until you write a rule, everybody is refused"))
    })
}
