//! Which node would serve a request, and why: as a running node sees it, or one that has just started.
//!
//! ```text
//! explained         the request that is explained, and the route of a site that it takes
//! live              the request as a running node would have it
//! deciding          makes explanations
//! explanation       the node that would serve it, and why
//! explanation_text  the same as text
//! ```

mod deciding;
mod explained;
mod explanation;
pub mod explanation_text;
mod live;

pub use deciding::{DecidingSite, IdentifiedRequest, explain_settings};
pub use explained::{EvaluatedExpression, ExplainedRequest, RouteNotTaken, TakenRoute};
pub use explanation::{Candidate, ExplainError, Explanation, PiecePlacement, Pieces, ShieldChoice};
pub use live::live;
