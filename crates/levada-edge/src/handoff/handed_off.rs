//! What a front-end keeps of a connection that a back-end has: what it counts as, what steers its packets,
//! and what it takes to go on with it here.

use std::{sync::Arc, time::Duration};

use levada_http1::ConnectionEnd;
use levada_net::{bpf::Steered, handoff::Connection};

use super::{
    channel::LEASE,
    front::{self, ChosenBackend, Responder},
    link::{Event, Lease},
};
use crate::{
    clock::Clock,
    connection::OpenConnection,
    metrics::Metrics,
    node::Node,
    sites::Site,
    stop::Stop,
    switch::{Member, ServerTurn, Switch},
};

/// Kept for as long as the connection is elsewhere. No task waits for it: whoever hears the back-end acts
/// upon it at once, which is all there is to do as long as all goes well.
pub(super) struct HandedOffConnection {
    pub(super) connection: Connection,
    steered: Steered,
    /// What its client had sent, until the back-end has begun to answer.
    pub(super) bytes: Vec<u8>,
    site: Arc<Site>,
    switch: Arc<Switch>,
    member: Arc<Member>,
    /// None while it rests.
    turn: Option<ServerTurn>,
    clock: Clock,
    guest: OpenConnection,
    _counted: CountedHandoff,
}

/// What is to be done about news.
pub(super) enum EventAction {
    /// Nothing more.
    All,
    /// The connection is to be let go of.
    Over,
    /// What takes time: [`attend`] to it.
    Takes(Event),
}

struct CountedHandoff(Arc<Metrics>);

impl CountedHandoff {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.connections.inc();
        metrics.handed_over.inc();
        Self(metrics.clone())
    }
}

impl Drop for CountedHandoff {
    fn drop(&mut self) {
        self.0.connections.dec();
        self.0.handed_over.dec();
    }
}

/// How long packets are still steered to a back-end that cannot be heard any more: if only its channel
/// is gone, its answers go on.
const GRACE: Duration = Duration::from_secs(5);
/// How long after it was heard last by a back-end, at the latest, the front-end knows by the clients'
/// acknowledgements what that has begun to answer.
const AFTER_LEASE: Duration = LEASE.saturating_add(Duration::from_millis(500));

impl HandedOffConnection {
    pub(super) fn new(
        node: &Node,
        (connection, steered): (Connection, Steered),
        bytes: Vec<u8>,
        choice: ChosenBackend,
        guest: OpenConnection,
    ) -> Box<Self> {
        let ChosenBackend { site, switch, member, turn, .. } = choice;
        let (clock, turn, _counted) = (node.clock, Some(turn), CountedHandoff::new(&node.metrics));
        Box::new(Self {
            connection,
            steered,
            bytes,
            site,
            switch,
            member,
            turn,
            clock,
            guest,
            _counted,
        })
    }

    /// The connection, for whoever has it from now on.
    pub(super) fn give_up(self: Box<Self>) -> (Connection, Steered, Vec<u8>, OpenConnection) {
        (self.connection, self.steered, self.bytes, self.guest)
    }

    /// What it was about can be forgotten: it is the back-end's for good.
    pub(super) fn is_answered(&mut self) {
        self.bytes = Vec::new();
    }

    pub(super) fn hear(&mut self, event: Event) -> EventAction {
        match event {
            Event::Rests => {
                self.end_turn();
                // Idle connections are not waited for, wherever they are.
                if self.guest.stop.has_begun() { EventAction::Over } else { EventAction::All }
            }
            Event::Begins => {
                self.turn = ServerTurn::again(self.clock, &self.site, &self.member);
                EventAction::All
            }
            Event::Ended => {
                self.end_turn();
                self._counted.0.handoff("ended");
                EventAction::Over
            }
            other => EventAction::Takes(other),
        }
    }

    fn end_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.end_elsewhere();
            self.switch.served(&self.member);
        }
    }

    /// Whether none of its requests is being answered.
    pub(super) fn rests(&self) -> bool {
        self.turn.is_none()
    }

    pub(super) fn stop(&self) -> &Stop {
        &self.guest.stop
    }

    /// Lets go of it.
    pub(super) fn end(self: Box<Self>, ending: ConnectionEnd) {
        self._counted.0.ended(ending);
    }

    /// Whether the client has acknowledged anything of an answer since the connection left.
    pub(super) fn was_answered(&self) -> bool {
        let further = |to: u32| to.wrapping_sub(self.connection.send_next) as i32 > 0;
        self.steered.acknowledged().ok().flatten().is_some_and(further)
    }
}

/// Deals with what takes time, until the link can go on with the connection, or it is over, or here again.
pub(super) async fn attend(
    node: Arc<Node>,
    lease: Lease,
    mut handed_off: Box<HandedOffConnection>,
    event: Event,
) {
    let mut next = Some(event);
    while let Some(event) = next {
        if let Event::Vanished = event {
            tokio::time::sleep(AFTER_LEASE).await;
        }
        match event {
            // A back-end whose channel has broken off may have spoken, and not have been heard.
            Event::Refused | Event::Vanished if !handed_off.was_answered() => {
                node.metrics.handoff("refused");
                lease.end();
                return front::go_on(node, handed_off, Responder::Here).await;
            }
            Event::Refused | Event::Vanished | Event::Lost => {
                node.metrics.handoff("lost");
                handed_off.turn = None;
                tokio::time::sleep(GRACE).await;
                lease.end();
                return handed_off.end(ConnectionEnd::Broken);
            }
            Event::GivenBack(connection, bytes) => {
                node.metrics.handoff("given-back");
                (handed_off.connection, handed_off.bytes) = (connection, bytes);
                lease.end();
                return front::go_on(node, handed_off, Responder::Anywhere).await;
            }
            Event::Asks(head) => match front::choose(&node, &head).await {
                Some(next) if lease.is_at(&next.link) => {
                    handed_off.turn = Some(next.turn);
                    lease.keep();
                }
                _ => lease.give_up(),
            },
            quick @ (Event::Rests | Event::Begins | Event::Ended) => {
                if let EventAction::Over = handed_off.hear(quick) {
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
