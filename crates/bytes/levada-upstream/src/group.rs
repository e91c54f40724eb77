//! A group of servers any of which may answer a request: the origins of a site, the peers, the servers of
//! a switch.
//!
//! ```text
//!   next ──> ask ──> report_outcome, count ──> answered: the response holds its guards
//!     ^       │ failed, late, or its server is declared down
//!     │       v
//!     └── report_outcome, count, log ──> while it is safe, worth it, and within tries and budget
//! ```
//!
//! A request goes to another server only if it is safe to repeat (RFC 9110 Sec. 9.2.1), or, where the group
//! wants that, if no byte of it was sent; and only until the first byte of a response's head.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    Clock, RequestBody, RetryBudget, ServerFailure, ServerKind, UpstreamHead, UpstreamMetrics,
    UpstreamResponse, WatchedServer,
    tries::{Event, Over, Tries},
};

/// The choice among the servers of a group for one request.
pub trait Group: Send {
    /// A server of the group.
    type Server: WatchedServer;
    /// Guards that a try holds.
    type Held: Send;

    /// Chooses the next server, which has not been tried.
    ///
    /// # Errors
    /// The reason why there is none.
    fn next(&mut self) -> Result<(Self::Server, Self::Held), ServerFailure>;

    /// Whether the response is one; a server may refuse a request by it.
    ///
    /// # Errors
    /// The reason of the refusal.
    fn check(&self, _response: &UpstreamResponse) -> Result<(), ServerFailure> {
        Ok(())
    }

    /// Takes in the response, which holds from now on what must last until the end of its body.
    fn answered(&mut self, server: Self::Server, held: Self::Held, response: &mut UpstreamResponse);

    /// Takes in that the try has failed.
    fn failed(&mut self, _server: Self::Server, _held: Self::Held, _failure: ServerFailure) {}

    /// Whether a late response of `server` is waited for without a second request to another server.
    fn waits_for(&self, _server: &Self::Server) -> bool {
        false
    }

    /// Takes what one more try next to the one under way needs; false if that is not to be had now.
    fn takes_another(&mut self) -> bool {
        true
    }

    /// Takes in that the response is late: no head has come in the usual time of the server.
    fn is_late(&mut self) {}

    /// Ready when the request has to end for others. Asked for whenever its tries are polled.
    fn poll_gives_way(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Whether the caller answers the request itself when there is no server left to ask. A late server is not
    /// waited for then.
    fn caller_answers(&self) -> bool {
        false
    }
}

/// The bounds of the tries of one request.
pub struct Retries<'a> {
    /// Servers that are tried at most.
    pub tries: usize,
    /// The budget that retries are taken from.
    pub budget: &'a RetryBudget,
    /// Whether a request that is not safe goes to another server when no byte of it was sent.
    pub resends_unsent: bool,
    /// Whether another server is asked as well when one is late. Only safe requests without a body are.
    pub asks_beside: bool,
    /// The node's clock.
    pub clock: Clock,
    /// Counts outcomes.
    pub metrics: &'a UpstreamMetrics,
}

/// A request that no server has answered.
#[derive(Clone, Debug)]
pub struct SendError {
    /// The failure of the last try.
    pub failure: ServerFailure,
    /// The last server that was tried.
    pub server: Option<Arc<str>>,
}

/// Sends a request to the servers that `group` chooses until one answers.
///
/// # Errors
/// The failure of the last try.
pub async fn send<G: Group>(
    group: &mut G,
    retries: &Retries<'_>,
    head: &UpstreamHead,
    body: RequestBody,
) -> Result<UpstreamResponse, SendError> {
    let mut tries = Tries::begin(group, retries, head, body)?;
    loop {
        let goes_on = match tries.event().await {
            Event::Answered(at, response) => return Ok(tries.answered(at, response)),
            Event::Failed(at, failure, back) => tries.failed(at, failure, back),
            Event::Waited => tries.waited(),
            Event::Down(at) => tries.down(at),
            Event::GivesWay => tries.gives_way(),
        };
        if let Err(Over) = goes_on {
            return Err(tries.error());
        }
    }
}

/// Each kind of server has a field of its own in the log.
pub(crate) fn log<W: WatchedServer>(server: &W, failure: ServerFailure) {
    let (name, reason) = (&server.server().name, failure.as_str());
    match W::KIND {
        ServerKind::Origin => tracing::info!(origin = %name, reason, "origin failed"),
        ServerKind::Peer => tracing::info!(peer = %name, reason, "peer failed"),
        ServerKind::Switched => tracing::info!(server = %name, reason, "server failed"),
    }
}
