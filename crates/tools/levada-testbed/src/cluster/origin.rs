//! The origin of the load: the newest version of every object, whole or by range (RFC 9110, Sec. 14).

use std::{
    cell::Cell,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    ops::Range,
    rc::Rc,
};

use anyhow::Context as _;
use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{self, HeaderName},
};
use hyper::body::Body;
use levada_types::Key;
use tokio::{net::TcpListener, task::spawn_local};

use super::{
    objects::{Objects, VersionedObject},
    server::{accept, body, converse},
};

/// The beginning of paths at which it never answers.
pub const SILENT: &str = "/silent/";

/// The requests that the origin has at the same time.
#[derive(Default)]
pub struct Asked {
    now: Cell<usize>,
    most: Cell<usize>,
}

/// One of them, until it is dropped.
struct OneAsked(Rc<Asked>);

impl Asked {
    /// The most there were.
    pub fn most(&self) -> usize {
        self.most.get()
    }

    fn one(self: &Rc<Self>) -> OneAsked {
        self.now.set(self.now.get() + 1);
        self.most.set(self.most.get().max(self.now.get()));
        OneAsked(self.clone())
    }
}

impl Drop for OneAsked {
    fn drop(&mut self) {
        self.0.now.set(self.0.now.get() - 1);
    }
}

/// Serves on a free port until the runtime ends; returns its address.
///
/// # Errors
/// If no port is free.
pub async fn start(
    address: IpAddr,
    objects: Rc<Objects>,
) -> anyhow::Result<(SocketAddr, Rc<Asked>)> {
    let listener = TcpListener::bind((address, 0)).await.context("the origin cannot listen")?;
    let address = listener.local_addr()?;
    let counted = Rc::<Asked>::default();
    let asked = counted.clone();
    spawn_local(accept(listener, move |stream, _| {
        let (objects, asked) = (objects.clone(), asked.clone());
        spawn_local(converse(stream, move |request| {
            let (objects, one) = (objects.clone(), asked.one());
            async move {
                let _one = one;
                if request.uri().path().starts_with(SILENT) {
                    std::future::pending::<()>().await;
                }
                answer(&objects, &request)
            }
        }));
    }));
    Ok((address, counted))
}

fn answer<T>(
    objects: &Objects,
    request: &Request<T>,
) -> http::Result<Response<impl Body<Data = Bytes, Error = Infallible> + use<T>>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let Some(object) = objects.find(request.uri().path()).filter(|_| is_read) else {
        return Response::builder().status(StatusCode::NOT_FOUND).body(body(Key(0), 0..0, drop));
    };
    let version = object.newest();
    let etag = object.etag(version);
    let (status, range) = part(object, &etag, request.headers());
    let mut response = Response::builder()
        .status(status)
        .header(header::ETAG, etag)
        .header(header::CACHE_CONTROL, "public, max-age=3600")
        .header(header::ACCEPT_RANGES, "bytes");
    if status != StatusCode::NOT_MODIFIED {
        response = response.header(header::CONTENT_LENGTH, range.end - range.start);
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let text = format!("bytes {}-{}/{}", range.start, range.end - 1, object.size);
        response = response.header(header::CONTENT_RANGE, text);
    }
    response.body(body(object.key(version), range, drop))
}

/// The status, and the bytes of the response's body.
fn part(object: &VersionedObject, etag: &str, fields: &HeaderMap) -> (StatusCode, Range<u64>) {
    let field = |name: HeaderName| fields.get(name).and_then(|value| value.to_str().ok());
    if field(header::IF_NONE_MATCH) == Some(etag) {
        return (StatusCode::NOT_MODIFIED, 0..0);
    }
    let same = field(header::IF_RANGE).is_none_or(|tag| tag == etag);
    let range = field(header::RANGE).filter(|_| same);
    match range.and_then(|range| asked(range, object.size)) {
        Some(range) => (StatusCode::PARTIAL_CONTENT, range),
        None => (StatusCode::OK, 0..object.size),
    }
}

/// The bytes of a field with one range. All other ranges are ignored, as a server may.
fn asked(range: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first, last) {
        ("", length) => size.saturating_sub(length.parse().ok()?)..size,
        (first, "") => first.parse().ok()?..size,
        (first, last) => first.parse().ok()?..size.min(last.parse::<u64>().ok()?.checked_add(1)?),
    };
    (range.start < range.end).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_rfc_9110() {
        assert_eq!(asked("bytes=0-0", 10), Some(0..1));
        assert_eq!(asked("bytes=3-", 10), Some(3..10));
        assert_eq!(asked("bytes=3-99", 10), Some(3..10));
        assert_eq!(asked("bytes=-4", 10), Some(6..10));
        for none in ["bytes=10-", "bytes=5-4", "bytes=0-1,3-4", "items=0-1", "bytes=x-", "bytes=-0"]
        {
            assert_eq!(asked(none, 10), None, "{none}");
        }
    }
}
