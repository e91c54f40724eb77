//! A whole stream of requests through the scanner, for tests and fuzzing.

use bytes::BytesMut;

use super::{
    framing::{HeadBounds, RequestFraming},
    parser::HeadParser,
    request_body::BodyDecoder,
};

/// The result of scanning a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// How many of its bytes may pass.
    pub accepted: usize,
    /// How many heads are among them.
    pub heads: u64,
    /// The fault of the byte, line or head after them.
    pub fault: Option<&'static str>,
    /// The status of the response to the fault.
    pub status: Option<u16>,
}

/// Judges `stream` as it would be judged with default limits if it arrived in pieces of these sizes,
/// and the rest at once.
pub fn judge(stream: &[u8], pieces: impl IntoIterator<Item = usize>) -> Judgement {
    let mut framing = RequestFraming::new(HeadBounds { head: 32 << 10, fields: 100 });
    let mut accepted = 0;
    let mut arrived = 0;
    let mut pieces = pieces.into_iter();
    loop {
        arrived = pieces.next().map_or(stream.len(), |piece| stream.len().min(arrived + piece));
        let mut fed = framing.feed(&stream[accepted..arrived]);
        accepted += fed.accepted;
        // Every request for WebSocket gets an answer in HTTP.
        while framing.is_switching() {
            framing.resume();
            fed = framing.feed(&stream[accepted..arrived]);
            accepted += fed.accepted;
        }
        if arrived == stream.len() || fed.fault.is_some() {
            return Judgement {
                accepted,
                heads: framing.heads(),
                fault: fed.fault.map(|fault| fault.as_str()),
                status: fed.fault.and_then(|fault| Some(fault.status()?.as_u16())),
            };
        }
    }
}

/// Reads `stream` with the parser of the own server side, as it would be read if it arrived in pieces of these
/// sizes, and the rest at once.
pub fn read_requests(stream: &[u8], pieces: impl IntoIterator<Item = usize>) -> Judgement {
    let mut parser = HeadParser::new(HeadBounds { head: 32 << 10, fields: 100 });
    let (mut body, mut read) = (None::<BodyDecoder>, BytesMut::new());
    let (mut heads, mut accepted, mut arrived) = (0, 0, 0);
    let mut pieces = pieces.into_iter();
    loop {
        let before = arrived;
        arrived = pieces.next().map_or(stream.len(), |piece| stream.len().min(arrived + piece));
        read.extend_from_slice(&stream[before..arrived]);
        let fault = loop {
            let read_all = match &mut body {
                Some(decoder) => decoder.take(&mut read).map(|frame| frame.is_none()),
                None => parser.take(&mut read).map(|head| {
                    heads += u64::from(head.is_some());
                    body = head.map(|head| BodyDecoder::new(head.length));
                    body.is_none()
                }),
            };
            match read_all {
                Err(fault) => break Some(fault),
                Ok(read_all) => {
                    if body.is_some() {
                        accepted = arrived - read.len();
                    }
                    let is_over = body.take_if(|decoder| decoder.is_done()).is_some();
                    if read_all && !is_over {
                        break None;
                    }
                }
            }
        };
        if arrived == stream.len() || fault.is_some() {
            return Judgement {
                accepted,
                heads,
                fault: fault.map(|fault| fault.as_str()),
                status: fault.and_then(|fault| Some(fault.status()?.as_u16())),
            };
        }
    }
}
