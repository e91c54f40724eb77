//! The web page of a running cluster: its files, and the stream of server-sent events that they show.
//!
//! ```text
//! files      HTML, style and scripts, embedded; no build step, nothing from elsewhere
//! shown      the state that a page shows: a node's view of its cluster, or a demo's
//! last_seen  the last answers of nodes, with their ages
//! live       the stream: one snapshot per second for all viewers together, events as they happen
//! stalled    ends connections whose viewers do not read
//! ```
//!
//! A node or a demo implements [`Shown`], and asks [`Page::answer`] about each request that it gets.

mod files;
mod last_seen;
mod live;
mod shown;
mod stalled;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use levada_cluster::admin_access::is_of_another_site;

pub use last_seen::LastSeen;
pub use live::MOST_VIEWERS;
pub use shown::{Hello, Orders, SeenNode, Shown, Snapshot, Story, StoryPhase};
pub use stalled::Stalled;

use live::{Live, Viewer};

/// The page of one process.
pub struct Page {
    live: Arc<Live>,
}

impl Page {
    /// The page of what `shown` tells.
    pub fn new(shown: Arc<dyn Shown>) -> Self {
        Self { live: Live::new(shown) }
    }

    /// Tells all viewers that nothing more will come.
    pub fn end(&self) {
        self.live.end();
    }

    /// The answer, if the request is for a part of the page. `orders` says which orders this client may give.
    pub fn answer<B>(&self, request: &Request<B>, orders: Orders) -> Option<Response<PageBody>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return None;
        }
        let (path, headers) = (request.uri().path(), request.headers());
        if path == "/live" {
            return Some(self.stream(request, orders));
        }
        let name = match path {
            "/" if wants_html(headers) => "index.html",
            _ => path.strip_prefix("/page/")?,
        };
        files::answer(name, headers).map(|answer| answer.map(PageBody::Whole))
    }

    fn stream<B>(&self, request: &Request<B>, orders: Orders) -> Response<PageBody> {
        let headers = request.headers();
        // Another site cannot read the stream, but would take a viewer's place.
        if is_of_another_site(headers) {
            return refusal(StatusCode::FORBIDDEN, "another site may not read this\n");
        }
        if request.method() == Method::HEAD {
            return streamed(PageBody::Whole(Full::default()));
        }
        let after = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
        let after = after.or_else(|| request.uri().query()?.strip_prefix("after="));
        match self.live.join(after, orders) {
            Some(viewer) => streamed(PageBody::Live(viewer)),
            None => {
                let text = "there are as many viewers as a node serves; close one of them\n";
                let mut answer = refusal(StatusCode::SERVICE_UNAVAILABLE, text);
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
                answer
            }
        }
    }
}

/// Whether a client prefers a page to plain text. `curl` says `*/*`.
fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|kind| kind.trim().starts_with("text/html"))
}

fn streamed(body: PageBody) -> Response<PageBody> {
    let mut response = Response::new(body);
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    files::guard(fields);
    // Proxies on the way must not collect it (nginx understands the last one).
    fields.insert("cache-control", HeaderValue::from_static("no-store"));
    fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn refusal(status: StatusCode, text: &'static str) -> Response<PageBody> {
    let mut response = Response::new(PageBody::Whole(Full::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

const LAST_EVENT_ID: &str = "last-event-id";

/// The body of an answer: bytes, or a stream without end.
pub enum PageBody {
    /// All at once.
    Whole(Full<Bytes>),
    /// A stream of events.
    Live(Viewer),
}

impl From<Full<Bytes>> for PageBody {
    fn from(whole: Full<Bytes>) -> Self {
        Self::Whole(whole)
    }
}

impl Body for PageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Self::Live(viewer) => viewer.poll_next(cx).map(|next| next.map(|b| Ok(Frame::data(b)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Live(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Live(_) => SizeHint::default(),
        }
    }
}
