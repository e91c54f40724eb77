//! A whole answer read from a stream, as tests and fuzzing want it.

use bytes::BytesMut;
use http::Method;

use super::{answer::Heads, framing::Framing};

/// What was read of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The statuses of its heads; the last one counts, when there was one that does.
    pub statuses: Vec<u16>,
    /// The bytes of its body that came.
    pub body: Vec<u8>,
    /// How many fields came after the body.
    pub trailers: usize,
    /// How it ended.
    pub ending: Ending,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// More was to come.
    #[default]
    Cut,
    /// What came is no answer.
    Refused,
    /// All of it has come.
    Whole {
        /// How many bytes of the stream are the answer.
        used: usize,
        /// Whether the server takes another request after it.
        reusable: bool,
    },
}

/// Reads the answer to a GET or HEAD as it would be read if it arrived in pieces of these sizes, and the
/// rest at once, before the server closed.
pub fn read_reply(stream: &[u8], head: bool, pieces: impl IntoIterator<Item = usize>) -> Reply {
    let method = if head { Method::HEAD } else { Method::GET };
    let (mut heads, mut framing, mut stays) = (Heads::new(), None::<Framing>, false);
    let (mut reply, mut read, mut arrived) = (Reply::default(), BytesMut::new(), 0);
    let mut pieces = pieces.into_iter();
    loop {
        let before = arrived;
        arrived = pieces.next().map_or(stream.len(), |piece| stream.len().min(before + piece));
        read.extend_from_slice(&stream[before..arrived]);
        if framing.is_none() {
            let statuses = &mut reply.statuses;
            match heads.take(&mut read, &method, 100, |status, _| statuses.push(status.as_u16())) {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    reply.statuses.push(answer.head.status().as_u16());
                    stays = answer.stays;
                    framing = Some(answer.framing);
                }
                Err(_) => {
                    reply.ending = Ending::Refused;
                    return reply;
                }
            }
        }
        if let Some(framing) = &mut framing {
            loop {
                match framing.take(&mut read) {
                    Ok(Some(frame)) => match frame.into_data() {
                        Ok(data) => reply.body.extend_from_slice(&data),
                        Err(frame) => {
                            reply.trailers = frame.into_trailers().map_or(0, |all| all.len());
                        }
                    },
                    Ok(None) => break,
                    Err(_) => {
                        reply.ending = Ending::Refused;
                        return reply;
                    }
                }
            }
        }
        let at_end = arrived == stream.len();
        match framing {
            Some(Framing::Done) => {
                let used = arrived - read.len();
                reply.ending = Ending::Whole { used, reusable: stays };
                return reply;
            }
            Some(Framing::UntilClose) if at_end => {
                reply.ending = Ending::Whole { used: arrived, reusable: false };
                return reply;
            }
            _ if at_end => return reply,
            _ => {}
        }
    }
}
