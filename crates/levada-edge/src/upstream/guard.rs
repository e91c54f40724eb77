//! Guards that a response holds until its body has ended: places, loads, outcomes for a policy.

use super::AdmittedRequest;

/// A guard in the body of a response. Dropped without [`complete`](Self::complete), the body broke off.
pub(crate) trait ResponseGuard: Send + Sync {
    /// The body has been received whole.
    fn complete(self: Box<Self>);
}

impl<C: Ord + Copy + Send + Sync> ResponseGuard for AdmittedRequest<C> {
    fn complete(self: Box<Self>) {}
}
