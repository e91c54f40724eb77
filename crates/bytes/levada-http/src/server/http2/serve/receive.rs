//! The frames of a client (RFC 9113 Sec. 6), and the bounds of those that cost more than they bring.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::StatusCode;
use http_body::Frame;
use tokio::io::AsyncRead;

use super::{
    super::{
        frame::{self, ErrorCode, FrameHead, HEAD, LAST_STREAM, LONGEST, PREFACE, flag, kind},
        head::{BadHead, HeadBuilder},
        hpack::encoder::write_status,
        streams::{self, Answer},
    },
    Http2Connection, Http2Service,
    clocks::{Departure, LEAVING_PING},
    send::unblock,
};
use crate::server::Outlet;

/// The beginning of a header block.
pub(super) struct HeaderBlock {
    pub(super) head: FrameHead,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: usize,
    pub(super) is_good: bool,
}

/// The client has broken the protocol.
pub(super) enum FrameFault {
    /// On one stream.
    Stream(u32, ErrorCode),
    Connection(ErrorCode),
}

impl From<ErrorCode> for FrameFault {
    fn from(code: ErrorCode) -> Self {
        Self::Connection(code)
    }
}

/// Streams that a client may have reset before they were answered, and those that this side resets because of a fault,
/// beyond one for each that was answered (CVE-2023-44487, CVE-2025-8671).
pub(super) const CREDIT: u32 = 256;
/// Frames that bring nothing, of which a client may send so many in a while as long as nothing else moves.
const IDLE_FRAMES: u32 = 1000;
/// That while.
const IDLE_FRAMES_TIME: Duration = Duration::from_secs(10);
/// Frames of one header block.
const BLOCK_FRAMES: usize = 64;
/// Bytes of a header block, for each byte that a head may have. Such a head is refused by a response.
const BLOCK_SIZE: usize = 4;

