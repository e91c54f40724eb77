//! `[[site.route]]`: which requests it takes, and what differs for them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Handling, OneOrMany, SiteServers};
use crate::text::Prefix;

/// A route: requests that differ from others of the site. All matchers must hold; a key that is not stated is
/// the site's.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("additionalProperties" = false))]
pub struct SiteRoute {
    /// Its name, in `levada explain` and in errors. The default is its number, from 1.
    #[schemars(length(min = 1, max = 64), extend("examples" = ["images"]))]
    pub name: Option<String>,
    /// Patterns of the path: `*` is any run of characters without `/`, `**` any run of characters.
    #[schemars(extend("examples" = ["/img/**"]))]
    pub path: Option<OneOrMany<String>>,
    /// A regular expression that is found in the path.
    #[schemars(extend("examples" = ["^/user/(?<id>[0-9]+)$"]))]
    pub path_regex: Option<String>,
    /// Patterns of the host, in which `*` is any run of characters.
    #[schemars(extend("examples" = ["www.*"]))]
    pub host: Option<OneOrMany<String>>,
    /// The scheme that the client used.
    pub scheme: Option<ClientScheme>,
    /// Methods.
    #[schemars(extend("examples" = ["GET"]))]
    pub method: Option<OneOrMany<String>>,
    /// Values of header fields: a pattern in which `*` is any run of characters, `true` for any value, `false`
    /// for no such field.
    pub header: BTreeMap<String, FieldMatch>,
    /// Values of arguments of the query, in the same form.
    pub query: BTreeMap<String, FieldMatch>,
    /// Values of cookies, in the same form.
    pub cookie: BTreeMap<String, FieldMatch>,
    /// The client's address, or prefixes of it.
    pub client: Option<OneOrMany<Prefix>>,
    /// A condition as an expression: docs/operate/expressions.md.
    #[schemars(extend("examples" = ["request.headers['x-beta'] == '1'"]))]
    pub when: Option<String>,
    /// Whether only internal redirects lead to the route: `reroute`, `files.else`, `error_pages`.
    pub internal: bool,
    /// Its requests go on at another route, `@name`, or with another path, with which the routes are tried again:
    /// docs/operate/routes.md.
    #[schemars(length(min = 1), extend("examples" = ["/index.php?page={1}"]))]
    pub reroute: Option<String>,
    /// Sends the client to another URL.
    pub redirect: Option<Redirect>,
    /// A fixed response.
    pub respond: Option<Respond>,
    /// Servers of its own, completed by the keys of the site.
    #[serde(flatten)]
    pub servers: SiteServers,
    /// How its requests are handled, completed by the keys of the site.
    #[serde(flatten)]
    pub handling: Handling,
}

/// A redirect.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["to"]))]
pub struct Redirect {
    /// The URL, with variables: docs/operate/routes.md.
    #[schemars(length(min = 1), extend("examples" = ["https://{host}{uri}"]))]
    pub to: Option<String>,
    /// 301, 302, 303, 307 or 308.
    #[schemars(range(min = 301, max = 308))]
    pub status: u16,
}

/// A fixed response.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Respond {
    /// Its status.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// The media type of its body.
    pub content_type: String,
    /// Its body, as it is.
    pub body: String,
    /// Its body with variables, in the place of `body`: docs/operate/variables.md.
    pub template: Option<String>,
}

impl Default for Redirect {
    fn default() -> Self {
        Self { to: None, status: 302 }
    }
}

impl Default for Respond {
    fn default() -> Self {
        let content_type = "text/plain; charset=utf-8".to_owned();
        Self { status: 200, content_type, body: String::new(), template: None }
    }
}

/// The scheme that a client used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientScheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

/// The value of a field, of an argument or of a cookie.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum FieldMatch {
    /// Whether there is one.
    Present(bool),
    /// A pattern of the value.
    Value(String),
}
