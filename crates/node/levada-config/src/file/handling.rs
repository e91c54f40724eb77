//! The keys that can differ per route: `[defaults]`, `[[site]]` and `[[site.route]]` have them all.
//!
//! A file is read with the keys of each level laid over those of the level around it ([`inherit`]).
//! So a key needs a field here, and a line where settings are made of it.
//!
//! [`inherit`]: crate::inherit

use std::{collections::BTreeMap, time::Duration};

use levada_body::compress::CompressSettings;
use levada_cache::{CacheRules, CookieStorage, IgnoredFields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clients, OneOrMany};
use crate::text::{As, Prefix, Time};

/// How requests are handled.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Handling {
    /// Whether responses are stored at all. Otherwise the site's requests are only distributed.
    pub cache: bool,
    /// Freshness lifetime by status, whatever the origin says of freshness: `"10m"`, or statuses and a time as
    /// in `"200 302 10m"`, `"any 1m"`. `no-store`, `private` and `no-cache` hold nevertheless. See
    /// docs/operate/caching.md.
    #[schemars(extend("examples" = [["200 302 10m", "404 1m"]]))]
    pub ttl: Option<OneOrMany<String>>,
    /// Freshness lifetime by status of responses without one, in the same form; it comes before `default_ttl`.
    #[schemars(extend("examples" = [["200 302 10m", "404 1m", "any 10s"]]))]
    pub status_ttl: Option<OneOrMany<String>>,
    /// Fields of the origin's responses that are not obeyed.
    pub ignore_headers: Vec<IgnoredHeader>,
    /// The cache key: which parts of requests tell objects apart.
    pub cache_key: CacheKey,
    /// Requests that are not answered from the cache: `cookie.NAME`, `header.NAME` or `query.NAME`, with `=` and
    /// a pattern of the value if any other value does not count. The answer is stored.
    #[schemars(extend("examples" = [["cookie.session", "query.nocache=1"]]))]
    pub bypass: Vec<String>,
    /// Requests whose answers are not stored, in the same form.
    #[schemars(extend("examples" = [["cookie.session"]]))]
    pub no_store: Vec<String>,
    /// A further condition of `bypass`, as an expression: docs/operate/expressions.md.
    #[schemars(extend("examples" = ["'session' in request.cookies"]))]
    pub bypass_when: Option<String>,
    /// A further condition of `no_store`, as an expression.
    #[schemars(extend("examples" = ["has(request.query_params.preview)"]))]
    pub no_store_when: Option<String>,
    /// Cookies that are removed. Those of `cache_key.cookies` stay.
    pub strip_cookies: StripCookies,
    /// Fields of requests that reach the origin with a fetch that others share, in addition to those of the key and of the
    /// list in docs/operate/caching.md; `"*"` is all.
    #[schemars(extend("examples" = [["Origin", "X-Requested-With"]]))]
    pub fetch_fields: Vec<String>,
    /// Whether a response whose type does not fit its URL, or whose URL can be read in two ways, is stored by HTTP's
    /// own rules only: against cache deception.
    pub deception_armour: bool,
    /// Requests for an object until it is stored.
    #[schemars(range(min = 1, max = 100))]
    pub min_uses: u8,
    /// Freshness lifetime of a response without one. The default is HTTP's heuristic (RFC 9111, 4.2.2).
    #[schemars(extend("examples" = ["10m"]))]
    pub default_ttl: Option<Time>,
    /// Freshness lifetime of an error without one: 404, 405, 410, 414, 451 and 501. The default is that of
    /// other responses.
    #[schemars(extend("examples" = ["10s"]))]
    pub negative_ttl: Option<Time>,
    /// HTTP's heuristic freshness, in percent of the time since `Last-Modified`; 0 switches it off.
    #[schemars(range(max = 100))]
    pub heuristic_percent: u32,
    /// The longest heuristic freshness lifetime.
    pub heuristic_max: Time,
    /// Default of `stale-while-revalidate`: time in which a stale response is served while it is revalidated
    /// (RFC 5861).
    pub stale_while_revalidate: Time,
    /// Default of `stale-if-error`: time in which a stale response replaces a 500, 502, 503 or 504 of the
    /// origin (RFC 5861).
    pub stale_if_error: Time,
    /// Time in which a stale response without `stale-if-error` replaces the answer of an unreachable origin.
    pub stale_if_unreachable: Time,
    /// Time that a client waits for the revalidation of a response that `stale-if-error` or `stale_if_unreachable`
    /// allows to serve stale. An origin that usually takes longer gets three times its usual time.
    pub revalidation_wait: Time,
    /// Whether responses with `s-maxage` may be served stale, too. RFC 9111, 5.2.2.10, forbids it, but many
    /// applications send `s-maxage` without this intention.
    pub s_maxage_allows_stale: bool,
    /// Whether responses that set cookies are stored.
    pub store_cookies: Cookies,
    /// Compression of responses. Without this table they are passed on and stored as they are.
    pub compress: Option<CompressSettings>,
    /// Changes of the header fields that the origin gets. See docs/operate/headers.md.
    pub request_headers: HeaderEdits,
    /// Changes of the header fields that the client gets.
    pub response_headers: HeaderEdits,
    /// Who may make such requests, and how many.
    #[serde(flatten)]
    pub clients: Clients,
    /// Connections that switch to WebSocket. See docs/operate/websocket.md.
    pub websocket: WebSocketSettings,
    /// A beginning of the path that the origin does not get.
    #[schemars(extend("examples" = ["/api"]))]
    pub strip_prefix: Option<String>,
    /// A beginning that the path gets on the way to the origin.
    #[schemars(extend("examples" = ["/v2"]))]
    pub add_prefix: Option<String>,
    /// Path and query that the origin is asked with, with variables. See docs/operate/rewrites.md.
    #[schemars(extend("examples" = ["/new/{1}"]))]
    pub rewrite: Option<String>,
    /// Variables of the operator, `{vars.NAME}`: a table of values, or shares of requests. See docs/operate/variables.md.
    pub variables: BTreeMap<String, VariableTable>,
    /// Bodies of errors by status, as in `"404"` or `"5xx"`. See docs/operate/rewrites.md.
    pub error_pages: BTreeMap<String, ErrorPage>,
    /// Answers all clients alike while servers are worked on: `true`, or a table. See
    /// docs/operate/rewrites.md.
    pub maintenance: Option<Maintenance>,
    /// Whether each request has an identifier, `X-Request-Id`: a trusted proxy's or a new one. The origin and the
    /// client get it, and access logs, traces and errors have it. See docs/operate/headers.md.
    pub request_id: bool,
    /// Whether clients see in `Proxy-Status` why a node was chosen.
    pub debug: bool,
}

