//! Turns at a limited number of places: which client is next, and which one gives way.
//!
//! ```text
//!   take ──> a place is free, and the client has less than its share ──> true
//!   wait ──> the queue has room, or another client waits more often  ──> a ticket
//!        └──> Full
//!   leave ─> the next client in turn that has less than its share gets the place
//!   late ──> it may have to give way to a client that is known
//! ```
//!
//! Turns go round the clients that wait, not the requests: a client with five hundred requests in the
//! queue delays only its own. When the queue is full, the client that waits most often gives way. Turns
//! help little while slow answers of a few clients hold every place, so a share can depend on what is free.
//! Where all requests count as one client, turns are the order of arrival. A client's own requests may have another
//! order: each has a rank, and the lowest one goes first.
//!
//! Thousands of clients can hold and await every place by requests that are never answered. So clients that are known
//! go before others, three times of four, and late requests give way to them. Late requests that hold no more than half of the places are
//! left alone, and no request gives way to a client that is not known: it might not be answered either.

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
    /// Clients that wait, in the order of their turns: those that are known, and others.
    order: [VecDeque<C>; 2],
    tickets: u64,
    /// Waiters that have got a place.
    admitted: u64,
    /// The numbers of requests that have a place and are late.
    late: VecDeque<u64>,
    last_late: u64,
    /// Requests that give way: they still have their places.
    giving_way: usize,
}

const KNOWN: usize = 0;
/// One turn of so many is that of clients that are not known, so that they become known.
const TURN_OF_OTHERS: u64 = 4;

/// The rank of a waiter, and its number in the order of arrival.
pub type Ticket = (Duration, u64);

#[derive(Debug)]
struct Client<W> {
    taken: usize,
    waiting: BTreeMap<Ticket, W>,
    /// Whether it stands in `order`,
    has_turn: bool,
    /// and where.
    is_known: bool,
}

impl<W> Default for Client<W> {
    fn default() -> Self {
        Self { taken: 0, waiting: BTreeMap::new(), has_turn: false, is_known: false }
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
            order: [VecDeque::new(), VecDeque::new()],
            tickets: 0,
            admitted: 0,
            late: VecDeque::new(),
            last_late: 0,
            giving_way: 0,
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
        let most = self.most(false);
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

    /// Queues a waiter of `client`, which may be known, and returns its ticket. In a full queue, the last waiter of
    /// the client that waits most often is dropped for it; for a client that is known, first one of the others. Call
    /// [`admit_next`](Self::admit_next) and [`gives_way`](Self::gives_way) afterwards if it is known.
    ///
    /// # Errors
    /// When no client waits more often than this one would.
    pub fn wait(
        &mut self,
        client: C,
        is_known: bool,
        rank: Duration,
        waiter: W,
    ) -> Result<Ticket, Full> {
        let waits = self.clients.get(&client).map_or(0, |client| client.waiting.len());
        if self.waiting >= self.length && !self.make_room(waits, is_known) {
            return Err(Full);
        }
        self.tickets += 1;
        self.waiting += 1;
        let ticket = (rank, self.tickets);
        let theirs = self.clients.entry(client).or_default();
        theirs.waiting.insert(ticket, waiter);
        if std::mem::replace(&mut theirs.is_known, is_known) != is_known {
            self.lose_turn(client);
        }
        self.give_turn(client);
        Ok(ticket)
    }

    /// Notes that a request that has a place is late, and returns its number.
    pub fn late(&mut self) -> u64 {
        self.last_late += 1;
        self.late.push_back(self.last_late);
        self.last_late
    }

    /// The late request with this number was answered, or leaves its place.
    pub fn not_late(&mut self, number: u64) {
        match self.late.binary_search(&number) {
            Ok(at) => drop(self.late.remove(at)),
            Err(_) => self.giving_way -= 1,
        }
    }

    /// The number of a request that has to leave its place now, for a client that is known: the one that has been
    /// late for the longest time.
    pub fn gives_way(&mut self) -> Option<u64> {
        if self.spare_late() == 0 || self.order[KNOWN].len() <= self.giving_way {
            return None;
        }
        let most = self.most(true);
        self.order[KNOWN].iter().find(|client| !self.has_share(client, most))?;
        self.giving_way += 1;
        self.late.pop_front()
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
            let next = |is_known: bool| {
                let (order, most) = (&self.order[usize::from(!is_known)], self.most(is_known));
                let at = order.iter().position(|client| !self.has_share(client, most))?;
                Some((usize::from(!is_known), at))
            };
            let known_first = self.admitted % TURN_OF_OTHERS < TURN_OF_OTHERS - 1;
            let (order, at) = next(known_first).or_else(|| next(!known_first))?;
            let client = self.order[order].remove(at)?;
            let Some(theirs) = self.clients.get_mut(&client) else { continue };
            theirs.has_turn = false;
            let Some((_, waiter)) = theirs.waiting.pop_first() else { continue };
            theirs.taken += 1;
            self.taken += 1;
            self.waiting -= 1;
            self.admitted += 1;
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

    /// The places that one client may have. The places of late requests are as good as free for one that is known.
    fn most(&self, is_known: bool) -> usize {
        match self.share {
            ClientShare::Dynamic => {
                let late = if is_known { self.spare_late() + self.giving_way } else { 0 };
                self.places.saturating_sub(self.taken) + late
            }
            ClientShare::All => self.places,
        }
    }

    fn has_share(&self, client: &C, most: usize) -> bool {
        self.clients.get(client).is_some_and(|client| client.taken >= most)
    }

    /// The late requests beyond those that are left alone.
    fn spare_late(&self) -> usize {
        self.late.len().saturating_sub(self.places / 2)
    }

    /// Puts a client that waits at the end of the order.
    fn give_turn(&mut self, client: C) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if !theirs.has_turn && !theirs.waiting.is_empty() {
            theirs.has_turn = true;
            self.order[usize::from(!theirs.is_known)].push_back(client);
        }
    }

    /// Takes a client out of the order.
    fn lose_turn(&mut self, client: C) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if std::mem::take(&mut theirs.has_turn) {
            self.order.iter_mut().for_each(|order| order.retain(|other| *other != client));
        }
    }

