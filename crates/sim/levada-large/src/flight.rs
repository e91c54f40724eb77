//! A piece on its way to a node, shared by all transfers of that node that want it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
};

use levada_fetch::RequestId;
use levada_types::Timestamp;

/// The name of a piece: its number in the file, and the letters of its URL. Another number of letters
/// is another object.
pub(super) type Name = (u64, u8);

/// A request for a piece. It ends when no transfer holds it.
#[derive(Default)]
pub(super) struct Flight {
    pub(super) name: Name,
    /// The node that is asked for it.
    pub(super) source: usize,
    /// That node may relay it from the one that the policy chooses.
    pub(super) may_relay: bool,
    pub(super) begun: Timestamp,
    /// The network's transfer that carries it; `None` when the node serves itself.
    pub(super) transfer: Cell<Option<u32>>,
    pub(super) state: Cell<State>,
    pub(super) reported: Cell<bool>,
    /// Bytes that some transfer has reported.
    pub(super) counted: Cell<u64>,
    /// The clients whose transfers wait for it.
    pub(super) waiting: RefCell<Vec<(usize, RequestId)>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    UnderWay,
    /// It came. `at_hand`: out of the node's own store.
    Came {
        at_hand: bool,
    },
    Failed,
}

impl Flight {
    /// The part of the bytes that came which no transfer has reported.
    pub(super) fn fresh(&self, came: u64) -> u64 {
        came.saturating_sub(self.counted.replace(came))
    }

    /// Whether nothing has been reported about its source yet. An event counts once.
    pub(super) fn is_news(&self) -> bool {
        !self.reported.replace(true)
    }
}

/// The latest flight of each piece to one node.
#[derive(Default)]
pub(super) struct Flights(pub(super) BTreeMap<Name, Weak<Flight>>);

impl Flights {
    /// A flight that a transfer may share which has tried these sources.
    pub(super) fn join(&self, name: Name, tried: &[usize]) -> Option<Rc<Flight>> {
        let flight = self.0.get(&name)?.upgrade()?;
        let suits = match flight.state.get() {
            State::UnderWay => !tried.contains(&flight.source),
            State::Came { .. } => true,
            State::Failed => false,
        };
        suits.then_some(flight)
    }
}
