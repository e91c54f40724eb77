//! The origin: serves every object of the trace from this process, on loopback, and counts.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use levada_client::command::content;
use levada_types::Key;
use tokio::net::{TcpListener, TcpStream};

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
        let address = listener.local_addr()?;
        let served = Arc::new(OriginCounts::default());
        tokio::spawn(accept(listener, catalog, served.clone()));
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

async fn accept(listener: TcpListener, catalog: Arc<Catalog>, served: Arc<OriginCounts>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(converse(stream, catalog.clone(), served.clone()));
    }
}

async fn converse(stream: TcpStream, catalog: Arc<Catalog>, served: Arc<OriginCounts>) {
    let service = service_fn(|request| {
        let response = answer(&catalog, &served, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    // Killed nodes break their connections. The demo expects that, so it is no error.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(
    catalog: &Catalog,
    served: &Arc<OriginCounts>,
    request: &Request<Incoming>,
) -> Response<Content> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return page(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let Some(object) = catalog.find(target) else {
        return page(
            StatusCode::NOT_FOUND,
            "the origin of the demo has no such object\n".to_owned(),
        );
    };
    served.requests.fetch_add(1, Relaxed);
    let etag = format!("\"{:016x}\"", object.key.0);
    let known = request.headers().get(header::IF_NONE_MATCH);
    let unchanged = known.is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let content = match unchanged || *request.method() == Method::HEAD {
        true => Content::Nothing,
        false => {
            Content::Object { key: object.key, at: 0, size: object.size, served: served.clone() }
        }
    };
    let mut response = Response::new(content);
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

fn page(status: StatusCode, text: String) -> Response<Content> {
    let mut response = Response::new(Content::Page(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The body of a response of the origin.
enum Content {
    Nothing,
    Page(Bytes),
    /// An object, generated while it is sent.
    Object {
        key: Key,
        at: u64,
        size: u64,
        served: Arc<OriginCounts>,
    },
}

/// The wait before the next connection is accepted when no file handles are left: others end meanwhile.
pub(super) const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Bytes generated at a time.
const PIECE: u64 = 64 << 10;

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Nothing => Bytes::new(),
            Self::Page(text) => std::mem::take(text),
            Self::Object { key, at, size, served } => {
                let mut piece = vec![0; PIECE.min(*size - *at) as usize];
                content::write(*key, *at, &mut piece);
                *at += piece.len() as u64;
                served.bytes.fetch_add(piece.len() as u64, Relaxed);
                piece.into()
            }
        };
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Page(text) => text.is_empty(),
            Self::Object { at, size, .. } => at == size,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Nothing => 0,
            Self::Page(text) => text.len() as u64,
            Self::Object { at, size, .. } => size - at,
        })
    }
}
