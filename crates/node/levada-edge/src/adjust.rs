//! Carries out the changes of a site or a route to its requests and responses, which `levada_rules` describes.
//!
//! The node that answers the client changes the response, and the node that asks the origin the request. A
//! peer gets the request as the client sent it.

use std::sync::Arc;

use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, RETRY_AFTER},
};
use levada_access::request_id::request_id;
use levada_cluster::orders::METHOD;
use levada_observe::metrics::CacheResult;
use levada_rules::{Adjustments, FieldEdits, REQUEST_ID};

use crate::{
    access_record::AccessRecord, body::ResponseBody, client_connection::ListenerKind, node::Node,
    request::RequestContext, respond,
};

/// The changes that are left when the response is there. There are none for the request of a peer.
pub(crate) struct Adjusting {
    edits: Option<Arc<FieldEdits>>,
    /// The identifier of the request, if it has one.
    id: Option<HeaderValue>,
    /// Whether the response has it.
    answers_id: bool,
}

impl Adjusting {
    /// Begins to answer a request: gives it an identifier, and keeps what its response needs of it.
    pub(crate) fn begin(
        node: &Node,
        adjustments: &Adjustments,
        context: &mut RequestContext,
        record: &mut AccessRecord,
    ) -> Self {
        let is_peer = context.connection.listener == ListenerKind::Peer;
        let id = adjustments.use_request_id().then(|| {
            let is_own = is_peer || context.answers_error;
            let trusted = is_own || node.trust.load().trusts(context.connection.client);
            let id = request_id(&mut context.parts.headers, &REQUEST_ID, trusted);
            record.identify(id.clone());
            id
        });
        Self {
            edits: (!is_peer).then(|| adjustments.response.bind(|| context.facts())),
            id: id.filter(|_| !is_peer),
            answers_id: adjustments.request_id,
        }
    }

    /// The identifier for a response that this node makes.
    pub(crate) fn id(&self) -> Option<&HeaderValue> {
        self.id.as_ref()
    }

    /// Changes the response. `cache` is the result of the cache, or `None` if another route has changed its fields.
    pub(crate) fn finish(self, response: &mut Response<ResponseBody>, cache: Option<CacheResult>) {
        if let Some(id) = self.id.filter(|_| self.answers_id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        if let Some((edits, cache)) = self.edits.zip(cache) {
            let status = response.status();
            edits.apply(response.headers_mut(), status, cache.as_str());
        }
    }
}

/// The response during maintenance, if the client gets it. Peers and purges pass.
pub(crate) fn closed(
    with: &Adjustments,
    context: &RequestContext,
    record: &mut AccessRecord,
) -> Option<Response<ResponseBody>> {
    let maintenance = with.maintenance.as_ref()?;
    let RequestContext { connection, client, parts, .. } = context;
    let passes = connection.listener == ListenerKind::Peer || parts.method.as_str() == METHOD;
    if passes || !maintenance.holds_for(*client) {
        return None;
    }
    let status = maintenance.status;
    record.refused(*client, status, "maintenance");
    let mut response = respond::plain(status, format!("{status}: maintenance\n"));
    if let Some(page) = &maintenance.page {
        respond::with_page(&mut response, page, &parts.method);
    }
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(maintenance.retry_after));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}
