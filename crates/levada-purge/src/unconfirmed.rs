//! Orders that peers have not confirmed yet.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::order::{PurgeOrder, PurgeTarget};

/// The most orders kept for one peer. Beyond it they become one purge of everything.
const MAX_ORDERS: usize = 1000;

/// Orders that peers have not confirmed, as JSON, by the peer's index.
#[derive(Debug)]
pub struct UnconfirmedOrders(Vec<Mutex<VecDeque<Bytes>>>);

impl UnconfirmedOrders {
    /// No orders, for this many peers.
    pub fn new(peers: usize) -> Self {
        Self(std::iter::repeat_with(Mutex::default).take(peers).collect())
    }

    /// The orders for all peers together.
    pub fn count(&self) -> usize {
        self.0.iter().map(|orders| orders.lock().len()).sum()
    }

    /// The oldest order that a peer has to confirm.
    pub fn first(&self, peer: usize) -> Option<Bytes> {
        self.0[peer].lock().front().cloned()
    }

    /// Adds an order, unless the peer has it to confirm already.
    pub fn add(&self, peer: usize, order: Bytes) {
        let mut orders = self.0[peer].lock();
        if orders.contains(&order) {
            return;
        }
        if orders.len() >= MAX_ORDERS {
            let all = PurgeOrder { target: PurgeTarget::All(None), soft: false };
            orders.clear();
            orders.push_back(all.to_json().into());
        } else {
            orders.push_back(order);
        }
    }

    /// Removes the oldest order. A purge of everything may have replaced it since it was sent.
    pub fn remove_first(&self, peer: usize, sent: &Bytes) {
        let mut orders = self.0[peer].lock();
        if orders.front() == Some(sent) {
            orders.pop_front();
        }
    }
}
