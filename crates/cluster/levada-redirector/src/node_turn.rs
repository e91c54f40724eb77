//! A request at a node that a policy has chosen, until the body of the response has ended.

use std::time::Instant;

use http::StatusCode;
use levada_policy::{NodeIndex, Outstanding, RequestOutcome};
use levada_upstream::{Clock, ResponseGuard};

use crate::SharedDecider;

/// The count of a request as outstanding at its node, and the outcome for the policy.
pub struct NodeTurn {
    outstanding: Outstanding,
    decider: SharedDecider,
    clock: Clock,
    sent: Instant,
    answered: (Instant, StatusCode),
    ended: bool,
}

impl NodeTurn {
    /// A request that is answered now.
    pub fn new(
        (outstanding, sent): (Outstanding, Instant),
        decider: &SharedDecider,
        clock: Clock,
        status: StatusCode,
    ) -> Self {
        let (decider, answered) = (decider.clone(), (Instant::now(), status));
        Self { outstanding, decider, clock, sent, answered, ended: false }
    }
}

impl ResponseGuard for NodeTurn {
    fn complete(mut self: Box<Self>) {
        self.ended = true;
    }
}

impl Drop for NodeTurn {
    fn drop(&mut self) {
        if self.decider.observes()
            && let Some(node) = self.outstanding.node_now()
        {
            let outcome = outcome(node, self.sent, self.answered, self.ended);
            self.decider.observe(&outcome, self.clock.now());
        }
    }
}

/// The outcome of a request that ends now. `ended`: its body was received whole.
pub(crate) fn outcome(
    node: NodeIndex,
    sent: Instant,
    (answered, status): (Instant, StatusCode),
    ended: bool,
) -> RequestOutcome {
    let latency = answered - sent;
    // A tunnel lasts as long as its client likes.
    let tunnel = status == StatusCode::SWITCHING_PROTOCOLS;
    let service_time = if tunnel { latency } else { sent.elapsed() };
    RequestOutcome { node, latency, service_time, ok: ended && !status.is_server_error() }
}
