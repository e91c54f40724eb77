//! TCP handoff (ASPLOS'98, Sec. 5) by Linux' `TCP_REPAIR`: an established connection moves from one
//! machine to another without the client noticing it.
//!
//! ```text
//!   front-end                                   back-end
//!     steer the client's packets  ───────────>   (dropped there until there is a socket: bpf::Guard)
//!     block the socket's input, read the rest
//!     extract ── Connection, bytes read ─────>   restore: established, but sends nothing
//!     close: nothing is sent                     activate: before the first response byte
//! ```
//!
//! Until the new owner calls [`activate`], no other host can notice that the connection was moved. So
//! a process that kept the [`Connection`] can also restore it, here or elsewhere. A failed handoff
//! is undone this way.
//!
//! Only connections without data in flight can be moved.

mod socket;
mod state;

pub use socket::{
    NotMovable, activate, between, ends, extract, is_possible, restore, undo_extract,
};
pub use state::{Connection, MalformedState, Window};
