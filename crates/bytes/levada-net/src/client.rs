//! A client's connection that was accepted: its socket, and what it takes of the program while it is open.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use tokio::{
    net::TcpStream,
    task::{AbortHandle, JoinHandle},
};

use crate::{
    dormant::{DormancyWatch, MonitoredStream, WatchedConnection},
    stop::Stop,
};

/// A client's socket.
pub type ClientSocket = MonitoredStream<ConnectionOwner>;

/// What an accepted connection takes for as long as it is open.
#[derive(Debug)]
pub struct OpenConnection {
    /// The client's address.
    pub client: IpAddr,
    /// One of the connections that may be open at once; free when dropped.
    pub place: Box<dyn fmt::Debug + Send>,
    /// Tells it that the program stops.
    pub stop: Stop,
}

/// The client of a connection, and the task that serves it.
#[derive(Debug)]
pub struct ConnectionOwner {
    /// The client's address.
    pub client: IpAddr,
    last_key: Arc<AtomicU64>,
    task: OnceLock<AbortHandle>,
}

impl ConnectionOwner {
    /// This task serves the connection.
    pub fn is_served_by(&self, task: &JoinHandle<()>) {
        let _ = self.task.set(task.abort_handle());
    }

    /// The task that serves the connection.
    pub fn task(&self) -> Option<&AbortHandle> {
        self.task.get()
    }

    /// The key of the last request; 0 before the first.
    pub fn last_key(&self) -> &Arc<AtomicU64> {
        &self.last_key
    }
}

/// Makes a connection one that `watch` looks after, if there is a watch.
pub fn watched(
    stream: TcpStream,
    client: IpAddr,
    watch: Option<&Arc<DormancyWatch<ConnectionOwner>>>,
) -> (ClientSocket, Arc<WatchedConnection<ConnectionOwner>>) {
    let owner = ConnectionOwner { client, last_key: Arc::default(), task: OnceLock::new() };
    let connection = WatchedConnection::new(owner);
    (MonitoredStream::new(stream, watch.cloned(), connection.clone()), connection)
}
