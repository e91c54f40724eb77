//! The bytes of a stand-in never reach a client, whatever lies between hyper and the socket.

use std::{
    convert::Infallible,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use levada_http::{
    ConnectionLimits, Guarded, HeadBounds, Ledger, Outlet, Patience, Segments, ZeroCopyChunk,
    ZeroCopyQueue,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

const LIMITS: ConnectionLimits = ConnectionLimits {
    head: HeadBounds { head: 32 << 10, fields: 100 },
    idle_timeout: Duration::from_secs(60),
    head_timeout: Duration::from_secs(60),
    body: TIME_LIMIT,
    send: TIME_LIMIT,
};
const TIME_LIMIT: Patience = Patience { time: Duration::from_secs(60), min_rate: 0 };
/// Bytes of each of the two segments of the body.
const SEGMENT: usize = 100_000;

/// A wrapper around a stream, with vectored writes or without them.
struct Wrapper<S> {
    stream: S,
    vectored: bool,
}

impl<S: AsyncRead + Unpin> AsyncRead for Wrapper<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wrapper<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncWrite + Unpin> Outlet for Wrapper<S> {}

/// Everything that a client gets from a guarded connection whose response is a chunk, with a wrapper
/// between hyper and the guard.
async fn response(vectored: bool) -> Vec<u8> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (ledger, queue) = (Arc::new(Ledger::default()), Arc::new(ZeroCopyQueue::default()));
    let socket = Wrapper { stream: near, vectored: true };
    let guarded = Guarded::new(socket, ledger.clone(), Arc::default(), Some(queue.clone()), LIMITS);
    let service = service_fn(|_: Request<Incoming>| {
        let segments = [(); 2].map(|()| Bytes::from(vec![b'x'; SEGMENT]));
        let chunk = ZeroCopyChunk::Memory(Segments::new(Arc::new(segments), None));
        let stand_in = queue.hand_in(&chunk, 0, u64::MAX).unwrap();
        drop(ledger.begin());
        async { Ok::<_, Infallible>(Response::new(Full::new(stand_in))) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(Wrapper { stream: guarded, vectored }), service);
    let client = async {
        far.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.unwrap();
        bytes
    };
    tokio::join!(async { drop(serving.await) }, client).1
}

#[tokio::test]
async fn chunk_is_sent_in_place_of_its_stand_in() {
    let bytes = response(true).await;
    assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(bytes.ends_with(&[b'x'; 2 * SEGMENT]) && !bytes.contains(&0));
}

#[tokio::test]
async fn stand_in_that_hyper_has_copied_cuts_the_connection() {
    let bytes = response(false).await;
    assert_eq!(bytes.iter().filter(|byte| **byte == 0).count(), 0, "zeros reached the client");
}

#[tokio::test]
#[should_panic = "does not write vectors"]
async fn zero_copy_needs_a_connection_that_writes_vectors() {
    let (near, _far) = tokio::io::duplex(1000);
    let socket = Wrapper { stream: near, vectored: false };
    let queue = Some(Arc::new(ZeroCopyQueue::default()));
    let _ = Guarded::new(socket, Arc::default(), Arc::default(), queue, LIMITS);
}
