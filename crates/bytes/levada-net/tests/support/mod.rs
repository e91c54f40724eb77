//! Hosts and connections for tests in which connections move between hosts.

use std::{net::TcpStream, time::Duration};

use levada_net::{
    bpf::{InputBlocker, Steering},
    handoff::{self, Connection},
    lab::Host,
};

/// Longer than any wait in these tests.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `work` on a host.
pub(crate) fn on<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    host.namespace().run(work).unwrap()
}

/// Extracts a connection from its socket, as a front-end does once its packets are steered.
pub(crate) fn take(steering: &Steering, stream: TcpStream) -> Connection {
    steering.input_blocker().block_input(&stream).unwrap();
    let connection = handoff::extract(&stream, handoff::ends(&stream).unwrap(), None).unwrap();
    drop(stream);
    Connection::from_bytes(&connection.to_bytes()).unwrap()
}

/// Restores a connection on a host, where it is silent.
pub(crate) fn restore_silently(host: &Host, connection: &Connection) -> TcpStream {
    on(host, || handoff::restore(connection, &InputBlocker::new().unwrap()).unwrap())
}

/// Restores and activates a connection on a host.
pub(crate) fn restore(host: &Host, connection: &Connection) -> TcpStream {
    let stream = restore_silently(host, connection);
    stream.set_nonblocking(false).unwrap();
    handoff::activate(&stream).unwrap();
    stream
}
