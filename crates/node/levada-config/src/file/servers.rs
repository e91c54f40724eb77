//! `[[site.server]]`, `[site.key]`, `[site.admission]` and `[[site.class]]`: a site in front of servers that are not Levada.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Address, As, NodeName, Size, Time, Upstream};
use levada_types::{ServiceClass, values::OneOrMany};

/// A server that is not Levada.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub struct Server {
    /// Its URL, or `unix:` and the path of a socket on this machine, such as `unix:/run/app.sock`.
    #[schemars(extend("examples" = ["http://10.0.1.1:8000"]))]
    pub url: Option<Upstream>,
    /// Its name for policies, logs and operators. The default is its host and port, or `unix:` and the path.
    /// A renamed server counts as a new one.
    #[schemars(extend("examples" = ["web-1"]))]
    pub name: Option<NodeName>,
    /// Its capacity, relative to the other servers.
    #[schemars(range(min = 0.001, max = 1000))]
    pub weight: f64,
    /// Most concurrent requests to it. The default is `limits.server_connections`.
    #[schemars(range(min = 1, max = 1_000_000), extend("examples" = [200]))]
    pub max_conns: Option<u32>,
    /// The address for connections that are handed to it: that of `levada handoff-backend` on its machine, or
    /// a node's `handoff.listen`. A second address, of the other IP version, takes connections over that
    /// version; without it they are proxied. Needs `[handoff]`.
    #[schemars(extend("examples" = ["10.0.1.1:7072"]))]
    pub handoff: Option<OneOrMany<Address>>,
}

/// The key by which the policy distinguishes requests.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyFrom {
    /// The source of the key. A request without it uses its URL.
    pub from: KeyKind,
    /// The name of the header, the cookie or the query argument.
    #[schemars(length(min = 1, max = 256), extend("examples" = ["X-Session"]))]
    pub name: Option<String>,
    /// Number of bytes of the body that count.
    #[schemars(extend("x-minimum" = "1B", "x-maximum" = "1MiB"))]
    #[serde(with = "As::<Size>")]
    pub bytes: u64,
    /// Time to receive these bytes of the body; after it, the request uses its URL.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    #[serde(with = "As::<Time>")]
    pub wait: Duration,
}

/// The source of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// The URL, query and all.
    #[default]
    Url,
    /// The host of the request.
    Host,
    /// A header of the request.
    Header,
    /// A cookie.
    Cookie,
    /// An argument of the query, without decoding.
    Query,
    /// The beginning of the body, such as a prompt.
    Body,
}

/// A rule for a service class. It matches a request if all given conditions hold.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClassRule {
    /// The class. By default it is learned from service times.
    pub class: Option<ServiceClass>,
    /// Prefix of the path.
    #[schemars(regex(pattern = "^/"), extend("examples" = ["/search"]))]
    pub prefix: Option<String>,
    /// Suffix of the path.
    #[schemars(length(min = 1), extend("examples" = [".php"]))]
    pub suffix: Option<String>,
    /// A regular expression that matches within the path.
    #[schemars(length(min = 1, max = 4096), extend("examples" = ["^/v[12]/"]))]
    pub regex: Option<String>,
    /// The method, or one of several.
    #[schemars(extend("examples" = ["POST"]))]
    pub method: Option<OneOrMany<String>>,
    /// The media type of the request's body, or one of several.
    #[schemars(extend("examples" = ["application/json"]))]
    pub content_type: Option<OneOrMany<String>>,
    /// Whether the client uses TLS.
    #[schemars(extend("examples" = [true]))]
    pub tls: Option<bool>,
}

impl Default for Server {
    fn default() -> Self {
        Self { url: None, name: None, weight: 1.0, max_conns: None, handoff: None }
    }
}

impl Default for KeyFrom {
    fn default() -> Self {
        let wait = Duration::from_secs(10);
        Self { from: KeyKind::default(), name: None, bytes: 4 << 10, wait }
    }
}
