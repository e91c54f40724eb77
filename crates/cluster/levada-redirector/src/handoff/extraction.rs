//! Takes a connection out of its socket, with all that has come on it.

use std::{io, net::SocketAddr, os::fd::AsFd};

use levada_net::handoff::{self, Connection, NotMovable};
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{RecvFlags, recv},
};

/// The most bytes that are handed over with a connection.
const MAX_BYTES: usize = 256 << 10;

/// Extracts a connection between these addresses from its socket, whose input is blocked, with the
/// bytes received before. If `first` is set, it is all that was ever read from the socket.
pub(crate) fn take_out(
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
