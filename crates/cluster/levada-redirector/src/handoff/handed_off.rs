//! A connection that a back-end has, as the front-end keeps it: what it counts as, the steering of its
//! packets, and the state to continue with it here.

use std::{sync::Arc, time::Duration};

use levada_http::ConnectionEnd;
use levada_net::{bpf::Steered, client::OpenConnection, handoff::Connection, stop::Stop};

use crate::handoff::{
    HandoffMetrics,
    channel::LEASE,
    front::{self, ChosenBackend, Responder},
    remote::{Event, Lease},
    serve::{Serve, Turn},
};

/// Kept while the connection is elsewhere. No task waits for it: the channel's task handles the back-end's
/// frames at once, which is all there is to do as long as nothing fails.
pub(crate) struct HandedOffConnection {
    pub(crate) connection: Connection,
    steered: Steered,
    /// The bytes that its client had sent, until the back-end begins to answer.
    pub(crate) bytes: Vec<u8>,
    turn: Box<dyn Turn>,
    /// Whether the size of its first answer was looked at.
    is_measured: bool,
    open: OpenConnection,
    counted: CountedHandoff,
}

/// The action that an event asks for.
pub(crate) enum EventAction {
    /// Nothing more.
    All,
    /// Close the connection.
    Over,
    /// Run [`attend`] in a task, because the event takes time.
    Takes(Event),
}

/// Counts a connection as open while it exists.
pub(crate) struct CountedConnection(Arc<HandoffMetrics>);

impl CountedConnection {
    pub(crate) fn new(metrics: &Arc<HandoffMetrics>) -> Self {
        metrics.connections.open.inc();
        Self(metrics.clone())
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.connections.open.dec();
    }
}

/// Counts a connection as a back-end's while it exists.
struct CountedHandoff(CountedConnection);

impl CountedHandoff {
    fn new(metrics: &Arc<HandoffMetrics>) -> Self {
        metrics.handed_over.inc();
        Self(CountedConnection::new(metrics))
    }

    fn metrics(&self) -> &HandoffMetrics {
        &self.0.0
    }
}

impl Drop for CountedHandoff {
    fn drop(&mut self) {
        self.metrics().handed_over.dec();
    }
}

/// The time for which packets are still steered to a back-end whose channel is gone: if the back-end
/// itself still runs, its answers continue.
const STEERING_GRACE: Duration = Duration::from_secs(5);
/// A back-end that is not heard any more speaks no later than its lease allows. After this time the
/// clients' acknowledgements show which answers it has started.
const LEASE_GRACE: Duration = LEASE.saturating_add(Duration::from_millis(500));

impl HandedOffConnection {
    pub(crate) fn new<S: Serve>(
        node: &Arc<S>,
        (connection, steered): (Connection, Steered),
        bytes: Vec<u8>,
        choice: ChosenBackend<S>,
        open: OpenConnection,
    ) -> Box<Self> {
        let (turn, counted) = (choice.turn, CountedHandoff::new(node.metrics()));
        Box::new(Self { connection, steered, bytes, turn, is_measured: false, open, counted })
    }

    /// The connection, for its next owner.
    pub(crate) fn give_up(self: Box<Self>) -> (Connection, Steered, Vec<u8>, OpenConnection) {
        (self.connection, self.steered, self.bytes, self.open)
    }

    /// The back-end has started to answer: the connection cannot be taken back any more.
    pub(crate) fn is_answered(&mut self) {
        self.bytes = Vec::new();
    }

    pub(crate) fn handle(&mut self, event: Event) -> EventAction {
        match event {
            Event::Idle => {
                self.turn.end();
                EventAction::All
            }
            Event::Resumes => {
                self.measure();
                self.turn.again();
                EventAction::All
            }
            Event::Ended => {
                self.measure();
                self.turn.end();
                self.counted.metrics().handoff("ended");
                EventAction::Over
            }
            other => EventAction::Takes(other),
        }
    }

    /// Tells the size of the first answer: when the client asks again, or closes, it has usually acknowledged
    /// all of it.
    fn measure(&mut self) {
        if !std::mem::replace(&mut self.is_measured, true)
            && let Ok(Some(to)) = self.steered.acknowledged()
        {
            self.turn.acknowledged(to.wrapping_sub(self.connection.send_next).into());
        }
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.open.stop
    }

    /// Ends its record.
    pub(crate) fn end(self: Box<Self>, ending: ConnectionEnd) {
        self.counted.metrics().connections.ended(ending);
    }

    /// Whether the client has acknowledged anything of an answer since the connection left.
    pub(crate) fn was_answered(&self) -> bool {
        let further = |to: u32| to.wrapping_sub(self.connection.send_next) as i32 > 0;
        self.steered.acknowledged().ok().flatten().is_some_and(further)
    }
}

/// Handles events that take time, until the channel's task can continue with the connection, or the connection has
/// ended or come back.
pub(crate) async fn attend<S: Serve>(
    node: Arc<S>,
    lease: Lease<S>,
    mut handed_off: Box<HandedOffConnection>,
    event: Event,
) {
    let mut next = Some(event);
    while let Some(event) = next {
        if let Event::Vanished = event {
            tokio::time::sleep(LEASE_GRACE).await;
        }
        match event {
            // A back-end may have started to answer just before its channel broke off.
            Event::Refused | Event::Vanished if !handed_off.was_answered() => {
                node.metrics().handoff("refused");
                lease.end();
                return front::go_on(node, handed_off, Responder::Here).await;
            }
            Event::Refused | Event::Vanished | Event::Lost => {
                node.metrics().handoff("lost");
                handed_off.turn.lose();
                tokio::time::sleep(STEERING_GRACE).await;
                lease.end();
                return handed_off.end(ConnectionEnd::Broken);
            }
            Event::GivenBack(connection, bytes) => {
                node.metrics().handoff("given-back");
                (handed_off.connection, handed_off.bytes) = (connection, bytes);
                lease.end();
                return front::go_on(node, handed_off, Responder::Anywhere).await;
            }
            Event::Asks(head) => match front::choose(&node, &head).await {
                Some(next) if next.link.is_to(lease.control()) => {
                    handed_off.turn = next.turn;
                    lease.keep();
                }
                _ => lease.give_up(),
            },
            quick @ (Event::Idle | Event::Resumes | Event::Ended) => {
                if let EventAction::Over = handed_off.handle(quick) {
                    lease.end();
                    return handed_off.end(ConnectionEnd::Finished);
                }
            }
        }
        match lease.leave(handed_off) {
            None => return,
            Some((kept, event)) => (handed_off, next) = (kept, Some(event)),
        }
    }
}
