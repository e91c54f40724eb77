//! A connection of HTTP/2 must end for the same reason however its bytes are cut into reads, and nothing in them may
//! make it panic.
#![no_main]

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use levada_http::{
    ConnectionEnd, ConnectionLimits, HeadBounds, Http2Service, Http2Tunnel, IncomingBody, Outlet,
    Patience, serve_http2,
};
use levada_net::resting::RestingConnections;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that come in pieces; those that are written are dropped.
struct Stream<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl AsyncRead for Stream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.piece.min(self.rest.len()).min(buffer.remaining());
        let (now, rest) = self.rest.split_at(count);
        buffer.put_slice(now);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Outlet for Stream<'_> {}

/// Echoes bodies.
#[derive(Default)]
struct Echo(RestingConnections);

impl Http2Service for Echo {
    type Body = IncomingBody;

    async fn call(&self, request: Request<IncomingBody>) -> Response<IncomingBody> {
        Response::new(request.into_body())
    }

    fn resting(&self) -> &RestingConnections {
        &self.0
    }

    fn switch(&self, _: &mut Response<IncomingBody>, _: Http2Tunnel) -> bool {
        false
    }
}

fn end(bytes: &[u8], piece: usize) -> ConnectionEnd {
    let timeout = Duration::from_secs(60);
    let patience = Patience { time: timeout, min_rate: 0 };
    let limits = ConnectionLimits {
        head: HeadBounds { head: 1 << 10, fields: 20 },
        idle_timeout: timeout,
        head_timeout: timeout,
        body: patience,
        send: patience,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (stream, echo) = (Stream { rest: bytes, piece }, Echo::default());
    runtime.block_on(serve_http2(stream, &echo, limits, std::future::pending()))
}

fuzz_target!(|input: (Vec<u8>, u8)| {
    let (frames, piece) = input;
    let bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frames].concat();
    assert_eq!(end(&bytes, usize::from(piece) + 1), end(&bytes, usize::MAX));
});
