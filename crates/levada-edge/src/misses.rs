//! How many requests of a site are at its origins at once, and whose turn it is.
//!
//! Whatever is asked for, the origin must not be overloaded by what misses (OSDI'02 Sec. 5.2.4: requests
//! for invalid or random URLs). So there are places, and a queue for those that find none:
//!
//! ```text
//!   enter ──> a place is free, and the client has less than half of all ──> Miss, until its answer has
//!        ├──> the queue has room, or another client waits more often         come in whole
//!        │                                   └──> waits until it is the client's turn
//!        └──> QueueFull
//! ```
//!
//! Turns go round the clients that wait, not the requests: a client with five hundred requests in the
//! queue holds up its own. When the queue is full, who waits most often gives way. And since turns
//! help little while one client's slow answers hold every place, none has more than half of them.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry::Occupied},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    connection::{ClientConnection, Door},
    failure::Failure,
    settings::MissLimits as Bounds,
};

/// The places of one site.
pub(crate) struct Misses {
    bounds: Bounds,
    state: Mutex<MissState>,
}

#[derive(Default)]
struct MissState {
    taken: usize,
    waiting: usize,
    /// Clients that have a place or wait for one.
    clients: HashMap<IpAddr, Client>,
    /// Those that wait and may have another place, in the order of their turns.
    turns: VecDeque<IpAddr>,
    tickets: u64,
}

#[derive(Default)]
struct Client {
    taken: usize,
    waiting: VecDeque<WaitingMiss>,
    /// Whether it stands in `turns`.
    has_turn: bool,
}

struct WaitingMiss {
    ticket: u64,
    place: oneshot::Sender<Miss>,
}

/// A place at the origin; free again when dropped.
pub(crate) struct Miss {
    misses: Arc<Misses>,
    client: IpAddr,
}

/// A request in the queue; leaves it when dropped.
struct QueuedMiss<'a> {
    misses: &'a Misses,
    client: IpAddr,
    ticket: u64,
}

enum QueueEntry {
    Place(Miss),
    Queue(u64, oneshot::Receiver<Miss>),
}

impl Misses {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, state: Mutex::default() })
    }

    /// Waits for a place.
    pub(crate) async fn enter(self: &Arc<Self>, client: IpAddr) -> Result<Miss, Failure> {
        let (ticket, place) = match self.place_or_ticket(client)? {
            QueueEntry::Place(miss) => return Ok(miss),
            QueueEntry::Queue(ticket, place) => (ticket, place),
        };
        let _queued = QueuedMiss { misses: self, client, ticket };
        match tokio::time::timeout(self.bounds.wait, place).await {
            Ok(Ok(miss)) => Ok(miss),
            // Somebody who waits less often came.
            Ok(Err(_)) => Err(Failure::QueueFull),
            Err(_) => Err(Failure::QueueTimeout),
        }
    }

    /// Requests at the origins.
    pub(crate) fn taken(&self) -> usize {
        self.state.lock().taken
    }

    /// Requests in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    fn place_or_ticket(self: &Arc<Self>, client: IpAddr) -> Result<QueueEntry, Failure> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let most = self.most();
        let free = state.taken < self.bounds.at_once;
        let mine = state.clients.entry(client).or_default();
        if free && mine.taken < most {
            mine.taken += 1;
            state.taken += 1;
            return Ok(QueueEntry::Place(Miss { misses: self.clone(), client }));
        }
        let waits = mine.waiting.len();
        if state.waiting >= self.bounds.queue && !state.make_room(waits) {
            state.tidy(client);
            return Err(Failure::QueueFull);
        }
        state.tickets += 1;
        let ticket = state.tickets;
        let (sender, place) = oneshot::channel();
        state.waiting += 1;
        let mine = state.clients.entry(client).or_default();
        mine.waiting.push_back(WaitingMiss { ticket, place: sender });
        state.give_turn(client, most);
        Ok(QueueEntry::Queue(ticket, place))
    }

    /// The places that one client may have.
    fn most(&self) -> usize {
        self.bounds.at_once.div_ceil(2)
    }

    /// Frees a place and gives it to whose turn it is.
    fn leave(self: &Arc<Self>, client: IpAddr) {
        let next = {
            let mut state = self.state.lock();
            state.taken -= 1;
            if state.waiting == 0 {
                return state.forget(client);
            }
            if let Some(mine) = state.clients.get_mut(&client) {
                mine.taken -= 1;
            }
            state.give_turn(client, self.most());
            state.tidy(client);
            state.next(self.most())
        };
        if let Some((client, waiting)) = next {
            // Should nobody wait for it any more, it is dropped, and this begins again.
            let _ = waiting.place.send(Miss { misses: self.clone(), client });
        }
    }
}

