//! Which members are in use, when a source may be flapping. Pure: it is handed the time and the health.
//!
//! A source that changes once is followed at once. A member that left and comes back within a minute is flapping:
//! the next time it leaves the source, it stays in use for ten seconds as long as it is up, the time after for
//! twenty, and so on. So answers that differ at every query grow into their union, and no object moves for
//! them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use levada_types::{Backoff, Timestamp};

use crate::Member;

/// A member that comes back within this time is flapping.
const FLAPPING: Duration = Duration::from_secs(60);
/// The delay of a leave. A member that the source has named for the longest one is forgiven.
const LEAVE_DELAY: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(600));
/// The most members that are remembered after they have left. Beyond it, those are forgotten that left first.
const REMEMBERED: usize = 10_000;

/// The members of one source, with their past.
#[derive(Debug, Default)]
pub(crate) struct Damping {
    members: BTreeMap<Arc<str>, Tracked>,
}

#[derive(Debug)]
struct Tracked {
    member: Member,
    state: State,
    /// How often it came back soon after it had left.
    flaps: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The source names it.
    Named { since: Timestamp },
    /// The source does not name it any more; it stays in use until then.
    Leaving { until: Timestamp },
    /// It is not in use.
    Gone { since: Timestamp },
}

impl Damping {
    /// Takes in the whole list of a source. Of members with one name, the first counts.
    pub(crate) fn reported(&mut self, list: Vec<Member>, now: Timestamp) {
        let mut named = BTreeMap::new();
        for member in list {
            named.entry(member.name.clone()).or_insert(member);
        }
        for (name, tracked) in &mut self.members {
            match named.remove(name) {
                Some(member) => tracked.named(member, now),
                None => tracked.missed(now),
            }
        }
        let new = named.into_iter().map(|(name, member)| {
            (name, Tracked { member, state: State::Named { since: now }, flaps: 0 })
        });
        self.members.extend(new);
        self.forget(now);
    }

    /// Ends the delays that are over, and those of members that are not up any more.
    pub(crate) fn tick(&mut self, is_up: impl Fn(&Member) -> bool, now: Timestamp) {
        for tracked in self.members.values_mut() {
            if let State::Leaving { until } = tracked.state
                && (until <= now || !is_up(&tracked.member))
            {
                tracked.state = State::Gone { since: now };
            }
        }
        self.forget(now);
    }

    /// The members in use, in the order of their names.
    pub(crate) fn in_use(&self) -> Vec<Member> {
        let used = self.members.values().filter(|tracked| tracked.is_used());
        used.map(|tracked| tracked.member.clone()).collect()
    }

    /// Whether a member stays in use that the source does not name.
    pub(crate) fn delays(&self) -> bool {
        self.members.values().any(|tracked| matches!(tracked.state, State::Leaving { .. }))
    }

    fn forget(&mut self, now: Timestamp) {
        self.members.retain(|_, tracked| match tracked.state {
            State::Gone { since } => now.since(since) <= FLAPPING,
            _ => true,
        });
        let mut gone: Vec<Timestamp> = self.members.values().filter_map(Tracked::gone).collect();
        if gone.len() > REMEMBERED {
            gone.sort_unstable();
            let oldest = gone[gone.len() - REMEMBERED];
            self.members.retain(|_, tracked| tracked.gone().is_none_or(|since| since >= oldest));
        }
    }
}

impl Tracked {
    fn named(&mut self, member: Member, now: Timestamp) {
        self.member = member;
        match self.state {
            State::Named { .. } => return,
            State::Leaving { .. } => self.flaps += 1,
            State::Gone { since } if now.since(since) <= FLAPPING => self.flaps += 1,
            State::Gone { .. } => self.flaps = 0,
        }
        self.state = State::Named { since: now };
    }

    fn missed(&mut self, now: Timestamp) {
        let State::Named { since } = self.state else { return };
        if now.since(since) >= LEAVE_DELAY.longest() {
            self.flaps = 0;
        }
        self.state = match self.flaps {
            0 => State::Gone { since: now },
            flaps => State::Leaving { until: now + LEAVE_DELAY.after(flaps) },
        };
    }

    fn is_used(&self) -> bool {
        self.gone().is_none()
    }

