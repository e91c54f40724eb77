//! A service class from service times, where no operator has given one.
//!
//! A switch sees how long a server takes to the first byte of an answer, and nothing of why. Two figures
//! of the last requests of a kind tell most of it:
//!
//! - *low*, what nine of ten requests take at least. All of them pay it, so it is computing: **cpu** if
//!   it is heavy.
//! - *mean* less *low*: what only some of them pay, because a server's memory spares it the others. That
//!   is how a disk looks from outside: **disk** if it is heavy.
//!
//! Heavy is a multiple of the least that requests of any kind take, so that the way to the servers and
//! their own quickness cancel out. Waiting in a server's queue looks like a disk: classes that are learned
//! under overload tell less. Not of the paper, whose operators classify (WWW10 Sec. 3.2).

use std::collections::BTreeMap;

use levada_types::ServiceClass;

/// Requests by which a kind is judged, and after which it is judged again.
const WINDOW: usize = 64;
/// Kinds that are told apart at most, besides the rules. Each takes about 400 bytes.
const MOST_PREFIXES: usize = 1024;
/// Longer beginnings of paths are no kinds of their own.
const LONGEST_PREFIX: usize = 64;

/// The last times of one kind of requests, in microseconds.
#[derive(Clone, Debug)]
pub struct Times {
    ring: Vec<u32>,
    capacity: usize,
    next: usize,
}

/// What the times of one kind come to, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// What nine of ten requests take at least.
    pub low: u32,
    /// What they take on average.
    pub mean: u32,
}

/// From how many microseconds on a time is heavy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heavy(pub u32);

impl Times {
    /// Remembers the last `capacity` times.
    pub fn new(capacity: usize) -> Self {
        Self { ring: Vec::new(), capacity: capacity.max(1), next: 0 }
    }

    /// Takes one in.
    pub fn add(&mut self, micros: u32) {
        if self.ring.len() < self.capacity {
            self.ring.push(micros);
        } else {
            self.ring[self.next] = micros;
        }
        self.next = (self.next + 1) % self.capacity;
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// `None` without any.
    pub fn figures(&self) -> Option<Figures> {
        let mut sorted = self.ring.clone();
        sorted.sort_unstable();
        let low = *sorted.get(sorted.len() / 10)?;
        let sum: u64 = sorted.iter().map(|time| u64::from(*time)).sum();
        let mean = sum / sorted.len() as u64;
        Some(Figures { low, mean: u32::try_from(mean).unwrap_or(u32::MAX) })
    }
}

impl Heavy {
    /// Below this nothing is heavy: half of a disk's access (WWW10's disks take 13 ms).
    const LEAST: u32 = 5_000;
    /// How many times as long as the lightest kind.
    const TIMES: u32 = 4;

    /// What is heavy beside these kinds.
    pub fn beside(kinds: impl Iterator<Item = Figures>) -> Self {
        let lightest = kinds.map(|figures| figures.low).min().unwrap_or_default();
        Self(lightest.saturating_mul(Self::TIMES).max(Self::LEAST))
    }

    /// The class of a kind.
    pub fn class_of(self, figures: Figures) -> ServiceClass {
        let cpu = figures.low > self.0;
        let disk = figures.mean.saturating_sub(figures.low) > self.0;
        match (disk, cpu) {
            (false, false) => ServiceClass::Normal,
            (true, false) => ServiceClass::DiskBound,
            (false, true) => ServiceClass::CpuBound,
            (true, true) => ServiceClass::DiskAndCpuBound,
        }
    }
}

/// The first segment of a path with the `/` behind it, or the ending of a file in the root: what makes a
/// kind of requests where no rule does.
pub fn prefix_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix('/')?;
    let kind = match rest.find('/') {
        Some(end) => &path[..end + 2],
        None => rest.rfind('.').map_or("/", |dot| &rest[dot..]),
    };
    (kind.len() <= LONGEST_PREFIX).then_some(kind)
}

/// Learns the classes of a site's rules without one, and of the first segments of paths that no rule is
/// about.
#[derive(Clone, Debug)]
pub struct Learner {
    rules: Vec<Kind>,
    prefixes: BTreeMap<Box<str>, Kind>,
    learns_prefixes: bool,
}

/// One kind of requests.
#[derive(Clone, Debug)]
struct Kind {
    times: Times,
    since_judged: usize,
    class: ServiceClass,
    /// What it would be by the last judgement: a class changes when two in a row agree.
    proposed: ServiceClass,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            times: Times::new(WINDOW),
            since_judged: 0,
            class: ServiceClass::Normal,
            proposed: ServiceClass::Normal,
        }
    }
}

impl Learner {
    /// For so many rules; with `learns_prefixes` also for what they are not about.
    pub fn new(rules: usize, learns_prefixes: bool) -> Self {
        Self { rules: vec![Kind::default(); rules], prefixes: BTreeMap::new(), learns_prefixes }
    }

    /// The class by now of what `rule` is about, or the path if no rule is. Normal until it is known.
    pub fn class(&self, rule: Option<usize>, path: &str) -> ServiceClass {
        let kind = match rule {
            Some(rule) => self.rules.get(rule),
            None => prefix_of(path).and_then(|prefix| self.prefixes.get(prefix)),
        };
        kind.map_or(ServiceClass::Normal, |kind| kind.class)
    }