    /// Drops the last waiter of the client that waits most often, for a client that has `waits` waiters. For one that
    /// is known, any other client drops one.
    fn make_room(&mut self, waits: usize, is_known: bool) -> bool {
        let is_other =
            |client: &Client<W>| is_known && !client.is_known && !client.waiting.is_empty();
        let greediest = self
            .clients
            .iter_mut()
            .max_by_key(|(_, client)| (is_other(client), client.waiting.len()));
        let Some((&name, greediest)) = greediest else { return false };
        if !is_other(greediest) && greediest.waiting.len() <= waits + 1 {
            return false;
        }
        greediest.waiting.pop_last();
        self.waiting -= 1;
        self.tidy(name);
        true
    }

    /// Forgets a client without places and waiters, and the turn of one without waiters.
    fn tidy(&mut self, client: C) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if !theirs.waiting.is_empty() {
            return;
        }
        let is_gone = theirs.taken == 0;
        self.lose_turn(client);
        if is_gone {
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
            turns.wait(client, false, Duration::ZERO, waiter).unwrap();
        }
        let (mut leaving, mut served) = (VecDeque::from([8, 9]), Vec::new());
        while let Some(client) = leaving.pop_front() {
            if let Some((next, _)) = turns.leave(client) {
                served.push(next);
                leaving.push_back(next);
            }
        }
        assert_eq!(served, [1, 2, 3, 1, 3, 1, 1]);
        assert!(turns.clients.is_empty() && turns.order.iter().all(VecDeque::is_empty));
    }

    #[test]
    fn client_that_waits_most_often_gives_way_in_a_full_queue() {
        let mut turns = dynamic(1, 3);
        assert!(turns.take(9));
        for waiter in 0..3 {
            turns.wait(1, false, Duration::ZERO, waiter).unwrap();
        }
        assert_eq!(turns.wait(1, false, Duration::ZERO, 3), Err(Full));
        assert!(turns.wait(2, false, Duration::ZERO, 4).is_ok());
        assert!(!turns.clients[&1].waiting.iter().any(|(_, waiter)| *waiter == 2));
        // With two against one, no client gives way any more.
        assert_eq!(turns.wait(2, false, Duration::ZERO, 5), Err(Full));
        assert!(turns.wait(3, false, Duration::ZERO, 6).is_ok());
        assert_eq!((turns.wait(4, false, Duration::ZERO, 7), turns.waiting()), (Err(Full), 3));
    }

    #[test]
    fn waiters_of_one_client_go_by_rank_and_then_by_arrival() {
        let mut turns = dynamic(1, 10);
        assert!(turns.take(9));
        for (waiter, rank) in (0..).zip([15, 1, 0, 1, 0]) {
            turns.wait(1, false, Duration::from_secs(rank), waiter).unwrap();
        }
        let mut next = turns.leave(9);
        let served = std::iter::from_fn(|| {
            let (client, waiter) = next.take()?;
            next = turns.leave(client);
            Some(waiter)
        });
        assert_eq!(served.collect::<Vec<_>>(), [2, 4, 1, 3, 0]);
    }

    /// The waiters that get a place, one after the other, while every place is left again.
    fn served(turns: &mut Turns<u8, u64>, first: u8) -> Vec<u8> {
        let mut leaving = first;
        std::iter::from_fn(|| {
            leaving = turns.leave(leaving)?.0;
            Some(leaving)
        })
        .collect()
    }

    #[test]
    fn known_clients_have_three_turns_of_four() {
        let mut turns = dynamic(1, 20);
        assert!(turns.take(9));
        for (waiter, client) in (0..).zip([1, 2, 3, 4, 5]) {
            turns.wait(client, false, Duration::ZERO, waiter).unwrap();
        }
        for (waiter, client) in (10..).zip([11, 12, 13, 14]) {
            turns.wait(client, true, Duration::ZERO, waiter).unwrap();
        }
        assert_eq!(served(&mut turns, 9), [11, 12, 13, 1, 14, 2, 3, 4, 5]);
        assert!(turns.clients.is_empty() && turns.order.iter().all(VecDeque::is_empty));
    }

    #[test]
    fn others_give_way_to_a_known_client_in_a_full_queue() {
        let mut turns = dynamic(1, 3);
        assert!(turns.take(9));
        for client in 1..=3 {
            turns.wait(client, false, Duration::ZERO, 0).unwrap();
        }
        assert_eq!(turns.wait(4, false, Duration::ZERO, 0), Err(Full));
        for client in 11..=13 {
            assert!(turns.wait(client, true, Duration::ZERO, 0).is_ok());
        }
        assert_eq!(turns.wait(14, true, Duration::ZERO, 0), Err(Full), "all that wait are known");
        assert_eq!(served(&mut turns, 9), [11, 12, 13]);
        assert!(turns.clients.is_empty() && turns.order.iter().all(VecDeque::is_empty));
    }

    #[test]
    fn late_requests_beyond_half_of_the_places_give_way_to_known_clients() {
        let mut turns = dynamic(4, 10);
        let clients = [1, 2, 3, 4];
        assert!(clients.iter().all(|client| turns.take(*client)));
        let late = clients.map(|_| turns.late());
        turns.wait(5, false, Duration::ZERO, 0).unwrap();
        assert_eq!(turns.gives_way(), None, "the one that waits is not known");
        for client in [6, 6, 7] {
            turns.wait(client, true, Duration::ZERO, 0).unwrap();
        }
        let giving = [turns.gives_way(), turns.gives_way(), turns.gives_way()];
        assert_eq!(giving, [Some(late[0]), Some(late[1]), None], "half of the places stay");
        // One of the two is answered after all.
        turns.not_late(late[0]);
        assert_eq!(turns.gives_way(), None);
        turns.not_late(late[1]);
        assert_eq!(turns.leave(2), Some((6, 0)), "before the one that waits longer");
        turns.not_late(late[2]);
        assert_eq!((turns.gives_way(), turns.giving_way, turns.late.len()), (None, 0, 1));
    }

    /// An event in the life of a queue.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enter(u8, bool),
        Late(usize),
        Leave(usize),
        Withdraw(usize),
        Resize(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..4u8, any::<bool>()).prop_map(|(client, known)| Step::Enter(client, known)),
            2 => any::<usize>().prop_map(Step::Late),
            3 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::Withdraw),
            1 => (0..6usize).prop_map(Step::Resize),
        ]
    }

    proptest! {
        /// No place stays free while a client that may have it waits, none is given twice, no more late requests give
        /// way than known clients wait, and all that is counted comes back to zero.
        #[test]
        fn places_are_neither_lost_nor_given_twice(
            dynamic in any::<bool>(),
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let share = if dynamic { ClientShare::Dynamic } else { ClientShare::All };
            let mut turns: Turns<u8, u64> = Turns::new(share, 3, 5);
            let (mut taken, mut waiting) = (Vec::new(), Vec::new());
            for (number, step) in (0..).zip(steps) {
                match step {
                    Step::Enter(client, _) if turns.take(client) => taken.push((client, None)),
                    Step::Enter(client, known) => {
                        if let Ok(ticket) = turns.wait(client, known, Duration::ZERO, number) {
                            waiting.push((client, ticket, number));
                        }
                    }
                    Step::Late(which) if !taken.is_empty() => {
                        let at = which % taken.len();
                        let late: &mut Option<u64> = &mut taken[at].1;
                        match late.take() {
                            Some(late) => turns.not_late(late),
                            None => *late = Some(turns.late()),
                        }
                    }
                    Step::Leave(which) if !taken.is_empty() => {
                        let (client, late) = taken.swap_remove(which % taken.len());
                        late.into_iter().for_each(|late| turns.not_late(late));
                        let next = turns.leave(client);
                        taken.extend(next.map(|(client, waiter)| {
                            let at = waiting.iter().position(|(_, _, number)| *number == waiter);
                            assert_eq!(at.map(|at| waiting.swap_remove(at).0), Some(client));
                            (client, None)
                        }));
                    }
                    Step::Withdraw(which) if !waiting.is_empty() => {
                        let (client, ticket, _) = waiting.swap_remove(which % waiting.len());
                        turns.withdraw(client, ticket);
                    }
                    Step::Resize(places) => turns.set_places(places),
                    Step::Late(_) | Step::Leave(_) | Step::Withdraw(_) => {}
                }
                for (client, waiter) in std::iter::from_fn(|| turns.admit_next()) {
                    let at = waiting.iter().position(|(_, _, number)| *number == waiter);
                    prop_assert!(at.is_some_and(|at| waiting.swap_remove(at).0 == client));
                    taken.push((client, None));
                }
                while let Some(late) = turns.gives_way() {
                    prop_assert!(taken.iter().any(|(_, of)| *of == Some(late)));
                    prop_assert!(turns.late.len() >= turns.places / 2);
                    prop_assert!(turns.giving_way <= turns.order[KNOWN].len());
                }
                // A waiter that gave way is in no client's queue.
                waiting.retain(|(client, ticket, _)| {
                    let theirs = turns.clients.get(client);
                    theirs.is_some_and(|theirs| theirs.waiting.iter().any(|(t, _)| t == ticket))
                });
                prop_assert_eq!((turns.taken(), turns.waiting()), (taken.len(), waiting.len()));
                prop_assert!(turns.waiting() <= 5);
                let late = taken.iter().filter(|(_, late)| late.is_some()).count();
                prop_assert_eq!(turns.late.len() + turns.giving_way, late);
                let may_enter = |client: &Client<u64>| {
                    !client.waiting.is_empty() && client.taken < turns.most(client.is_known)
                };
                prop_assert!(turns.taken >= turns.places || !turns.clients.values().any(may_enter));
            }
            for (client, ticket, _) in waiting {
                turns.withdraw(client, ticket);
            }
            for (client, late) in taken {
                late.into_iter().for_each(|late| turns.not_late(late));
                prop_assert_eq!(turns.leave(client), None);
            }
            prop_assert!(turns.clients.is_empty() && turns.order.iter().all(VecDeque::is_empty));
            prop_assert_eq!((turns.late.len(), turns.giving_way), (0, 0));
        }
    }
}
