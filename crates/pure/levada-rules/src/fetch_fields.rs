//! The fields of a request that go to the origin with a fetch that others share.
//!
//! The response is for everyone who asks with the same key. A field that the key does not have must not change it:
//! otherwise one client decides what all others get. So a fetch has the fields of a list and those of the key.
//!
//! ```text
//!   listed      passes: useful to every server, or written by this node
//!   unlisted    withheld; a response that is not shared is asked for again, with all fields
//!   idle        withheld, and not missed by a response that is not shared: browsers send them always
//! ```

use http::{HeaderMap, HeaderName};

use crate::FieldEdits;

/// The fields that a site lets pass.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchFields {
    /// Every field.
    All,
    /// The listed ones, and these.
    Beside(Box<[HeaderName]>),
}

impl Default for FetchFields {
    fn default() -> Self {
        Self::Beside(Box::default())
    }
}

/// Fields that pass: those by which a cache asks, those that it judges by its own rules (RFC 9111 Sec. 3.5), those that
/// say what a client accepts, and those that proxies write. The trust boundary has removed what clients write there.
fn is_listed(name: &str) -> bool {
    matches!(
        name,
        "accept"
            | "accept-charset"
            | "accept-datetime"
            | "accept-encoding"
            | "accept-language"
            | "authorization"
            | "available-dictionary"
            | "cache-control"
            | "cdn-loop"
            | "cookie"
            | "dictionary-id"
            | "early-data"
            | "forwarded"
            | "host"
            | "if-match"
            | "if-modified-since"
            | "if-none-match"
            | "if-range"
            | "if-unmodified-since"
            | "levada-large"
            | "levada-peer"
            | "levada-piece"
            | "levada-route"
            | "pragma"
            | "range"
            | "traceparent"
            | "tracestate"
            | "user-agent"
            | "via"
            | "x-forwarded-for"
            | "x-forwarded-host"
            | "x-forwarded-proto"
            // Statements of trusted proxies.
            | "x-forwarded-port"
            | "x-forwarded-prefix"
            | "x-forwarded-server"
            | "x-forwarded-ssl"
            | "x-real-ip"
    )
}

/// Beginnings of fields that browsers send with every request.
const IDLE: [&str; 3] = ["sec-ch-", "sec-fetch-", "sec-gpc"];
/// Other fields of this kind, those that say where a link was or how a response is to be scheduled, and the length of
/// a body that there is not.
const IDLE_NAMES: [&str; 12] = [
    "content-length",
    "device-memory",
    "dnt",
    "downlink",
    "dpr",
    // For nodes: what it requires is in the key.
    "levada-digest",
    "priority",
    "referer",
    "rtt",
    "save-data",
    "upgrade-insecure-requests",
    "viewport-width",
];

impl FetchFields {
    /// Whether a field passes that no key has.
    pub fn pass(&self, name: &HeaderName) -> bool {
        match self {
            Self::All => true,
            Self::Beside(more) => is_listed(name.as_str()) || more.contains(name),
        }
    }

    /// Whether a response that is not shared may do without the field.
    pub fn is_idle(name: &HeaderName) -> bool {
        let name = name.as_str();
        IDLE_NAMES.contains(&name) || IDLE.iter().any(|beginning| name.starts_with(beginning))
    }
}

/// The choice of a fetch among the fields that no list and no key has.
#[derive(Clone, Debug, Default)]
pub enum SentFields {
    /// They are withheld.
    #[default]
    Listed,
    /// The fields that a stored `Vary` names are sent: by it they belong to the key.
    Varying(Box<[HeaderName]>),
    /// All are sent: the response is not expected to be shared.
    All,
}

/// The fields of one request that no list and no key has.
#[derive(Debug, Default)]
pub struct UnkeyedFields {
    /// The sent ones. A response is shared only if it varies by all of them.
    sent: Vec<HeaderName>,
    withheld: Vec<HeaderName>,
}

impl UnkeyedFields {
    /// Divides them as `with` says.
    pub fn of(unkeyed: Vec<HeaderName>, with: &SentFields) -> Self {
        let is_sent = |name: &HeaderName| match with {
            SentFields::Listed => false,
            SentFields::Varying(vary) => vary.contains(name),
            SentFields::All => true,
        };
        let (sent, withheld) = unkeyed.into_iter().partition(is_sent);
        Self { sent, withheld }
    }

    /// All but these.
    pub fn without(mut self, names: &[HeaderName]) -> Self {
        self.sent.retain(|name| !names.contains(name));
        self
    }

    /// Removes those that are withheld, and makes the operator's changes of these fields again.
    pub fn withhold(&self, edits: Option<&FieldEdits>, headers: &mut HeaderMap) {
        for name in &self.withheld {
            headers.remove(name);
        }
        if let Some(edits) = edits {
            edits.apply_again(headers, &self.withheld);
        }
    }

    /// Whether a response that varies by these fields may be shared.
    pub fn belong_to(&self, vary: &[HeaderName]) -> bool {
        self.sent.iter().all(|name| vary.contains(name))
    }

    /// Whether a response that is not shared lacks something that its client has said.
    pub fn are_missed(&self) -> bool {
        self.withheld.iter().any(|name| !FetchFields::is_idle(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &'static str) -> HeaderName {
        HeaderName::from_static(text)
    }

    #[test]
    fn fields_that_change_a_response_do_not_pass() {
        let fields = FetchFields::default();
        for unkeyed in [
            "x-host",
            "x-original-host",
            "x-http-method-override",
            "x-middleware-subrequest",
            "x-accel-redirect",
            "x-sendfile",
            "origin",
            "content-type",
            "x-original-url",
            "x-forwarded-scheme",
        ] {
            assert!(!fields.pass(&name(unkeyed)), "{unkeyed}");
            assert!(!FetchFields::is_idle(&name(unkeyed)), "{unkeyed}");
            assert!(FetchFields::All.pass(&name(unkeyed)));
        }
        assert!(fields.pass(&name("accept-encoding")) && fields.pass(&name("host")));
        let with_origin = FetchFields::Beside([name("origin")].into());
        assert!(with_origin.pass(&name("origin")) && with_origin.pass(&name("cookie")));
        assert!(!with_origin.pass(&name("x-host")));
        assert!(FetchFields::is_idle(&name("sec-fetch-mode")));
    }

    #[test]
    fn names_are_in_one_list() {
        assert!(IDLE_NAMES.is_sorted());
        assert!(!IDLE_NAMES.iter().any(|idle| is_listed(idle)));
    }
}
