//! Which service class a request is of, for policies that spread each class by itself (WWW10 Sec. 3.2).
//!
//! The operator's [`Rules`] say so by what the switch can see of a request; where they leave it open, a
//! [`Learner`] goes by how long requests of the same kind took.

mod learn;
mod rules;

pub use learn::{Figures, Heavy, Learner, Times, prefix_of};
pub use rules::{Rule, Rules, Seen};
