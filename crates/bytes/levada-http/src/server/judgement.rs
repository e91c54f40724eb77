//! A whole stream of requests through the parser, for tests and fuzzing.

use bytes::BytesMut;

use super::{
    parser::{HeadBounds, HeadParser},
    request_body::BodyDecoder,
};

/// The result of reading a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// How many of its bytes are heads and bodies that are complete.
    pub accepted: usize,
    /// How many heads are among them.
    pub heads: u64,
    /// The fault of the bytes after them.
    pub fault: Option<&'static str>,
    /// The status of the response to the fault.
    pub status: Option<u16>,
}

/// Judges `stream` as it would be judged with default limits if it arrived in pieces of these sizes, and the rest at
/// once.
pub fn judge(stream: &[u8], pieces: impl IntoIterator<Item = usize>) -> Judgement {
    let mut parser = HeadParser::new(HeadBounds { head: 32 << 10, fields: 100 });
    let (mut body, mut read) = (None::<BodyDecoder>, BytesMut::new());
    let (mut heads, mut accepted, mut arrived) = (0, 0, 0);
    let mut pieces = pieces.into_iter();
    loop {
        let before = arrived;
        arrived = pieces.next().map_or(stream.len(), |piece| stream.len().min(arrived + piece));
        read.extend_from_slice(&stream[before..arrived]);
        let fault = loop {
            let taken = match &mut body {
                Some(decoder) => decoder.take(&mut read).map(|frame| frame.is_some()),
                None => parser.take(&mut read).map(|head| {
                    heads += u64::from(head.is_some());
                    body = head.map(|head| BodyDecoder::new(head.length));
                    if body.is_some() {
                        accepted = arrived - read.len();
                    }
                    body.is_some()
                }),
            };
            let is_over = body.take_if(|decoder| decoder.is_done()).is_some();
            if is_over {
                accepted = arrived - read.len();
            }
            match taken {
                Err(fault) => break Some(fault),
                Ok(false) if !is_over => break None,
                Ok(_) => {}
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
