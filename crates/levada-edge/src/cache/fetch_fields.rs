//! The fields of a request that go to the origin with a fetch that others share. `levada_rules` has the list.
//!
//! A peer gets every field: it makes the same key, and withholds the same.

use http::{HeaderMap, HeaderName};
use levada_cache::Vary;
use levada_rules::{FetchFields, REQUEST_ID};
use levada_tls::client_fields::is_about_certificates;

use crate::request::RequestContext;

/// What a fetch knows of the fields that no list and no key has.
#[derive(Clone, Debug, Default)]
pub(crate) enum SentFields {
    /// They are withheld.
    #[default]
    Listed,
    /// Those that a stored `Vary` names are sent: by it they belong to the key.
    Varying(Vary),
    /// All are sent: the response is not expected to be shared.
    All,
}

/// The fields of one request that no list and no key has.
#[derive(Debug, Default)]
pub(crate) struct UnkeyedFields {
    /// Those that are sent. A response is shared only if it varies by all of them.
    sent: Vec<HeaderName>,
    withheld: Vec<HeaderName>,
}

impl UnkeyedFields {
    /// Divides them as `with` says.
    pub(crate) fn of(context: &RequestContext, with: &SentFields) -> Self {
        let unkeyed = unkeyed(context);
        let is_sent = |name: &HeaderName| match with {
            SentFields::Listed => false,
            SentFields::Varying(vary) => vary.fields().contains(name),
            SentFields::All => true,
        };
        let (sent, withheld) = unkeyed.into_iter().partition(is_sent);
        Self { sent, withheld }
    }

    /// Those of a request that is sent as it came.
    pub(crate) fn sent(context: &RequestContext) -> Self {
        Self::of(context, &SentFields::All)
    }

    /// All but these.
    pub(crate) fn without(mut self, names: &[HeaderName]) -> Self {
        self.sent.retain(|name| !names.contains(name));
        self
    }

    /// Removes those that are withheld, and makes the changes of the operator anew that stood in them.
    pub(crate) fn withhold(&self, context: &RequestContext, headers: &mut HeaderMap) {
        for name in &self.withheld {
            headers.remove(name);
        }
        if let Some(edits) = &context.edits {
            edits.apply_again(headers, &self.withheld);
        }
    }

    /// Whether a response that varies so may be shared.
    pub(crate) fn belong_to(&self, vary: &Vary) -> bool {
        self.sent.iter().all(|name| vary.fields().contains(name))
    }

    /// Whether a response that is not shared lacks something that its client has said.
    pub(crate) fn are_missed(&self) -> bool {
        self.withheld.iter().any(|name| !FetchFields::is_idle(name))
    }
}

fn unkeyed(context: &RequestContext) -> Vec<HeaderName> {
    let handling = &context.resource.handling;
    let fields = &handling.fetch_fields;
    if *fields == FetchFields::All {
        return Vec::new();
    }
    let keyed = handling.caching.as_ref().map_or(&[][..], |rules| &rules.key.headers);
    let has_id = handling.adjustments.as_ref().is_some_and(|with| with.use_request_id());
    let passes = |name: &HeaderName| {
        fields.pass(name)
            || keyed.contains(name)
            || (has_id && *name == REQUEST_ID)
            // This node writes them, and removes what clients write there.
            || is_about_certificates(name.as_str())
    };
    context.parts.headers.keys().filter(|name| !passes(name)).cloned().collect()
}
