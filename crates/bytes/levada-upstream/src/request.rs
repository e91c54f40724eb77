//! The head of a request to a server, and the facts that policies and queues go by.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{CONNECTION, TE},
};
use levada_http::Interim;
use levada_observe::otel::Trace;
use levada_types::{Key, ServiceClass};

use crate::WaitNotices;

/// The head of a request to a server. It is kept, so that another try can send it again.
#[derive(Clone)]
pub struct UpstreamHead {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The header fields.
    pub headers: HeaderMap,
    /// The client that the request counts for where clients take turns.
    pub client: IpAddr,
    /// The address that the PROXY protocol states; `None`: the node speaks for itself.
    pub stated_client: Option<IpAddr>,
    /// The request as a policy sees it that chooses among servers.
    pub subject: Subject,
    /// Receives interim responses.
    pub interim: Option<Interim>,
    /// Receives notices that the request waits for its turn at the origin, instead.
    pub notices: Option<Arc<WaitNotices>>,
    /// Whether the client takes the trailers of the response.
    pub takes_trailers: bool,
    /// The trace of the request, if it is traced.
    pub trace: Option<Arc<Trace>>,
    /// How it is sent to a node that is asked before the origin, if one may be.
    pub at_shield: Option<Arc<AtNode>>,
    /// The `Sec-WebSocket-Accept` of a server that switches to WebSocket, if the request asks for that.
    pub websocket: Option<HeaderValue>,
}

/// The parts of a request that are others to a node of this CDN than to the origin.
#[derive(Debug)]
pub struct AtNode {
    /// Path and query, where they are others.
    pub uri: Option<Uri>,
    /// Fields that take the place of those that the origin gets; `None` removes one.
    pub fields: Vec<(HeaderName, Option<HeaderValue>)>,
    /// Receives notices that the request waits for its turn at the origin.
    pub notices: Option<Arc<WaitNotices>>,
    /// Whether a second request costs the origin more than the head of a response.
    pub is_costly: bool,
}

impl AtNode {
    /// Gives a request this form.
    pub fn address(&self, head: &mut UpstreamHead) {
        let Self { uri, fields, notices, .. } = self;
        uri.iter().for_each(|uri| head.uri.clone_from(uri));
        head.notices.clone_from(notices);
        for (name, value) in fields {
            match value {
                Some(value) => head.headers.insert(name, value.clone()),
                None => head.headers.remove(name),
            };
        }
    }
}

/// A request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Tells objects apart.
    pub key: Key,
    /// The service class.
    pub class: ServiceClass,
    /// The rule that gave the class.
    pub rule: Option<u32>,
}

impl Default for Subject {
    /// A request that no policy sees.
    fn default() -> Self {
        Self { key: Key(0), class: ServiceClass::Normal, rule: None }
    }
}

impl UpstreamHead {
    /// A plain GET.
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            uri: path.parse().unwrap_or_default(),
            headers: HeaderMap::new(),
            client: Ipv4Addr::UNSPECIFIED.into(),
            stated_client: None,
            subject: Subject::default(),
            interim: None,
            notices: None,
            takes_trailers: false,
            trace: None,
            at_shield: None,
            websocket: None,
        }
    }

    /// The fields of the request over HTTP/1.1.
    pub(crate) fn over_http1(&self) -> Cow<'_, HeaderMap> {
        if !self.takes_trailers {
            return Cow::Borrowed(&self.headers);
        }
        let mut headers = self.headers.clone();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
        Cow::Owned(headers)
    }
}

/// Passes an interim response on, without the fields of the connection that it came by.
pub(crate) fn pass_interim(interim: &Interim, status: StatusCode, headers: &HeaderMap) {
    let mut headers = headers.clone();
    levada_cache::strip_response(&mut headers);
    interim.pass(status, &headers);
}
