//! Open-loop load: every request is sent at its scheduled time, independent of earlier requests.

use std::sync::Arc;

use tokio::{sync::Semaphore, time::Instant};

use super::{
    board::Board,
    client::{Clients, Ending, Trouble},
    setup::Setup,
};

/// Sends all requests of the demo and returns when the last one has been sent. Each latency is
/// measured from the scheduled time: the lateness of a client counts as latency, so that an
/// overloaded demo cannot look better than it is.
pub(super) async fn send(
    setup: Arc<Setup>,
    clients: Arc<Clients>,
    board: Arc<Board>,
    begin: Instant,
    places: Arc<Semaphore>,
) {
    for arrival in setup.arrivals() {
        let due = begin + arrival.at;
        tokio::time::sleep_until(due).await;
        let Ok(place) = places.clone().try_acquire_owned() else {
            let ending = Ending { result: Err(Trouble::TooMany), retries: 0 };
            board.ended(arrival, due.elapsed(), &ending);
            continue;
        };
        let (clients, board) = (clients.clone(), board.clone());
        tokio::spawn(async move {
            let ending = clients.request(arrival.object).await;
            board.ended(arrival, due.elapsed(), &ending);
            drop(place);
        });
    }
}

/// Limit of concurrent requests, far above the capacity of the nodes: a request beyond it counts as
/// failed.
pub(super) const MOST_UNDER_WAY: usize = 4_096;
