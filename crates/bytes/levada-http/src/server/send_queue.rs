//! The bytes of a response that wait to be written: text of this connection's own, and pieces of bodies.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::zero_copy;

/// Bytes in the order in which they leave. Its memory is used again for every response.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// All text, one after the other.
    text: Vec<u8>,
    /// The beginning of the text that is still to be sent.
    at: usize,
    parts: VecDeque<Part>,
    /// The bytes that wait.
    length: usize,
    /// Whether the connection closes behind the response.
    pub(super) is_last: bool,
    /// Whether all of the response that was not sent is here.
    pub(super) is_whole: bool,
}

#[derive(Debug)]
enum Part {
    /// So many bytes of the text.
    Text(usize),
    Piece(Bytes),
}

/// Pieces that are written at once.
pub(super) const AT_ONCE: usize = 20;
/// Bytes that are gathered before they are written. With a quarter of it a hit of 1 MB costs 1.4 times as much CPU.
const GATHERED: usize = 256 << 10;
/// Pieces are copied behind text up to this length in all: writing one piece costs so much less than writing several
/// that the copy pays.
const SHORT: usize = 4 << 10;
/// Room for the head of a response and a short body.
const USUAL: usize = 2 << 10;

impl SendQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether more may be queued before these bytes are written.
    pub(super) fn has_room(&self) -> bool {
        self.length < GATHERED && self.parts.len() + 3 < AT_ONCE
    }

    /// Queues text.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.text.capacity() == 0 {
            self.text.reserve(USUAL);
        }
        let before = self.text.len();
        let result = write(&mut self.text);
        let written = self.text.len() - before;
        self.length += written;
        match self.parts.back_mut() {
            Some(Part::Text(length)) => *length += written,
            _ if written > 0 => self.parts.push_back(Part::Text(written)),
            _ => {}
        }
        result
    }

    /// Queues a piece of a body.
    pub(super) fn push(&mut self, piece: Bytes) {
        let is_short = self.length + piece.len() <= SHORT && self.parts.len() == 1;
        if is_short && !zero_copy::stands_in(&piece) && self.at + self.length == self.text.len() {
            self.write(|text| text.extend_from_slice(&piece));
        } else if !piece.is_empty() {
            self.length += piece.len();
            self.parts.push_back(Part::Piece(piece));
        }
    }

    /// The bytes, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.at;
        self.parts.iter().map(move |part| match part {
            Part::Text(length) => {
                at += length;
                &self.text[at - length..at]
            }
            Part::Piece(piece) => piece,
        })
    }

    /// Notes that `count` bytes were sent.
    pub(super) fn sent(&mut self, mut count: usize) {
        self.length -= count.min(self.length);
        while let Some(part) = self.parts.front_mut() {
            let left = match part {
                Part::Text(length) => {
                    let sent = count.min(*length);
                    *length -= sent;
                    self.at += sent;
                    count -= sent;
                    *length
                }
                Part::Piece(piece) => {
                    let sent = count.min(piece.len());
                    piece.advance(sent);
                    count -= sent;
                    piece.len()
                }
            };
            if left > 0 {
                // The queue is never empty where more is queued than the client takes.
                if self.at > self.text.len().max(4 * SHORT) / 2 {
                    self.text.drain(..std::mem::take(&mut self.at));
                }
                return;
            }
            self.parts.pop_front();
        }
        self.text.clear();
        self.text.shrink_to(2 * SHORT);
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(queue: &SendQueue) -> Vec<&[u8]> {
        queue.parts().collect()
    }

    #[test]
    fn short_pieces_follow_the_head_in_its_memory() {
        let mut queue = SendQueue::default();
        queue.write(|text| text.extend_from_slice(b"head"));
        queue.push(Bytes::from_static(b"body"));
        assert_eq!(queued(&queue), [b"headbody"]);
        let long = Bytes::from(vec![b'x'; SHORT]);
        queue.push(long.clone());
        queue.write(|text| text.extend_from_slice(b"end"));
        queue.push(Bytes::from_static(b"more"));
        assert_eq!(queued(&queue), [b"headbody", &long[..], b"end", b"more"]);
        queue.sent(6);
        assert_eq!(queued(&queue)[0], b"dy");
        queue.sent(2 + SHORT + 1);
        assert_eq!(queued(&queue), [&b"nd"[..], b"more"]);
        queue.sent(6);
        assert!(queue.is_empty() && queue.length == 0 && queue.text.is_empty());
    }

    #[test]
    fn text_that_was_sent_is_dropped_though_more_waits() {
        let (mut queue, mut sent) = (SendQueue::default(), Vec::new());
        for round in 0..1000_u32 {
            queue.write(|text| text.extend(std::iter::repeat_n(round as u8, 1000)));
            if round > 0 {
                sent.extend(queued(&queue).concat().drain(..1000));
                queue.sent(1000);
            }
            assert!(queue.text.len() <= 8 * SHORT, "{round}");
        }
        assert!(sent.chunks(1000).zip(0_u32..).all(|(text, round)| text == [round as u8; 1000]));
    }

    #[test]
    fn pieces_are_bounded_by_number_and_length() {
        let mut queue = SendQueue::default();
        let mut pieces = 0;
        while queue.has_room() {
            queue.write(|text| text.extend_from_slice(b"5\r\n"));
            queue.push(Bytes::from(vec![b'x'; SHORT]));
            pieces += 1;
        }
        assert!(pieces > 5 && queued(&queue).len() <= AT_ONCE);
        queue.sent(queue.length);
        queue.push(Bytes::from(vec![b'x'; GATHERED]));
        assert!(!queue.has_room());
    }
}
