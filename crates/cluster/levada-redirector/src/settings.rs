//! The settings of policies, service classes and web switches.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::handoff::HandoffControl;
use http::{HeaderMap, header::COOKIE};
use levada_policy::{DEFAULT_POLICY, Node as ClusterNode, ParameterValue, classify::ClassRules};
use levada_types::{
    Key,
    text::{As, Time},
};
use levada_upstream::{Origin, RequestBody, ServerFailure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A policy with its parameters, checked against its declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChoice {
    /// A name from `levada policies`.
    pub name: String,
    /// Parameters as configured.
    pub parameters: BTreeMap<String, ParameterValue>,
}

/// A web switch: this node is the front-end of servers that are not Levada.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchSettings {
    /// No two servers have the same name. There are none as long as sources have not named any.
    pub servers: Vec<SwitchServer>,
    /// The part of a request that the policy's key is taken from.
    pub key: KeyFrom,
    /// How long a server that came up takes to reach its full share; zero: at once.
    pub slow_start: Duration,
    /// Limits on requests in flight at the servers.
    pub admission: AdmissionLimits,
}

impl SwitchSettings {
    /// The servers before anything is known of their health.
    pub fn nodes(&self) -> Vec<ClusterNode> {
        let node = |server: &SwitchServer| ClusterNode {
            weight: server.weight,
            ..ClusterNode::new(&server.name)
        };
        self.servers.iter().map(node).collect()
    }

    /// Requests that a server of weight 1 holds. Policies derive from it when a server is busy.
    pub fn capacity(&self) -> u32 {
        let of = |server: &SwitchServer| f64::from(server.max_conns) / server.weight;
        self.servers.iter().map(of).fold(f64::MAX, f64::min).clamp(1.0, 1e9) as u32
    }
}

/// A server of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchServer {
    /// Its name in policies, logs and commands.
    pub name: String,
    /// Its address.
    pub origin: Origin,
    /// Relative capacity.
    pub weight: f64,
    /// The most requests in flight at it.
    pub max_conns: u32,
    /// Its address for handoff; `None`: connections are proxied.
    pub handoff: Option<HandoffControl>,
    /// Where it comes from, if a source has named it.
    pub found: Option<FoundBy>,
}

/// The source of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBy {
    /// The source, for operators.
    pub source: Arc<str>,
    /// The place of the source in the configuration. Priorities are compared within it.
    pub place: usize,
    /// Servers of a higher number get requests only while none of a lower number is up.
    pub priority: u16,
}

/// The part of a request that is hashed to its key. The URL is used if a request lacks this part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFrom {
    /// The whole URL.
    Url,
    /// The host.
    Host,
    /// The first field of this name.
    Header(String),
    /// The cookie of this name.
    Cookie(String),
    /// The query argument of this name, not decoded.
    Query(String),
    /// The beginning of the body.
    Body {
        /// The number of bytes.
        bytes: usize,
        /// The longest wait for these bytes.
        wait: Duration,
    },
}

impl KeyFrom {
    /// The part of a request for `target` of `host`; `None` if the request lacks it, or if it is the URL or the
    /// body.
    pub fn value<'a>(
        &self,
        (host, target): (&'a str, &'a str),
        headers: &'a HeaderMap,
    ) -> Option<&'a [u8]> {
        let value = match self {
            Self::Url | Self::Body { .. } => return None,
            Self::Host => Some(host.as_bytes()),
            Self::Header(name) => headers.get(name.as_str()).map(|value| value.as_bytes()),
            Self::Cookie(name) => headers
                .get_all(COOKIE)
                .iter()
                .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
                .find_map(|pair| value_of(pair.trim_ascii(), name)),
            Self::Query(name) => {
                let (_, query) = target.split_once('?')?;
                query.as_bytes().split(|byte| *byte == b'&').find_map(|pair| value_of(pair, name))
            }
        };
        value.filter(|value| !value.is_empty())
    }

    /// The key that the beginning of a body makes. The bytes are read here, and are sent all the same.
    ///
    /// # Errors
    /// When the body breaks off.
    pub async fn in_body(&self, body: &mut RequestBody) -> Result<InBody, ServerFailure> {
        let Self::Body { bytes, wait } = self else { return Ok(InBody::OfUrl) };
        let RequestBody::Client(upload) = body else { return Ok(InBody::Missing) };
        match tokio::time::timeout(*wait, upload.read_ahead(*bytes)).await {
            Ok(Ok(beginning)) if beginning.is_empty() => Ok(InBody::OfUrl),
            Ok(Ok(beginning)) => Ok(InBody::Key(Key::of(&beginning))),
            Ok(Err(_)) => Err(ServerFailure::RequestBody),
            Err(_) => Ok(InBody::Missing),
        }
    }
}

/// The key of a request by its body.
pub enum InBody {
    /// Of the beginning of the body.
    Key(Key),
    /// The URL's counts: the site takes no key from bodies, or the body is empty.
    OfUrl,
    /// The URL's counts, because there is no body, or its beginning has not come in time.
    Missing,
}

/// The value of `name=value`.
fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

impl std::fmt::Display for KeyFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url => f.write_str("url"),
            Self::Host => f.write_str("host"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Cookie(name) => write!(f, "cookie {name}"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Body { bytes, .. } => write!(f, "body, {bytes} bytes"),
        }
    }
}

/// Limit of concurrent requests at the servers of a site; further requests wait in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionLimits {
    /// Concurrent requests at all servers together. The default is the sum of their `max_conns`, and with
    /// `t_low` or `t_high` of `lard` and `lard/r` no more than S = (n - 1) T_high + T_low - 1 for n servers that are
    /// up.
    #[schemars(range(min = 1, max = 10_000_000), extend("examples" = [400]))]
    pub at_once: Option<u32>,
    /// Requests that may wait. Beyond it, clients get 503.
    #[schemars(range(max = 1_000_000))]
    #[serde(with = "As::<u32>")]
    pub queue: usize,
    /// Time that a request may wait.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
    pub wait: Duration,
}

/// How requests are classified into service classes, for policies that use them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSettings {
    /// The first matching rule decides.
    pub rules: ClassRules,
    /// Whether classes are learned for requests that no rule matches.
    pub learn: bool,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self { at_once: None, queue: 1024, wait: Duration::from_secs(5) }
    }
}

impl Default for PolicyChoice {
    fn default() -> Self {
        Self { name: DEFAULT_POLICY.to_owned(), parameters: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_that_of_the_whole_name() {
        assert_eq!(value_of(b"id=7", "id"), Some(&b"7"[..]));
        assert_eq!(value_of(b"idx=7", "id"), None);
        assert_eq!(value_of(b"id", "id"), None);
        assert_eq!(value_of(b"id=", "id"), Some(&b""[..]));
    }
}
