//! An established TCP connection that moves from one machine to another while its client notices
//! nothing (the handoff of ASPLOS'98, Sec. 5), by Linux' `TCP_REPAIR`.
//!
//! ```text
//!   front-end                                   back-end
//!     steer the client's packets  ───────────>   (dropped there until there is a socket: bpf::Guard)
//!     deafen the socket, read what is left
//!     extract ── Connection, bytes read ─────>   restore: established, but silent
//!     close: nothing is sent                     speak: from the first byte of the answer on
//! ```
//!
//! Until the new owner speaks, nobody else can tell that the connection was moved: whoever kept the
//! [`Connection`] can restore it as well, here or elsewhere. That is how a handoff that fails is undone.
//!
//! Only connections that have nothing in flight.

mod socket;
mod state;

pub use socket::{Unfit, between, ends, extract, is_possible, keep, restore, speak};
pub use state::{Connection, Malformed, Window};
