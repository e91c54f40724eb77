//! The guard of a route: a process of its own that withdraws the route when its node is gone or hangs, because BIRD keeps
//! a static route whatever happens to the node.
//!
//! ```text
//!   node ── a beat, ten times a second ──> guard ── disable, when no beat has come ──> BIRD
//! ```
//!
//! The beats come through a pipe, whose end the kernel closes with the node, also after `kill -9`.

use std::{os::fd::AsFd as _, path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::unix::pipe::Receiver,
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

use crate::announce::{RouteError, RouteLevel, bird};

/// The node works.
pub const BEAT: u8 = b'.';
/// The node ends in order: it has withdrawn the route by itself, or another process has taken over.
pub const FAREWELL: u8 = b'!';
/// The pause between two beats.
pub const BEAT_INTERVAL: Duration = Duration::from_millis(100);
/// A node without a beat for so long hangs. With the work of BIRD and its neighbours it stays below a second.
const PATIENCE: Duration = Duration::from_millis(700);
/// How often BIRD is asked, if it does not do as it is asked,
const ATTEMPTS: usize = 20;
/// and the pause before the next time.
const AGAIN: Duration = Duration::from_millis(250);

/// The protocols of BIRD that a guard disables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedRoute {
    /// BIRD's control socket.
    pub socket: PathBuf,
    /// The protocol that has the route.
    pub protocol: String,
    /// The protocol that has the route with a lower preference.
    pub backup: Option<String>,
}

impl GuardedRoute {
    /// The same with beats from standard input. The signal by which a whole service is stopped does not end it: the node
    /// tells it what it has to do.
    ///
    /// # Errors
    /// As [`Self::guard`].
    pub async fn run(&self) -> Result<(), RouteError> {
        let unusable = |why| RouteError::Unreachable { socket: self.socket.clone(), why };
        let _ignored = signal(SignalKind::terminate()).map_err(unusable)?;
        let pipe = std::io::stdin().as_fd().try_clone_to_owned().map_err(unusable)?;
        self.guard(Receiver::from_owned_fd(pipe).map_err(unusable)?).await
    }

    /// Returns when the node has ended in order, or when the route of a node without beats is withdrawn.
    ///
    /// # Errors
    /// When BIRD does not withdraw it.
    pub async fn guard(&self, beats: impl AsyncRead + Unpin) -> Result<(), RouteError> {
        if !is_lost(beats).await {
            return Ok(());
        }
        tracing::error!(
            protocol = self.protocol,
            "the node is gone or hangs: withdrawing its route"
        );
        let withdraw = async || {
            let (socket, backup) = (&self.socket, self.backup.as_deref());
            bird::apply(socket, &self.protocol, backup, RouteLevel::Withdrawn).await
        };
        for _ in 1..ATTEMPTS {
            match withdraw().await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::error!("{error}"),
            }
            sleep(AGAIN).await;
        }
        withdraw().await
    }
}

/// Whether the beats have ended without a farewell.
async fn is_lost(mut beats: impl AsyncRead + Unpin) -> bool {
    let mut read = [0; 64];
    while let Ok(Ok(count @ 1..)) = timeout(PATIENCE, beats.read(&mut read)).await {
        if read[..count].contains(&FAREWELL) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test(start_paused = true)]
    async fn node_is_lost_without_beats_or_pipe_and_not_after_a_farewell() {
        let begin = tokio::time::Instant::now();
        let (mut node, pipe) = tokio::io::duplex(64);
        let guard = tokio::spawn(is_lost(pipe));
        for _ in 0..50 {
            node.write_all(&[BEAT]).await.unwrap();
            sleep(BEAT_INTERVAL).await;
        }
        assert!(!guard.is_finished());
        assert!(guard.await.unwrap(), "it hangs");
        assert_eq!(begin.elapsed(), 49 * BEAT_INTERVAL + PATIENCE);

        let (mut node, pipe) = tokio::io::duplex(64);
        node.write_all(&[BEAT]).await.unwrap();
        drop(node);
        assert!(is_lost(pipe).await, "it is gone");

        let (mut node, pipe) = tokio::io::duplex(64);
        node.write_all(&[BEAT, FAREWELL]).await.unwrap();
        assert!(!is_lost(pipe).await);
    }
}
