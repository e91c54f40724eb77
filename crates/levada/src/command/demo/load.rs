//! Open-loop load: every request is sent at its time, whatever became of those before it.

use std::sync::Arc;

use tokio::{sync::Semaphore, time::Instant};

use super::{
    board::Board,
    client::{Clients, Ending, Trouble},
    setup::Setup,
};

/// Sends all requests of the demo and returns when the last one has been sent. Each is measured from
/// the time at which it was to be sent: a client that is late counts its lateness as latency, so
/// that an overloaded demo cannot look better than it is.
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

/// Requests under way at once, far more than the nodes hold: what cannot be sent counts as failed.
pub(super) const MOST_UNDER_WAY: usize = 4_096;
