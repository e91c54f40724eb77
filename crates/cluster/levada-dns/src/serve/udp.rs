//! Queries over UDP: each socket has a thread, which answers what waits there in one turn.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use levada_net::datagrams::Batch;

use super::{
    Server, Transport,
    server::{LONGEST_DATAGRAM, Room},
};

/// The wait after a failure of a socket.
const BACKOFF: Duration = Duration::from_millis(100);

/// Threads that answer queries, until this is dropped. Then they end within a quarter of a second, and answer the
/// queries that come until then.
pub struct Receiving {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Answers the queries that come to these sockets, which are from [`levada_net::datagrams::bind`].
///
/// # Errors
/// When the system gives no thread.
pub fn receive(server: &Arc<Server>, sockets: Vec<UdpSocket>) -> io::Result<Receiving> {
    let ends = Arc::new(AtomicBool::new(false));
    let mut receiving = Receiving { ends: ends.clone(), threads: Vec::new() };
    for socket in sockets {
        let (server, ends) = (server.clone(), ends.clone());
        let thread = thread::Builder::new().name("dns".to_owned());
        receiving.threads.push(thread.spawn(move || answer_all(&server, &socket, &ends))?);
    }
    Ok(receiving)
}

impl Receiving {
    /// Ends, and returns when no thread answers any more.
    pub fn end(mut self) {
        self.ends.store(true, Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
    }
}

fn answer_all(server: &Server, socket: &UdpSocket, ends: &AtomicBool) {
    let (mut batch, mut room) = (Batch::new(LONGEST_DATAGRAM), Room::default());
    while !ends.load(Relaxed) {
        // Zones, nodes and time are looked up once for all queries of a turn, after the first one has come.
        let mut now = None;
        let turn = batch.turn(socket, |message, sender: SocketAddr, buffer| {
            let (published, moment) =
                now.get_or_insert_with(|| (server.published(), server.moment()));
            let from = (sender.ip(), Transport::Udp);
            server.respond_by(published, *moment, message, from, buffer, &mut room)
        });
        if let Err(error) = turn {
            tracing::warn!(%error, "DNS queries cannot be received");
            thread::sleep(BACKOFF);
        }
    }
}
