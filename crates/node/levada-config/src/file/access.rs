//! Keys about clients: who may use a site or a route, and how much of it.

use std::time::Duration;

use levada_access::access::Bandwidth;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMany, OrOff};
use crate::text::{AddressRule, LimitKey, Referer, RequestRate, Size, Time, WebOrigin};

/// Who may use a site or a route, and how much of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Clients {
    /// Allow and deny clients by address and country, in nginx's order: the first match decides. See
    /// docs/operate/access.md.
    #[schemars(extend("examples" = [["allow 10.0.0.0/8", "deny all"]]))]
    pub access: Option<OneOrMany<AddressRule>>,
    /// Limits of requests per key. They count where they are stated: docs/operate/limits.md.
    pub limit: Vec<Limit>,
    /// The largest body of a request; beyond it, clients get 413.
    #[schemars(extend("examples" = ["10MiB"]))]
    pub max_body: Option<Size>,
    /// Limits of bytes per second in responses.
    pub bandwidth: Bandwidth,
    /// Users and passwords; `"off"` where a route of the site needs none.
    pub basic_auth: Option<OrOff<BasicAuth>>,
    /// The pages that may embed the site's files, as nginx's `valid_referers`; requests from others get 403.
    /// `*` lifts the rule of the site.
    #[schemars(extend("examples" = [["none", "blocked", "server_names", "*.example.com"]]))]
    pub referers: Option<OneOrMany<Referer>>,
    /// The server that is asked whether a request may pass; `"off"` where it is not asked about those of a route.
    pub forward_auth: Option<OrOff<ForwardAuth>>,
    /// URLs that must be signed; `"off"` where those of a route need no signature.
    pub signed_urls: Option<OrOff<SignedUrls>>,
    /// Pages of other origins that may use the site (CORS); `"off"` where a route is for none.
    pub cors: Option<OrOff<Cors>>,
}

/// A limit of requests of one key. See docs/operate/limits.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["key"]))]
pub struct Limit {
    /// The part of a request that is counted by: `client`, `client/24`, `header:NAME`, `cookie:NAME`, `path` or
    /// `site`.
    #[schemars(extend("examples" = ["client"]))]
    pub key: Option<LimitKey>,
    /// Requests per second or minute, as nginx's `limit_req`.
    #[schemars(extend("examples" = ["10r/s"]))]
    pub rate: Option<RequestRate>,
    /// Requests that may come sooner than the rate allows. They wait for their turn.
    #[schemars(range(max = 1_000_000))]
    pub burst: u32,
    /// Whether requests within the burst go on at once.
    pub nodelay: bool,
    /// Requests that are served at once, as nginx's `limit_conn`.
    #[schemars(range(min = 1, max = 1_000_000), extend("examples" = [10]))]
    pub concurrent: Option<u32>,
    /// Keys that are remembered for the rate. When they are too many, those with the fewest requests are
    /// forgotten.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub keys: u32,
    /// Whether the nodes that are up share the rate and the burst.
    pub scope: LimitScope,
}

/// Where a limit of requests counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// At each node by itself.
    #[default]
    Node,
    /// In the whole cluster, approximately: each node takes the rate divided by the number of nodes that are up.
    Cluster,
}

/// Users and passwords, by an htpasswd file.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["users_file"]))]
pub struct BasicAuth {
    /// The realm, which browsers show.
    #[schemars(regex(pattern = "^[ -~]*$"))]
    pub realm: String,
    /// The file of users and the hashes of their passwords, as `htpasswd` writes it.
    #[schemars(length(min = 1), extend("examples" = ["htpasswd"]))]
    pub users_file: Option<String>,
}

