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

/// Between two attempts to reach somebody.
const RETRY: Duration = Duration::from_secs(1);
/// What goes along with a connection at most.
const MOST_BYTES: usize = 256 << 10;

/// Takes a connection between these ends out of its socket, which is deaf, with what has come before. If
/// that is all that ever was read from the socket, it is `first`.
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

/// Reads what came before a socket was deaf. Whether there is something is asked of the socket itself:
/// the runtime may not have been told yet.
fn read_rest(socket: &impl AsFd, bytes: &mut Vec<u8>) -> io::Result<()> {
    while bytes.len() <= MOST_BYTES {
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
