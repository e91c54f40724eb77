//! Reads the head of the next request before the node that answers it is chosen.

use std::{io, os::fd::AsFd};

use http::{HeaderName, HeaderValue, Method, Request, Version};
use levada_http::{ConnectionEnd, ConnectionLimits, RequestFraming, after};
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
    let mut framing = RequestFraming::new(limits.head);
    let fault = framing.feed(bytes).fault;
    match (framing.heads() > 0, fault) {
        (true, _) => Some(true),
        (false, None) => Some(false),
        (false, Some(_)) => None,
    }
}

/// Parses a whole head, as far as a decision needs it.
pub(crate) fn parse(bytes: &[u8], limits: &ConnectionLimits) -> Option<Request<()>> {
    let mut fields = vec![httparse::EMPTY_HEADER; limits.head.fields];
    let mut head = httparse::Request::new(&mut fields);
    if !head.parse(bytes).ok()?.is_complete() {
        return None;
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method?.as_bytes()).ok()?;
    *request.uri_mut() = head.path?.parse().ok()?;
    *request.version_mut() = if head.version? == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let headers = request.headers_mut();
    headers.reserve(head.headers.len());
    for field in head.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(request)
}

const READ: usize = 4 << 10;
