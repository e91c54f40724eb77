//! Connections that are handed from a front-end to back-ends, which answer their clients directly (the
//! TCP handoff of ASPLOS'98, Sec. 5). docs/operate/handoff.md says what operators set up,
//! docs/decisions/0009 why it is done so.
//!
//! ```text
//! front      reads a head, chooses, hands over; serves by itself whatever cannot be handed over
//! charge     what a front-end keeps of a connection that is elsewhere, and what it does about news of it
//! link       what was handed to one back-end, and what that says of it
//! taker      the back-end's side
//! channel    how the two talk: authenticated, in order
//! frame      what they say
//! head       a request's head, read before it is decided who answers it
//! arrived    a connection with what was read from it already, silent until it is answered
//! ```

mod arrived;
mod backend;
mod channel;
pub(crate) mod frame;
mod front;
mod handed_off;
mod head;
mod link;

use std::{io, net::SocketAddr, os::fd::AsFd, time::Duration};

pub(crate) use arrived::{ArrivedConnection, SilencedSocket};
pub(crate) use backend::{HandoffBackend, accept};
pub(crate) use front::{Front, serve};
use levada_net::handoff::{self, Connection, NotMovable};
pub(crate) use link::BackendLink;
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{RecvFlags, recv},
};

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