/// A server that is asked whether a request may pass. See docs/operate/access.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub struct ForwardAuth {
    /// The URL of the question. A 2xx lets the request pass; clients get any other answer.
    #[schemars(length(min = 1), extend("examples" = ["http://10.0.3.1:9091/api/verify"]))]
    pub url: Option<String>,
    /// The fields of the request that the server gets in addition to `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and
    /// `-For`. The default is all but those about a body, ranges and conditions.
    #[schemars(extend("examples" = [["Authorization", "Cookie"]]))]
    pub request_headers: Option<Vec<String>>,
    /// The fields of a 2xx answer that the request gets in place of its own. Responses are stored for each value of
    /// them.
    #[schemars(extend("examples" = [["Remote-User", "Remote-Groups"]]))]
    pub copy_headers: Vec<String>,
    /// The time for an answer.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub timeout: Time,
    /// Whether requests pass when the server does not answer. Otherwise clients get 503.
    pub fail_open: bool,
}

/// Pages of other origins that may use the site. See docs/operate/access.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["origins"]))]
pub struct Cors {
    /// The origins of these pages; `https://*.example.com` for all below a host, `*` for all.
    #[schemars(extend("examples" = ["https://app.example.com"]))]
    pub origins: Option<OneOrMany<WebOrigin>>,
    /// Methods that they may use in addition to GET, HEAD and POST.
    #[schemars(extend("examples" = [["PUT", "DELETE"]]))]
    pub methods: Vec<String>,
    /// Request fields that they may set. The default is all that they ask for.
    #[schemars(extend("examples" = [["x-requested-with"]]))]
    pub headers: Option<Vec<String>>,
    /// Response fields that they may read.
    #[schemars(extend("examples" = [["etag"]]))]
    pub expose: Vec<String>,
    /// Whether their requests may have cookies and passwords.
    pub credentials: bool,
    /// Time for which browsers remember what is allowed.
    #[schemars(extend("x-maximum" = "1d"))]
    pub max_age: Time,
}

/// URLs that a server of the application signs; the node serves no others. See docs/operate/access.md.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["form"]))]
pub struct SignedUrls {
    /// The form of the signature.
    pub form: Option<SignedForm>,
    /// `token`: the file of the issuers' keys, as sets of JSON Web Keys.
    #[schemars(length(min = 1), extend("examples" = ["keys.json"]))]
    pub keys_file: Option<String>,
    /// `token`: the name of this CDN, which `aud` of a token must have.
    #[schemars(extend("examples" = ["cdn.example.com"]))]
    pub audience: Option<String>,
    /// `secure_link` and `hmac`: the files of the secrets. The first signs, each is valid.
    #[schemars(extend("examples" = ["link.secret"]))]
    pub secret_file: Option<OneOrMany<String>>,
    /// `secure_link` and `hmac`: the text that the digest is over, with the variables `{expires}`, `{path}`,
    /// `{client}` and `{secret}`. The default is `{expires}{path}{client} {secret}`, or `{expires}{path}`.
    #[schemars(extend("examples" = ["{expires}{path} {secret}"]))]
    pub message: Option<String>,
    /// `secure_link` and `hmac`: the argument of the query with the digest. The default is `md5`, or `signature`.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.-]+$"), extend("examples" = ["md5"]))]
    pub signature: Option<String>,
    /// `secure_link` and `hmac`: the argument with the end, in seconds of Unix time. The default is `expires`.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.-]+$"), extend("examples" = ["expires"]))]
    pub expires: Option<String>,
}

/// A form of signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignedForm {
    /// A JSON Web Token (RFC 9246, URI Signing).
    Token,
    /// MD5, as nginx's `secure_link`.
    SecureLink,
    /// HMAC-SHA-256.
    Hmac,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            key: None,
            rate: None,
            burst: 0,
            nodelay: false,
            concurrent: None,
            keys: 1 << 16,
            scope: LimitScope::default(),
        }
    }
}

impl Default for BasicAuth {
    fn default() -> Self {
        Self { realm: "Restricted".to_owned(), users_file: None }
    }
}

impl Default for ForwardAuth {
    fn default() -> Self {
        Self {
            url: None,
            request_headers: None,
            copy_headers: Vec::new(),
            timeout: Time(Duration::from_secs(5)),
            fail_open: false,
        }
    }
}

impl Default for Cors {
    fn default() -> Self {
        Self {
            origins: None,
            methods: Vec::new(),
            headers: None,
            expose: Vec::new(),
            credentials: false,
            max_age: Time(Duration::from_secs(600)),
        }
    }
}
