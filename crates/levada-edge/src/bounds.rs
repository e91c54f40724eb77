//! The settings' limits as the layers below take them.

use levada_http1::{ConnectionLimits, HeadBounds, Patience};

use crate::{client_connection::ListenerKind, settings::Limits};

/// The limits of a kind of listener. A head that a client may send must not be too large for the next
/// node when this one has added its own fields.
pub(crate) fn listener_limits(limits: &Limits, listener: ListenerKind) -> Limits {
    let limits = limits.clone();
    match listener {
        ListenerKind::Client { .. } => limits,
        ListenerKind::Peer => Limits {
            head_size: limits.head_size + ADDED_BYTES,
            header_count: limits.header_count + ADDED_FIELDS,
            ..limits
        },
    }
}

/// The bounds of a request head at a kind of listener.
pub(crate) fn head_bounds(limits: &Limits, listener: ListenerKind) -> HeadBounds {
    let limits = listener_limits(limits, listener);
    HeadBounds { head: limits.head_size, fields: limits.header_count }
}

/// The limits of a connection over HTTP/1.
pub(crate) fn connection_limits(limits: &Limits) -> ConnectionLimits {
    ConnectionLimits {
        head: HeadBounds { head: limits.head_size, fields: limits.header_count },
        idle_timeout: limits.idle_timeout,
        head_timeout: limits.head_timeout,
        body: Patience { time: limits.body_timeout, min_rate: limits.body_min_rate },
        send: Patience { time: limits.send_timeout, min_rate: limits.send_min_rate },
    }
}

/// Bytes that a node adds to a head on its way to a peer, at most.
const ADDED_BYTES: usize = 4 << 10;
/// The fields among it.
const ADDED_FIELDS: usize = 16;
