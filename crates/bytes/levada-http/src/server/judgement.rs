//! A whole stream of requests through the scanner, for tests and fuzzing.

use super::framing::{HeadBounds, RequestFraming};

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
