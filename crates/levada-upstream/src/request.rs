//! The head of a request to a server, and the facts that policies and queues go by.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use levada_http1::Interim;
use levada_types::{Key, ServiceClass};

use crate::RequestBody;

/// The head of a request to a server. It is kept, so that another try can send it again.
#[derive(Clone)]
pub struct UpstreamHead {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The header fields.
    pub headers: HeaderMap,
    /// The version of HTTP.
    pub version: Version,
    /// The client that the request counts for where clients take turns.
    pub client: IpAddr,
    /// The address that the PROXY protocol states; `None`: the node speaks for itself.
    pub stated_client: Option<IpAddr>,
    /// The request as a policy sees it that chooses among servers.
    pub subject: Subject,
    /// Receives interim responses.
    pub interim: Option<Interim>,
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
            version: Version::HTTP_11,
            client: Ipv4Addr::UNSPECIFIED.into(),
            stated_client: None,
            subject: Subject::default(),
            interim: None,
        }
    }

    /// The request of this head, as the HTTP/2 client takes it.
    pub(crate) fn with(&self, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        *request.version_mut() = self.version;
        if let Some(interim) = self.interim.clone() {
            hyper::ext::on_informational(&mut request, move |response| {
                pass_interim(&interim, response.status(), response.headers());
            });
        }
        request
    }
}

/// Passes an interim response on, without the fields of the connection that it came by.
pub(crate) fn pass_interim(interim: &Interim, status: StatusCode, headers: &HeaderMap) {
    let mut headers = headers.clone();
    levada_cache::strip_response(&mut headers);
    interim.pass(status, &headers);
}
