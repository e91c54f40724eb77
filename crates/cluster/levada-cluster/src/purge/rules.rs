//! Purges as rules. A rule covers stored responses; a check tells whether a rule that covers a response
//! is newer than it.
//!
//! Every rule has a sequence number, larger than all before. A response is *born* with the newest
//! number at the moment its fetch began. A matching rule with a larger number makes the response dead
//! (hard purge) or stale (soft purge). So a purge needs no search, and a fetch under way is covered
//! like a stored response. Varnish's bans follow the same idea. Here rules are indexed by the names
//! they cover, so that a check costs a few look-ups however many rules there are.
//!
//! A number is one more than the last. After a restart numbers go on above everything on disk, because the
//! journal has a rule before anything is born with its number. If the journal is lost, an *era* begins: its
//! number is random and is the upper part of every number. What was born in another era is dead, because
//! nothing is known of its purges. No clock takes part: it may go back.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use levada_store::label::{self, Label};
use levada_types::{Key, hash64, weigh};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// The most rules for single URLs, tags and sites.
const MAX_NAMED: usize = 100_000;
/// The most rules for prefixes.
const MAX_PREFIXES: usize = 10_000;

/// The bits of a number that count within its era.
const COUNT_BITS: u32 = 40;
/// A start leaves out this many numbers: more than a node can have given without writing them down.
const START_GAP: u64 = 1 << 20;

// The kind is hashed into a name, so that a URL, a tag and a site of one number differ.
const URL: u64 = 1;
const TAG: u64 = 2;
const SITE: u64 = 3;

/// The responses that one purge covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The names that it covers.
    pub scope: Scope,
    /// Makes responses stale instead of removing them.
    pub soft: bool,
    /// The site to purge as a whole when there are too many rules; `None` purges everything.
    pub site: Option<u64>,
}

/// The names that a rule covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One URL.
    Url(u64),
    /// All URLs that begin with this text.
    Prefix(Box<str>),
    /// A tag, on the rule's site only if the rule has one.
    Tag(u64),
    /// Everything on the rule's site, or on all sites.
    All,
}

/// The state of a stored response after a check against the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeVerdict {
    /// No newer rule covers it.
    Alive,
    /// It counts as stale since [`Label::stale_since`].
    Stale,
    /// It counts as removed.
    Dead,
}

/// The numbers of the newest hard and soft purge of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    hard: u64,
    soft: u64,
    /// When the soft one was made, in milliseconds of Unix time.
    soft_at: u64,
}

/// All rules that may still cover a stored response.
#[derive(Debug)]
pub(crate) struct Rules {
    latest: AtomicU64,
    table: RwLock<Table>,
    retired: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// By the hash of a URL, tag or site.
    named: HashMap<u64, Mark>,
    prefixes: BTreeMap<Box<[u8]>, Mark>,
    all: Mark,
    /// The newest purge of any tag.
    any_tag: Mark,
}

/// The first number of the era `era`, of which the upper bits are dropped.
pub(crate) fn first_of_era(era: u64) -> u64 {
    // Era 0 is for no label.
    (era << COUNT_BITS).max(1 << COUNT_BITS)
}

/// The first number after a start, above all that may have been given before.
pub(crate) fn after_restart(latest: u64) -> u64 {
    (latest | (START_GAP - 1)).saturating_add(1)
}

fn era(number: u64) -> u64 {
    number >> COUNT_BITS
}

/// A URL without its scheme: a purge covers HTTP and HTTPS.
fn without_scheme(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest)
}

impl Rule {
    /// Covers one URL with all its variants. `identity` has the form of [`levada_store::identity`].
    pub fn url(site: u64, identity: &str, soft: bool) -> Self {
        let scope = Scope::Url(hash64(without_scheme(identity).as_bytes()));
        Self { scope, soft, site: Some(site) }
    }

    /// Covers every URL that begins with `identity`.
    pub fn prefix(site: u64, identity: &str, soft: bool) -> Self {
        Self { scope: Scope::Prefix(without_scheme(identity).into()), soft, site: Some(site) }
    }

    /// Covers a tag, on one site or on all.
    pub fn tag(site: Option<u64>, text: &str, soft: bool) -> Self {
        Self { scope: Scope::Tag(label::tag(text.as_bytes())), soft, site }
    }

    /// Covers a cache group of the origin of `identity` (RFC 9875).
    pub fn group(site: u64, identity: &str, text: &str) -> Self {
        Self { scope: Scope::Tag(label::group(identity, text)), soft: false, site: Some(site) }
    }

    /// Covers everything, on one site or on all.
    pub fn all(site: Option<u64>, soft: bool) -> Self {
        Self { scope: Scope::All, soft, site }
    }
}

