//! A request on its way out: its head, then its body piece by piece.

use std::{
    io::{self, IoSlice, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body;
use tokio::io::AsyncWrite;

use super::{Io, UpstreamRequest};

/// The part of a request that is still to be sent.
pub(super) struct OutgoingRequest<B> {
    /// The head, or a chunk.
    lines: Vec<u8>,
    /// How many of those bytes were sent.
    sent: usize,
    /// A piece of a body that is not chunked, after them.
    piece: Bytes,
    body: Option<(B, Length)>,
    /// Whether a byte was sent, or the body asked for one.
    begun: bool,
}

enum Length {
    /// This many bytes are to come.
    Counted(u64),
    Chunked,
}

/// The reason why a request cannot be sent to its end.
pub(super) enum Halt {
    /// Its body broke off, or differs from the stated length.
    Body,
    /// The server does not take it.
    Wire,
}

impl<B> Default for OutgoingRequest<B> {
    fn default() -> Self {
        Self { lines: Vec::new(), sent: 0, piece: Bytes::new(), body: None, begun: false }
    }
}

impl<B: Body<Data = Bytes> + Unpin> OutgoingRequest<B> {
    /// Writes the head. This connection frames the body by itself.
    pub(super) fn begin(&mut self, head: &UpstreamRequest<'_>, body: B) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let root = if target.starts_with(['/', '*']) { "" } else { "/" };
        for part in [head.method.as_str(), " ", root, target, " HTTP/1.1\r\n"] {
            lines.extend_from_slice(part.as_bytes());
        }
        let mut has_length = false;
        for (name, value) in head.headers {
            if *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING {
                has_length = true;
                continue;
            }
            write_field(&mut lines, name, value);
        }
        let length = body.size_hint().exact().map_or(Length::Chunked, Length::Counted);
        match length {
            Length::Counted(0) if !has_length => {}
            // Writing to a vector cannot fail.
            Length::Counted(count) => drop(write!(lines, "content-length: {count}\r\n")),
            Length::Chunked => lines.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        lines.extend_from_slice(b"\r\n");
        *self = Self { lines, body: Some((body, length)), ..Self::default() };
    }

    /// Ready when all of it was sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, io: &mut Io) -> Poll<Result<(), Halt>> {
        loop {
            ready!(self.poll_write(cx, io)).map_err(|_| Halt::Wire)?;
            let Some((body, length)) = &mut self.body else { return Poll::Ready(Ok(())) };
            self.begun = true;
            let Some(frame) = ready!(Pin::new(body).poll_frame(cx)) else {
                match length {
                    Length::Counted(0) => {}
                    Length::Counted(_) => return Poll::Ready(Err(Halt::Body)),
                    Length::Chunked => self.lines.extend_from_slice(b"0\r\n\r\n"),
                }
                self.body = None;
                continue;
            };
            let piece = match frame.map_err(|_| Halt::Body)?.into_data() {
                Ok(piece) => piece,
                Err(frame) => {
                    // After a body of known length there is no place for them.
                    if let (Length::Chunked, Ok(trailers)) = (&length, frame.into_trailers()) {
                        self.lines.extend_from_slice(b"0\r\n");
                        write_fields(&mut self.lines, &trailers);
                        self.lines.extend_from_slice(b"\r\n");
                        self.body = None;
                    }
                    continue;
                }
            };
            match length {
                Length::Counted(left) => {
                    *left = left.checked_sub(piece.len() as u64).ok_or(Halt::Body)?;
                    if *left == 0 {
                        self.body = None;
                    }
                    self.piece = piece;
                }
                // An empty chunk would be the last one.
                Length::Chunked if piece.is_empty() => {}
                Length::Chunked => {
                    let _ = write!(self.lines, "{:x}\r\n", piece.len());
                    self.lines.extend_from_slice(&piece);
                    self.lines.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, io: &mut Io) -> Poll<io::Result<()>> {
        if self.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        let mut io = Pin::new(io);
        while self.sent < self.lines.len() || !self.piece.is_empty() {
            let lines = &self.lines[self.sent..];
            let count = if self.piece.is_empty() {
                ready!(io.as_mut().poll_write(cx, lines))?
            } else {
                let slices = [IoSlice::new(lines), IoSlice::new(&self.piece)];
                ready!(io.as_mut().poll_write_vectored(cx, &slices))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.begun = true;
            let of_lines = count.min(lines.len());
            self.sent += of_lines;
            self.piece.advance(count - of_lines);
        }
        ready!(io.poll_flush(cx))?;
        self.lines.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Sends nothing more.
    pub(super) fn give_up(&mut self) {
        *self = Self { begun: self.begun, ..Self::default() };
    }

    fn is_flushed(&self) -> bool {
        self.lines.is_empty() && self.piece.is_empty()
    }

    pub(super) fn is_done(&self) -> bool {
        self.body.is_none() && self.is_flushed()
    }

    /// Whether no byte was sent.
    pub(super) fn is_untouched(&self) -> bool {
        !self.begun
    }

    /// The body, if nothing was sent.
    pub(super) fn take_back(&mut self) -> Option<B> {
        let body = self.body.take_if(|_| !self.begun);
        body.map(|(body, _)| body)
    }
}

fn write_fields(lines: &mut Vec<u8>, fields: &HeaderMap) {
    fields.iter().for_each(|(name, value)| write_field(lines, name, value));
}

#[inline]
fn write_field(lines: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    // One by one: parts of a known length are copied without a call.
    lines.extend_from_slice(name.as_str().as_bytes());
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value.as_bytes());
    lines.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
    use http_body_util::{BodyExt as _, Full};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixStream,
    };

    use super::*;
    use crate::client::UpstreamConnection;

    /// The bytes by which a request with this body goes to a server, which answers when `end` has come.
    async fn sent<B: Body<Data = Bytes> + Unpin>(body: B, end: &[u8]) -> String {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = UpstreamConnection::new(Io::Unix(ours), 100);
        let length = HeaderValue::from_static("7");
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, length)]);
        let (method, uri) = (&Method::PUT, &Uri::from_static("http://a.test/x?y"));
        let request = UpstreamRequest { method, uri, headers: &headers };
        let asking = async {
            let timeout = Duration::from_secs(20);
            connection.ask(&request, body, timeout, || false, |_, _| {}).await.unwrap()
        };
        let serving = async {
            let mut received = Vec::new();
            while !received.ends_with(end) {
                assert_ne!(theirs.read_buf(&mut received).await.unwrap(), 0);
            }
            theirs.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            String::from_utf8(received).unwrap()
        };
        let (answer, received) = tokio::join!(asking, serving);
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        assert!(connection.rest(), "another request may follow");
        received
    }

    #[tokio::test]
    async fn body_goes_out_as_it_is_or_in_chunks_if_its_length_is_unknown() {
        let head = "PUT /x?y HTTP/1.1\r\n";
        // More than a socket takes at once.
        let long = "0123456789abcde\n".repeat(1 << 16);
        for body in ["hello", &long] {
            let (bytes, length) = (Full::new(Bytes::from(body.to_owned())), body.len());
            let received = sent(bytes.clone(), body.as_bytes()).await;
            assert!(received == format!("{head}content-length: {length}\r\n\r\n{body}"));
            let received = sent(bytes.map_frame(|frame| frame), b"\r\n0\r\n\r\n").await;
            let chunked = "transfer-encoding: chunked\r\n\r\n";
            assert!(received == format!("{head}{chunked}{length:x}\r\n{body}\r\n0\r\n\r\n"));
        }
        let received = sent(Full::new(Bytes::new()), b"\r\n\r\n").await;
        assert_eq!(received, format!("{head}content-length: 0\r\n\r\n"));
    }
}
