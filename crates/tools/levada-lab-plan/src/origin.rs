//! The slow origin: each request waits, and the answer counts the bytes that it sends. Its link has a rate.

use std::{cell::Cell, convert::Infallible, net::TcpListener, rc::Rc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use hyper::body::Body;
use levada_testbed::cluster::server::{accept, body, converse};
use levada_types::Key;
use tokio::{task::spawn_local, time::sleep};

/// The bytes that an origin has sent.
#[derive(Clone, Default)]
pub(crate) struct Sent(Rc<Cell<u64>>);

impl Sent {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.get()
    }
}

/// Serves at a listener until the runtime ends. Each answer begins after this time.
///
/// # Errors
/// If the listener cannot be used.
pub(crate) fn start(listener: TcpListener, latency: Duration) -> anyhow::Result<Sent> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let sent = Sent::default();
    let counted = sent.clone();
    spawn_local(accept(listener, move |stream, _| {
        let sent = counted.clone();
        spawn_local(converse(stream, move |request| {
            let sent = sent.clone();
            async move {
                sleep(latency).await;
                answer(&request, sent)
            }
        }));
    }));
    Ok(sent)
}

fn answer<T>(
    request: &Request<T>,
    sent: Sent,
) -> http::Result<Response<impl Body<Data = Bytes, Error = Infallible> + use<T>>> {
    let path = request.uri().path();
    let size = size(path);
    let status = if size.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let size = size.unwrap_or(0);
    let count = move |bytes: usize| sent.0.set(sent.0.get() + bytes as u64);
    Response::builder()
        .status(status)
        .header(header::CACHE_CONTROL, "public, max-age=86400")
        .header(header::CONTENT_LENGTH, size)
        .body(body(Key::of(path.as_bytes()), 0..size, count))
}

/// The size that ends a path, such as `/file/7/8192`.
fn size(path: &str) -> Option<u64> {
    path.strip_prefix("/file/")?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_the_end_of_the_path() {
        assert_eq!(size("/file/7/8192"), Some(8192));
        for none in ["/file/7", "/file/7/x", "/other/7/1", "/"] {
            assert_eq!(size(none), None, "{none}");
        }
    }
}
