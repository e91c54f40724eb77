//! Error pages: a file's, or those that the origin has, fetched through the cache.
//!
//! A page of the origin that was fetched once is kept, so that it is there when the origin is not.

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Limited};
use levada_access::fields::FORWARDED_PROTO;
use levada_cluster::orders::METHOD;
use levada_rules::{Adjustments, Destination, ErrorPage, ErrorRoute, Page};
use levada_store::Label;

use crate::{
    access_record::AccessRecord,
    body::ResponseBody,
    client_connection::{ClientConnection, ListenerKind},
    large::Dispatch,
    node::Node,
    request::RequestContext,
    respond,
};

/// The largest page of an origin in bytes, and the largest that is kept.
const LARGEST: usize = 1 << 20;
const LARGEST_KEPT: usize = 64 << 10;

/// The parts of a request that its error page needs.
pub(crate) struct Asked {
    connection: Arc<ClientConnection>,
    client: IpAddr,
    method: Method,
    host: String,
    scheme: &'static str,
    /// The request itself, for a route that answers in the place of the error.
    again: Option<Box<RequestContext>>,
}

impl Asked {
    /// `None` for the requests of peers, for purges, and for a fixed response with a body.
    pub(crate) fn of(with: &Adjustments, context: &RequestContext) -> Option<Self> {
        let RequestContext { connection, client, resource, parts, .. } = context;
        let has_body = resource.answer.as_ref().is_some_and(|answer| !answer.body.is_empty());
        let is_peer = connection.listener == ListenerKind::Peer;
        (!is_peer && !has_body && parts.method.as_str() != METHOD).then(|| Self {
            connection: connection.clone(),
            client: *client,
            method: parts.method.clone(),
            host: resource.host().to_owned(),
            scheme: resource.scheme(),
            again: with.pages.destinations().next().and_then(|_| context.for_error()),
        })
    }

    /// Gives an error its page, which names the request, or has another route answer. `failed`: no server has answered.
    pub(crate) async fn replace(
        mut self,
        node: &Arc<Node>,
        with: &Adjustments,
        failed: bool,
        response: &mut Response<ResponseBody>,
        id: Option<&HeaderValue>,
    ) -> Option<(Box<RequestContext>, Option<StatusCode>)> {
        let page = match with.pages.find(response.status()) {
            None => None,
            Some(ErrorPage::File(page)) => Some(page.clone()),
            Some(ErrorPage::Path(path)) => self.of_origin(node, path, failed).await,
            Some(ErrorPage::Route(ErrorRoute { to, status })) => {
                let mut context = self.again.take()?;
                if matches!(to, Destination::Path(_)) && self.method != Method::HEAD {
                    context.parts.method = Method::GET;
                }
                context.go_on(&node.identifier.load(), (to, "error")).ok()?;
                return Some((context, status.of(response.status())));
            }
        };
        if let Some(page) = page {
            let page = id.and_then(|id| page.naming(id)).unwrap_or(page);
            respond::with_page(response, &page, &self.method);
        }
        None
    }

    async fn of_origin(&self, node: &Arc<Node>, path: &str, failed: bool) -> Option<Page> {
        let context = self.request(node, path)?;
        let place = context.resource.identity().to_owned();
        let born = node.cache.purges.latest();
        let label = Label::new(context.resource.site.id, born);
        let kept = node.pages.get(&node.cache.purges, &place);
        if failed && kept.is_some() {
            return kept;
        }
        let Some(page) = fetch(node, context).await else { return kept };
        if page.body.len() <= LARGEST_KEPT {
            node.pages.keep(place, label, page.clone());
        }
        Some(page)
    }

    /// The request for the page, as a client without any fields would send it.
    fn request(&self, node: &Arc<Node>, path: &str) -> Option<Box<RequestContext>> {
        let request = Request::get(path).header(HOST, &self.host);
        let request = request.header(FORWARDED_PROTO, self.scheme).body(()).ok()?;
        let connection = self.connection.clone();
        let routed =
            node.identifier.load().identify(connection.listener, self.client, &request).ok()?;
        let (parts, ()) = request.into_parts();
        let resource = routed.identified(self.client, &parts);
        let asks_server = resource.answer.is_none();
        asks_server.then(|| Box::new(RequestContext::own(connection, self.client, resource, parts)))
    }
}

/// Fetches the page. Its own errors get no page.
async fn fetch(node: &Arc<Node>, context: Box<RequestContext>) -> Option<Page> {
    let mut record = AccessRecord::of_piece(&node.telemetry);
    let dispatched = node.clone().dispatch(context, &mut record).await;
    let response = dispatched.ok().filter(|response| response.status() == StatusCode::OK)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.ok()?.to_bytes();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let content_type = head.headers.get(CONTENT_TYPE).cloned().unwrap_or(html);
    Some(Page { content_type, body })
}
