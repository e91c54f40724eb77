//! A running node under control.
//!
//! ```text
//! announce  whether the BGP route to a node is announced, as a backup or not at all; drains
//! counts    the requests and connections of a node at one moment
//! status    what a node says of itself: state, the last 15 minutes, hot objects, explanations of decisions
//! page      the web page of a running cluster: its files, and the stream of events that they show
//! upgrade   sockets, purges and stored objects on their way to the next process; messages to systemd
//! ```

pub mod announce;
mod counts;
pub mod page;
pub mod status;
pub mod upgrade;

pub use counts::Counts;
