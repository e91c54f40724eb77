//! A running node under control.
//!
//! ```text
//! status   what a node says of itself: state, the last 15 minutes, hot objects, explanations of decisions
//! page     the web page of a running cluster: its files, and the stream of events that they show
//! upgrade  sockets, purges and stored objects on their way to the next process; what systemd is told
//! ```

pub mod page;
pub mod status;
pub mod upgrade;
