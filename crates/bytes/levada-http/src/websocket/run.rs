//! A tunnel from its first byte to its last.
//!
//! ```text
//!   open ──┬── both directions have ended ───────────────────────────> Closed
//!          ├── an end broke ─────────────────────────> ClientBroke, ServerBroke
//!          ├── nothing moved for too long ──┐
//!          └── the node leaves ─────────────┴──> goodbye between two frames ──> Idle, Left
//! ```
//!
//! A direction that ends first stays ended, and the other one goes on: the end of a stream is passed on.

use std::{
    future::poll_fn,
    hash::{BuildHasher as _, RandomState},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{DeadlineTimer, after};
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use crate::websocket::{
    TunnelMetrics,
    way::{BrokenEnd, Way},
};

/// How long a tunnel that is being closed waits for the end of a frame, and for the answers of both ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time without a byte when one direction has ended. WebSocket has no use for the other one alone.
const HALF_OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes that came before both ends were connected, and the bounds of a tunnel.
#[derive(Debug)]
pub struct Tunnel {
    /// Bytes of the client.
    pub from_client: Vec<u8>,
    /// Bytes of the server.
    pub from_server: Bytes,
    /// The longest time without a byte in either direction.
    pub idle_timeout: Duration,
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Both ends have closed it.
    Closed,
    /// The client's connection broke.
    ClientBroke,
    /// The server's connection broke.
    ServerBroke,
    /// Nothing moved for too long.
    Idle,
    /// The node drains or stops.
    Left,
}

impl EndReason {
    /// The name used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ClientBroke => "client-broke",
            Self::ServerBroke => "server-broke",
            Self::Idle => "idle-timeout",
            Self::Left => "left",
        }
    }
}

/// The end of a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct TunnelEnd {
    /// The reason.
    pub reason: EndReason,
    /// Bytes that came from the client.
    pub from_client: u64,
    /// Bytes that came from the server.
    pub from_server: u64,
}

/// Waits for a random part of this time, so that not all clients come back at once.
pub async fn wait_part_of(grace: Duration) {
    let part = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    tokio::time::sleep(grace.mul_f64(part)).await;
}

/// The state of a tunnel under way.
struct Running {
    up: Way,
    down: Way,
    idle_timeout: Duration,
    /// The last time that bytes moved.
    moved: Instant,
    timer: DeadlineTimer,
    /// The reason for which it is being closed, and the end of the patience with both ends.
    closing: Option<(EndReason, Instant)>,
}

impl Tunnel {
    /// Moves bytes between both ends until the tunnel has ended. Begins to close it when `leaving` is ready.
    pub async fn run<C, S>(
        self,
        client: C,
        server: S,
        leaving: impl Future<Output = ()>,
        metrics: &TunnelMetrics,
    ) -> TunnelEnd
    where
        C: AsyncRead + AsyncWrite,
        S: AsyncRead + AsyncWrite,
    {
        let _open = metrics.now.hold();
        let Self { from_client, from_server, idle_timeout } = self;
        let (mut client, mut server, mut leaving) = (pin!(client), pin!(server), pin!(leaving));
        let mut running = Running {
            up: Way::new(&from_client, true, metrics.from_client.clone()),
            down: Way::new(&from_server, false, metrics.from_server.clone()),
            idle_timeout,
            moved: Instant::now(),
            timer: DeadlineTimer::default(),
            closing: None,
        };
        drop((from_client, from_server));
        let reason = poll_fn(|cx| {
            if running.closing.is_none() && leaving.as_mut().poll(cx).is_ready() {
                running.close(EndReason::Left);
            }
            let reason = ready!(running.poll(cx, client.as_mut(), server.as_mut()));
            // Buffered bytes go out if they can, and TLS says goodbye.
            let _ = (client.as_mut().poll_shutdown(cx), server.as_mut().poll_shutdown(cx));
            Poll::Ready(reason)
        });
        let reason = reason.await;
        metrics.ended(reason);
        TunnelEnd { reason, from_client: running.up.passed, from_server: running.down.passed }
    }
}

impl Running {
    fn close(&mut self, reason: EndReason) {
        self.closing = Some((reason, after(CLOSE_TIMEOUT)));
    }

    /// The longest time without a byte, as things are.
    fn patience(&self) -> Duration {
        match self.up.has_ended() || self.down.has_ended() {
            true => self.idle_timeout.min(HALF_OPEN_TIMEOUT),
            false => self.idle_timeout,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut client: Pin<&mut (impl AsyncRead + AsyncWrite)>,
        mut server: Pin<&mut (impl AsyncRead + AsyncWrite)>,
    ) -> Poll<EndReason> {
        loop {
            let before = self.up.passed + self.down.passed;
            if self.closing.is_some() {
                self.up.dismiss();
                self.down.dismiss();
            }
            let up = self.up.poll(cx, client.as_mut(), server.as_mut());
            let down = self.down.poll(cx, server.as_mut(), client.as_mut());
            let reason = self.closing.map(|(reason, _)| reason);
            let ended = match (up, down) {
                (Poll::Ready(Err(BrokenEnd::Writer)), _)
                | (_, Poll::Ready(Err(BrokenEnd::Reader))) => Some(EndReason::ClientBroke),
                (Poll::Ready(Err(BrokenEnd::Reader)), _)
                | (_, Poll::Ready(Err(BrokenEnd::Writer))) => Some(EndReason::ServerBroke),
                _ if self.up.is_over() && self.down.is_over() => Some(EndReason::Closed),
                _ if reason.is_some() && (self.up.is_lost() || self.down.is_lost()) => reason,
                _ => None,
            };
            if let Some(ended) = ended {
                return Poll::Ready(reason.unwrap_or(ended));
            }
            if self.up.passed + self.down.passed > before {
                self.moved = Instant::now();
                // A frame that has ended lets a tunnel be closed.
                if self.closing.is_some() {
                    continue;
                }
            }
            let until =
                self.closing.map_or_else(|| self.moved + self.patience(), |(_, until)| until);
            if self.timer.poll(cx, until).is_pending() {
                return Poll::Pending;
            }
            match reason {
                Some(reason) => return Poll::Ready(reason),
                None => self.close(EndReason::Idle),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use levada_observe::metrics::Registry;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// The buffer that bytes came in.
    struct Buffer {
        _kept: Arc<()>,
    }

    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            b"\x82\x02hi"
        }
    }

    #[tokio::test]
    async fn open_tunnel_keeps_no_buffer_of_the_handshake() {
        for length in [0, 4] {
            let kept = Arc::new(());
            let from_server = Bytes::from_owner(Buffer { _kept: kept.clone() }).slice(..length);
            let idle_timeout = Duration::from_secs(60);
            let tunnel = Tunnel { from_client: Vec::new(), from_server, idle_timeout };
            let ((client, mut far_client), (server, mut far_server)) = (duplex(64), duplex(64));
            let metrics = Arc::new(TunnelMetrics::registered(&mut Registry::default()));
            let counting = metrics.clone();
            let running = tokio::spawn(async move {
                tunnel.run(client, server, pending(), &counting).await.reason
            });
            far_server.write_all(b"\x82\x01!").await.unwrap();
            let mut came = vec![0; length + 3];
            far_client.read_exact(&mut came).await.unwrap();
            assert!(came.ends_with(b"\x82\x01!"));
            assert_eq!(Arc::strong_count(&kept), 1, "{length}");
            drop((far_client, far_server));
            assert_eq!(running.await.unwrap(), EndReason::Closed);
            assert_eq!(metrics.ended.get_or_create(&["closed"]).get(), 1);
        }
    }
}
