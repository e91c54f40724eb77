//! The service class of a request, for policies that spread each class separately (WWW10 Sec. 3.2).
//!
//! The operator's [`ClassRules`] decide by the attributes of a request that the switch can see. Where no
//! rule gives a class, a [`ClassLearner`] decides by how long requests of the same kind took.

mod learn;
mod rules;

pub use learn::{ClassLearner, HeavyThreshold, RecentTimes, TimeFigures, prefix_of};
pub use rules::{ClassRule, ClassRules, RequestAttributes};