/// Connections that switch to WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocketSettings {
    /// Whether requests for WebSocket reach the servers. Otherwise they get 403.
    pub enabled: bool,
    /// Time without a byte in either direction after which such a connection ends. Pings of its ends count as
    /// bytes.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "30d"))]
    #[serde(with = "As::<Time>")]
    pub idle_timeout: Duration,
}

impl Default for WebSocketSettings {
    fn default() -> Self {
        Self { enabled: true, idle_timeout: Duration::from_secs(3600) }
    }
}

/// Changes of header fields. Each field is inherited by itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeaderEdits {
    /// Fields and their values, with variables in braces.
    pub set: BTreeMap<String, String>,
    /// Fields that are added to those of the same name.
    pub add: BTreeMap<String, OneOrMany<String>>,
    /// Fields in whose values a text stands in the place of what an expression finds.
    pub replace: BTreeMap<String, OneOrMany<Replacement>>,
    /// Fields that are removed.
    #[schemars(extend("examples" = [["Server", "X-Powered-By"]]))]
    pub remove: Vec<String>,
    /// Of responses: those of the fields here that are changed on the statuses 200, 201, 204, 206, 301 to 304, 307
    /// and 308 only.
    pub not_on_errors: Vec<String>,
    /// Fields that stay as they are, although a level around changes them.
    pub keep: Vec<String>,
}

