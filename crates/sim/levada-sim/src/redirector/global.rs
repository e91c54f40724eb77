//! The loads over all redirectors, for policies that need them.
//!
//! Redirectors know them at once, or share their own loads at intervals: the "opportunistic communication with
//! other redirectors" of OSDI'02 Sec. 3.4.2. In between, the view of a redirector has its own requests as they come
//! and go, and those of the others as they were.

use std::{sync::Arc, time::Duration};

use levada_policy::{LoadTable, NodeIndex};
use levada_types::Timestamp;

/// The view of each redirector.
pub(super) struct GlobalLoads {
    views: Vec<Arc<LoadTable>>,
    /// The interval at which loads are shared, and the next time; `None`: all have one view.
    shared: Option<(Duration, Timestamp)>,
}

impl GlobalLoads {
    pub(super) fn new(redirectors: usize, servers: usize, every: Option<Duration>) -> Self {
        let views = match every {
            None => vec![LoadTable::new(servers); redirectors],
            Some(_) => (0..redirectors).map(|_| LoadTable::new(servers)).collect(),
        };
        Self { views, shared: every.map(|every| (every, Timestamp::ZERO + every)) }
    }

    pub(super) fn of(&self, redirector: usize) -> &Arc<LoadTable> {
        &self.views[redirector]
    }

    /// Shares the loads that redirectors count themselves, if it is time. A view keeps its guards: the requests of
    /// its own redirector are part of the sum.
    pub(super) fn share<'a>(
        &mut self,
        now: Timestamp,
        own: impl Iterator<Item = &'a LoadTable> + Clone,
    ) {
        let Some((every, next)) = &mut self.shared else { return };
        if now < *next {
            return;
        }
        *next = now + *every;
        let servers = self.views.first().map_or(0, |view| view.len());
        for server in (0..servers as u32).map(NodeIndex) {
            let sum = own.clone().map(|loads| loads.of(server)).sum();
            self.views.iter().for_each(|view| view.set(server, sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: NodeIndex = NodeIndex(0);

    #[test]
    fn view_has_own_requests_at_once_and_those_of_others_when_they_are_shared() {
        let own = [LoadTable::new(1), LoadTable::new(1)];
        let mut global = GlobalLoads::new(2, 1, Some(Duration::from_secs(1)));
        let begin = |global: &GlobalLoads, redirector: usize| {
            (own[redirector].begin(SERVER), global.of(redirector).begin(SERVER))
        };
        let share = |global: &mut GlobalLoads, millis| {
            let now = Timestamp::ZERO + Duration::from_millis(millis);
            global.share(now, own.iter().map(AsRef::as_ref));
        };
        let seen = |global: &GlobalLoads| [0, 1].map(|redirector| global.of(redirector).of(SERVER));
        let first = begin(&global, 0);
        let second = begin(&global, 1);
        share(&mut global, 999);
        assert_eq!(seen(&global), [1, 1]);
        share(&mut global, 1_000);
        assert_eq!(seen(&global), [2, 2]);
        drop(first);
        assert_eq!(seen(&global), [1, 2], "the second redirector does not know yet");
        share(&mut global, 1_999);
        assert_eq!(seen(&global), [1, 2]);
        share(&mut global, 2_000);
        assert_eq!(seen(&global), [1, 1]);
        drop(second);
        assert_eq!(seen(&global), [1, 0]);
    }

    #[test]
    fn loads_known_at_once_are_one_view() {
        let global = GlobalLoads::new(2, 1, None);
        let _request = global.of(0).begin(SERVER);
        assert_eq!(global.of(1).of(SERVER), 1);
    }
}
