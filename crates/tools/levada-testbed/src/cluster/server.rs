//! The servers of labs and of the demo: on a free port, with bodies that clients can verify.

use std::{convert::Infallible, net::SocketAddr, ops::Range, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{Full, StreamBody};
use hyper::{
    body::{Body, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use levada_client::command::content;
use levada_types::Key;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

/// Passes connections and their clients' addresses on until the runtime ends.
pub async fn accept(listener: TcpListener, mut converse: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let _ = stream.set_nodelay(true);
                converse(stream, client);
            }
            Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
        }
    }
}

/// Answers the requests of a connection. A broken connection concerns its client only.
pub async fn converse<F, B, E>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

/// A page of plain text.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The bytes of an object, made while they are sent; `sent` gets the length of each piece.
pub fn body(
    key: Key,
    range: Range<u64>,
    mut sent: impl FnMut(usize),
) -> impl Body<Data = Bytes, Error = Infallible> {
    StreamBody::new(stream::unfold(range, move |rest| {
        let mut piece = vec![0; PIECE.min(rest.end - rest.start) as usize];
        content::write(key, rest.start, &mut piece);
        sent(piece.len());
        let next = rest.start + piece.len() as u64..rest.end;
        std::future::ready((!piece.is_empty()).then(|| (Ok(Frame::data(piece.into())), next)))
    }))
}

/// The wait before the next connection is accepted when no file handles are left: others end meanwhile.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// Bytes made at a time.
const PIECE: u64 = 64 << 10;