    /// A request took so long to the first byte of its answer.
    pub fn observe(&mut self, rule: Option<usize>, path: &str, micros: u32) {
        let Some(kind) = self.kind(rule, path) else { return };
        kind.times.add(micros);
        kind.since_judged += 1;
        if kind.since_judged < WINDOW {
            return;
        }
        kind.since_judged = 0;
        let Some(figures) = kind.times.figures() else { return };
        let heavy = self.heavy();
        if let Some(kind) = self.kind(rule, path) {
            let class = heavy.class_of(figures);
            if std::mem::replace(&mut kind.proposed, class) == class {
                kind.class = class;
            }
        }
    }

    /// How many kinds are told apart: rules, then prefixes.
    pub fn kinds(&self) -> (usize, usize) {
        (self.rules.len(), self.prefixes.len())
    }

    /// What has been learned: the prefixes with their classes.
    pub fn learned(&self) -> impl Iterator<Item = (&str, ServiceClass)> {
        self.prefixes.iter().map(|(prefix, kind)| (&**prefix, kind.class))
    }

    fn heavy(&self) -> Heavy {
        let judged = self.rules.iter().chain(self.prefixes.values());
        Heavy::beside(
            judged.filter(|kind| kind.times.len() == WINDOW).filter_map(|k| k.times.figures()),
        )
    }

    fn kind(&mut self, rule: Option<usize>, path: &str) -> Option<&mut Kind> {
        if let Some(rule) = rule {
            return self.rules.get_mut(rule);
        }
        let prefix = prefix_of(path).filter(|_| self.learns_prefixes)?;
        if !self.prefixes.contains_key(prefix) {
            if self.prefixes.len() >= MOST_PREFIXES {
                // Those that were asked for too little to be judged make room: a flood of random paths
                // pushes out nothing but itself.
                self.prefixes.retain(|_, kind| kind.times.len() == WINDOW);
            }
            if self.prefixes.len() >= MOST_PREFIXES {
                return None;
            }
            self.prefixes.insert(prefix.into(), Kind::default());
        }
        self.prefixes.get_mut(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ServiceClass::{CpuBound, DiskAndCpuBound, DiskBound, Normal};

    const MS: u32 = 1000;

    /// So many rounds of requests: to each kind as many as one judgement takes, their times in turn.
    fn taught(learner: &mut Learner, rounds: usize, kinds: &[(&str, &[u32])]) {
        for request in 0..rounds * WINDOW {
            for (path, times) in kinds {
                learner.observe(None, path, times[request % times.len()]);
            }
        }
    }

    #[test]
    fn constant_work_is_cpu_and_varying_work_is_disk() {
        let mut learner = Learner::new(0, true);
        let kinds: [(&str, &[u32]); 4] = [
            ("/static/a", &[MS]),
            ("/search/a", &[40 * MS]),
            ("/archive/a", &[MS, 40 * MS]),
            ("/report/a", &[40 * MS, 120 * MS]),
        ];
        taught(&mut learner, 1, &kinds);
        assert_eq!(learner.class(None, "/search/b"), Normal, "one judgement is not enough");
        taught(&mut learner, 2, &kinds);
        let of = |path| learner.class(None, path);
        assert_eq!(
            [of("/static/b"), of("/search/b"), of("/archive/b"), of("/report/b")],
            [Normal, CpuBound, DiskBound, DiskAndCpuBound]
        );
        assert_eq!(of("/unknown/b"), Normal);
    }

    #[test]
    fn way_to_the_servers_makes_nothing_heavy() {
        let mut learner = Learner::new(0, true);
        taught(&mut learner, 3, &[("/a/", &[80 * MS]), ("/b/", &[90 * MS])]);
        assert_eq!([learner.class(None, "/a/"), learner.class(None, "/b/")], [Normal, Normal]);
    }

    #[test]
    fn rules_without_a_class_learn_theirs() {
        let mut learner = Learner::new(2, false);
        for _ in 0..3 * WINDOW {
            learner.observe(Some(0), "/x", MS);
            learner.observe(Some(1), "/x", 30 * MS);
            learner.observe(None, "/other/", 30 * MS);
        }
        assert_eq!([learner.class(Some(0), ""), learner.class(Some(1), "")], [Normal, CpuBound]);
        assert_eq!((learner.class(None, "/other/"), learner.kinds()), (Normal, (2, 0)));
    }

    #[test]
    fn flood_of_random_paths_is_bounded_and_forgets_nothing_learned() {
        let mut learner = Learner::new(0, true);
        taught(&mut learner, 3, &[("/quick/", &[MS]), ("/slow/", &[40 * MS])]);
        for path in 0..50_000 {
            learner.observe(None, &format!("/{path}/x"), MS);
            assert!(learner.kinds().1 <= MOST_PREFIXES);
        }
        learner.observe(None, &format!("/{}/", "x".repeat(10_000)), MS);
        assert_eq!(learner.class(None, "/slow/"), CpuBound);
    }

    #[test]
    fn kinds_are_first_segments_or_endings() {
        assert_eq!(prefix_of("/img/a/b.png"), Some("/img/"));
        assert_eq!(prefix_of("/logo.png"), Some(".png"));
        assert_eq!(prefix_of("/about"), Some("/"));
        assert_eq!(prefix_of("/"), Some("/"));
        assert_eq!(prefix_of("*"), None);
    }
}
