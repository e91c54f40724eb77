//! Learns service classes from service times, where the operator has given none.
//!
//! A switch sees how long a server takes to the first byte of a response, but not why. Two figures
//! of the last requests of a kind indicate the reason:
//!
//! - *low*: the time that nine of ten requests take at least. All requests pay it, so it is
//!   computation: **cpu** if it is heavy.
//! - *mean* minus *low*: the time that only some requests pay, because the server's memory saves it
//!   for the others. A disk looks like this from outside: **disk** if it is heavy.
//!
//! A time is heavy if it exceeds a multiple of the least time that requests of any kind take, so
//! that the network and the speed of the servers cancel out. Waiting in a server's queue looks like
//! a disk: classes that are learned under overload are less reliable. This is not part of the
//! paper, where operators classify (WWW10 Sec. 3.2).

use std::collections::BTreeMap;

use levada_types::ServiceClass;

/// The number of requests between two classifications of a kind; each uses the times of these
/// requests.
const WINDOW: usize = 64;
/// The most kinds that are tracked in addition to the rules. Each takes about 400 bytes.
const MOST_PREFIXES: usize = 1024;
/// Longer first segments of paths are not tracked as kinds.
const LONGEST_PREFIX: usize = 64;

/// The last times of one kind of requests, in microseconds.
#[derive(Clone, Debug)]
pub struct RecentTimes {
    ring: Vec<u32>,
    capacity: usize,
    next: usize,
}

/// The summary of the times of one kind, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeFigures {
    /// The time that nine of ten requests take at least.
    pub low: u32,
    /// The mean time.
    pub mean: u32,
}

/// The number of microseconds above which a time is heavy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeavyThreshold(pub u32);

impl RecentTimes {
    /// Remembers the last `capacity` times.
    pub fn new(capacity: usize) -> Self {
        Self { ring: Vec::new(), capacity: capacity.max(1), next: 0 }
    }

    /// Records one time.
    pub fn add(&mut self, micros: u32) {
        if self.ring.len() < self.capacity {
            self.ring.push(micros);
        } else {
            self.ring[self.next] = micros;
        }
        self.next = (self.next + 1) % self.capacity;
    }

    /// The number of recorded times.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether no time is recorded.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The summary; `None` if no time is recorded.
    pub fn figures(&self) -> Option<TimeFigures> {
        let mut sorted = self.ring.clone();
        sorted.sort_unstable();
        let low = *sorted.get(sorted.len() / 10)?;
        let sum: u64 = sorted.iter().map(|time| u64::from(*time)).sum();
        let mean = sum / sorted.len() as u64;
        Some(TimeFigures { low, mean: u32::try_from(mean).unwrap_or(u32::MAX) })
    }
}

impl HeavyThreshold {
    /// No time below this is heavy: half of a disk access (WWW10's disks take 13 ms).
    const LEAST: u32 = 5_000;
    /// Heavy times are longer than this many times the lightest kind's *low*.
    const TIMES: u32 = 4;

    /// The threshold, given the figures of all kinds.
    pub fn beside(kinds: impl Iterator<Item = TimeFigures>) -> Self {
        let lightest = kinds.map(|figures| figures.low).min().unwrap_or_default();
        Self(lightest.saturating_mul(Self::TIMES).max(Self::LEAST))
    }

