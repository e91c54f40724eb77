//! The fields of a request that no list and no key has. `levada_rules` says which of them a fetch has that others
//! share.
//!
//! A peer gets every field: it makes the same key, and withholds the same.

use http::HeaderName;
use levada_rules::{FetchFields, REQUEST_ID};
use levada_tls::client_fields::is_about_certificates;

use crate::request::RequestContext;

/// See the module.
pub(crate) fn unkeyed(context: &RequestContext) -> Vec<HeaderName> {
    let handling = &context.resource.handling;
    let fields = &handling.fetch_fields;
    if *fields == FetchFields::All {
        return Vec::new();
    }
    let key = handling.caching.as_ref().map(|rules| &rules.key);
    let has_id = handling.adjustments.as_ref().is_some_and(|with| with.use_request_id());
    let passes = |name: &HeaderName| {
        fields.pass(name)
            || key.is_some_and(|key| key.has_field(name))
            || (has_id && *name == REQUEST_ID)
            // This node writes them, and removes what clients write there.
            || is_about_certificates(name.as_str())
    };
    context.parts.headers.keys().filter(|name| !passes(name)).cloned().collect()
}
