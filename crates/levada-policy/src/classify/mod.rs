//! The service class of a request, for policies that spread each class separately (WWW10 Sec. 3.2).
//!
//! The operator's [`Rules`] decide by the attributes of a request that the switch can see. Where no
//! rule gives a class, a [`Learner`] decides by how long requests of the same kind took.

mod learn;
mod rules;

pub use learn::{Figures, Heavy, Learner, Times, prefix_of};
pub use rules::{Rule, Rules, Seen};