impl Rules {
    /// No rules. Responses born from now on have a number of at least `latest`.
    pub(crate) fn new(latest: u64) -> Self {
        let (latest, table) = (AtomicU64::new(latest), RwLock::default());
        Self { latest, table, retired: AtomicBool::new(false) }
    }

    /// The number of the newest rule.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// The number of rules.
    pub(crate) fn len(&self) -> usize {
        self.table.read().len()
    }

    /// Adds rules that share a number, of the time `at` in milliseconds of Unix time. A rule beyond the
    /// bounds becomes a purge of its site.
    pub(crate) fn add(&self, rules: &[Rule], number: u64, at: u64) {
        let mut table = self.table.write();
        for rule in rules {
            table.add(rule, number, at);
        }
        // A reader that sees this number waits for the lock and then finds the rules.
        self.latest.fetch_max(number, Ordering::AcqRel);
    }

    /// Checks a response against the rules. Without a new rule since the last check this is one
    /// comparison.
    pub(crate) fn check(&self, label: &Label, identity: &str) -> PurgeVerdict {
        let latest = self.latest();
        if label.checked() != latest {
            if era(label.born()) != era(latest) {
                return PurgeVerdict::Dead;
            }
            let mark = self.table.read().mark(label, identity);
            if mark.hard > label.born() {
                return PurgeVerdict::Dead;
            }
            if mark.soft > label.born() {
                label.expire(mark.soft_at);
            }
            label.set_checked(latest);
        }
        if label.is_stale() { PurgeVerdict::Stale } else { PurgeVerdict::Alive }
    }

    /// Begins another era: everything that was born before is dead.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        // A sweep that sees this number sees the flag, too.
        self.latest.store(u64::MAX, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether the rules leave a response alive, whatever its era. A stale one is marked.
    pub(crate) fn departs(&self, label: &Label, identity: &str) -> bool {
        let mark = self.table.read().mark(label, identity);
        if mark.soft > label.born() {
            label.expire(mark.soft_at);
        }
        mark.hard <= label.born()
    }

    /// Drops every rule up to this number. The caller guarantees that nothing which they cover is
    /// stored.
    pub(crate) fn forget(&self, sequence: u64) {
        self.table.write().forget(sequence);
    }
}

impl Table {
    fn len(&self) -> usize {
        self.named.len() + self.prefixes.len() + usize::from(self.all != Mark::default())
    }

    fn add(&mut self, rule: &Rule, number: u64, at: u64) {
        let Rule { scope, soft, site } = rule;
        match scope {
            Scope::Url(hash) if self.has_room(URL, None, *hash) => {
                self.name(URL, None, *hash).set(*soft, number, at);
            }
            Scope::Tag(hash) if self.has_room(TAG, *site, *hash) => {
                self.name(TAG, *site, *hash).set(*soft, number, at);
                self.any_tag.set(*soft, number, at);
            }
            Scope::Prefix(text)
                if self.prefixes.len() < MAX_PREFIXES
                    || self.prefixes.contains_key(text.as_bytes()) =>
            {
                self.prefixes.entry(text.as_bytes().into()).or_default().set(*soft, number, at);
            }
            wide => {
                if *wide != Scope::All {
                    tracing::warn!("too many purges at once: a whole site is purged instead");
                }
                match site {
                    Some(site) => self.name(SITE, None, *site).set(*soft, number, at),
                    None => self.all.set(*soft, number, at),
                }
            }
        }
    }

    fn has_room(&self, kind: u64, site: Option<u64>, hash: u64) -> bool {
        self.named.len() < MAX_NAMED || self.named.contains_key(&named(kind, site, hash))
    }

    fn name(&mut self, kind: u64, site: Option<u64>, hash: u64) -> &mut Mark {
        self.named.entry(named(kind, site, hash)).or_default()
    }

    /// The newest purges that cover a response.
    fn mark(&self, label: &Label, identity: &str) -> Mark {
        let mut mark = self.all;
        let text = without_scheme(identity);
        if !self.named.is_empty() {
            let mut merge = |kind, site, hash| {
                if let Some(found) = self.named.get(&named(kind, site, hash)) {
                    mark.merge(*found);
                }
            };
            merge(URL, None, hash64(text.as_bytes()));
            merge(SITE, None, label.site());
            for tag in label.tags() {
                merge(TAG, None, *tag);
                merge(TAG, Some(label.site()), *tag);
            }
        }
        if label.has_any_tag() {
            mark.merge(self.any_tag);
        }
        self.merge_prefixes(text.as_bytes(), &mut mark);
        mark
    }

