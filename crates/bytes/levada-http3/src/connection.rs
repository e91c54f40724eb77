//! One connection over QUIC: its handshake, its requests, and its end.

use std::{
    future::poll_fn,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use h3::{error::ConnectionError, server};
use levada_http::{ConnectionEnd, ConnectionLimits, EndReason, Watchdog};
use levada_net::stop::Stop;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::{
    Serve, code::Code, endpoint::Unproven, requests::Requests, silence, transport::Transport,
};

/// Requests that a client may cancel before they were answered, beyond those that it waited for.
const CANCELLED: i64 = 256;
/// How long requests are accepted that were on their way when the client learned of the end.
const LAST_REQUESTS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// An announcement of the end that refuses no request yet.
const ANY_MORE: usize = 1 << 20;

/// A connection, as its requests see it.
pub(crate) struct Connection<N: Serve> {
    pub(crate) node: Arc<N>,
    pub(crate) limits: ConnectionLimits,
    /// Notified of each request.
    pub(crate) asked: Notify,
    /// Notified of each request, for the watch for silent clients.
    pub(crate) roused: Notify,
    /// Bytes of responses that were taken for sending. The window of what may be unacknowledged bounds them.
    pub(crate) written: AtomicU64,
    pub(crate) stop: Stop,
    pub(crate) quic: quinn::Connection,
    handshaken: watch::Sender<bool>,
    /// The client's address and the node's record of the connection from there.
    client: Mutex<(IpAddr, Arc<N::Connection>)>,
    may_cancel: AtomicI64,
}

impl<N: Serve> Connection<N> {
    /// The node's record of the connection; a new one when the client has another address.
    pub(crate) fn client(&self) -> Arc<N::Connection> {
        let now = self.quic.remote_address().ip().to_canonical();
        let mut client = self.client.lock();
        if client.0 != now {
            self.node.metrics().migrations.inc();
            *client = (now, self.node.connection(now));
        }
        client.1.clone()
    }

    /// Whether the handshake is not complete: a request may be a replay of an earlier one.
    pub(crate) fn is_early(&self) -> bool {
        !*self.handshaken.borrow()
    }

    /// Returns when the handshake is complete.
    pub(crate) async fn until_handshaken(&self) {
        // The sender lives as long as the connection.
        let _ = self.handshaken.subscribe().wait_for(|complete| *complete).await;
    }

    /// Notes that a request was answered.
    pub(crate) fn answered(&self) {
        if self.may_cancel.load(Relaxed) < CANCELLED {
            self.may_cancel.fetch_add(1, Relaxed);
        }
    }

    /// Notes that a client has cancelled a request. One that does nothing else makes work for no one's use.
    pub(crate) fn cancelled(&self) {
        if self.may_cancel.fetch_sub(1, Relaxed) <= 0 {
            self.quic.close(Code::EXCESSIVE_LOAD.into(), b"too many cancelled requests");
        }
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve<N: Serve>(
    node: Arc<N>,
    incoming: quinn::Incoming,
    place: N::Place,
    unproven: Unproven,
    stop: Stop,
) {
    let metrics = node.metrics().clone();
    let _counted = [metrics.connections.hold(), metrics.all_connections.hold()];
    let _place = place;
    let client = incoming.remote_address().ip().to_canonical();
    let Ok(connecting) = incoming.accept() else {
        metrics.handshakes_failed.inc();
        return node.ended(client, ConnectionEnd::Broken);
    };
    let Ok((quic, handshake)) = connecting.into_0rtt() else {
        unreachable!("a server may use any connection before its handshake is complete")
    };
    let limits = node.limits();
    let record = node.connection(client);
    let connection = Arc::new(Connection {
        limits,
        asked: Notify::new(),
        roused: Notify::new(),
        written: AtomicU64::new(0),
        stop: stop.clone(),
        quic: quic.clone(),
        handshaken: watch::Sender::new(false),
        client: Mutex::new((client, record)),
        may_cancel: AtomicI64::new(CANCELLED),
        node: node.clone(),
    });
    let handshaking = async {
        // Its value is about clients.
        let complete = tokio::time::timeout(limits.head_timeout, handshake).await.is_ok();
        drop(unproven);
        match complete && quic.close_reason().is_none() {
            true => {
                metrics.handshakes.inc();
                connection.handshaken.send_replace(true);
                std::future::pending().await
            }
            false => {
                metrics.handshakes_failed.inc();
                ConnectionEnd::HeadTimeout
            }
        }
    };
    let ending = tokio::select! {
        ending = handshaking => ending,
        ending = requests(&connection, &stop) => ending,
    };
    quic.close(Code::NO_ERROR.into(), b"");
    let stats = quic.stats();
    metrics.packets_sent.inc_by(stats.path.sent_packets);
    metrics.packets_lost.inc_by(stats.path.lost_packets);
    node.ended(client, ending);
    // The task that sends for this connection is behind this one.
    tokio::task::yield_now().await;
}

/// How far a connection has come.
enum Phase {
    Open,
    /// The client knows of the end; its last requests are on their way until then.
    Announced(Instant),
    /// No more requests are accepted.
    Closing,
}

/// Accepts requests until the connection ends.
async fn requests<N: Serve>(connection: &Arc<Connection<N>>, stop: &Stop) -> ConnectionEnd {
    let Connection { limits, quic, .. } = &**connection;
    // In Huffman's code, and with a prefix for each line, a head may be longer than its fields.
    let (transport, accepted) = Transport::new(quic.clone(), limits.head.head * 2);
    let mut builder = server::builder();
    builder
        .max_field_section_size(limits.head.head as u64)
        .enable_extended_connect(true)
        .send_grease(false);
    let http = match builder.build(transport).await {
        Ok(http) => http,
        Err(error) => return ending(quic, &error),
    };
    let watchdog = Watchdog::new(limits.idle_timeout, limits.send);
    let mut watched = pin!(watchdog.over(|| Some(connection.written.load(Relaxed))));
    let mut over = pin!(over(connection, stop));
    let mut silent = pin!(silence::is_lasting(connection, connection.node.dormant_retries()));
    let mut requests = Requests::new(connection.clone(), watchdog.clone(), http, accepted);
    let (mut phase, mut result) = (Phase::Open, ConnectionEnd::Finished);
    loop {
        let until = match phase {
            Phase::Announced(until) => Some(until),
            _ => None,
        };
        tokio::select! {
            biased;
            ended = poll_fn(|cx| requests.poll(cx)) => return match ended {
                Ok(()) if requests.closed => ConnectionEnd::Closed,
                Ok(()) => result,
                Err(error) => ending(quic, &error),
            },
            () = &mut silent => {
                connection.node.given_up(&connection.client());
                return ConnectionEnd::Dormant;
            }
            () = &mut over, if matches!(phase, Phase::Open) => {
                // Without a request, h3 would refuse even the first.
                if requests.asked && let Err(error) = requests.announce_end(ANY_MORE).await {
                    return ending(quic, &error);
                }
                let (least, most) = LAST_REQUESTS;
                phase = Phase::Announced(Instant::now() + (quic.rtt() * 2).clamp(least, most));
            }
            () = sleep_until(until), if until.is_some() => {
                let more = usize::from(requests.asked);
                if let Err(error) = requests.announce_end(more).await {
                    return ending(quic, &error);
                }
                requests.open = false;
                phase = Phase::Closing;
            }
            reason = &mut watched, if matches!(phase, Phase::Open) => match reason {
                EndReason::Stalled => return ConnectionEnd::SendTimeout,
                EndReason::Idle => {
                    result = ConnectionEnd::IdleTimeout;
                    phase = Phase::Announced(Instant::now());
                }
            },
        }
    }
}

/// Returns when the connection has to end because of the node.
async fn over<N: Serve>(connection: &Connection<N>, stop: &Stop) {
    let drained = async {
        connection.node.drained().await;
        // A client that connects during a drain gets its response first: it would only connect again.
        connection.asked.notified().await;
    };
    tokio::select! {
        () = stop.begun() => {}
        () = drained => {}
        () = connection.node.left() => {}
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn ending(quic: &quinn::Connection, error: &ConnectionError) -> ConnectionEnd {
    tracing::debug!(%error, "connection over QUIC");
    match quic.close_reason() {
        Some(quinn::ConnectionError::TimedOut) => ConnectionEnd::IdleTimeout,
        Some(quinn::ConnectionError::ApplicationClosed(_)) => ConnectionEnd::Closed,
        _ => ConnectionEnd::Broken,
    }
}
