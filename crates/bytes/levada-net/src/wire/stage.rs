//! One direction of an end, in virtual time: packets wait in the queue for the rate, then they
//! propagate.
//!
//! The time is passed in, so that a stage can be tested to the nanosecond. A packet that is taken
//! late reports the time at which it was due, and the next stage counts from that time: lateness
//! does not accumulate.

use std::{collections::VecDeque, time::Duration};

use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Shape;

/// The result of offering a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It will be delivered.
    Taken,
    /// It was lost at random.
    Lost,
    /// The queue was full.
    Overflowed,
}

/// One direction of an end.
#[derive(Debug)]
pub struct Stage {
    shape: Shape,
    random: Xoshiro256PlusPlus,
    /// The time at which all accepted packets have been sent.
    free: Duration,
    /// The time at which the packet has been sent, and the packet.
    waiting: VecDeque<(Duration, Vec<u8>)>,
    /// The time at which the packet reaches the other side, and the packet.
    flying: VecDeque<(Duration, Vec<u8>)>,
}

impl Stage {
    /// A stage without packets. The seed determines the losses.
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self {
            shape,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            free: Duration::ZERO,
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
        }
    }

    /// Whether something happens that happens to this share of all packets.
    fn happens(&mut self, share: f64) -> bool {
        (self.random.next_u64() as f64) < share * (u64::MAX as f64)
    }

    /// Offers a packet at `now`.
    pub fn offer(&mut self, packet: Vec<u8>, now: Duration) -> Fate {
        self.offer_at(packet, now, 1)
    }

    /// Offers a packet to a link that is currently slower by this factor.
    pub fn offer_at(&mut self, packet: Vec<u8>, now: Duration, slower: u32) -> Fate {
        // Every packet draws one number, whether it is dropped or not: so the n-th packet has the
        // same result in every run.
        if self.happens(self.shape.loss) {
            return Fate::Lost;
        }
        self.send(now);
        if self.shape.rate.is_none() {
            self.fly(now + self.shape.delay, packet);
            return Fate::Taken;
        }
        if self.waiting.len() >= self.shape.queue {
            return Fate::Overflowed;
        }
        self.free = self.free.max(now) + slower * self.shape.sending(packet.len());
        self.waiting.push_back((self.free, packet));
        Fate::Taken
    }

    /// The time at which the next packet is due.
    pub fn next(&self) -> Option<Duration> {
        let waiting = || self.waiting.front().map(|(sent, _)| *sent + self.shape.delay);
        self.flying.front().map(|(due, _)| *due).or_else(waiting)
    }

    /// The next packet that is due by `now`, and the time at which it was due.
    pub fn take(&mut self, now: Duration) -> Option<(Duration, Vec<u8>)> {
        self.send(now);
        match self.flying.front() {
            Some((due, _)) if *due <= now => self.flying.pop_front(),
            _ => None,
        }
    }

    /// The packets in the queue at `now`.
    pub fn queued(&mut self, now: Duration) -> usize {
        self.send(now);
        self.waiting.len()
    }

    fn send(&mut self, now: Duration) {
        while self.waiting.front().is_some_and(|(sent, _)| *sent <= now) {
            let Some((sent, packet)) = self.waiting.pop_front() else { return };
            self.fly(sent + self.shape.delay, packet);
        }
    }

    /// Lets a packet propagate until it is due, or a little longer.
    fn fly(&mut self, due: Duration, packet: Vec<u8>) {
        let is_late = self.shape.reordering > 0.0 && self.happens(self.shape.reordering);
        let due = if is_late { due + OVERTAKEN } else { due };
        if self.shape.duplicates > 0.0 && self.happens(self.shape.duplicates) {
            self.land(due + REPEATED, packet.clone());
        }
        self.land(due, packet);
    }

    /// Notes when a packet is due.
    fn land(&mut self, due: Duration, packet: Vec<u8>) {
        let at = self.flying.partition_point(|(other, _)| *other <= due);
        self.flying.insert(at, (due, packet));
    }
}

