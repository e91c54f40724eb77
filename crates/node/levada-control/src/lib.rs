//! The parts of a node that it shows of itself.
//!
//! ```text
//! status    what a node says of itself: state, the last 15 minutes, hot objects, the states of its peers
//! page      the web page of a running cluster: its files, and the stream of events that they show
//! ```

pub mod page;
pub mod status;
