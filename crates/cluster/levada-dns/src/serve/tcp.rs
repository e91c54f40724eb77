//! Queries over TCP (RFC 7766): each with its length before it, several on one connection, answered in their order.

use std::{collections::HashMap, io, net::SocketAddr, sync::Arc, time::Duration};

use levada_net::{listening::ACCEPT_BACKOFF, stop::Stop};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use super::{Server, Transport, server::Room};
use crate::rate::network;

/// Bounds of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Open connections. One network of clients may have a quarter of them.
    pub connections: usize,
    /// How long a connection may wait for a query, a query for its end, and a response for its client.
    pub idle: Duration,
}

/// The longest message, with its length.
const LONGEST: usize = 2 + u16::MAX as usize;

/// The open connections of each network.
type Networks = Arc<Mutex<HashMap<u128, usize>>>;

/// An open connection of a network.
struct Held {
    networks: Networks,
    network: u128,
}

impl Held {
    /// `None` if the network has as many as it may have.
    fn one(networks: &Networks, network: u128, most: usize) -> Option<Self> {
        let mut open = networks.lock();
        let held = open.entry(network).or_default();
        if *held >= most {
            return None;
        }
        *held += 1;
        drop(open);
        Some(Self { networks: networks.clone(), network })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.networks.lock();
        if let Some(held) = open.get_mut(&self.network) {
            *held -= 1;
            if *held == 0 {
                open.remove(&self.network);
            }
        }
    }
}

/// Answers queries on connections until the stop.
pub async fn accept(server: Arc<Server>, listener: TcpListener, limits: TcpLimits, stop: Stop) {
    let of_server = server.clone();
    let serve = move |connection, client| {
        let server = of_server.clone();
        async move {
            // The client has gone, or is too slow: nothing is left to be done.
            let _ = serve(&server, connection, client, limits.idle).await;
        }
    };
    accept_each(&server, listener, (limits, stop), serve).await;
}

/// Accepts connections until the stop, and lets `serve` have each. A client that comes when there is no place waits to
/// be accepted, and one whose network has its share is turned away.
pub async fn accept_each<F>(
    server: &Server,
    listener: TcpListener,
    (limits, stop): (TcpLimits, Stop),
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    let (networks, most) = (Networks::default(), limits.connections.div_ceil(4));
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.begun() => return,
        };
        match accepted {
            Ok((connection, client)) => {
                let Some(held) = Held::one(&networks, network(client.ip()), most) else { continue };
                let (open, stop) = (server.metrics.connections.clone(), stop.clone());
                let served = serve(connection, client);
                tokio::spawn(async move {
                    let _open = open.hold();
                    tokio::select! {
                        () = served => {}
                        () = stop.begun() => {}
                    }
                    drop((place, held));
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a DNS connection cannot be accepted");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn serve(
    server: &Server,
    mut connection: TcpStream,
    client: SocketAddr,
    idle: Duration,
) -> io::Result<()> {
    let (mut read, mut room, mut buffer) = (Vec::new(), Room::default(), vec![0; LONGEST]);
    // A query that comes byte by byte has no more time than one that comes at once.
    let mut due = Instant::now() + idle;
    loop {
        while let Some(message) = first(&read) {
            let length = message.len();
            let from = (client.ip(), Transport::Tcp);
            let (published, moment) = (server.published(), server.moment());
            let answer =
                server.respond_by(&published, moment, message, from, &mut buffer[2..], &mut room);
            drop(published);
            // A message that gets no answer over UDP ends the connection here.
            let Some(answer) = answer else { return Ok(()) };
            buffer[..2].copy_from_slice(&(answer as u16).to_be_bytes());
            timeout(idle, connection.write_all(&buffer[..2 + answer])).await??;
            read.drain(..2 + length);
            due = Instant::now() + idle;
        }
        let mut bytes = [0; 2048];
        match timeout_at(due, connection.read(&mut bytes)).await?? {
            0 => return Ok(()),
            more => read.extend_from_slice(&bytes[..more]),
        }
    }
}

/// The first whole message.
fn first(read: &[u8]) -> Option<&[u8]> {
    let (length, rest) = read.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}
