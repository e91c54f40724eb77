//! One direction of a tunnel.
//!
//! Bytes are read into a buffer that all tunnels of a thread share, and written at once. Only those that the reader
//! does not take get memory of their own, and while there are any, no more are read. So a tunnel that rests has no
//! buffer, and a slow reader slows its writer down.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use levada_observe::metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::websocket::{FramePosition, frames::goodbye};

/// Bytes that are read at once: what a tunnel holds for a slow reader at most.
const BUFFER: usize = 16 << 10;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// A direction.
pub(crate) struct Way {
    /// Bytes that were read and not written.
    held: Vec<u8>,
    /// How many of these were written.
    at: usize,
    state: WayState,
    /// Whether bytes were written since everything was flushed.
    unflushed: bool,
    frames: FramePosition,
    /// Bytes that have passed.
    pub(crate) passed: u64,
    counter: Counter,
    /// Whether the end that reads it is a server.
    masked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayState {
    Open,
    /// The node has said goodbye in the name of the other end. What still comes is dropped.
    Dismissed,
    /// The writer has ended, and the reader has not learned it yet.
    Ending,
    Ended,
}

/// The end of a tunnel that broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokenEnd {
    Writer,
    Reader,
}

impl Way {
    /// A way to a server or to a client, on which `ahead` has come already.
    pub(crate) fn new(ahead: &[u8], to_server: bool, counter: Counter) -> Self {
        let mut way = Self {
            held: Vec::new(),
            at: 0,
            state: WayState::Open,
            unflushed: false,
            frames: FramePosition::default(),
            passed: 0,
            counter,
            masked: to_server,
        };
        way.note(ahead);
        // A copy: the buffer that they came in may be much larger, and a tunnel lives long.
        way.held = ahead.to_vec();
        way
    }

    fn note(&mut self, bytes: &[u8]) {
        self.frames.feed(bytes);
        if self.state == WayState::Open {
            self.passed += bytes.len() as u64;
            self.counter.inc_by(bytes.len() as u64);
        }
    }

    /// Whether nothing more will pass: the writer has ended, or the tunnel is being closed and it has answered.
    pub(crate) fn is_over(&self) -> bool {
        match self.state {
            WayState::Open | WayState::Ending => false,
            WayState::Dismissed => self.held.is_empty() && self.frames.has_closed(),
            WayState::Ended => true,
        }
    }

    /// Whether the writer has ended it.
    pub(crate) fn has_ended(&self) -> bool {
        self.state == WayState::Ended
    }

    /// Whether its bytes are no frames, so that it cannot be ended between two of them.
    pub(crate) fn is_lost(&self) -> bool {
        self.frames.is_lost()
    }

    /// Says goodbye to the reader, if no frame is on its way to it.
    pub(crate) fn dismiss(&mut self) {
        if self.state == WayState::Open && self.frames.is_between() && self.held.is_empty() {
            self.state = WayState::Dismissed;
            self.held = goodbye(self.masked).to_vec();
        }
    }

    /// Moves bytes until it must wait. Ready when the way has ended.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut from: Pin<&mut impl AsyncRead>,
        mut to: Pin<&mut impl AsyncWrite>,
    ) -> Poll<Result<(), BrokenEnd>> {
        loop {
            ready!(self.poll_held(cx, to.as_mut())).map_err(|_| BrokenEnd::Reader)?;
            match self.state {
                WayState::Open | WayState::Dismissed => {
                    let moved = match self.state {
                        WayState::Open => self.poll_move(cx, from.as_mut(), to.as_mut()),
                        _ => self.poll_drop(cx, from.as_mut()),
                    };
                    match moved {
                        Poll::Ready(Ok(0)) => self.state = WayState::Ending,
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
                        Poll::Pending => {
                            ready!(self.poll_flush(cx, to)).map_err(|_| BrokenEnd::Reader)?;
                            return Poll::Pending;
                        }
                    }
                }
                WayState::Ending => {
                    ready!(to.as_mut().poll_shutdown(cx)).map_err(|_| BrokenEnd::Reader)?;
                    self.state = WayState::Ended;
                }
                WayState::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads bytes and writes those that the reader takes at once. The others are held.
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        from: Pin<&mut impl AsyncRead>,
        to: Pin<&mut impl AsyncWrite>,
    ) -> Poll<Result<usize, BrokenEnd>> {
        SHARED.with_borrow_mut(|buffer| {
            let read = ready!(poll_read(cx, from, buffer)).map_err(|_| BrokenEnd::Writer)?;
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            let bytes = &buffer[..read];
            self.note(bytes);
            self.unflushed = true;
            let written = match to.poll_write(cx, bytes) {
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(BrokenEnd::Reader)),
                Poll::Pending => 0,
            };
            if written < read {
                (self.held, self.at) = (bytes[written..].to_vec(), 0);
            }
            Poll::Ready(Ok(read))
        })
    }

    fn poll_drop(
        &mut self,
        cx: &mut Context<'_>,
        from: Pin<&mut impl AsyncRead>,
    ) -> Poll<Result<usize, BrokenEnd>> {
        if self.frames.has_closed() {
            return Poll::Pending;
        }
        SHARED.with_borrow_mut(|buffer| {
            let read = ready!(poll_read(cx, from, buffer)).map_err(|_| BrokenEnd::Writer)?;
            self.note(&buffer[..read]);
            Poll::Ready(Ok(read))
        })
    }

    /// Ready when nothing is held.
    fn poll_held(
        &mut self,
        cx: &mut Context<'_>,
        mut to: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        while self.at < self.held.len() {
            self.unflushed = true;
            match ready!(to.as_mut().poll_write(cx, &self.held[self.at..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.at += written,
            }
        }
        if !self.held.is_empty() {
            (self.held, self.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        to: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(to.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

fn poll_read(
    cx: &mut Context<'_>,
    from: Pin<&mut impl AsyncRead>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(from.poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}
