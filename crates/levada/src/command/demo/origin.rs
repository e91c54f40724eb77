//! The origin: serves every object of the trace from this process, on loopback, and counts.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use levada_testbed::cluster::server::{accept, body, converse, text};
use tokio::net::TcpListener;

use super::catalog::Catalog;

/// The running origin.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    served: Arc<OriginCounts>,
}

#[derive(Default)]
struct OriginCounts {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Requests and bytes that an origin served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl Origin {
    /// Listens on a free port and serves until the runtime ends.
    ///
    /// # Errors
    /// If no port is free.
    pub(super) async fn start(catalog: Arc<Catalog>) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
        let (address, served) = (listener.local_addr()?, Arc::new(OriginCounts::default()));
        let counted = served.clone();
        // Killed nodes break their connections. The demo expects that, so it is no error.
        tokio::spawn(accept(listener, move |stream, _| {
            let (catalog, counted) = (catalog.clone(), counted.clone());
            tokio::spawn(converse(stream, move |request| {
                let response = answer(&catalog, &counted, &request);
                async move { Ok::<_, Infallible>(response) }
            }));
        }));
        Ok(Self { address, served })
    }

    /// Objects and bytes of bodies sent so far.
    pub(super) fn count(&self) -> Count {
        Count {
            requests: self.served.requests.load(Relaxed),
            bytes: self.served.bytes.load(Relaxed),
        }
    }
}

fn answer(
    catalog: &Catalog,
    served: &Arc<OriginCounts>,
    request: &Request<Incoming>,
) -> Response<Either<Full<Bytes>, impl Body<Data = Bytes, Error = Infallible> + use<>>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return page(StatusCode::METHOD_NOT_ALLOWED, "only GET\n").map(Either::Left);
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let Some(object) = catalog.find(target) else {
        let words = "the origin of the demo has no such object\n";
        return page(StatusCode::NOT_FOUND, words).map(Either::Left);
    };
    served.requests.fetch_add(1, Relaxed);
    let etag = format!("\"{:016x}\"", object.key.0);
    let known = request.headers().get(header::IF_NONE_MATCH);
    let unchanged = known.is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let sent = if unchanged || *request.method() == Method::HEAD { 0 } else { object.size };
    let served = served.clone();
    let mut response = Response::new(Either::Right(body(object.key, 0..sent, move |bytes| {
        served.bytes.fetch_add(bytes as u64, Relaxed);
    })));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, etag);
    }
    match unchanged {
        true => *response.status_mut() = StatusCode::NOT_MODIFIED,
        false => drop(headers.insert(header::CONTENT_LENGTH, HeaderValue::from(object.size))),
    }
    response
}

fn page(status: StatusCode, words: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(status, words);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
