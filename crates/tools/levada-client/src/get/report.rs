//! The report of a transfer, connection by connection.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

/// The report of one file that `levada get --json` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GetReport {
    /// The requested URL.
    pub url: String,
    /// The URL after redirects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirected_to: Option<String>,
    /// The path of the file.
    pub path: PathBuf,
    /// Whether it is complete and verified.
    pub complete: bool,
    /// The error, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its length, if known.
    pub length: Option<u64>,
    /// The bytes on disk.
    pub held: u64,
    /// The part of these bytes that earlier runs fetched.
    pub held_before: u64,
    /// Bytes that were fetched and discarded because the file changed.
    pub discarded: u64,
    /// How often the transfer started again because the file changed.
    pub restarts: u32,
    /// The digest that was computed and compared, if there was one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// The entity tag of the version that was fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The duration of the transfer.
    pub seconds: f64,
    /// All requests that were answered or broke off; only the first ones if there are very many.
    pub connections: Vec<ConnectionReport>,
    /// The number of all connections.
    pub connections_total: u64,
    /// The total time between the last byte of one connection and the first byte of the next.
    pub lost_seconds: f64,
}

/// One request on a connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionReport {
    /// The lane that sent it.
    pub lane: u32,
    /// The server's address, or the proxy's.
    pub address: String,
    /// HTTP/1.1 or HTTP/2.
    pub protocol: &'static str,
    /// Whether the connection had carried a response before.
    pub reused: bool,
    /// Its start, in seconds from the start of the transfer.
    pub begun: f64,
    /// The offset in the file at which the response began.
    pub from: u64,
    /// The status code; 0 without a response.
    pub status: u16,
    /// The number of new bytes.
    pub bytes: u64,
    /// The reason why it ended.
    pub ended: DisconnectReason,
    /// The seconds from its last byte, or its start, to the first byte of the next connection.
    pub lost: f64,
}

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DisconnectReason {
    /// The response was read to its end.
    Complete,
    /// The rest of the response was not needed.
    Cut,
    /// The peer reset it.
    Reset,
    /// It was closed before the end of the response.
    EarlyClose,
    /// No byte arrived for too long.
    Stall,
    /// The response was not usable: another version, another range, an error.
    Refused,
    /// The peer violated the protocol.
    Broken,
}

impl DisconnectReason {
    /// The text in reports.
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

    /// Of an error during a request or response.
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
        // An HTTP/2 reset contains no operating system error.
        if error.is_parse() || error.is_user() { Self::Broken } else { Self::Reset }
    }
}

/// Collects the connections for a report.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) connections: Vec<ConnectionReport>,
    pub(super) total: u64,
    pub(super) lost: Duration,
}

impl History {
    /// Adds a connection and returns its index if it is kept.
    pub(super) fn add(&mut self, connection: ConnectionReport) -> Option<usize> {
        self.total += 1;
        (self.connections.len() < MOST).then(|| {
            self.connections.push(connection);
            self.connections.len() - 1
        })
    }

    /// Adds the time between the connection at `place` and the first byte of the next one.
    pub(super) fn lost(&mut self, place: Option<usize>, time: Duration) {
        self.lost += time;
        if let Some(connection) = place.and_then(|place| self.connections.get_mut(place)) {
            connection.lost = time.as_secs_f64();
        }
    }
}

/// The most connections that are kept: a quarter of an hour if one breaks off every second.
const MOST: usize = 1000;