/// A text in the place of what an expression finds.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The regular expression. All that it finds in a value is replaced.
    pub pattern: String,
    /// The new text, with `$1` or `${name}` for a group of the expression.
    pub with: String,
}

/// A variable of the operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["from"]))]
pub struct VariableTable {
    /// The text that decides, with variables.
    #[schemars(length(min = 1), extend("examples" = ["{host}"]))]
    pub from: Option<String>,
    /// Values by text. `*` is any run of characters; upper and lower case are the same.
    pub values: BTreeMap<String, String>,
    /// Values by regular expressions, which are tried in order after `values`.
    pub regex: Vec<RegexValue>,
    /// Values, each with its share of the texts in percent.
    pub parts: BTreeMap<String, f64>,
    /// The value of all other texts.
    pub default: String,
}

/// A value by a regular expression.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["pattern", "value"]))]
pub struct RegexValue {
    /// The expression that is found in the text.
    #[schemars(extend("examples" = ["^www\\."]))]
    pub pattern: Option<String>,
    /// The value.
    pub value: Option<String>,
}

/// The answer in the place of an error: the body that a file or a path has, or the answer of a route.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorPage {
    /// The file, at most 1 MiB.
    pub file: Option<String>,
    /// The path at the origin.
    pub path: Option<String>,
    /// The request goes on at another route, `@name`, or with another path.
    #[schemars(length(min = 1), extend("examples" = ["@fallback"]))]
    pub to: Option<String>,
    /// The status of the answer of `to`: `error`, that of the error; `answer`, its own; or a number.
    pub status: Option<ErrorPageStatus>,
}

/// The status of an answer in the place of an error.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ErrorPageStatus {
    /// This one.
    Fixed(#[schemars(range(min = 200, max = 599))] u16),
    /// That of the error or of the answer.
    Of(StatusOf),
}

/// The message whose status counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatusOf {
    /// The error.
    Error,
    /// The answer.
    Answer,
}

/// The response during maintenance.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Maintenance {
    /// Whether there is any.
    Switch(bool),
    /// What clients get.
    Table(MaintenanceTable),
}

/// The response during maintenance, and clients that are served nevertheless.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct MaintenanceTable {
    /// Whether there is any now.
    pub enabled: bool,
    /// The status.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
    /// The time of `Retry-After`.
    pub retry_after: Time,
    /// The file with the body, at most 1 MiB.
    #[schemars(extend("examples" = ["maintenance.html"]))]
    pub file: Option<String>,
    /// Addresses of clients, or prefixes of them, that are served nevertheless.
    #[schemars(extend("examples" = [["192.0.2.0/24"]]))]
    pub allow: Vec<Prefix>,
}

impl Default for MaintenanceTable {
    fn default() -> Self {
        let retry_after = Time(Duration::from_secs(300));
        Self { enabled: true, status: 503, retry_after, file: None, allow: Vec::new() }
    }
}

/// A field of responses that is not obeyed. Clients get it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IgnoredHeader {
    /// `Cache-Control`, and the targeted fields that stand in its place.
    CacheControl,
    /// `Expires`.
    Expires,
    /// `Set-Cookie`: the response is stored without it.
    SetCookie,
    /// `Vary`: all requests get one response.
    Vary,
}

/// Cookies that are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StripCookies {
    /// None.
    #[default]
    None,
    /// Those of requests, before the origin gets them.
    Request,
    /// Those of responses, before they are stored or sent.
    Response,
    /// Both.
    Both,
}

/// Which arguments of a query count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CountedQuery {
    /// All.
    #[default]
    All,
    /// None.
    None,
}

