//! Fills: fetches of objects into the cache, each a single flight of the requests for its object.
//!
//! The first request to miss leads; when its client aborts, the fetch goes on for the followers. All
//! of them await the [`FetchOutcome`], which the head decides, and then read at their own speed.
//!
//! ```text
//!   lead_or_follow ── Fetch ───> head ──┬─ Body: received block by block, readers follow
//!                                       ├─ Large: fetched in pieces, by `large`
//!                                       ├─ Unshared: the leader passes it on,
//!                                       │            followers fetch for themselves
//!                                       ├─ Renewed: a validation said 304
//!                                       └─ Failed
//! ```

use std::sync::Arc;

use http::HeaderMap;
use levada_body::{BlockedBody, FlightLeader, Follower, SingleFlight};
use levada_observe::otel::TraceContext;
use levada_redirector::ChosenServer;
use levada_store::{Label, Object};
use levada_upstream::{Relay, ServerFailure};

use levada_failure::{Failed, Failure};

/// All fills under way.
pub(crate) type Fills = SingleFlight<FetchOutcome, LeaderShare>;
/// The writing end of a fill: the fetching task's.
pub(crate) type FillLeader = FlightLeader<FetchOutcome, LeaderShare>;
/// The reading end of a fill: a request's.
pub(crate) type FillFollower = Follower<FetchOutcome, LeaderShare>;

/// The outcome of a fetch, known as soon as the head has arrived.
#[derive(Clone)]
pub(crate) enum FetchOutcome {
    /// It may be shared.
    Body(Arc<BlockedBody>),
    /// It is a large file, whose head is stored: its body is fetched in pieces.
    Large(Arc<Object>),
    /// It may not be shared: everyone needs an own response.
    Unshared,
    /// The stored object is still good.
    Renewed(Arc<Object>),
    /// There is none.
    Failed(Failed),
}

/// The part of an outcome that only the leader's client may have.
#[derive(Default)]
pub(crate) struct LeaderShare {
    /// The response that is not shared.
    pub(crate) unshared: Option<UnsharedResponse>,
    /// Fields that are not shared, of a response that is shared without them.
    pub(crate) fields: HeaderMap,
    /// The status of the answer that this fetch got.
    pub(crate) answered: Option<u16>,
    /// The server of a switch that gave the head.
    pub(crate) chosen: Option<ChosenServer>,
    /// The span of the leader's request, which followers name as well.
    pub(crate) span: Option<TraceContext>,
}

/// A response that only the leader's client may have.
pub(crate) struct UnsharedResponse {
    pub(crate) head: http::response::Parts,
    pub(crate) relay: Relay,
    /// Why it is not shared, for `Cache-Status`.
    pub(crate) reason: &'static str,
    /// Whether it is the answer to all that its client has said.
    pub(crate) is_whole: bool,
}

impl FetchOutcome {
    /// The outcome of a flight, which a fetch that has ended early does not give.
    pub(crate) fn or_failed(outcome: Option<Self>) -> Self {
        let failed = || Self::Failed(Failure::Server(ServerFailure::NoResponse).into());
        outcome.unwrap_or_else(failed)
    }

    /// The label of what may be shared.
    pub(crate) fn label(&self) -> Option<&Label> {
        match self {
            Self::Body(body) => Some(&body.of.head.label),
            Self::Renewed(object) | Self::Large(object) => Some(object.label()),
            Self::Unshared | Self::Failed(_) => None,
        }
    }
}
