//! The responses of streams, whose bodies have their turns.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use http::{HeaderMap, Response, header::CONTENT_LENGTH};
use http_body::Body as _;
use tokio::io::AsyncRead;

use super::{
    super::{
        answer,
        frame::{self, ErrorCode, FrameHead, LONGEST, flag, kind},
        streams::{Answer, Outflow, Outgoing, Stream},
        tunnel::tunnel,
    },
    Http2Connection, Http2Service,
    receive::CREDIT,
};
use crate::{patience::SendStall, server::Outlet};

/// Pieces of bodies are copied behind the heads of their frames up to this length.
const SHORT: usize = 4 << 10;

/// The state of a body after its turn.
enum Turn {
    /// It has another one.
    More,
    /// The window of the connection is used up.
    Full,
    /// None, until something has happened.
    Over,
}

impl<'s, S, V> Http2Connection<'s, S, V>
where
    S: AsyncRead + Outlet + Unpin,
    V: Http2Service,
{
    /// Sends the head of a response, and the first part of its body.
    pub(super) fn respond(&mut self, at: usize, mut response: Response<V::Body>) {
        let Some((stream, _)) = self.streams.get(at) else { return };
        let (id, mut switched) = (stream.id, None);
        if let Some(body) = stream.tunnel_body.take() {
            let (client, end) = tunnel(body);
            if self.service.switch(&mut response, client) {
                response.headers_mut().remove(CONTENT_LENGTH);
                switched = Some(end);
            }
        }
        let (head, mut body) = response.into_parts();
        let fields = self.service.written_fields(&mut body);
        let is_over = answer::has_no_body(&stream.method, head.status) || body.is_end_stream();
        let ends = is_over && switched.is_none();
        let length = if is_over { None } else { body.size_hint().exact() };
        self.wire.queue.write(|to| {
            frame::write_block(to, id, if ends { flag::END_STREAM } else { 0 }, |block| {
                self.settings.begin_block(block);
                answer::write_head(block, &head, fields.as_deref(), length);
            });
        });
        self.credit = (self.credit + 1).min(CREDIT);
        stream.answer = match ends {
            true => Answer::Sent(None),
            false => Answer::Sending(Outflow::new(match switched {
                Some(end) => Outgoing::Tunnel(end),
                None => Outgoing::Body(body),
            })),
        };
        self.recycle(head.headers);
        match ends {
            true => self.finish(at),
            false => self.turns.push_back(at),
        }
    }

    fn recycle(&mut self, mut headers: HeaderMap) {
        headers.clear();
        if headers.capacity() <= 64 {
            self.spare = headers;
        }
    }

    /// Sends from all bodies in turn, a frame of each.
    pub(super) fn send_bodies(&mut self) {
        while self.wire.queue.has_room()
            && let Some(at) = self.turns.pop_front()
        {
            match self.send_part(at) {
                Turn::More => self.turns.push_back(at),
                Turn::Full => {
                    self.turns.push_front(at);
                    break;
                }
                Turn::Over => {}
            }
        }
        let is_stalled = self.blocked > 0 || (self.window.left() == 0 && !self.turns.is_empty());
        let begin = || SendStall::begin(&self.wire.limits.send, self.clocks.now);
        match is_stalled {
            true => drop(self.clocks.stalled.get_or_insert_with(begin)),
            false => self.clocks.stalled = None,
        }
    }

    /// Sends a frame of a response's body.
    fn send_part(&mut self, at: usize) -> Turn {
        let Some((stream, waker)) = self.streams.get(at) else { return Turn::Over };
        let Answer::Sending(download) = &mut stream.answer else { return Turn::Over };
        let mut cx = Context::from_waker(waker);
        let filled = catch_unwind(AssertUnwindSafe(|| download.poll_fill(&mut cx)));
        match filled {
            Ok(Poll::Ready(Ok(()))) => {}
            Ok(Poll::Pending) => {
                download.waits = true;
                return Turn::Over;
            }
            Ok(Poll::Ready(Err(()))) | Err(_) => {
                let is_tunnel = matches!(download.body, Outgoing::Tunnel(_));
                let code = if is_tunnel { ErrorCode::Cancel } else { ErrorCode::InternalError };
                self.reset_stream(at, code);
                return Turn::Over;
            }
        }
        let windows = (self.window.left(), stream.window.left());
        let count = download.piece.len().min(LONGEST).min(windows.0).min(windows.1);
        if count == 0 && !download.piece.is_empty() {
            if windows.0 == 0 && windows.1 > 0 {
                return Turn::Full;
            }
            stream.is_blocked = true;
            self.blocked += usize::from(matches!(download.body, Outgoing::Body(_)));
            return Turn::Over;
        }
        self.window.sent(count);
        if count > 0 {
            self.idle_frames.0 = 0;
        }
        stream.window.sent(count);
        let part = download.piece.split_to(count);
        let is_last = download.ends && download.piece.is_empty();
        let ends = is_last && download.trailers.is_none();
        let (id, flags) = (stream.id, if ends { flag::END_STREAM } else { 0 });
        let queue = &mut self.wire.queue;
        if count > 0 || ends {
            let head = FrameHead { length: count, kind: kind::DATA, flags, stream: id };
            queue.write(|to| {
                to.extend_from_slice(&head.to_bytes());
                if count <= SHORT {
                    to.extend_from_slice(&part);
                }
            });
            if count > SHORT {
                queue.push(part);
            }
        }
        if !is_last {
            return Turn::More;
        }
        if let Some(trailers) = download.trailers.take() {
            queue.write(|to| {
                frame::write_block(to, id, flag::END_STREAM, |block| {
                    self.settings.begin_block(block);
                    answer::write_fields(block, &trailers);
                });
            });
        }
        let download = std::mem::replace(&mut stream.answer, Answer::Sent(None));
        if let Answer::Sending(Outflow { body: Outgoing::Tunnel(end), .. }) = download {
            stream.answer = Answer::Sent(Some(end));
        }
        self.finish(at);
        Turn::Over
    }

    /// Ends a stream whose response is sent. A request body that is still on its way is not wanted any more
    /// (RFC 9113 Sec. 8.1), unless it belongs to a tunnel.
    pub(super) fn finish(&mut self, at: usize) {
        let Some((stream, waker)) = self.streams.get(at) else { return };
        let id = stream.id;
        let has_ended = stream.upload.has_ended;
        if let Answer::Sent(Some(tunnel)) = &stream.answer
            && tunnel.poll_gone(&mut Context::from_waker(waker)).is_pending()
        {
            return;
        }
        self.remove(at);
        if !has_ended {
            self.write_reset(id, ErrorCode::NoError);
        }
    }
}

/// Lets a stream send again that has waited for its window.
pub(super) fn unblock<B>(
    stream: &mut Stream<'_, B>,
    at: usize,
    turns: &mut VecDeque<usize>,
    blocked: &mut usize,
) {
    if stream.window.left() == 0 || !std::mem::take(&mut stream.is_blocked) {
        return;
    }
    if let Answer::Sending(download) = &stream.answer {
        *blocked -= usize::from(matches!(download.body, Outgoing::Body(_)));
        turns.push_back(at);
    }
}
