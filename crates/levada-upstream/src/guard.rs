//! Guards that a response holds until its body has ended: places, loads, outcomes for a policy.

use crate::AdmittedRequest;

/// A guard in the body of a response. Dropped without [`complete`](Self::complete), the body broke off.
pub trait ResponseGuard: Send + Sync {
    /// The body has been received whole.
    fn complete(self: Box<Self>);
}

impl<C: Ord + Copy + Send + Sync> ResponseGuard for AdmittedRequest<C> {
    fn complete(self: Box<Self>) {}
}