/// How much longer a packet takes that others overtake.
const OVERTAKEN: Duration = Duration::from_millis(4);
/// How much later a packet arrives the second time: its connection may have moved or ended meanwhile.
const REPEATED: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// 10 Mbit/s: 1250 bytes per millisecond.
    fn stage(delay: Duration, queue: usize) -> Stage {
        Stage::new(Shape { rate: Some(10_000_000), delay, queue, ..Shape::default() }, 1)
    }

    #[test]
    fn packet_that_takes_longer_is_overtaken() {
        let shape = Shape { reordering: 0.5, ..Shape::default() };
        let mut stage = Stage::new(shape, 1);
        (0..20).for_each(|n| _ = stage.offer(vec![n], MS));
        let taken: Vec<u8> =
            std::iter::from_fn(|| stage.take(9 * MS)).map(|(_, packet)| packet[0]).collect();
        assert_eq!(taken.len(), 20);
        assert!(!taken.is_sorted(), "{taken:?}");
    }

    #[test]
    fn packet_that_is_repeated_arrives_twice() {
        let mut stage = Stage::new(Shape { duplicates: 1.0, ..Shape::default() }, 1);
        (0..2).for_each(|n| _ = stage.offer(vec![n], u32::from(n) * MS));
        let taken =
            std::iter::from_fn(|| stage.take(99 * MS)).map(|(due, packet)| (due, packet[0]));
        let second = REPEATED + MS;
        assert_eq!(
            taken.collect::<Vec<_>>(),
            [(Duration::ZERO, 0), (MS, 1), (REPEATED, 0), (second, 1)]
        );
    }

    #[test]
    fn packets_leave_one_after_the_other_and_arrive_after_the_delay() {
        let mut stage = stage(25 * MS, 10);
        for _ in 0..2 {
            assert_eq!(stage.offer(vec![0; 1250], 5 * MS), Fate::Taken);
        }
        assert_eq!(stage.next(), Some(31 * MS));
        assert!(stage.take(31 * MS - Duration::from_nanos(1)).is_none());
        // Taken 20 ms late: they report when they were due.
        let due = std::iter::from_fn(|| stage.take(51 * MS).map(|(due, _)| due));
        assert_eq!(due.collect::<Vec<_>>(), [31 * MS, 32 * MS]);
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped() {
        let mut stage = stage(Duration::ZERO, 2);
        let fates = [0; 3].map(|_| stage.offer(vec![0; 1250], Duration::ZERO));
        assert_eq!(fates, [Fate::Taken, Fate::Taken, Fate::Overflowed]);
        assert_eq!(stage.queued(Duration::ZERO), 2);
        assert_eq!(stage.offer(vec![0; 1250], MS), Fate::Taken, "one has been sent by then");
    }

    #[test]
    fn slower_link_takes_longer_for_what_comes_then() {
        let mut stage = stage(Duration::ZERO, 10);
        for slower in [1, 20, 1] {
            stage.offer_at(vec![0; 1250], Duration::ZERO, slower);
        }
        let due = std::iter::from_fn(|| stage.take(100 * MS).map(|(due, _)| due));
        assert_eq!(due.collect::<Vec<_>>(), [MS, 21 * MS, 22 * MS]);
    }

    #[test]
    fn an_idle_wire_saves_nothing_up() {
        let mut stage = stage(Duration::ZERO, 2);
        stage.offer(vec![0; 1250], 100 * MS);
        assert_eq!(stage.next(), Some(101 * MS));
    }

    #[test]
    fn losses_are_as_many_as_asked_and_the_same_for_the_same_seed() {
        let lost = |seed| {
            let mut stage = Stage::new(Shape { loss: 0.1, ..Shape::default() }, seed);
            (0..10_000)
                .filter(|_| stage.offer(vec![0], Duration::ZERO) == Fate::Lost)
                .collect::<Vec<_>>()
        };
        assert!((900..1100).contains(&lost(1).len()), "{}", lost(1).len());
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut stage = Stage::new(Shape { queue: 1, ..Shape::default() }, 1);
        for _ in 0..5 {
            assert_eq!(stage.offer(vec![0; 1500], Duration::ZERO), Fate::Taken);
        }
        assert_eq!(stage.queued(Duration::ZERO), 0);
    }
}