    /// Merges the marks of all prefixes of `text`. Every prefix of `text` sorts at or before it. If the
    /// nearest entry is not a prefix, it shares only a beginning with `text`, and no longer prefix
    /// sorts before it: so the search goes on from that beginning.
    fn merge_prefixes(&self, text: &[u8], mark: &mut Mark) {
        let mut rest = text;
        let mut inclusive = true;
        loop {
            let end = if inclusive { Included(rest) } else { Excluded(rest) };
            let before = self.prefixes.range::<[u8], _>((Unbounded, end)).next_back();
            let Some((prefix, found)) = before else { return };
            let common = prefix.iter().zip(rest).take_while(|(one, other)| one == other).count();
            inclusive = common < prefix.len();
            if !inclusive {
                mark.merge(*found);
            }
            rest = &rest[..common];
        }
    }

    fn forget(&mut self, sequence: u64) {
        self.named.retain(|_, mark| mark.forget(sequence));
        self.prefixes.retain(|_, mark| mark.forget(sequence));
        self.all.forget(sequence);
        self.any_tag.forget(sequence);
        if self.named.is_empty() {
            self.named.shrink_to_fit();
        }
    }
}

impl Mark {
    fn set(&mut self, soft: bool, number: u64, at: u64) {
        self.merge(match soft {
            true => Self { hard: 0, soft: number, soft_at: at },
            false => Self { hard: number, soft: 0, soft_at: 0 },
        });
    }

    fn merge(&mut self, other: Self) {
        self.hard = self.hard.max(other.hard);
        if other.soft > self.soft {
            (self.soft, self.soft_at) = (other.soft, other.soft_at);
        }
    }

