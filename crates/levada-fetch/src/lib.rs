//! Which bytes next: how a large file is fetched in pieces.
//!
//! State machines in quinn's manner: they are handed the time and what has happened, and say what to
//! ask for and when to look again. Sockets, clocks and memory are the driver's: a node
//! (`levada-edge`), a client, a simulation.

mod timeout;

pub use timeout::{Average, Patience, Timeout};
