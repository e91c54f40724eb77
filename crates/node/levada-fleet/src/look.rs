//! A node's look at its whole fleet, for its page. The state is asked rarely, however many people look.

use std::time::Duration;

use serde::Serialize;
use tokio::{sync::Mutex, time::Instant, time::timeout};

use crate::{
    model::AuditEntry,
    overview::Overview,
    state::{State, unix_time},
    store::StoreError,
};

/// The fleet as the page of a node shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FleetShown {
    /// The nodes.
    pub overview: Overview,
    /// The last orders of people, the latest first.
    pub orders: Vec<AuditEntry>,
    /// When the state said so: Unix time in seconds; 0 if it has not yet.
    pub heard: u64,
    /// Why this is not from now.
    pub error: Option<String>,
}

/// The look of a node.
pub struct FleetLook {
    state: State,
    fleet: String,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    shown: FleetShown,
    /// When the nodes and the orders are asked for again.
    nodes_due: Option<Instant>,
    orders_due: Option<Instant>,
}

/// Between two looks at the nodes.
const NODES_INTERVAL: Duration = Duration::from_secs(2);
/// Between two looks at the orders, of which a state has thousands, or at a state that was away.
const ORDERS_INTERVAL: Duration = Duration::from_secs(15);
/// The state is waited for no longer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// The orders that are shown.
const ORDERS: usize = 20;

impl FleetLook {
    pub(crate) fn new(state: State, fleet: &str) -> Self {
        Self { state, fleet: fleet.to_owned(), known: Mutex::default() }
    }

    /// The fleet now, or as it was when the state answered last.
    pub async fn take(&self) -> FleetShown {
        let mut known = self.known.lock().await;
        let now = Instant::now();
        if known.nodes_due.is_none_or(|due| due <= now) {
            known.nodes_due = Some(now + NODES_INTERVAL);
            let with_orders = known.orders_due.is_none_or(|due| due <= now);
            match timeout(LOOK_TIMEOUT, self.ask(with_orders)).await {
                Ok(Ok((overview, orders))) => {
                    known.shown.overview = overview;
                    if let Some(orders) = orders {
                        known.shown.orders = orders;
                        known.orders_due = Some(now + ORDERS_INTERVAL);
                    }
                    (known.shown.heard, known.shown.error) = (unix_time(), None);
                }
                Ok(Err(error)) => known.failed(error.to_string()),
                Err(_) => known.failed("the state of the fleet does not answer".to_owned()),
            }
        }
        known.shown.clone()
    }

    async fn ask(
        &self,
        with_orders: bool,
    ) -> Result<(Overview, Option<Vec<AuditEntry>>), StoreError> {
        let overview = Overview::of(&self.state, &self.fleet).await?;
        if !with_orders {
            return Ok((overview, None));
        }
        let mut orders = self.state.audit().await?;
        orders.reverse();
        orders.truncate(ORDERS);
        Ok((overview, Some(orders)))
    }
}

impl Known {
    fn failed(&mut self, why: String) {
        self.shown.error = Some(why);
        self.nodes_due = Some(Instant::now() + ORDERS_INTERVAL);
    }
}
