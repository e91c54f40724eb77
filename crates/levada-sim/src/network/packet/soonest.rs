//! Which of many links delivers next: a tournament.
//!
//! Every link has a time at which something happens next, or none. Pairs play, the earlier one wins,
//! and winners play on: the champion is next. A change replays the games of one link only, and stops
//! where the outcome stays the same. Of equal times the link with the lower number wins.

/// See the module.
#[derive(Debug)]
pub(super) struct Soonest {
    times: Vec<u64>,
    /// Winners by game; game n is played by those of games 2n and 2n + 1. The players themselves
    /// come after the games.
    winners: Vec<u32>,
    players: usize,
}

/// Nothing happens.
pub(super) const NEVER: u64 = u64::MAX;

impl Soonest {
    pub(super) fn new(count: usize) -> Self {
        let players = count.next_power_of_two().max(2);
        let mut winners = vec![0; 2 * players];
        for player in 0..players {
            winners[players + player] = player as u32;
        }
        for game in (1..players).rev() {
            winners[game] = winners[2 * game];
        }
        Self { times: vec![NEVER; players], winners, players }
    }

    /// Who is next, and when.
    #[inline]
    pub(super) fn first(&self) -> (usize, u64) {
        let champion = self.winners[1] as usize;
        (champion, self.times[champion])
    }

    /// From now on `time` is when something happens at `player`.
    #[inline]
    pub(super) fn set(&mut self, player: usize, time: u64) {
        self.times[player] = time;
        let mut best = (time, player as u32);
        let mut seat = self.players + player;
        while seat > 1 {
            let rival = self.winners[seat ^ 1];
            let rival = (self.times[rival as usize], rival);
            if rival < best {
                best = rival;
            }
            seat /= 2;
            // Someone else had won and wins again.
            if self.winners[seat] == best.1 && best.1 != player as u32 {
                return;
            }
            self.winners[seat] = best.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_types::Rng;

    use super::*;

    #[test]
    fn the_earliest_is_first_whatever_changes() {
        let mut rng = Rng::new(5);
        for count in [1, 2, 3, 64, 1_000] {
            let mut soonest = Soonest::new(count);
            let mut times = vec![NEVER; count];
            for _ in 0..20_000 {
                let player = rng.below(count);
                let time = if rng.below(4) == 0 { NEVER } else { rng.below(500) as u64 };
                times[player] = time;
                soonest.set(player, time);
                let first = (0..count).min_by_key(|n| times[*n]).unwrap();
                assert_eq!(soonest.first().1, times[first]);
                if times[first] != NEVER {
                    assert_eq!(soonest.first().0, first);
                }
            }
        }
    }
}