impl<S, V> Http2Connection<'_, S, V>
where
    S: AsyncRead + Outlet + Unpin,
    V: Http2Service,
{
    /// Takes the frames that have come as a whole.
    pub(super) fn take_frames(&mut self) -> Result<(), ErrorCode> {
        if self.greeted < PREFACE.len() {
            let rest = &PREFACE[self.greeted..];
            let count = rest.len().min(self.wire.read.len());
            if self.wire.read[..count] != rest[..count] {
                return Err(ErrorCode::ProtocolError);
            }
            self.wire.read.advance(count);
            self.greeted += count;
            if count < rest.len() {
                return Ok(());
            }
        }
        while self.wire.queue.has_room()
            && let Some(head) = FrameHead::read(&self.wire.read)
        {
            if head.length > LONGEST {
                return Err(ErrorCode::FrameSizeError);
            }
            if self.wire.read.len() < HEAD + head.length {
                break;
            }
            let mut read = std::mem::take(&mut self.wire.read);
            let taken = self.take_frame(head, &mut read);
            self.wire.read = read;
            match taken {
                Ok(()) => {}
                Err(FrameFault::Stream(id, code)) => self.refuse_stream(id, code)?,
                Err(FrameFault::Connection(code)) => return Err(code),
            }
        }
        Ok(())
    }

    /// Takes the frame at the beginning of `read` out of it.
    pub(super) fn take_frame(
        &mut self,
        head: FrameHead,
        read: &mut BytesMut,
    ) -> Result<(), FrameFault> {
        if head.kind == kind::DATA && self.block.is_none() {
            let payload = read.split_to(HEAD + head.length).freeze().split_off(HEAD);
            return self.take_data(head, payload);
        }
        let taken = self.take_other(head, &read[HEAD..HEAD + head.length]);
        read.advance(HEAD + head.length);
        taken
    }

    fn take_other(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), FrameFault> {
        let id = head.stream;
        let needs = |is_good: bool, code: ErrorCode| if is_good { Ok(()) } else { Err(code) };
        // Nothing may come within a header block (RFC 9113 Sec. 6.10).
        needs(self.block.is_none() || head.kind == kind::CONTINUATION, ErrorCode::ProtocolError)?;
        if matches!(head.kind, kind::SETTINGS | kind::PING | kind::GOAWAY) {
            needs(id == 0, ErrorCode::ProtocolError)?;
        } else if head.kind < kind::CONTINUATION && head.kind != kind::WINDOW_UPDATE {
            needs(id != 0, ErrorCode::ProtocolError)?;
        }
        match head.kind {
            kind::HEADERS => self.take_headers(head, payload),
            kind::CONTINUATION => self.take_continuation(head, payload),
            kind::PRIORITY => {
                self.note_idle_frame()?;
                match payload.len() == frame::PRIORITY {
                    false => Err(FrameFault::Stream(id, ErrorCode::FrameSizeError)),
                    true if depends_on(payload) == id => {
                        Err(FrameFault::Stream(id, ErrorCode::ProtocolError))
                    }
                    true => Ok(()),
                }
            }
            kind::RST_STREAM => {
                needs(payload.len() == 4, ErrorCode::FrameSizeError)?;
                needs(!self.is_idle(id), ErrorCode::ProtocolError)?;
                self.note_idle_frame()?;
                let ended = self.streams.find(id).and_then(|at| self.remove(at));
                match ended.is_some_and(|stream| matches!(stream.answer, Answer::Awaited(_))) {
                    true => Ok(self.charge()?),
                    false => Ok(()),
                }
            }
            kind::SETTINGS if head.has(flag::ACK) => {
                Ok(needs(payload.is_empty(), ErrorCode::FrameSizeError)?)
            }
            kind::SETTINGS => {
                self.note_idle_frame()?;
                Ok(self.take_settings(payload)?)
            }
            kind::PUSH_PROMISE => Err(ErrorCode::ProtocolError.into()),
            kind::PING => {
                needs(payload.len() == 8, ErrorCode::FrameSizeError)?;
                if !head.has(flag::ACK) {
                    self.note_idle_frame()?;
                    self.wire.queue.write(|to| frame::write(to, kind::PING, flag::ACK, 0, payload));
                } else if payload == LEAVING_PING {
                    self.settle_departure();
                }
                Ok(())
            }
            kind::GOAWAY => {
                self.settle_departure();
                Ok(())
            }
            kind::WINDOW_UPDATE => {
                needs(payload.len() == 4, ErrorCode::FrameSizeError)?;
                self.take_window_update(id, frame::number(payload) & LAST_STREAM)
            }
            // Frames of unknown types mean nothing (RFC 9113 Sec. 5.5).
            _ => Ok(self.note_idle_frame()?),
        }
    }

    fn take_settings(&mut self, payload: &[u8]) -> Result<(), ErrorCode> {
        let before = self.settings.window;
        self.settings.read(payload)?;
        self.wire.queue.write(|to| frame::write(to, kind::SETTINGS, flag::ACK, 0, &[]));
        let change = i64::from(self.settings.window) - i64::from(before);
        for (at, stream) in self.streams.all() {
            if !stream.window.grow(change) {
                return Err(ErrorCode::FlowControlError);
            }
            if change > 0 {
                unblock(stream, at, &mut self.turns, &mut self.blocked);
            }
        }
        Ok(())
    }

    fn take_window_update(&mut self, id: u32, more: u32) -> Result<(), FrameFault> {
        let code = if more == 0 { ErrorCode::ProtocolError } else { ErrorCode::FlowControlError };
        if id == 0 {
            let is_good = more > 0 && self.window.grow(more.into());
            return if is_good { Ok(()) } else { Err(code.into()) };
        }
        if self.is_idle(id) {
            return Err(ErrorCode::ProtocolError.into());
        }
        let Some(at) = self.streams.find(id) else { return Ok(()) };
        let Some((stream, _)) = self.streams.get(at) else { return Ok(()) };
        if more == 0 || !stream.window.grow(more.into()) {
            return Err(FrameFault::Stream(id, code));
        }
        unblock(stream, at, &mut self.turns, &mut self.blocked);
        Ok(())
    }

    fn take_data(&mut self, head: FrameHead, payload: Bytes) -> Result<(), FrameFault> {
        let (id, length) = (head.stream, payload.len());
        if id == 0 || self.is_idle(id) {
            return Err(ErrorCode::ProtocolError.into());
        }
        if !self.received.came(length) {
            return Err(ErrorCode::FlowControlError.into());
        }
        let data = head.unpadded(&payload).ok_or(ErrorCode::ProtocolError)?;
        if data.is_empty() && !head.has(flag::END_STREAM) {
            self.note_idle_frame()?;
        }
        if !data.is_empty() {
            self.idle_frames.0 = 0;
        }
        let data = payload.slice_ref(data);
        let open = self.streams.find(id);
        let Some((stream, _)) = open.and_then(|at| self.streams.get(at)) else {
            self.took(length);
            // It may have been on its way.
            let is_late = id > self.last || self.reset.contains(&id);
            return if is_late {
                Ok(())
            } else {
                Err(FrameFault::Stream(id, ErrorCode::StreamClosed))
            };
        };
        let upload = &mut stream.upload;
        let left = upload.left.map(|left| left.checked_sub(data.len() as u64));
        let fault = if upload.has_ended {
            Some(ErrorCode::StreamClosed)
        } else if !upload.window.came(length) {
            Some(ErrorCode::FlowControlError)
        } else if left == Some(None) || (head.has(flag::END_STREAM) && left > Some(Some(0))) {
            Some(ErrorCode::ProtocolError)
        } else {
            None
        };
        if let Some(code) = fault {
            self.took(length);
            return Err(FrameFault::Stream(id, code));
        }
        upload.left = left.flatten();
        upload.has_ended = head.has(flag::END_STREAM);
        let is_dropped = upload.feed.is_abandoned() && stream.tunnel_body.is_none();
        // Padding is taken at once.
        let dropped = length - if is_dropped { 0 } else { data.len() };
        if !(is_dropped || data.is_empty()) {
            upload.keep(data);
        }
        // A body that is not wanted gets no further window of its own.
        let is_over = is_dropped || upload.has_ended;
        let more = if is_over { None } else { upload.window.took(dropped) };
        self.took(dropped);
        self.tell_window(id, more);
        open.into_iter().for_each(|at| self.streams.wakeups.note(at));
        Ok(())
    }

    fn take_headers(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), FrameFault> {
        let fragment = head.unpadded(payload).ok_or(ErrorCode::ProtocolError)?;
        let priority = &payload[usize::from(head.has(flag::PADDED))..];
        let is_good = !head.has(flag::PRIORITY) || depends_on(priority) != head.stream;
        if head.has(flag::END_HEADERS) {
            return self.take_block(head, fragment, is_good);
        }
        self.block = Some(HeaderBlock { head, bytes: fragment.to_vec(), frames: 1, is_good });
        Ok(())
    }

    fn take_continuation(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), FrameFault> {
        let mut block = self.block.take().ok_or(ErrorCode::ProtocolError)?;
        if block.head.stream != head.stream {
            return Err(ErrorCode::ProtocolError.into());
        }
        block.bytes.extend_from_slice(payload);
        block.frames += 1;
        let most = self.wire.limits.head.head.saturating_mul(BLOCK_SIZE);
        if block.bytes.len() > most || block.frames > BLOCK_FRAMES {
            return Err(ErrorCode::EnhanceYourCalm.into());
        }
        if head.has(flag::END_HEADERS) {
            return self.take_block(block.head, &block.bytes, block.is_good);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Takes a whole header block: the head of a request, or trailers.
    fn take_block(
        &mut self,
        head: FrameHead,
        block: &[u8],
        is_good: bool,
    ) -> Result<(), FrameFault> {
        let (id, ends) = (head.stream, head.has(flag::END_STREAM));
        self.clocks.head_due = None;
        let mut built =
            HeadBuilder::new(std::mem::take(&mut self.spare), self.wire.limits.head.head);
        let decoded = self.decoder.decode(block, |field, size| built.take(field, size));
        decoded.map_err(|_| ErrorCode::CompressionError)?;
        if id % 2 == 0 {
            return Err(ErrorCode::ProtocolError.into());
        }
        if id <= self.last {
            return self.take_trailers(id, ends, built);
        }
        if self.departure == Departure::Settled {
            // The client knows that it is not answered.
            return Ok(());
        }
        (self.last, self.idle_frames.0) = (id, 0);
        if self.streams.open() >= streams::MOST {
            return Err(FrameFault::Stream(id, ErrorCode::RefusedStream));
        }
        match built.end(ends) {
            Ok(request) if is_good => {
                self.begin(id, request, ends);
                Ok(())
            }
            Err(BadHead::TooLarge) if is_good => {
                self.refuse_head(id);
                if ends { Ok(()) } else { Err(FrameFault::Stream(id, ErrorCode::NoError)) }
            }
            _ => Err(FrameFault::Stream(id, ErrorCode::ProtocolError)),
        }
    }

    /// A response that refuses a head.
    fn refuse_head(&mut self, id: u32) {
        self.wire.queue.write(|to| {
            frame::write_block(to, id, flag::END_STREAM, |block| {
                self.settings.begin_block(block);
                write_status(block, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            });
        });
    }

    fn take_trailers(&mut self, id: u32, ends: bool, built: HeadBuilder) -> Result<(), FrameFault> {
        let open = self.streams.find(id);
        let Some((stream, _)) = open.and_then(|at| self.streams.get(at)) else {
            let is_late = self.reset.contains(&id);
            return if is_late { Ok(()) } else { Err(ErrorCode::StreamClosed.into()) };
        };
        let upload = &mut stream.upload;
        if upload.has_ended {
            return Err(FrameFault::Stream(id, ErrorCode::StreamClosed));
        }
        match built.end_trailers() {
            Ok(trailers) if ends && upload.left.unwrap_or(0) == 0 => {
                upload.has_ended = true;
                if !trailers.is_empty() {
                    upload.waiting.push_back(Frame::trailers(trailers));
                }
                open.into_iter().for_each(|at| self.streams.wakeups.note(at));
                Ok(())
            }
            _ => Err(FrameFault::Stream(id, ErrorCode::ProtocolError)),
        }
    }

    /// Whether a stream has not started. One that came too late to be answered has.
    fn is_idle(&self, id: u32) -> bool {
        id > self.last && self.departure != Departure::Settled
    }

    /// Counts a stream that has ended without a response.
    fn charge(&mut self) -> Result<(), ErrorCode> {
        self.credit = self.credit.checked_sub(1).ok_or(ErrorCode::EnhanceYourCalm)?;
        Ok(())
    }

    /// Counts a frame that brings nothing.
    fn note_idle_frame(&mut self) -> Result<(), ErrorCode> {
        let (count, since) = &mut self.idle_frames;
        if self.clocks.now.saturating_duration_since(*since) >= IDLE_FRAMES_TIME {
            (*count, *since) = (0, self.clocks.now);
        }
        *count += 1;
        if *count > IDLE_FRAMES { Err(ErrorCode::EnhanceYourCalm) } else { Ok(()) }
    }

    /// Resets a stream because of the client.
    fn refuse_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        self.streams.find(id).and_then(|at| self.remove(at));
        self.write_reset(id, code);
        match code {
            ErrorCode::NoError | ErrorCode::RefusedStream => Ok(()),
            _ => self.charge(),
        }
    }
}

/// The stream that a priority names.
fn depends_on(priority: &[u8]) -> u32 {
    frame::number(priority) & LAST_STREAM
}