impl MissState {
    /// Takes the next request out of the queue; its place counts as taken.
    fn next(&mut self, most: usize) -> Option<(IpAddr, WaitingMiss)> {
        let client = self.turns.pop_front()?;
        let theirs = self.clients.get_mut(&client)?;
        theirs.has_turn = false;
        let waiting = theirs.waiting.pop_front()?;
        theirs.taken += 1;
        self.taken += 1;
        self.waiting -= 1;
        self.give_turn(client, most);
        Some((client, waiting))
    }

    /// Takes a place from a client while nobody waits.
    fn forget(&mut self, client: IpAddr) {
        if let Occupied(mut mine) = self.clients.entry(client) {
            mine.get_mut().taken -= 1;
            if mine.get().taken == 0 {
                mine.remove();
            }
        }
    }

    /// Puts a client that waits at the end of the turns, if it may have another place.
    fn give_turn(&mut self, client: IpAddr, most: usize) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if !theirs.has_turn && !theirs.waiting.is_empty() && theirs.taken < most {
            theirs.has_turn = true;
            self.turns.push_back(client);
        }
    }

    /// Sends away the latest request of the client that waits most often, for one that waits `waits`
    /// times so far.
    fn make_room(&mut self, waits: usize) -> bool {
        let greediest = self.clients.values_mut().max_by_key(|client| client.waiting.len());
        let Some(greediest) = greediest.filter(|client| client.waiting.len() > waits + 1) else {
            return false;
        };
        greediest.waiting.pop_back();
        self.waiting -= 1;
        true
    }

    /// Forgets what is not needed of a client.
    fn tidy(&mut self, client: IpAddr) {
        let Some(theirs) = self.clients.get_mut(&client) else { return };
        if theirs.waiting.is_empty() && theirs.has_turn {
            theirs.has_turn = false;
            self.turns.retain(|other| *other != client);
        }
        if theirs.waiting.is_empty() && theirs.taken == 0 {
            self.clients.remove(&client);
        }
    }
}

impl Drop for Miss {
    fn drop(&mut self) {
        self.misses.leave(self.client);
    }
}

impl Drop for QueuedMiss<'_> {
    fn drop(&mut self) {
        let mut state = self.misses.state.lock();
        let Some(mine) = state.clients.get_mut(&self.client) else { return };
        // Tickets grow, so the queue is sorted by them.
        if let Ok(at) = mine.waiting.binary_search_by_key(&self.ticket, |waiting| waiting.ticket) {
            mine.waiting.remove(at);
            state.waiting -= 1;
            state.tidy(self.client);
        }
    }
}

/// Who is behind a request, for the turns: a peer says on whose behalf it asks.
pub(crate) fn client(connection: &ClientConnection, headers: &HeaderMap) -> IpAddr {
    let told = || {
        let last = headers.get_all("x-forwarded-for").iter().next_back()?;
        HeaderValue::to_str(last).ok()?.rsplit(',').next()?.trim().parse().ok()
    };
    let address = match connection.door {
        Door::Peer => told(),
        Door::Client { .. } => None,
    };
    network(address.unwrap_or(connection.client))
}

