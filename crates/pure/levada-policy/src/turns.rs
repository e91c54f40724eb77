//! Turns at a limited number of places: which client is next, and which one gives way.
//!
//! ```text
//!   take ──> a place is free, and the client has less than its share ──> true
//!   wait ──> the queue has room, or another client waits more often  ──> a ticket
//!        └──> Full
//!   leave ─> the next client in turn that has less than its share gets the place
//! ```
//!
//! Turns go round the clients that wait, not the requests: a client with five hundred requests in the
//! queue delays only its own. When the queue is full, the client that waits most often gives way. Turns
//! help little while slow answers of a few clients hold every place, so a share can depend on what is free.
//! Where all requests count as one client, turns are the order of arrival. A client's own requests may have another
//! order: each has a rank, and the lowest one goes first.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry::Occupied},
    time::Duration,
};

/// The part of the places that one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientShare {
    /// As many as are free now: half of them for one client, a third for each of two. A client without a
    /// place always finds one (Choudhury and Hahne's dynamic threshold).
    Dynamic,
    /// All of them.
    All,
}

/// Places, the clients `C` that have them, and the queue of waiters `W` before them.
#[derive(Debug)]
pub struct Turns<C, W> {
    places: usize,
    share: ClientShare,
    length: usize,
    taken: usize,
    waiting: usize,
    /// Clients that have a place or wait for one.
    clients: BTreeMap<C, Client<W>>,
    /// Clients that wait, in the order of their turns.
    order: VecDeque<C>,
    tickets: u64,
}

/// The rank of a waiter, and its number in the order of arrival.
pub type Ticket = (Duration, u64);

#[derive(Debug)]
struct Client<W> {
    taken: usize,
    waiting: BTreeMap<Ticket, W>,
    /// Whether it stands in `order`.
    has_turn: bool,
}

impl<W> Default for Client<W> {
    fn default() -> Self {
        Self { taken: 0, waiting: BTreeMap::new(), has_turn: false }
    }
}

