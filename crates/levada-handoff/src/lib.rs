//! TCP handoff (ASPLOS'98, Sec. 5): a front-end hands connections to back-ends, which answer the
//! clients directly. docs/operate/handoff.md says what operators set up,
//! docs/decisions/0009 why it is done so.
//!
//! ```text
//! serve       the node behind it: chooses back-ends, serves the requests that stay
//! front       the front-end: reads a head, chooses, hands over, serves the rest by itself
//! handed_off  a connection that a back-end has, as the front-end keeps it
//! link        the front-end's side of the channel to one back-end
//! backend     the back-end's side
//! channel     authenticated frames in order
//! frame       the messages
//! head        a request's head, read before its server is chosen
//! arrived     a connection with bytes that were read already, silent until it is answered
//! ```

mod arrived;
mod backend;
mod channel;
mod frame;
mod front;
mod handed_off;
mod head;
mod link;
mod serve;
mod settings;

use std::{io, net::SocketAddr, os::fd::AsFd, time::Duration};

pub use arrived::{ArrivedConnection, SilencedSocket};
pub use backend::{HandoffBackend, accept};
pub use front::{Front, serve};
use levada_net::handoff::{self, Connection, NotMovable};
pub use link::BackendLink;
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{RecvFlags, recv},
};
pub use serve::{Choice, Observe, Serve, Turn};
pub use settings::{AfterHandoff, HandoffBackendSettings, HandoffControl, HandoffSettings};

/// The parser of frames, for fuzzing and tests only.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::frame::{BadFrame, Frame};
}

/// The pause between two attempts to connect to a back-end.
const RETRY: Duration = Duration::from_secs(1);
/// The most bytes that are handed over with a connection.
const MAX_BYTES: usize = 256 << 10;

/// Extracts a connection between these addresses from its socket, whose input is blocked, with the
/// bytes received before. If `first` is set, it is all that was ever read from the socket.
fn take_out(
    socket: &impl AsFd,
    ends: (SocketAddr, SocketAddr),
    bytes: &mut Vec<u8>,
    first: bool,
) -> io::Result<Connection> {
    let read = |bytes: &[u8]| first.then_some(bytes.len() as u64);
    let taken = match handoff::extract(socket, ends, read(bytes)) {
        Err(NotMovable::Unread) => {
            read_rest(socket, bytes)?;
            handoff::extract(socket, ends, read(bytes))
        }
        taken => taken,
    };
    taken.map_err(|unfit| match unfit {
        NotMovable::Io(error) => error,
        NotMovable::Unread => io::Error::other(unfit),
    })
}

/// Reads the bytes that arrived before a socket's input was blocked. Asks the socket itself for them:
/// the runtime may not have been notified yet.
fn read_rest(socket: &impl AsFd, bytes: &mut Vec<u8>) -> io::Result<()> {
    while bytes.len() <= MAX_BYTES {
        bytes.reserve(1);
        match recv(socket, spare_capacity(bytes), RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::Error::other("the client has ended its side")),
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("more has come than goes along"))
}