    fn gone(&self) -> Option<Timestamp> {
        match self.state {
            State::Gone { since } => Some(since),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    fn list(numbers: &[u8]) -> Vec<Member> {
        let member = |number: &u8| {
            Member::new(format!("m{number:03}"), SocketAddr::from(([10, 0, 0, *number], 80)))
        };
        numbers.iter().map(member).collect()
    }

    fn in_use(damping: &Damping) -> Vec<u8> {
        let last = |member: Member| match member.address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        };
        damping.in_use().into_iter().map(last).collect()
    }

    fn always_up(_: &Member) -> bool {
        true
    }

    #[test]
    fn first_change_takes_effect_at_once() {
        let mut damping = Damping::default();
        damping.reported(list(&[1]), at(0));
        damping.reported(list(&[2]), at(5));
        assert_eq!(in_use(&damping), [2]);
        assert!(!damping.delays());
    }

    #[test]
    fn member_that_came_back_leaves_later_each_time() {
        let mut damping = Damping::default();
        damping.reported(list(&[1, 2]), at(0));
        damping.reported(list(&[1]), at(1));
        let mut now = 2;
        for delay in [10, 20, 40, 80, 160, 320, 600, 600] {
            damping.reported(list(&[1, 2]), at(now));
            damping.reported(list(&[1]), at(now + 1));
            damping.tick(always_up, at(now + delay));
            assert_eq!(in_use(&damping), [1, 2], "within {delay} s");
            damping.tick(always_up, at(now + 1 + delay));
            assert_eq!(in_use(&damping), [1], "after {delay} s");
            now += delay + 2;
        }
    }

    #[test]
    fn delayed_member_that_goes_down_leaves() {
        let mut damping = Damping::default();
        for (numbers, second) in [(&[1, 2][..], 0), (&[1], 1), (&[1, 2], 2), (&[1], 3)] {
            damping.reported(list(numbers), at(second));
        }
        assert_eq!(in_use(&damping), [1, 2]);
        damping.tick(|member| !member.address.to_string().ends_with("2:80"), at(4));
        assert_eq!(in_use(&damping), [1]);
    }

    #[test]
    fn member_that_stayed_for_long_is_forgiven() {
        let mut damping = Damping::default();
        for (numbers, second) in [(&[1, 2][..], 0), (&[1], 1), (&[1, 2], 2), (&[1], 602)] {
            damping.reported(list(numbers), at(second));
        }
        assert_eq!(in_use(&damping), [1]);
    }

    #[test]
    fn member_that_was_away_for_long_is_new() {
        let mut damping = Damping::default();
        for (numbers, second) in [(&[1, 2][..], 0), (&[1], 1), (&[1, 2], 62), (&[1], 63)] {
            damping.reported(list(numbers), at(second));
        }
        assert_eq!(in_use(&damping), [1]);
    }

    #[test]
    fn answers_that_rotate_grow_into_their_union() {
        let mut damping = Damping::default();
        let all: Vec<u8> = (0..32).collect();
        let mut changes = 0;
        for second in 0..600u64 {
            let first = (second * 8 % 32) as usize;
            let before = in_use(&damping);
            damping.reported(list(&all[first..first + 8]), at(second));
            damping.tick(always_up, at(second));
            if second >= 60 {
                changes += u32::from(before != in_use(&damping));
            }
        }
        assert_eq!(in_use(&damping), all);
        assert_eq!(changes, 0, "nothing changes after the first minute");
    }

    #[test]
    fn new_weight_counts_at_once() {
        let mut damping = Damping::default();
        damping.reported(list(&[1]), at(0));
        let mut heavier = list(&[1]);
        heavier[0].weight = 3.0;
        damping.reported(heavier, at(1));
        assert_eq!(damping.in_use()[0].weight, 3.0);
    }

    proptest! {
        /// Whatever a source says: all that it names is in use, nothing that it never named, and what it named
        /// last is all that is left after the longest delay.
        #[test]
        fn list_of_the_source_is_always_in_use(
            steps in prop::collection::vec((prop::collection::vec(0u8..8, 1..5), 0u64..90, any::<bool>()), 1..60)
        ) {
            let mut damping = Damping::default();
            let (mut now, mut ever) = (0, std::collections::BTreeSet::new());
            let mut last = Vec::new();
            for (mut numbers, wait, up) in steps {
                now += wait;
                damping.tick(|_| up, at(now));
                numbers.sort_unstable();
                numbers.dedup();
                damping.reported(list(&numbers), at(now));
                ever.extend(numbers.iter().copied());
                let used = in_use(&damping);
                prop_assert!(numbers.iter().all(|number| used.contains(number)));
                prop_assert!(used.iter().all(|number| ever.contains(number)));
                last = numbers;
            }
            damping.tick(always_up, at(now + 600));
            prop_assert_eq!(in_use(&damping), last);
            prop_assert!(!damping.delays());
        }
    }
}
