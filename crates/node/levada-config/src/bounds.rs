//! Limits as the layers below take them.

use crate::file::Limits;
use levada_http::{ConnectionLimits, HeadBounds, Patience};

/// Bytes that a node adds to a head on its way to a peer, at most.
const ADDED_BYTES: u64 = 4 << 10;
/// The fields among it.
const ADDED_FIELDS: usize = 16;

impl Limits {
    /// The limits of the listener for peers. A head that a client may send must not be too large for the next node
    /// when this one has added its own fields.
    pub fn of_peers(&self) -> Self {
        Self {
            head_size: self.head_size + ADDED_BYTES,
            header_count: self.header_count + ADDED_FIELDS,
            ..self.clone()
        }
    }

    /// The bounds of a request head.
    pub fn of_head(&self) -> HeadBounds {
        HeadBounds { head: self.head_size as usize, fields: self.header_count }
    }

    /// The limits of a connection over HTTP/1.
    pub fn of_connection(&self) -> ConnectionLimits {
        ConnectionLimits {
            head: self.of_head(),
            idle_timeout: self.idle_timeout,
            head_timeout: self.head_timeout,
            body: Patience { time: self.body_timeout, min_rate: self.body_min_rate },
            send: Patience { time: self.send_timeout, min_rate: self.send_min_rate },
        }
    }
}
