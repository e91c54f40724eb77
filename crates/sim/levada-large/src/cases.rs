//! The fetches that large-file settings are judged by: first and cached, undisturbed and with a fault.

use crate::{Fault, Fetched, Settings, World};

/// One of the fetches that [`compare`] plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// No node stores any of the file.
    First,
    /// Every piece is stored by its node.
    Cached,
    /// The first fetch while one node is slow.
    SlowFirst,
    /// A cached fetch while one node is slow, which was not slow before.
    SlowCached,
    /// The first fetch, and one node dies after a third of the time that it takes undisturbed.
    KilledFirst,
    /// The same with a cached file.
    KilledCached,
}

impl Case {
    /// All of them, in the order of [`compare`].
    pub const ALL: [Self; 6] = [
        Self::First,
        Self::Cached,
        Self::SlowFirst,
        Self::SlowCached,
        Self::KilledFirst,
        Self::KilledCached,
    ];

    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Cached => "cached",
            Self::SlowFirst => "slow node, first",
            Self::SlowCached => "slow node, cached",
            Self::KilledFirst => "killed node, first",
            Self::KilledCached => "killed node, cached",
        }
    }

    /// The same fetch without the fault.
    pub const fn undisturbed(self) -> Self {
        match self {
            Self::First | Self::SlowFirst | Self::KilledFirst => Self::First,
            Self::Cached | Self::SlowCached | Self::KilledCached => Self::Cached,
        }
    }
}

/// Plays every case for the same file, so that the same pieces are at the same nodes. `slower` divides
/// the rate of the slow node.
pub fn compare(settings: Settings, slower: u32) -> [Fetched; 6] {
    let mut world = World::new(settings);
    let (first, cached) = (world.fetch(Fault::None), world.fetch(Fault::None));
    let slow_cached = world.fetch(Fault::Slow(slower));
    let slow_first = World::new(settings).fetch(Fault::Slow(slower));
    let killed_first = World::new(settings).fetch(Fault::Killed(first.took / 3));
    let mut world = World::new(settings);
    world.fetch(Fault::None);
    let killed_cached = world.fetch(Fault::Killed(cached.took / 3));
    [first, cached, slow_first, slow_cached, killed_first, killed_cached]
}
