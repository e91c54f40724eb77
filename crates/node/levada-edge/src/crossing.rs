//! The rules of access of a site, at the node that met the client: `levada_access` decides, this carries it out.
//!
//! They hold for requests of clients only. A peer's request was admitted where it came from, and so was one
//! that a peer has redirected here. Purges have a token of their own.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body as _;
use levada_access::{
    access::{Access, AccessAnswer, AccessRequest},
    cors::CorsAnswer,
    pace::Pacer,
    signed::RequestUrl,
};
use levada_cache::RequestCacheFields;
use levada_cluster::events::unix_time;
use levada_cluster::orders::METHOD;
use levada_store::identity::without_port;
use levada_tls::client_certificates;
use levada_upstream::{BodyBound, ServerFailure};

use crate::{
    access_record::AccessRecord,
    body::ResponseBody,
    client_connection::{ClientConnection, ListenerKind},
    node::Node,
    request::RequestContext,
    resource::RoutedRequest,
    respond,
};
use levada_failure::{Failed, Failure, PROXY_STATUS};

/// The rules that hold for a request. Requests without rules pay for a look at one field.
pub(crate) fn rules(context: &mut RequestContext) -> Option<Arc<Access>> {
    let access = context.resource.take_access()?;
    let is_elsewhere = context.connection.listener == ListenerKind::Peer || context.resource.passed;
    let is_purge = context.parts.method.as_str() == METHOD;
    (!is_elsewhere && !is_purge).then_some(access)
}

/// Admits a client to a site that wants certificates, and states its certificate in fields.
pub(crate) fn certified(
    connection: &ClientConnection,
    resource: &RoutedRequest,
    headers: &mut HeaderMap,
) -> Result<(), Failure> {
    let Some(rules) = &resource.site.settings.tls.clients else { return Ok(()) };
    let is_encrypted = match connection.listener {
        ListenerKind::Peer => return Ok(()),
        ListenerKind::Client { tls } => tls,
    };
    // Without TLS, a site may say where it is.
    if !is_encrypted && resource.answer.as_ref().is_some_and(|answer| answer.is_redirect) {
        return Ok(());
    }
    let client = connection.certified.as_deref();
    client_certificates::admit(rules, client, is_encrypted, headers).map_err(Failure::Certificate)
}

/// The part of what a request was granted that its response shows.
pub(crate) struct Granted {
    cors: Option<CorsAnswer>,
    body: Option<BodyBound>,
    /// The rates of the response, each with the bytes that it begins after.
    pacers: Vec<(Arc<Pacer>, u64)>,
}

/// Admits a request, when its turn has come.
///
/// # Errors
/// With the answer, if it goes no further.
pub(crate) async fn cross(
    node: &Node,
    access: &Access,
    context: &mut RequestContext,
    record: &mut AccessRecord,
) -> Result<Granted, Box<AccessAnswer>> {
    let body = bound(access, context)?;
    context.body_bound.clone_from(&body);
    let passage = access.admit(&seen(node, context))?;
    record.places = passage.places;
    if let Some(target) = passage.target {
        context.parts.uri = target.parse().unwrap_or_default();
        let signed_off = context.resource.changed(Some(&target), context.client, &context.parts);
        context.resource = signed_off;
    }
    if !passage.wait.is_zero() {
        tokio::time::sleep(passage.wait).await;
    }
    if let Err(mut answer) = identified(node, access, context).await {
        if let Some(cors) = passage.cors {
            cors.add_to(&mut answer.headers);
        }
        return Err(answer);
    }
    let bandwidth = access.bandwidth();
    let own = bandwidth.connection.map(|rate| (context.connection.pacer(rate), bandwidth.after));
    let site = access.site_pacer().map(|pacer| (pacer.clone(), 0));
    let pacers: Vec<_> = own.into_iter().chain(site).collect();
    if !pacers.is_empty() {
        // The kernel would send at its own rate.
        context.zero_copy = None;
    }
    Ok(Granted { cors: passage.cors, body, pacers })
}

/// Asks who sends the request: by a password, or another server.
async fn identified(
    node: &Node,
    access: &Access,
    context: &mut RequestContext,
) -> Result<(), Box<AccessAnswer>> {
    if !access.asks_for_password() && !access.asks_server() {
        return Ok(());
    }
    if access.asks_for_password() {
        access.knows(&context.parts.headers).await?;
        // It was for this node. With it, no cache may store the response (RFC 9111 Sec. 3.5).
        context.parts.headers.remove(header::AUTHORIZATION);
    }
    if access.asks_server() {
        let answer = access.ask(&seen(node, context)).await?;
        access.copy_fields(&answer, &mut context.parts.headers);
        context.resource = context.resource.changed(None, context.client, &context.parts);
    }
    context.wants = RequestCacheFields::of(&context.parts.headers);
    Ok(())
}

/// The bound of the request's body; an error if its length is known to exceed it.
fn bound(
    access: &Access,
    context: &RequestContext,
) -> Result<Option<BodyBound>, Box<AccessAnswer>> {
    let Some((most, body)) = access.max_body().zip(context.body.as_ref()) else { return Ok(None) };
    if body.size_hint().lower() > most {
        return Err(AccessAnswer::body_too_large());
    }
    Ok(Some(BodyBound::new(most)))
}

fn seen<'a>(node: &Node, context: &'a RequestContext) -> AccessRequest<'a> {
    let RequestContext { resource, parts, .. } = context;
    AccessRequest {
        client: context.client,
        host: without_port(resource.host()),
        url: RequestUrl {
            scheme: resource.scheme(),
            host: resource.host(),
            target: resource.target(),
        },
        method: &parts.method,
        headers: &parts.headers,
        now: node.clock.now().0,
        unix: unix_time() as u64,
        nodes: node.peers.as_ref().map_or(1, |peers| peers.now().nodes_up()),
    }
}

impl Granted {
    /// Gives the response its fields and its rates.
    pub(crate) fn add_to(self, response: &mut Response<ResponseBody>) {
        for (pacer, free) in &self.pacers {
            response.body_mut().slow_down_to(pacer, *free);
        }
        if let Some(cors) = self.cors {
            cors.add_to(response.headers_mut());
        }
    }

    /// The failure of a request, which may be due to its bound.
    pub(crate) fn failed(self, failed: Failed) -> Failed {
        let is_upload = failed.failure == Failure::Server(ServerFailure::RequestBody);
        match self.body {
            Some(bound) if is_upload && bound.is_exceeded() => Failure::BodyTooLarge.into(),
            _ => failed,
        }
    }
}

/// The answer in place of a response.
pub(crate) fn answer(
    node: &Node,
    client: IpAddr,
    answer: AccessAnswer,
    record: &mut AccessRecord,
) -> Response<ResponseBody> {
    let AccessAnswer { status, headers, text, body, reason } = answer;
    if let Some(reason) = reason {
        record.refused(client, status, reason);
    }
    let mut response = match (reason, body) {
        (None, body) | (_, body @ Some(_)) => {
            let mut response = Response::new(ResponseBody::text(body.unwrap_or_default()));
            *response.status_mut() = status;
            response
        }
        (Some(_), None) => {
            let mut response = respond::plain(status, format!("{status}: {text}\n"));
            let fields = response.headers_mut();
            fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            let denied = format!("{}; error=http_request_denied", node.name.token);
            fields.extend(HeaderValue::try_from(denied).map(|value| (PROXY_STATUS, value)));
            response
        }
    };
    response.headers_mut().extend(headers);
    response
}
