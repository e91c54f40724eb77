//! What became of a transfer, connection by connection.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

/// What `levada get --json` prints of a file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GetReport {
    /// What was asked for.
    pub url: String,
    /// Where redirects have led.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirected_to: Option<String>,
    /// Where the file is.
    pub path: PathBuf,
    /// Whether it is complete, and what it should be.
    pub complete: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its length, once known.
    pub length: Option<u64>,
    /// Bytes that are here.
    pub held: u64,
    /// Of these, what an earlier run had fetched.
    pub held_before: u64,
    /// Bytes that were fetched in vain because the file had changed.
    pub discarded: u64,
    /// How often it was begun anew for that reason.
    pub restarts: u32,
    /// The digest that was computed and compared, where there was one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// Each request that was answered or broke off, the first ones only if there were very many.
    pub connections: Vec<Connection>,
    /// How many there were.
    pub connections_total: u64,
    /// Time between the last byte of one and the first of the next, altogether.
    pub lost_seconds: f64,
}

/// One request on a connection.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    /// Which of the connections that work at the same time.
    pub lane: u32,
    /// The server's address, or the proxy's.
    pub address: String,
    /// HTTP/1.1 or HTTP/2.
    pub protocol: &'static str,
    /// It had answered before.
    pub reused: bool,
    /// When it began, in seconds from the beginning of the transfer.
    pub begun: f64,
    /// Where the answer began in the file.
    pub from: u64,
    /// The status code; 0 when no answer came.
    pub status: u16,
    /// New bytes.
    pub bytes: u64,
    /// Why it ended.
    pub ended: Ended,
    /// From its last byte, or its beginning, to the first byte of the next one, in seconds.
    pub lost: f64,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The answer was read to its end.
    Complete,
    /// What it still had to give was not wanted.
    Cut,
    /// The other side reset it.
    Reset,
    /// It was closed in the middle.
    EarlyClose,
    /// Nothing came for too long.
    Stall,
    /// The answer was of no use: another version, a range elsewhere, an error.
    Refused,
    /// The other side broke the protocol.
    Broken,
}

impl Ended {
    /// As reports write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cut => "cut",
            Self::Reset => "reset",
            Self::EarlyClose => "early close",
            Self::Stall => "stall",
            Self::Refused => "refused",
            Self::Broken => "broken",
        }
    }

    /// Of an error in the middle of an exchange.
    pub(crate) fn of(error: &hyper::Error) -> Self {
        if error.is_incomplete_message() {
            return Self::EarlyClose;
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                return match io.kind() {
                    std::io::ErrorKind::UnexpectedEof => Self::EarlyClose,
                    std::io::ErrorKind::TimedOut => Self::Stall,
                    _ => Self::Reset,
                };
            }
            cause = error.source();
        }
        // What HTTP/2 calls a reset has no operating system's error in it.
        if error.is_parse() || error.is_user() { Self::Broken } else { Self::Reset }
    }
}

/// Collects a report.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) connections: Vec<Connection>,
    pub(super) total: u64,
    pub(super) lost: Duration,
}

impl History {
    /// Adds a connection and tells where it is, if it is kept.
    pub(super) fn add(&mut self, connection: Connection) -> Option<usize> {
        self.total += 1;
        (self.connections.len() < MOST).then(|| {
            self.connections.push(connection);
            self.connections.len() - 1
        })
    }

    /// The connection at `place` was followed by one that brought a byte so much later.
    pub(super) fn lost(&mut self, place: Option<usize>, time: Duration) {
        self.lost += time;
        if let Some(connection) = place.and_then(|place| self.connections.get_mut(place)) {
            connection.lost = time.as_secs_f64();
        }
    }
}

/// A server that breaks off once a second is remembered for a quarter of an hour.
const MOST: usize = 1000;
