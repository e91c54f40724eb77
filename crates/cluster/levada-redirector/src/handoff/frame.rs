//! The frames between a front-end and a back-end.
//!
//! ```text
//! frame = length:32, then so many bytes: kind:8 id:32, what belongs to it
//! ```
//! Frames are in batches with a MAC each ([`super::channel`]). Numbers are in network order. An id names a connection on this channel, from
//! its `Take` to its end; 0 stands for all.

use levada_net::handoff::{Connection, MalformedState};

use crate::handoff::settings::AfterHandoff;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// To a back-end: take this connection, with the bytes that its client has sent so far.
    Take {
        /// Its id.
        id: u32,
        /// The treatment of the connection after its request.
        after: AfterHandoff,
        /// Its state.
        connection: Connection,
        /// At least a request's head.
        bytes: Vec<u8>,
    },
    /// To a back-end: answer the request that you asked about.
    Keep(u32),
    /// To a back-end: give the connection back.
    GiveUp(u32),
    /// From a back-end: the connection is refused, and no byte was sent.
    Refused(u32),
    /// From a back-end: the answer begins. From now on the connection is the back-end's.
    Answers(u32),
    /// From a back-end: all requests are answered, and the connection is idle.
    Idle(u32),
    /// From a back-end: another request is being answered.
    Resumes(u32),
    /// From a back-end: a question which node answers this request.
    Asks {
        /// The connection's id.
        id: u32,
        /// The request's head.
        bytes: Vec<u8>,
    },
    /// From a back-end: the connection goes back, with the bytes that its client has sent.
    GivenBack {
        /// Its id until now.
        id: u32,
        /// Its state.
        connection: Connection,
        /// At least a request's head.
        bytes: Vec<u8>,
    },
    /// From a back-end: the connection has ended.
    Ended(u32),
    /// From either: this process is about to end. A back-end takes no more connections by this channel soon;
    /// the connections of a front-end are to end with their next answers.
    Leaving,
    /// To a back-end: close the connections that are idle.
    Stops,
}

/// An invalid frame.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// Its kind does not exist.
    #[error("a frame of no known kind")]
    Kind,
    /// It is shorter or longer than its kind.
    #[error("a frame of a wrong length")]
    Length,
    /// Its connection is invalid.
    #[error(transparent)]
    Connection(#[from] MalformedState),
}

/// Appends a [`Frame::Take`], without copying its parts.
pub(crate) fn write_take(
    out: &mut Vec<u8>,
    id: u32,
    after: AfterHandoff,
    connection: &Connection,
    bytes: &[u8],
) {
    out.push(TAKE);
    out.extend(id.to_be_bytes());
    out.push(after as u8);
    out.extend(connection.to_bytes());
    out.extend(bytes);
}

const TAKE: u8 = 1;
const KEEP: u8 = 2;
const GIVE_UP: u8 = 3;
const REFUSED: u8 = 4;
const ANSWERS: u8 = 5;
const IDLE: u8 = 6;
const RESUMES: u8 = 7;
const ASKS: u8 = 8;
const GIVEN_BACK: u8 = 9;
const ENDED: u8 = 10;
const LEAVING: u8 = 11;
const STOPS: u8 = 12;
/// The id of a frame that is about all connections of the channel.
const ALL: u32 = 0;

