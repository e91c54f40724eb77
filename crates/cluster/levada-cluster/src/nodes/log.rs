//! The purge log of a peer, as far as this node knows it.

use crate::purge::{LogStates, OrderId};
use parking_lot::Mutex;
use tokio::sync::MutexGuard;

/// The last message of a peer, and whose turn it is to ask it.
#[derive(Default)]
pub struct PeerLog {
    turn: tokio::sync::Mutex<()>,
    known: Mutex<Option<LogStates>>,
}

impl PeerLog {
    /// Held during an exchange. Orders that arrive meanwhile go with the next one, together.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Whether the peer has confirmed an order.
    pub fn has(&self, id: OrderId) -> bool {
        self.known.lock().as_ref().is_some_and(|known| known.has(id))
    }

    /// The orders that the peer has, if it has said so.
    pub fn known(&self) -> Option<LogStates> {
        self.known.lock().clone()
    }

    /// Whether the peer has said that it has all of these orders.
    pub fn covers(&self, orders: &LogStates) -> bool {
        match &*self.known.lock() {
            Some(known) => known.covers(orders),
            None => orders.is_empty(),
        }
    }

    /// Notes what the peer has.
    pub fn learn(&self, known: LogStates) {
        *self.known.lock() = Some(known);
    }
}