    /// The class of a kind with these figures.
    pub fn class_of(self, figures: TimeFigures) -> ServiceClass {
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

/// The kind of a request that no rule matches: the first segment of the path including the `/`
/// behind it, or the extension of a file in the root.
pub fn prefix_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix('/')?;
    let kind = match rest.find('/') {
        Some(end) => &path[..end + 2],
        None => rest.rfind('.').map_or("/", |dot| &rest[dot..]),
    };
    (kind.len() <= LONGEST_PREFIX).then_some(kind)
}

/// Learns the classes of a site's rules that have none, and of the first segments of paths that no
/// rule matches.
#[derive(Clone, Debug)]
pub struct ClassLearner {
    rules: Vec<KindState>,
    prefixes: BTreeMap<Box<str>, KindState>,
    learns_prefixes: bool,
}

/// The state of one kind of requests.
#[derive(Clone, Debug)]
struct KindState {
    times: RecentTimes,
    since_judged: usize,
    class: ServiceClass,
    /// The class from the last classification. The class changes when two classifications in a row
    /// agree.
    proposed: ServiceClass,
}

impl Default for KindState {
    fn default() -> Self {
        Self {
            times: RecentTimes::new(WINDOW),
            since_judged: 0,
            class: ServiceClass::Normal,
            proposed: ServiceClass::Normal,
        }
    }
}

impl ClassLearner {
    /// For this number of rules; `learns_prefixes` also learns kinds that no rule matches.
    pub fn new(rules: usize, learns_prefixes: bool) -> Self {
        Self {
            rules: vec![KindState::default(); rules],
            prefixes: BTreeMap::new(),
            learns_prefixes,
        }
    }

    /// The class learned so far of the requests that `rule` matches, or of the path's kind if no
    /// rule does. Normal until enough is known.
    pub fn class(&self, rule: Option<usize>, path: &str) -> ServiceClass {
        let kind = match rule {
            Some(rule) => self.rules.get(rule),
            None => prefix_of(path).and_then(|prefix| self.prefixes.get(prefix)),
        };
        kind.map_or(ServiceClass::Normal, |kind| kind.class)
    }

    /// Records the time of one request to the first byte of its response.
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

    /// The number of tracked kinds: rules, then prefixes.
    pub fn kinds(&self) -> (usize, usize) {
        (self.rules.len(), self.prefixes.len())
    }

    /// The learned prefixes and their classes.
    pub fn learned(&self) -> impl Iterator<Item = (&str, ServiceClass)> {
        self.prefixes.iter().map(|(prefix, kind)| (&**prefix, kind.class))
    }

    fn heavy(&self) -> HeavyThreshold {
        let judged = self.rules.iter().chain(self.prefixes.values());
        HeavyThreshold::beside(
            judged.filter(|kind| kind.times.len() == WINDOW).filter_map(|k| k.times.figures()),
        )
    }

    fn kind(&mut self, rule: Option<usize>, path: &str) -> Option<&mut KindState> {
        if let Some(rule) = rule {
            return self.rules.get_mut(rule);
        }
        let prefix = prefix_of(path).filter(|_| self.learns_prefixes)?;
        if !self.prefixes.contains_key(prefix) {
            if self.prefixes.len() >= MOST_PREFIXES {
                // Prefixes with too few requests to be classified are removed first, so a flood of
                // random paths evicts only its own prefixes.
                self.prefixes.retain(|_, kind| kind.times.len() == WINDOW);
            }
            if self.prefixes.len() >= MOST_PREFIXES {
                return None;
            }
            self.prefixes.insert(prefix.into(), KindState::default());
        }
        self.prefixes.get_mut(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ServiceClass::{CpuBound, DiskAndCpuBound, DiskBound, Normal};

    const MS: u32 = 1000;

    /// Sends this many rounds of requests: to each kind as many as one classification takes, with
    /// its times in turn.
    fn taught(learner: &mut ClassLearner, rounds: usize, kinds: &[(&str, &[u32])]) {
        for request in 0..rounds * WINDOW {
            for (path, times) in kinds {
                learner.observe(None, path, times[request % times.len()]);
            }
        }
    }

    #[test]
    fn constant_work_is_cpu_and_varying_work_is_disk() {
        let mut learner = ClassLearner::new(0, true);
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
        let mut learner = ClassLearner::new(0, true);
        taught(&mut learner, 3, &[("/a/", &[80 * MS]), ("/b/", &[90 * MS])]);
        assert_eq!([learner.class(None, "/a/"), learner.class(None, "/b/")], [Normal, Normal]);
    }

    #[test]
    fn rules_without_a_class_learn_theirs() {
        let mut learner = ClassLearner::new(2, false);
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
        let mut learner = ClassLearner::new(0, true);
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