/// An IPv6 client has a whole network of addresses to choose from: that network is the client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::Future, pin::pin, task::Context, time::Duration};

    fn places(at_once: usize, queue: usize) -> Arc<Misses> {
        Misses::new(Bounds { at_once, queue, wait: Duration::from_secs(3600) })
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    type Entering = std::pin::Pin<Box<dyn Future<Output = Result<Miss, Failure>>>>;

    /// A request that has asked for a place, and what it got so far.
    fn enter(misses: &Arc<Misses>, client: u8) -> (Entering, Option<Result<Miss, Failure>>) {
        let misses = misses.clone();
        let mut entering: Entering = Box::pin(async move { misses.enter(ip(client)).await });
        let got = poll(&mut entering);
        (entering, got)
    }

    fn poll(entering: &mut Entering) -> Option<Result<Miss, Failure>> {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        match pin!(entering).poll(cx) {
            std::task::Poll::Ready(got) => Some(got),
            std::task::Poll::Pending => None,
        }
    }

    fn is_empty(misses: &Misses) -> bool {
        let state = misses.state.lock();
        state.taken == 0 && state.waiting == 0 && state.clients.is_empty() && state.turns.is_empty()
    }

    #[tokio::test]
    async fn nobody_has_more_than_half_of_the_places() {
        let misses = places(4, 10);
        let greedy: Vec<_> = (0..5).map(|_| enter(&misses, 1)).collect();
        assert_eq!(greedy.iter().filter(|(_, got)| got.is_some()).count(), 2);
        let others: Vec<_> = (0..5).map(|_| enter(&misses, 2)).collect();
        assert_eq!(others.iter().filter(|(_, got)| got.is_some()).count(), 2);
        assert_eq!((misses.taken(), misses.waiting()), (4, 6));
        drop((greedy, others));
        assert!(is_empty(&misses));
    }

    #[tokio::test]
    async fn turns_go_round_the_clients() {
        let misses = places(2, 20);
        let mut places = vec![enter(&misses, 9).1.unwrap(), enter(&misses, 8).1.unwrap()];
        let mut waiting = Vec::new();
        for client in [1, 1, 1, 1, 2, 3, 3] {
            let (entering, got) = enter(&misses, client);
            assert!(got.is_none());
            waiting.push((client, entering));
        }
        let mut served = Vec::new();
        while let Some(place) = places.pop() {
            drop(place);
            waiting.retain_mut(|(client, entering)| match poll(entering) {
                Some(got) => {
                    served.push(*client);
                    places.insert(0, got);
                    false
                }
                None => true,
            });
        }
        assert_eq!(served, [1, 2, 3, 1, 3, 1, 1]);
        assert!(is_empty(&misses));
    }

    #[tokio::test]
    async fn who_waits_most_often_gives_way_in_a_full_queue() {
        let misses = places(1, 3);
        let _place = enter(&misses, 9).1.unwrap();
        let mut greedy: Vec<_> = (0..3).map(|_| enter(&misses, 1)).collect();
        assert!(matches!(enter(&misses, 1).1, Some(Err(Failure::QueueFull))));
        let (_second, got) = enter(&misses, 2);
        assert!(got.is_none());
        let sent_away = greedy.iter_mut().map(|(entering, _)| poll(entering));
        let sent_away: Vec<_> = sent_away.map(|got| got.is_some_and(|got| got.is_err())).collect();
        assert_eq!(sent_away, [false, false, true]);
        // With two against one, nobody gives way any more.
        assert!(matches!(enter(&misses, 2).1, Some(Err(Failure::QueueFull))));
        let (_third, got) = enter(&misses, 3);
        assert!(got.is_none());
        assert!(matches!(enter(&misses, 4).1, Some(Err(Failure::QueueFull))));
        assert_eq!(misses.waiting(), 3);
    }

    #[tokio::test]
    async fn place_of_one_who_left_goes_to_the_next() {
        let misses = places(1, 5);
        let place = enter(&misses, 1).1.unwrap();
        let (left, _) = enter(&misses, 2);
        let (gone, _) = enter(&misses, 3);
        let (mut stays, _) = enter(&misses, 4);
        drop(left);
        drop(place);
        // It was given the place and leaves without having looked.
        drop(gone);
        assert!(poll(&mut stays).is_some_and(|got| got.is_ok()));
        drop(stays);
        assert!(is_empty(&misses));
    }

    #[tokio::test]
    async fn wait_ends_in_time() {
        let wait = Duration::from_millis(10);
        let misses = Misses::new(Bounds { at_once: 1, queue: 5, wait });
        let _place = enter(&misses, 1).1.unwrap();
        assert!(matches!(misses.enter(ip(2)).await, Err(Failure::QueueTimeout)));
        assert_eq!(misses.waiting(), 0);
    }

    #[test]
    fn network_of_an_ipv6_client_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8:0:0:ffff::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), ip(1));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