/// The queue is full, and no client in it waits more often than the one that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<C: Ord + Copy, W> Turns<C, W> {
    /// So many places, and a queue of this length before them.
    pub const fn new(share: ClientShare, places: usize, length: usize) -> Self {
        Self {
            places,
            share,
            length,
            taken: 0,
            waiting: 0,
            clients: BTreeMap::new(),
            order: VecDeque::new(),
            tickets: 0,
        }
    }

    /// The places that are taken.
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// The waiters in the queue.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The places that there are.
    pub const fn places(&self) -> usize {
        self.places
    }

    /// Changes the number of places. Places that are taken beyond it stay taken until they are left.
    /// Call [`admit_next`](Self::admit_next) afterwards until it returns `None`.
    pub const fn set_places(&mut self, places: usize) {
        self.places = places;
    }

    /// Changes how many may wait; waiters beyond it stay.
    pub const fn set_length(&mut self, length: usize) {
        self.length = length;
    }

    /// Takes a place for `client`, unless it has to wait.
    pub fn take(&mut self, client: C) -> bool {
        if self.taken >= self.places {
            return false;
        }
        let most = self.most();
        let Client { taken, waiting, .. } = self.clients.entry(client).or_default();
        let granted = *taken < most && waiting.is_empty();
        if granted {
            *taken += 1;
            self.taken += 1;
        } else {
            self.tidy(client);
        }
        granted
    }

    /// Takes a place for `client` in any case: it has left one for a while.
    pub fn take_again(&mut self, client: C) {
        self.clients.entry(client).or_default().taken += 1;
        self.taken += 1;
    }

    /// Queues a waiter of `client` and returns its ticket. In a full queue, the last waiter of the
    /// client that waits most often is dropped for it.
    ///
    /// # Errors
    /// When no client waits more often than this one would.
    pub fn wait(&mut self, client: C, rank: Duration, waiter: W) -> Result<Ticket, Full> {
        let waits = self.clients.get(&client).map_or(0, |client| client.waiting.len());
        if self.waiting >= self.length && !self.make_room(waits) {
            return Err(Full);
        }
        self.tickets += 1;
        self.waiting += 1;
        let ticket = (rank, self.tickets);
        self.clients.entry(client).or_default().waiting.insert(ticket, waiter);
        self.give_turn(client);
        Ok(ticket)
    }

    /// Frees a place of `client`. Returns who gets it; that place counts as taken. Call
    /// [`admit_next`](Self::admit_next) afterwards until it returns `None`: the client's share has grown too.
    pub fn leave(&mut self, client: C) -> Option<(C, W)> {
        self.taken -= 1;
        if let Occupied(mut entry) = self.clients.entry(client) {
            entry.get_mut().taken -= 1;
            if entry.get().taken == 0 && entry.get().waiting.is_empty() {
                entry.remove();
            }
        }
        if self.waiting == 0 {
            return None;
        }
        self.give_turn(client);
        self.admit_next()
    }

    /// Takes out of the queue the next waiter for whom there is a place; that place counts as taken.
    pub fn admit_next(&mut self) -> Option<(C, W)> {
        while self.taken < self.places {
            let most = self.most();
            let has_share = |client: &C| self.clients.get(client).is_some_and(|c| c.taken >= most);
            let at = self.order.iter().position(|client| !has_share(client))?;
            let client = self.order.remove(at)?;
            let Some(theirs) = self.clients.get_mut(&client) else { continue };
            theirs.has_turn = false;
            let Some((_, waiter)) = theirs.waiting.pop_first() else { continue };
            theirs.taken += 1;
            self.taken += 1;
            self.waiting -= 1;
            self.give_turn(client);
            return Some((client, waiter));
        }
        None
    }

    /// Takes a waiter out of the queue, if it is still there.
    pub fn withdraw(&mut self, client: C, ticket: Ticket) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if theirs.waiting.remove(&ticket).is_some() {
            self.waiting -= 1;
            self.tidy(client);
        }
    }

    /// The places that one client may have.
    const fn most(&self) -> usize {
        match self.share {
            ClientShare::Dynamic => self.places.saturating_sub(self.taken),
            ClientShare::All => self.places,
        }
    }

    /// Puts a client that waits at the end of the order.
    fn give_turn(&mut self, client: C) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if !theirs.has_turn && !theirs.waiting.is_empty() {
            theirs.has_turn = true;
            self.order.push_back(client);
        }
    }

    /// Drops the last waiter of the client that waits most often, for a client that has `waits`
    /// waiters.
    fn make_room(&mut self, waits: usize) -> bool {
        let greediest = self.clients.values_mut().max_by_key(|client| client.waiting.len());
        let Some(greediest) = greediest.filter(|client| client.waiting.len() > waits + 1) else {
            return false;
        };
        greediest.waiting.pop_last();
        self.waiting -= 1;
        true
    }

    /// Forgets a client without places and waiters, and the turn of one without waiters.
    fn tidy(&mut self, client: C) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if !theirs.waiting.is_empty() {
            return;
        }
        if theirs.has_turn {
            theirs.has_turn = false;
            self.order.retain(|other| *other != client);
        }
        if theirs.taken == 0 {
            self.clients.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dynamic(places: usize, length: usize) -> Turns<u8, u64> {
        Turns::new(ClientShare::Dynamic, places, length)
    }

    #[test]
    fn client_has_no_more_than_its_share() {
        let mut turns = dynamic(4, 10);
        assert_eq!(
            [1, 1, 1, 2, 2, 2].map(|client| turns.take(client)),
            [true, true, false, true, false, false]
        );
        let mut turns: Turns<u8, u64> = Turns::new(ClientShare::All, 4, 10);
        assert_eq!(
            [1, 1, 1, 1, 2].map(|client| turns.take(client)),
            [true, true, true, true, false]
        );
    }

    #[test]
    fn turns_go_round_the_clients() {
        let mut turns = dynamic(2, 20);
        assert!(turns.take(9) && turns.take(8));
        for (waiter, client) in (0..).zip([1, 1, 1, 1, 2, 3, 3]) {
            turns.wait(client, Duration::ZERO, waiter).unwrap();
        }
        let (mut leaving, mut served) = (VecDeque::from([8, 9]), Vec::new());
        while let Some(client) = leaving.pop_front() {
            if let Some((next, _)) = turns.leave(client) {
                served.push(next);
                leaving.push_back(next);
            }
        }
        assert_eq!(served, [1, 2, 3, 1, 3, 1, 1]);
        assert!(turns.clients.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn client_that_waits_most_often_gives_way_in_a_full_queue() {
        let mut turns = dynamic(1, 3);
        assert!(turns.take(9));
        for waiter in 0..3 {
            turns.wait(1, Duration::ZERO, waiter).unwrap();
        }
        assert_eq!(turns.wait(1, Duration::ZERO, 3), Err(Full));
        assert!(turns.wait(2, Duration::ZERO, 4).is_ok());
        assert!(!turns.clients[&1].waiting.iter().any(|(_, waiter)| *waiter == 2));
        // With two against one, no client gives way any more.
        assert_eq!(turns.wait(2, Duration::ZERO, 5), Err(Full));
        assert!(turns.wait(3, Duration::ZERO, 6).is_ok());
        assert_eq!((turns.wait(4, Duration::ZERO, 7), turns.waiting()), (Err(Full), 3));
    }

    #[test]
    fn waiters_of_one_client_go_by_rank_and_then_by_arrival() {
        let mut turns = dynamic(1, 10);
        assert!(turns.take(9));
        for (waiter, rank) in (0..).zip([15, 1, 0, 1, 0]) {
            turns.wait(1, Duration::from_secs(rank), waiter).unwrap();
        }
        let mut next = turns.leave(9);
        let served = std::iter::from_fn(|| {
            let (client, waiter) = next.take()?;
            next = turns.leave(client);
            Some(waiter)
        });
        assert_eq!(served.collect::<Vec<_>>(), [2, 4, 1, 3, 0]);
    }

    /// An event in the life of a queue.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enter(u8),
        Leave(usize),
        Withdraw(usize),
        Resize(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..4u8).prop_map(Step::Enter),
            3 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::Withdraw),
            1 => (0..6usize).prop_map(Step::Resize),
        ]
    }

    proptest! {
        /// No place stays free while a client that may have it waits, none is given twice, and all
        /// that is counted comes back to zero.
        #[test]
        fn places_are_neither_lost_nor_given_twice(
            dynamic in any::<bool>(),
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let share = if dynamic { ClientShare::Dynamic } else { ClientShare::All };
            let mut turns: Turns<u8, u64> = Turns::new(share, 3, 5);
            let (mut taken, mut waiting) = (Vec::new(), Vec::new());
            for (number, step) in (0..).zip(steps) {
                let mut given = Vec::new();
                match step {
                    Step::Enter(client) if turns.take(client) => taken.push(client),
                    Step::Enter(client) => {
                        if let Ok(ticket) = turns.wait(client, Duration::ZERO, number) {
                            waiting.push((client, ticket, number));
                        }
                    }
                    Step::Leave(which) if !taken.is_empty() => {
                        let client = taken.swap_remove(which % taken.len());
                        given.extend(turns.leave(client));
                        given.extend(std::iter::from_fn(|| turns.admit_next()));
                    }
                    Step::Withdraw(which) if !waiting.is_empty() => {
                        let (client, ticket, _) = waiting.swap_remove(which % waiting.len());
                        turns.withdraw(client, ticket);
                    }
                    Step::Resize(places) => {
                        turns.set_places(places);
                        given.extend(std::iter::from_fn(|| turns.admit_next()));
                    }
                    Step::Leave(_) | Step::Withdraw(_) => {}
                }
                for (client, waiter) in given {
                    let at = waiting.iter().position(|(_, _, number)| *number == waiter);
                    prop_assert!(at.is_some_and(|at| waiting.swap_remove(at).0 == client));
                    taken.push(client);
                }
                // A waiter that gave way is in no client's queue.
                waiting.retain(|(client, ticket, _)| {
                    let theirs = turns.clients.get(client);
                    theirs.is_some_and(|theirs| theirs.waiting.iter().any(|(t, _)| t == ticket))
                });
                prop_assert_eq!((turns.taken(), turns.waiting()), (taken.len(), waiting.len()));
                prop_assert!(turns.waiting() <= 5);
                let may_enter = |client: &Client<u64>| {
                    !client.waiting.is_empty() && client.taken < turns.most()
                };
                prop_assert!(turns.taken >= turns.places || !turns.clients.values().any(may_enter));
            }
            for (client, ticket, _) in waiting {
                turns.withdraw(client, ticket);
            }
            for client in taken {
                prop_assert_eq!(turns.leave(client), None);
            }
            prop_assert!(turns.clients.is_empty() && turns.order.is_empty());
        }
    }
}
