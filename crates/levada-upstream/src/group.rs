//! A group of servers any of which may answer a request: the origins of a site, the peers, the servers of
//! a switch.
//!
//! ```text
//!   next ──> ask ──> report_outcome, count ──> answered: the response holds its guards
//!     ^       │ failed
//!     │       v
//!     └── report_outcome, count, log ──> while it is safe, worth it, and within tries and budget
//! ```
//!
//! A request goes to another server only if it is safe to repeat (RFC 9110 Sec. 9.2.1), or, where the group
//! wants that, if no byte of it was sent; and only until the first byte of a response's head.

use std::{borrow::Cow, sync::Arc};

use http::StatusCode;

use crate::{
    Clock, RequestBody, RetryBudget, ServerFailure, UpstreamHead, UpstreamResponse, WatchedServer,
    report_outcome,
};

/// The kind of a group's servers, as metrics and logs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// An origin of a site.
    Origin,
    /// Another node of the cluster.
    Peer,
    /// A server of a switch.
    Switched,
}

impl ServerKind {
    /// The name used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Peer => "peer",
            Self::Switched => "server",
        }
    }
}

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

    /// The head as `server` takes it.
    fn head_for<'h>(
        &self,
        _server: &Self::Server,
        head: &'h UpstreamHead,
    ) -> Cow<'h, UpstreamHead> {
        Cow::Borrowed(head)
    }

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
    fn failed(&mut self, _server: Self::Server, _held: Self::Held) {}
}

/// Counts the outcomes of requests to servers.
pub trait OutcomeCounter: Sync {
    /// Counts a response.
    fn answered(&self, kind: ServerKind, status: StatusCode);
    /// Counts a request without a response.
    fn failed(&self, kind: ServerKind, failure: ServerFailure);
}

/// The bounds of the tries of one request.
pub struct Retries<'a> {
    /// Servers that are tried at most.
    pub tries: usize,
    /// The budget that retries are taken from.
    pub budget: &'a RetryBudget,
    /// Whether a request that is not safe goes to another server when no byte of it was sent.
    pub resends_unsent: bool,
    /// The node's clock.
    pub clock: Clock,
    /// Counts outcomes.
    pub counter: &'a dyn OutcomeCounter,
}

/// A request that no server has answered.
#[derive(Clone, Debug)]
pub struct SendError {
    /// The failure of the last try.
    pub failure: ServerFailure,
    /// The last server that was tried.
    pub server: Option<Arc<str>>,
}

/// Sends a request to the servers that `group` chooses, one after another, until one answers.
///
/// # Errors
/// The failure of the last try.
pub async fn send<G: Group>(
    group: &mut G,
    retries: &Retries<'_>,
    head: &UpstreamHead,
    mut body: RequestBody,
) -> Result<UpstreamResponse, SendError> {
    let kind = G::Server::KIND;
    let safe = head.method.is_safe() && body.is_none();
    let mut error = SendError { failure: ServerFailure::AllDown, server: None };
    for tried in 0..retries.tries {
        if tried > 0 && !retries.budget.take(retries.clock.now()) {
            break;
        }
        let (server, held) = match group.next() {
            Ok(next) => next,
            Err(failure) if tried == 0 => return Err(SendError { failure, server: None }),
            Err(_) => break,
        };
        let addressed = group.head_for(&server, head);
        let response = server.server().exchange(&addressed, body).await;
        let (failure, back) = match response.and_then(|response| accept(group, response)) {
            Ok(mut response) => {
                report_outcome(&server, None, retries.clock);
                retries.counter.answered(kind, response.status());
                group.answered(server, held, &mut response);
                return Ok(response);
            }
            Err(unanswered) => unanswered,
        };
        report_outcome(&server, Some(failure), retries.clock);
        retries.counter.failed(kind, failure);
        log(&server, failure);
        error = SendError { failure, server: Some(server.server().name.clone()) };
        group.failed(server, held);
        let again = safe || (retries.resends_unsent && back.is_some());
        body = back.unwrap_or(RequestBody::None);
        if !again || !failure.worth_retrying() {
            break;
        }
    }
    Err(error)
}

fn accept<G: Group>(
    group: &G,
    response: UpstreamResponse,
) -> Result<UpstreamResponse, (ServerFailure, Option<RequestBody>)> {
    match group.check(&response) {
        Ok(()) => Ok(response),
        Err(failure) => Err((failure, None)),
    }
}

/// Each kind of server has a field of its own in the log.
fn log<W: WatchedServer>(server: &W, failure: ServerFailure) {
    let (name, reason) = (&server.server().name, failure.as_str());
    match W::KIND {
        ServerKind::Origin => tracing::info!(origin = %name, reason, "origin failed"),
        ServerKind::Peer => tracing::info!(peer = %name, reason, "peer failed"),
        ServerKind::Switched => tracing::info!(server = %name, reason, "server failed"),
    }
}
