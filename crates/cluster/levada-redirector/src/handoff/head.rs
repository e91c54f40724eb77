//! Reads the head of the next request before the node that answers it is chosen.

use std::{io, os::fd::AsFd};

use http::Request;
use levada_http::{ConnectionEnd, ConnectionLimits, after, first_head};
use levada_net::{client::ClientSocket, stop::Stop};
use rustix::{buffer::spare_capacity, net::RecvFlags};
use tokio::time::{Instant, timeout_at};

/// The result of reading a head.
pub(crate) enum HeadRead {
    /// At least one whole, valid head.
    Head,
    /// Something else, or not all of it in time: this node serves the connection and handles it.
    Other,
    /// No request.
    Over(ConnectionEnd),
}

/// Reads until `bytes` has a whole head.
pub(crate) async fn read(
    stream: &ClientSocket,
    bytes: &mut Vec<u8>,
    limits: &ConnectionLimits,
    stop: &Stop,
) -> HeadRead {
    let mut deadline: Option<Instant> = None;
    // Usually a request arrives with the connection, before the runtime is notified.
    let mut untold = bytes.is_empty();
    loop {
        if !bytes.is_empty() {
            match is_whole(bytes, limits) {
                Some(true) => return HeadRead::Head,
                Some(false) => deadline = deadline.or_else(|| Some(after(limits.head_timeout))),
                None => return HeadRead::Other,
            }
        }
        bytes.reserve(READ);
        let read = match std::mem::take(&mut untold) {
            true => recv_now(stream.stream(), bytes),
            false => stream.stream().try_read_buf(bytes),
        };
        match read {
            Ok(0) if bytes.is_empty() => return HeadRead::Over(ConnectionEnd::Closed),
            Ok(0) => return HeadRead::Other,
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return HeadRead::Over(ConnectionEnd::Broken),
        }
        let until = deadline.unwrap_or_else(|| after(limits.idle_timeout));
        let readable = tokio::select! {
            biased;
            readable = timeout_at(until, stream.stream().readable()) => readable,
            () = stop.begun() => match recv_now(stream.stream(), bytes) {
                // It came before the connection could be closed.
                Ok(1..) => continue,
                _ => return HeadRead::Other,
            },
        };
        match readable {
            Ok(_) => {}
            Err(_) if bytes.is_empty() => return HeadRead::Over(ConnectionEnd::IdleTimeout),
            Err(_) => return HeadRead::Other,
        }
    }
}

/// Reads into `bytes` without the runtime. Returns whether a whole head has arrived with the
/// connection.
pub(crate) fn has_come(socket: &impl AsFd, bytes: &mut Vec<u8>, limits: &ConnectionLimits) -> bool {
    bytes.reserve(READ);
    recv_now(socket, bytes).is_ok() && is_whole(bytes, limits) == Some(true)
}

fn recv_now(socket: &impl AsFd, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let read = rustix::net::recv(socket, spare_capacity(bytes), RecvFlags::DONTWAIT);
    read.map(|(_, length)| length).map_err(io::Error::from)
}

/// Whether a whole head is there; `None` when it is invalid.
pub(crate) fn is_whole(bytes: &[u8], limits: &ConnectionLimits) -> Option<bool> {
    first_head(bytes, limits.head).ok().map(|head| head.is_some())
}

/// The head at the beginning, if it is whole and valid.
pub(crate) fn parse(bytes: &[u8], limits: &ConnectionLimits) -> Option<Request<()>> {
    first_head(bytes, limits.head).ok().flatten()
}

const READ: usize = 4 << 10;
