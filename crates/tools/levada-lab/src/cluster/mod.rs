//! The parts that labs of clusters share: the objects of a load, the origin that has them, and the waits of all labs.

#[cfg(target_os = "linux")]
pub(crate) mod objects;
#[cfg(target_os = "linux")]
pub(crate) mod origin;
pub mod server;

use std::time::Duration;

/// The timeout for a node to start: it takes less than a second, on a busy machine some.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which it is asked whether it has started: short against a start.
pub(crate) const READY_INTERVAL: Duration = Duration::from_millis(20);

/// The wait of a client after a failed request, so that a cluster that fails is not flooded.
pub(crate) const RETRY_BACKOFF: Duration = Duration::from_millis(100);

/// The time without a byte after which a client gives up: longer than any fault that a node is to hide.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