/// Which parts of requests tell objects apart. The case of the host and the scheme's default port never do.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheKey {
    /// Which arguments of the query count.
    pub query: CountedQuery,
    /// Only these arguments count; `*` is any run of characters.
    #[schemars(extend("examples" = [["id", "page"]]))]
    pub query_only: Vec<String>,
    /// All arguments count but these.
    #[schemars(extend("examples" = [["utm_*", "fbclid"]]))]
    pub query_without: Vec<String>,
    /// The order of arguments does not count.
    pub sort_query: bool,
    /// Upper and lower case are the same in the path.
    pub ignore_path_case: bool,
    /// A host in the place of the one that the client has asked for, so that all hosts of a site share what is stored.
    #[schemars(length(min = 1), extend("examples" = ["www.example.com"]))]
    pub host: Option<String>,
    /// Header fields that count.
    #[schemars(extend("examples" = [["X-Country"]]))]
    pub headers: Vec<String>,
    /// Cookies that count.
    #[schemars(extend("examples" = [["currency"]]))]
    pub cookies: Vec<String>,
    /// Whether mobile, tablet and desktop, by `User-Agent`, are distinguished.
    pub device: bool,
    /// An expression whose value counts: docs/operate/expressions.md.
    #[schemars(extend("examples" = ["request.headers['x-beta'] == '1' ? 'beta' : ''"]))]
    pub expression: Option<String>,
    /// A word: routes of the site with the same word share what is stored, though they ask other servers or ask
    /// them otherwise. See docs/operate/caching.md.
    #[schemars(length(min = 1), extend("examples" = ["pictures"]))]
    pub share: Option<String>,
}

/// Whether responses that set cookies are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cookies {
    /// Never.
    #[default]
    Never,
    /// If the origin states their freshness, or that they are `public`. Servers often state it for all
    /// responses, also for those with a session's cookie.
    Explicit,
    /// Like all others: all clients then receive one client's cookie.
    Always,
}

impl From<&Handling> for CacheRules {
    fn from(file: &Handling) -> Self {
        Self {
            default_ttl: file.default_ttl.map(|ttl| ttl.0),
            negative_ttl: file.negative_ttl.map(|ttl| ttl.0),
            heuristic_percent: file.heuristic_percent,
            heuristic_max: file.heuristic_max.0,
            stale_while_revalidate: file.stale_while_revalidate.0,
            stale_if_error: file.stale_if_error.0,
            stale_if_unreachable: file.stale_if_unreachable.0,
            revalidation_wait: file.revalidation_wait.0,
            s_maxage_allows_stale: file.s_maxage_allows_stale,
            cookies: match file.store_cookies {
                Cookies::Explicit => CookieStorage::StoreIfExplicit,
                Cookies::Never => CookieStorage::Refuse,
                Cookies::Always => CookieStorage::Store,
            },
            ignored: IgnoredFields {
                cache_control: file.ignore_headers.contains(&IgnoredHeader::CacheControl),
                expires: file.ignore_headers.contains(&IgnoredHeader::Expires),
                set_cookie: file.ignore_headers.contains(&IgnoredHeader::SetCookie),
                vary: file.ignore_headers.contains(&IgnoredHeader::Vary),
            },
            ..Self::default()
        }
    }
}

impl Default for Handling {
    fn default() -> Self {
        let rules = CacheRules::default();
        Self {
            cache: true,
            ttl: None,
            status_ttl: None,
            ignore_headers: Vec::new(),
            cache_key: CacheKey::default(),
            bypass: Vec::new(),
            no_store: Vec::new(),
            bypass_when: None,
            no_store_when: None,
            strip_cookies: StripCookies::default(),
            fetch_fields: Vec::new(),
            deception_armour: true,
            min_uses: 1,
            default_ttl: None,
            negative_ttl: None,
            heuristic_percent: rules.heuristic_percent,
            heuristic_max: Time(rules.heuristic_max),
            stale_while_revalidate: Time(rules.stale_while_revalidate),
            stale_if_error: Time(rules.stale_if_error),
            stale_if_unreachable: Time(rules.stale_if_unreachable),
            revalidation_wait: Time(rules.revalidation_wait),
            s_maxage_allows_stale: rules.s_maxage_allows_stale,
            store_cookies: Cookies::default(),
            compress: None,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            clients: Clients::default(),
            websocket: WebSocketSettings::default(),
            strip_prefix: None,
            add_prefix: None,
            rewrite: None,
            variables: BTreeMap::new(),
            error_pages: BTreeMap::new(),
            maintenance: None,
            request_id: false,
            debug: false,
        }
    }
}
