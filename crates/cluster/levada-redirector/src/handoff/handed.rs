//! Connections that are handed over together.

use std::sync::Arc;

use crate::handoff::{BackendLink, Serve};

/// The back-ends with connections that were handed over and not yet sent.
pub struct HandedConnections<S: Serve> {
    links: Vec<Arc<BackendLink<S>>>,
    connections: usize,
}

impl<S: Serve> Default for HandedConnections<S> {
    fn default() -> Self {
        Self { links: Vec::new(), connections: 0 }
    }
}

impl<S: Serve> HandedConnections<S> {
    /// Adds a connection that goes to this back-end.
    pub fn add(&mut self, link: Arc<BackendLink<S>>) {
        if !self.links.iter().any(|other| Arc::ptr_eq(other, &link)) {
            self.links.push(link);
        }
        self.connections += 1;
        if self.connections == MAX_HANDED {
            self.flush();
        }
    }

    /// Sends all of them.
    pub fn flush(&mut self) {
        self.links.drain(..).for_each(|link| link.flush());
        self.connections = 0;
    }
}

impl<S: Serve> Drop for HandedConnections<S> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The most connections that are sent together: the first one waits for the last.
const MAX_HANDED: usize = 16;
