//! A node as clients, the purger and the watch of the memory see it: its addresses, whether it takes
//! requests, and its process.

use std::{cell::Cell, net::SocketAddr};

use levada_client::command::node::Addresses;
use levada_testbed::cluster::client::IdleConnections;

/// A node from outside.
pub(super) struct Door {
    pub(super) name: String,
    pub(super) clients: SocketAddr,
    pub(super) admin: SocketAddr,
    /// Whether clients send it requests.
    serves: Cell<bool>,
    /// Grows whenever the node is struck, so that requests at it are not judged, and recovers.
    life: Cell<u64>,
    process: Cell<Option<u32>>,
    /// Connections that were opened since it was struck last.
    pub(super) idle: IdleConnections,
}

impl Door {
    /// The node with these addresses, which does not run yet.
    pub(super) fn new(name: String, addresses: &Addresses) -> Self {
        Self {
            name,
            clients: addresses.clients,
            admin: addresses.admin,
            serves: Cell::new(false),
            life: Cell::default(),
            process: Cell::default(),
            idle: IdleConnections::default(),
        }
    }

    /// Opens the node to clients.
    pub(super) fn open(&self, process: Option<u32>) {
        self.process.set(process);
        self.serves.set(true);
    }

    /// Sends no further requests to the node; earlier ones still count.
    pub(super) fn close(&self) {
        self.serves.set(false);
    }

    /// Closes the node, and counts no request that is at it now.
    pub(super) fn strike(&self) {
        self.close();
        self.idle.clear();
        self.life.set(self.life.get() + 1);
    }

    pub(super) fn serves(&self) -> bool {
        self.serves.get()
    }

    /// A number that is the same as long as the node is not struck.
    pub(super) fn life(&self) -> u64 {
        self.life.get()
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.process.get()
    }
}
