//! TCP handoff (ASPLOS'98, Sec. 5) by Linux' `TCP_REPAIR`: an established connection moves from one
//! machine to another without the client noticing it.
//!
//! ```text
//!   front-end                                   back-end
//!     steer the client's packets  ───────────>   (dropped there until there is a socket: bpf::Guard)
//!     deafen the socket, read the rest
//!     extract ── Connection, bytes read ─────>   restore: established, but sends nothing
//!     close: nothing is sent                     speak: before the first byte of the response
//! ```
//!
//! Until the new owner calls [`speak`], no other host can notice that the connection was moved. So
//! a process that kept the [`Connection`] can also restore it, here or elsewhere. A failed handoff
//! is undone this way.
//!
//! Only connections without data in flight can be moved.

mod socket;
mod state;

pub use socket::{Unfit, between, ends, extract, is_possible, keep, restore, speak};
pub use state::{Connection, Malformed, Window};
