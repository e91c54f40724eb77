//! What a front-end keeps of a connection that a back-end has: what it counts as, what steers its packets,
//! and what it takes to go on with it here.

use std::{sync::Arc, time::Duration};

use levada_net::{bpf::Steered, handoff::Connection};

use super::{
    channel::LEASE,
    front::{self, Choice, Next},
    link::{Lease, News},
};
use crate::{
    clock::Clock,
    connection::Guest,
    guard::Ending,
    metrics::Metrics,
    node::Node,
    sites::Site,
    stop::Stop,
    switch::{Member, Switch, Turn},
};

/// Kept for as long as the connection is elsewhere. No task waits for it: whoever hears the back-end acts
/// upon it at once, which is all there is to do as long as all goes well.
pub(super) struct Charge {
    pub(super) connection: Connection,
    steered: Steered,
    /// What its client had sent, until the back-end has begun to answer.
    pub(super) bytes: Vec<u8>,
    site: Arc<Site>,
    switch: Arc<Switch>,
    member: Arc<Member>,
    /// None while it rests.
    turn: Option<Turn>,
    clock: Clock,
    guest: Guest,
    _counted: Counted,
}

/// What is to be done about news.
pub(super) enum Heard {
    /// Nothing more.
    All,
    /// The connection is to be let go of.
    Over,
    /// What takes time: [`attend`] to it.
    Takes(News),
}

struct Counted(Arc<Metrics>);

impl Counted {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.connections.inc();
        metrics.handed_over.inc();
        Self(metrics.clone())
    }
}

impl Drop for Counted {
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

impl Charge {
    pub(super) fn new(
        node: &Node,
        (connection, steered): (Connection, Steered),
        bytes: Vec<u8>,
        choice: Choice,
        guest: Guest,
    ) -> Box<Self> {
        let Choice { site, switch, member, turn, .. } = choice;
        let (clock, turn, _counted) = (node.clock, Some(turn), Counted::new(&node.metrics));
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
    pub(super) fn give_up(self: Box<Self>) -> (Connection, Steered, Vec<u8>, Guest) {
        (self.connection, self.steered, self.bytes, self.guest)
    }

    /// What it was about can be forgotten: it is the back-end's for good.
    pub(super) fn is_answered(&mut self) {
        self.bytes = Vec::new();
    }

    pub(super) fn hear(&mut self, news: News) -> Heard {
        match news {
            News::Rests => {
                self.end_turn();
                // Idle connections are not waited for, wherever they are.
                if self.guest.stop.has_begun() { Heard::Over } else { Heard::All }
            }
            News::Begins => {
                self.turn = Turn::again(self.clock, &self.site, &self.member);
                Heard::All
            }
            News::Ended => {
                self.end_turn();
                self._counted.0.handoff("ended");
                Heard::Over
            }
            other => Heard::Takes(other),
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
    pub(super) fn end(self: Box<Self>, ending: Ending) {
        self._counted.0.ended(ending);
    }

    /// Whether the client has acknowledged anything of an answer since the connection left.
    pub(super) fn was_answered(&self) -> bool {
        let further = |to: u32| to.wrapping_sub(self.connection.send_next) as i32 > 0;
        self.steered.acknowledged().ok().flatten().is_some_and(further)
    }
}

/// Deals with what takes time, until the link can go on with the connection, or it is over, or here again.
pub(super) async fn attend(node: Arc<Node>, lease: Lease, mut charge: Box<Charge>, news: News) {
    let mut next = Some(news);
    while let Some(news) = next {
        if let News::Vanished = news {
            tokio::time::sleep(AFTER_LEASE).await;
        }
        match news {
            // A back-end whose channel has broken off may have spoken, and not have been heard.
            News::Refused | News::Vanished if !charge.was_answered() => {
                node.metrics.handoff("refused");
                lease.end();
                return front::go_on(node, charge, Next::Here).await;
            }
            News::Refused | News::Vanished | News::Lost => {
                node.metrics.handoff("lost");
                charge.turn = None;
                tokio::time::sleep(GRACE).await;
                lease.end();
                return charge.end(Ending::Broken);
            }
            News::GivenBack(connection, bytes) => {
                node.metrics.handoff("given-back");
                (charge.connection, charge.bytes) = (connection, bytes);
                lease.end();
                return front::go_on(node, charge, Next::Anywhere).await;
            }
            News::Asks(head) => match front::choose(&node, &head).await {
                Some(next) if lease.is_at(&next.link) => {
                    charge.turn = Some(next.turn);
                    lease.keep();
                }
                _ => lease.give_up(),
            },
            quick @ (News::Rests | News::Begins | News::Ended) => {
                if let Heard::Over = charge.hear(quick) {
                    lease.end();
                    return charge.end(Ending::Finished);
                }
            }
        }
        match lease.leave(charge) {
            None => return,
            Some((kept, news)) => (charge, next) = (kept, Some(news)),
        }
    }
}
