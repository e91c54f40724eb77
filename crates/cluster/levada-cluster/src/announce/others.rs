//! The law of load over several nodes with one route, without clock or socket. The controller of WWW'08 ("Anycast CDNs
//! Revisited", on which WWW'09 builds) sees the load of all servers and moves some routers' traffic from one that is
//! full to one with room. Here each node knows the loads of all, and one at a time decides for itself:
//!
//! ```text
//! work         = load · capacity, summed over all nodes
//! steps back   its load is at high, and is the highest of the announced nodes,
//!              and the others that are announced would have less than high if they had all of the work
//! comes back   it expects to be at or below low: the part of the work that it had before is taken of the work now;
//!              or an announced node is at high, and has more than this one expects to get;
//!              or no other node is announced
//! ```
//!
//! Routers choose who gets the traffic of a node that steps back, maybe badly. Then the node comes back
//! and waits twice as long the next time ([`super::decide`]).

use std::{fmt, str::FromStr, sync::Arc};

use crate::announce::{RouteLevel, RouteRules};

/// The words of a node about its route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteStanding {
    /// How it is announced.
    pub level: RouteLevel,
    /// Requests in service relative to the capacity, smoothed.
    pub load: f64,
    /// The requests that it may serve at once.
    pub capacity: u32,
}

/// The route of another node.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherRoute {
    /// The node.
    pub name: Arc<str>,
    /// Its last words.
    pub standing: RouteStanding,
}

impl RouteStanding {
    fn work(&self) -> f64 {
        self.load * f64::from(self.capacity)
    }

    fn is_announced(&self) -> bool {
        self.level == RouteLevel::Announced
    }
}

impl fmt::Display for RouteStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.3} {}", self.level.as_str(), self.load, self.capacity)
    }
}

impl FromStr for RouteStanding {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_ascii_whitespace();
        let level = words.next().and_then(RouteLevel::named).ok_or(())?;
        let load = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let capacity = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        Ok(Self { level, load, capacity })
    }
}

/// This node among the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Among<'a> {
    pub(crate) name: &'a str,
    pub(crate) own: RouteStanding,
    pub(crate) others: &'a [OtherRoute],
}

impl Among<'_> {
    fn work(&self) -> f64 {
        self.own.work() + self.others.iter().map(|other| other.standing.work()).sum::<f64>()
    }

    fn announced(&self) -> impl Iterator<Item = &OtherRoute> {
        self.others.iter().filter(|other| other.standing.is_announced())
    }

    /// The part of all work that this node has.
    pub(crate) fn part(&self) -> f64 {
        self.own.work() / self.work().max(f64::MIN_POSITIVE)
    }

    /// Whether a node whose load is high may leave its traffic to the others.
    pub(crate) fn may_step_back(&self, high: f64) -> bool {
        let room: f64 = self.announced().map(|other| f64::from(other.standing.capacity)).sum();
        let is_first =
            |other: &OtherRoute| (other.standing.load, &*other.name) < (self.own.load, self.name);
        room > 0.0 && self.work() / room < high && self.announced().all(is_first)
    }

    /// Whether a backup is announced again, which had this part of the work before.
    pub(crate) fn comes_back(&self, part: f64, rules: &RouteRules) -> bool {
        let (low, high) = (rules.load_low.unwrap_or(0.0), rules.load_high.unwrap_or(f64::MAX));
        let expected = part * self.work() / f64::from(self.own.capacity.max(1));
        let needs_help =
            |other: &OtherRoute| other.standing.load >= high && other.standing.load > expected;
        expected <= low || self.announced().any(needs_help) || self.announced().next().is_none()
    }

    /// Whether a node that should be withdrawn keeps its route, since no other one has any: of several that are
    /// withdrawn already, the first by name.
    pub(crate) fn is_last(&self) -> bool {
        let is_withdrawn = self.own.level == RouteLevel::Withdrawn;
        let leaves = |other: &OtherRoute| {
            other.standing.level == RouteLevel::Withdrawn
                && (!is_withdrawn || self.name < &*other.name)
        };
        !self.others.is_empty() && self.others.iter().all(leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        let standing = RouteStanding { level: RouteLevel::Backup, load: 0.125, capacity: 200 };
        assert_eq!(standing.to_string().parse(), Ok(standing));
        for wrong in ["", "backup", "backup 1", "gone 1 2", "backup x 2"] {
            assert!(wrong.parse::<RouteStanding>().is_err(), "{wrong}");
        }
    }

    fn routes(loads: &[(&str, f64)]) -> Vec<OtherRoute> {
        let route = |(name, load): &(&str, f64)| OtherRoute {
            name: (*name).into(),
            standing: RouteStanding { level: RouteLevel::Announced, load: *load, capacity: 100 },
        };
        loads.iter().map(route).collect()
    }

    #[test]
    fn only_the_fullest_steps_back_and_only_where_others_have_room() {
        let may = |name, load, others: &[(&str, f64)]| {
            let own = RouteStanding { level: RouteLevel::Announced, load, capacity: 100 };
            Among { name, own, others: &routes(others) }.may_step_back(0.9)
        };
        assert!(may("a", 1.0, &[("b", 0.2), ("c", 0.3)]));
        assert!(!may("a", 1.0, &[("b", 0.9)]), "no room");
        assert!(!may("a", 1.0, &[("b", 1.1), ("c", 0.0), ("d", 0.0)]), "another one is fuller");
        assert!(!may("a", 1.0, &[]), "the last one");
        let equal = |name, other| may(name, 1.0, &[(other, 1.0), ("c", 0.0), ("d", 0.1)]);
        assert!(equal("b", "a") != equal("a", "b"), "one of two that are equal");
    }
}