impl Frame {
    /// Appends kind, id and the rest.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, id: u32| {
            out.push(kind);
            out.extend(id.to_be_bytes());
        };
        match self {
            Self::Take { id, after, connection, bytes } => {
                write_take(out, *id, *after, connection, bytes);
            }
            Self::Keep(id) => head(KEEP, *id),
            Self::GiveUp(id) => head(GIVE_UP, *id),
            Self::Refused(id) => head(REFUSED, *id),
            Self::Answers(id) => head(ANSWERS, *id),
            Self::Idle(id) => head(IDLE, *id),
            Self::Resumes(id) => head(RESUMES, *id),
            Self::Asks { id, bytes } => {
                head(ASKS, *id);
                out.extend(bytes);
            }
            Self::GivenBack { id, connection, bytes } => {
                head(GIVEN_BACK, *id);
                out.extend(connection.to_bytes());
                out.extend(bytes);
            }
            Self::Ended(id) => head(ENDED, *id),
            Self::Leaving => head(LEAVING, ALL),
            Self::Stops => head(STOPS, ALL),
        }
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// When it is not a valid frame.
    pub fn read(bytes: &[u8]) -> Result<Self, BadFrame> {
        let (kind, rest) = bytes.split_first().ok_or(BadFrame::Length)?;
        let (id, rest) = rest.split_first_chunk().ok_or(BadFrame::Length)?;
        let id = u32::from_be_bytes(*id);
        let connection = |rest: &[u8]| {
            let (state, bytes) = rest.split_first_chunk().ok_or(BadFrame::Length)?;
            Ok::<_, BadFrame>((Connection::from_bytes(state)?, bytes.to_vec()))
        };
        let frame = match *kind {
            TAKE => {
                let (after, rest) = rest.split_first().ok_or(BadFrame::Length)?;
                let after = AfterHandoff::ALL.into_iter().find(|a| *a as u8 == *after);
                let after = after.ok_or(BadFrame::Kind)?;
                let (connection, bytes) = connection(rest)?;
                return Ok(Self::Take { id, after, connection, bytes });
            }
            ASKS => return Ok(Self::Asks { id, bytes: rest.to_vec() }),
            GIVEN_BACK => {
                let (connection, bytes) = connection(rest)?;
                return Ok(Self::GivenBack { id, connection, bytes });
            }
            KEEP => Self::Keep(id),
            GIVE_UP => Self::GiveUp(id),
            REFUSED => Self::Refused(id),
            ANSWERS => Self::Answers(id),
            IDLE => Self::Idle(id),
            RESUMES => Self::Resumes(id),
            ENDED => Self::Ended(id),
            LEAVING if id == ALL => Self::Leaving,
            STOPS if id == ALL => Self::Stops,
            _ => return Err(BadFrame::Kind),
        };
        if rest.is_empty() { Ok(frame) } else { Err(BadFrame::Length) }
    }
}

#[cfg(test)]
mod tests {
    use levada_net::handoff::Window;

    use super::*;

    #[test]
    fn every_frame_reads_as_what_it_was() {
        let connection = Connection {
            service: "10.9.9.9:80".parse().unwrap(),
            client: "10.0.1.2:40001".parse().unwrap(),
            send_next: 1,
            receive_next: 2,
            segment: 1460,
            scale: None,
            sack: true,
            timestamp: Some(3),
            window: Window::default(),
        };
        let bytes = b"GET / HTTP/1.1\r\n\r\n".to_vec();
        let frames = [
            Frame::Take { id: 7, after: AfterHandoff::On, connection, bytes: bytes.clone() },
            Frame::Keep(1),
            Frame::GiveUp(2),
            Frame::Refused(3),
            Frame::Answers(4),
            Frame::Idle(5),
            Frame::Resumes(u32::MAX),
            Frame::Asks { id: 8, bytes: bytes.clone() },
            Frame::GivenBack { id: 9, connection, bytes },
            Frame::Ended(10),
            Frame::Leaving,
            Frame::Stops,
        ];
        for frame in frames {
            let mut written = Vec::new();
            frame.write(&mut written);
            assert_eq!(Frame::read(&written), Ok(frame.clone()));
            let short = &written[..4];
            assert_eq!(Frame::read(short), Err(BadFrame::Length), "{frame:?}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        assert_eq!(Frame::read(b""), Err(BadFrame::Length));
        assert_eq!(Frame::read(&[99, 0, 0, 0, 1]), Err(BadFrame::Kind));
        assert_eq!(Frame::read(&[LEAVING, 0, 0, 0, 1]), Err(BadFrame::Kind));
        assert_eq!(Frame::read(&[ENDED, 0, 0, 0, 1, 0]), Err(BadFrame::Length));
        assert_eq!(Frame::read(&[TAKE, 0, 0, 0, 1, 9]), Err(BadFrame::Kind));
        assert_eq!(Frame::read(&[TAKE, 0, 0, 0, 1, 0, 1]), Err(BadFrame::Length));
    }
}
