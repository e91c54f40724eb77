//! Guards that a response holds until its body has ended: places, loads, outcomes for a policy.

use std::hash::Hash;

use crate::AdmittedRequest;

/// A guard in the body of a response. Dropped without [`complete`](Self::complete), the body broke off.
pub trait ResponseGuard: Send + Sync {
    /// The body was polled. `is_behind`: its reader is what the next piece waits for now, not the server.
    fn polled(&self, _is_behind: bool) {}

    /// The body has been received whole.
    fn complete(self: Box<Self>);
}

impl<C: Ord + Copy + Hash + Send + Sync> ResponseGuard for AdmittedRequest<C> {
    fn polled(&self, is_behind: bool) {
        self.reader_is_behind(is_behind);
    }

    fn complete(self: Box<Self>) {}
}
