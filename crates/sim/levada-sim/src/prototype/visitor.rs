//! A client of the prototype: Webstone's, to which the authors added "the concept of user think-time and
//! embedded objects per Web page" (WWW10 Sec. 5.2).

use std::time::Duration;

use levada_cap::Pareto;
use levada_types::Rng;

use super::site::{Ask, Site};

/// The behaviour of clients. The symbols of Table 1 are lost, so the values are those of the same
/// group's papers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habits {
    /// Seconds between a page's last object and the next page.
    pub think: Pareto,
    /// The longest think time. The distribution has no limit, and a client that thinks for ever
    /// would be lost.
    pub longest_think: Duration,
    /// Objects of a page, its document included; each is of any kind.
    pub objects: Pareto,
    /// The most objects of a page.
    pub most_objects: u32,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            think: Pareto { alpha: 1.4, k: 2.0 },
            longest_think: Duration::from_secs(60),
            objects: Pareto { alpha: 1.33, k: 2.0 },
            most_objects: 100,
        }
    }
}

/// One client, which requests one object at a time.
#[derive(Clone, Debug)]
pub struct Visitor {
    rng: Rng,
    habits: Habits,
    /// Objects of the page that are still to be requested.
    left: u32,
}

impl Visitor {
    /// A client whose behaviour follows from `seed`.
    pub fn new(seed: u64, habits: Habits) -> Self {
        Self { rng: Rng::new(seed), habits, left: 0 }
    }

    /// The next object that it requests, and the think time before.
    pub fn next(&mut self, site: &Site) -> (Duration, Ask) {
        let think = match self.left {
            0 => {
                let objects = self.habits.objects.draw(&mut self.rng).round();
                self.left = objects.clamp(1.0, f64::from(self.habits.most_objects)) as u32;
                let longest = self.habits.longest_think.as_secs_f64();
                Duration::from_secs_f64(self.habits.think.draw(&mut self.rng).min(longest))
            }
            _ => Duration::ZERO,
        };
        self.left -= 1;
        (think, site.draw(&mut self.rng))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_thinks_before_a_page_and_not_within_it() {
        let site = Site::files(10, 1);
        let habits = Habits { most_objects: 3, ..Habits::default() };
        let mut visitor = Visitor::new(7, habits);
        let thoughts: Vec<_> = (0..300).map(|_| visitor.next(&site).0).collect();
        let runs: Vec<_> = thoughts.split(|think| !think.is_zero()).map(<[_]>::len).collect();
        assert!(!thoughts[0].is_zero());
        assert!(runs[1..runs.len() - 1].iter().all(|rest| (1..=2).contains(rest)), "{runs:?}");
        let within = |think: &Duration| (2.0..=60.0).contains(&think.as_secs_f64());
        assert!(thoughts.iter().filter(|think| !think.is_zero()).all(within));
    }
}