    /// Drops purges up to `sequence`. Returns whether a newer one is left.
    fn forget(&mut self, sequence: u64) -> bool {
        for one in [&mut self.hard, &mut self.soft] {
            if *one <= sequence {
                *one = 0;
            }
        }
        (self.hard, self.soft) != (0, 0)
    }
}

fn named(kind: u64, site: Option<u64>, hash: u64) -> u64 {
    weigh(Key(weigh(Key(hash), kind)), site.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::*;

    use super::*;

    const A: u64 = 11;
    const B: u64 = 22;

    fn rules() -> Rules {
        Rules::new(first_of_era(5))
    }

    /// Adds rules under the next number, and returns it.
    fn add(to: &Rules, rules: &[Rule]) -> u64 {
        let number = to.latest() + 1;
        to.add(rules, number, 1000);
        number
    }

    fn tagged(rules: &Rules, site: u64, tags: &str) -> Label {
        let mut headers = HeaderMap::new();
        headers.insert(label::SURROGATE_KEY, tags.parse().unwrap());
        Label::of(&headers, "http://a.test/", site, rules.latest())
    }

    /// Checks `http://a.test/img/x?q` of site A with the tags `t u` after `rule`.
    fn after(rule: Rule) -> PurgeVerdict {
        let rules = rules();
        let label = tagged(&rules, A, "t u");
        add(&rules, &[rule]);
        rules.check(&label, "http://a.test/img/x?q")
    }

    #[test]
    fn rule_covers_what_it_names_and_nothing_else() {
        for (rule, covered) in [
            (Rule::url(A, "http://a.test/img/x?q", false), true),
            (Rule::url(A, "https://a.test/img/x?q", false), true),
            (Rule::url(A, "http://a.test/img/x", false), false),
            (Rule::url(A, "http://a.test:81/img/x?q", false), false),
            (Rule::prefix(A, "http://a.test/", false), true),
            (Rule::prefix(A, "https://a.test/img/", false), true),
            (Rule::prefix(A, "http://a.test/img/x?q", false), true),
            (Rule::prefix(A, "http://a.test/img/x?q2", false), false),
            (Rule::prefix(A, "http://a.test/ima", false), false),
            (Rule::tag(None, "t", false), true),
            (Rule::tag(Some(A), "u", false), true),
            (Rule::tag(Some(B), "u", false), false),
            (Rule::tag(None, "T", false), false),
            (Rule::group(A, "http://a.test/", "t"), false),
            (Rule::all(None, false), true),
            (Rule::all(Some(A), false), true),
            (Rule::all(Some(B), false), false),
        ] {
            let expected = if covered { PurgeVerdict::Dead } else { PurgeVerdict::Alive };
            assert_eq!(after(rule.clone()), expected, "{rule:?}");
            let expected = if covered { PurgeVerdict::Stale } else { PurgeVerdict::Alive };
            assert_eq!(after(Rule { soft: true, ..rule.clone() }), expected, "soft {rule:?}");
        }
    }

    #[test]
    fn only_what_was_born_before_is_covered() {
        let rules = rules();
        let before = Label::new(A, rules.latest());
        add(&rules, &[Rule::all(None, false)]);
        let after = Label::new(A, rules.latest());
        assert_eq!(rules.check(&before, "http://a.test/"), PurgeVerdict::Dead);
        assert_eq!(rules.check(&after, "http://a.test/"), PurgeVerdict::Alive);
    }

    #[test]
    fn hard_purge_is_not_softened_by_one_that_follows() {
        let rules = rules();
        let label = Label::new(A, rules.latest());
        add(&rules, &[Rule::all(None, false)]);
        add(&rules, &[Rule::all(None, true)]);
        assert_eq!(rules.check(&label, "http://a.test/"), PurgeVerdict::Dead);
    }

    #[test]
    fn stale_since_the_first_purge_that_was_noticed() {
        let rules = rules();
        let label = Label::new(A, rules.latest());
        for at in [5000, 9000] {
            rules.add(&[Rule::all(None, true)], rules.latest() + 1, at);
            assert_eq!(rules.check(&label, "http://a.test/"), PurgeVerdict::Stale);
            assert_eq!(label.stale_since(), 5000);
        }
        rules.forget(rules.latest());
        assert_eq!(rules.check(&label, "http://a.test/"), PurgeVerdict::Stale, "for good");
    }

    #[test]
    fn what_was_born_in_another_era_is_dead() {
        for others in [first_of_era(4), first_of_era(6), 0, u64::MAX] {
            let (rules, label) = (rules(), Label::new(A, others));
            assert_eq!(rules.check(&label, "http://a.test/"), PurgeVerdict::Dead);
        }
    }

    #[test]
    fn numbers_after_a_restart_are_above_all_before() {
        let first = first_of_era(5);
        for latest in [first, first + 1, first + START_GAP - 1, first + START_GAP] {
            let next = after_restart(latest);
            assert!(next > latest && next - latest <= START_GAP && era(next) == era(latest));
        }
    }

    #[test]
    fn forgotten_rules_leave_nothing_behind() {
        let rules = rules();
        let old = tagged(&rules, A, "t");
        let all = [
            Rule::url(A, "http://a.test/", false),
            Rule::prefix(A, "http://a.test/", false),
            Rule::tag(None, "t", true),
            Rule::all(Some(A), true),
            Rule::all(None, false),
        ];
        let first = add(&rules, &all);
        assert_eq!(rules.len(), 5);
        add(&rules, &[Rule::prefix(A, "http://a.test/", false)]);
        rules.forget(first);
        assert_eq!(rules.len(), 1, "the newer one stays");
        assert_eq!(rules.check(&old, "http://a.test/"), PurgeVerdict::Dead);
        rules.forget(rules.latest());
        assert_eq!(rules.len(), 0);
    }

    #[test]
    fn too_many_rules_become_a_purge_of_the_site() {
        let rules = rules();
        let (ours, others) = (Label::new(A, rules.latest()), Label::new(B, rules.latest()));
        let many: Vec<Rule> = (0..=MAX_PREFIXES)
            .map(|n| Rule::prefix(A, &format!("http://a.test/{n}/"), false))
            .collect();
        add(&rules, &many[..MAX_PREFIXES]);
        assert_eq!(rules.check(&ours, "http://a.test/x"), PurgeVerdict::Alive);
        add(&rules, &many);
        assert_eq!(rules.len(), MAX_PREFIXES + 1);
        assert_eq!(rules.check(&ours, "http://a.test/x"), PurgeVerdict::Dead);
        assert_eq!(rules.check(&others, "http://b.test/x"), PurgeVerdict::Alive);
    }

    #[test]
    fn response_with_more_tags_than_are_kept_dies_with_any_of_them() {
        let rules = rules();
        let many: Vec<String> = (0..2000).map(|n| format!("t{n}")).collect();
        let label = tagged(&rules, A, &many.join(" "));
        add(&rules, &[Rule::url(A, "http://a.test/else", false)]);
        assert_eq!(rules.check(&label, "http://a.test/"), PurgeVerdict::Alive);
        add(&rules, &[Rule::tag(None, "t1999", false)]);
        assert_eq!(rules.check(&label, "http://a.test/"), PurgeVerdict::Dead);
    }

    proptest! {
        #[test]
        fn prefixes_are_found_as_by_trying_each(
            prefixes in proptest::collection::vec("[ab/]{0,6}", 0..24),
            url in "[ab/]{0,12}",
        ) {
            let rules = rules();
            let label = Label::new(A, rules.latest());
            let all: Vec<Rule> =
                prefixes.iter().map(|p| Rule::prefix(A, &format!("http://h/{p}"), false)).collect();
            add(&rules, &all);
            let covered = prefixes.iter().any(|prefix| url.starts_with(prefix.as_str()));
            let dead = rules.check(&label, &format!("http://h/{url}")) == PurgeVerdict::Dead;
            prop_assert_eq!(dead, covered);
        }
    }
}
