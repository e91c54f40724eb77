//! A unidirectional stream of a client until its type is known, and the streams of QPACK from then on.
//!
//! This side has no dynamic table (its `SETTINGS_QPACK_MAX_TABLE_CAPACITY` is 0), so that hardly any
//! instruction is allowed on the streams of QPACK (RFC 9204 Sec. 4.3, 4.4).

use std::{
    pin::pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use crate::{
    code::{Code, Fault},
    frames::varint,
};

const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
const ENCODER: u64 = 0x2;
const DECODER: u64 = 0x3;

/// See the module.
pub(crate) struct UniStream {
    stream: quinn::RecvStream,
    state: State,
}

/// The streams of QPACK that a client has opened: one of each kind at most (RFC 9204 Sec. 4.2).
#[derive(Debug, Default)]
pub(crate) struct QpackStreams {
    encoder: bool,
    decoder: bool,
}

enum State {
    /// The bytes of the type that have come.
    New(Vec<u8>),
    Encoder,
    /// Whether an instruction continues.
    Decoder(bool),
}

impl UniStream {
    pub(crate) fn new(stream: quinn::RecvStream) -> Self {
        Self { stream, state: State::New(Vec::new()) }
    }

    pub(crate) fn into_inner(self) -> quinn::RecvStream {
        self.stream
    }

    /// Reads as far as possible. Returns the encoded type of a control stream, or `None` when the stream is of
    /// no use.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        qpack: &mut QpackStreams,
    ) -> Poll<Result<Option<Bytes>, Fault>> {
        loop {
            // The type of a control stream comes alone, so that all that follows is read as frames.
            let most = if matches!(self.state, State::New(_)) { 1 } else { usize::MAX };
            let read = ready!(pin!(self.stream.read_chunk(most, true)).poll(cx));
            let bytes = match read {
                Ok(Some(chunk)) => chunk.bytes,
                // It may end before its type has come (RFC 9114 Sec. 6.2).
                Ok(None) | Err(quinn::ReadError::Reset(_)) => return Poll::Ready(self.end()),
                Err(_) => return Poll::Ready(Ok(None)),
            };
            match &mut self.state {
                State::New(kind) => {
                    kind.extend_from_slice(&bytes);
                    let Some((number, _)) = varint(kind) else { continue };
                    match number {
                        CONTROL => return Poll::Ready(Ok(Some(std::mem::take(kind).into()))),
                        // Servers alone push (RFC 9114 Sec. 6.2.2).
                        PUSH => return Poll::Ready(Err(uncalled("a client does not push"))),
                        ENCODER if !std::mem::replace(&mut qpack.encoder, true) => {
                            self.state = State::Encoder;
                        }
                        DECODER if !std::mem::replace(&mut qpack.decoder, true) => {
                            self.state = State::Decoder(false);
                        }
                        ENCODER | DECODER => {
                            return Poll::Ready(Err(uncalled("QPACK has this stream already")));
                        }
                        // Dropped, it asks the client to stop.
                        _ => return Poll::Ready(Ok(None)),
                    }
                }
                State::Encoder => judge_encoder(&bytes)?,
                State::Decoder(continues) => judge_decoder(continues, &bytes)?,
            }
        }
    }

    fn end(&self) -> Result<Option<Bytes>, Fault> {
        match self.state {
            State::New(_) => Ok(None),
            State::Encoder | State::Decoder(_) => {
                Err(Fault::Connection(Code::CLOSED_CRITICAL_STREAM, "a stream of QPACK has ended"))
            }
        }
    }
}

fn uncalled(why: &'static str) -> Fault {
    Fault::Connection(Code::STREAM_CREATION_ERROR, why)
}

/// Allows nothing but a capacity of 0.
fn judge_encoder(bytes: &[u8]) -> Result<(), Fault> {
    const NO_CAPACITY: u8 = 0b0010_0000;
    match bytes.iter().all(|byte| *byte == NO_CAPACITY) {
        true => Ok(()),
        false => {
            Err(Fault::Connection(Code::QPACK_ENCODER_STREAM_ERROR, "there is no dynamic table"))
        }
    }
}

/// Allows cancellations of streams: this side has inserted nothing that could be acknowledged.
fn judge_decoder(continues: &mut bool, bytes: &[u8]) -> Result<(), Fault> {
    for byte in bytes {
        *continues = match *continues {
            true => byte & 0x80 != 0,
            false if byte & 0b1100_0000 == 0b0100_0000 => byte & 0x3f == 0x3f,
            false => {
                let why = "nothing was inserted that could be acknowledged";
                return Err(Fault::Connection(Code::QPACK_DECODER_STREAM_ERROR, why));
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_qpack_have_no_instruction_that_needs_a_table() {
        assert!(judge_encoder(b"\x20").is_ok());
        for wrong in [&b"\x21"[..], b"\x3f\xe1\x1f", b"\xc0\x01a", b"\x41a\x01b", b"\x00"] {
            assert!(judge_encoder(wrong).is_err(), "{wrong:x?}");
        }
        let decoder = |bytes: &[u8]| judge_decoder(&mut false, bytes);
        assert!(decoder(b"\x40\x7f\x80\x01\x44").is_ok(), "cancellations");
        assert!(
            decoder(b"\x00").is_err() && decoder(b"\x01").is_err() && decoder(b"\x80").is_err()
        );
    }
}
