//! The signatures that are made for senders that nobody knows: a flood of names that do not exist, from any number of
//! networks, must not take the CPU from all others.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The signatures of a second: in one word its number, and how many were made.
#[derive(Default)]
pub struct SignatureBudget(AtomicU64);

/// A share of the budget.
#[derive(Clone, Copy)]
pub struct Allowance<'b> {
    /// The budget.
    pub budget: &'b SignatureBudget,
    /// The signatures that may be made in a second; 0: any number.
    pub most: u32,
    /// Seconds since 1970.
    pub now: u64,
}

impl Allowance<'_> {
    /// Takes one signature. Returns whether it may be made.
    pub(crate) fn take(&self) -> bool {
        if self.most == 0 {
            return true;
        }
        let second = self.now as u32;
        let take = |word: u64| match ((word >> 32) as u32, word as u32) {
            (last, made) if last == second => (made < self.most).then_some(word + 1),
            _ => Some(u64::from(second) << 32 | 1),
        };
        self.budget.0.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_made_in_a_second_and_again_in_the_next() {
        let budget = SignatureBudget::default();
        let made = |now, most| {
            let allowance = Allowance { budget: &budget, most, now };
            (0..10).filter(|_| allowance.take()).count()
        };
        assert_eq!([made(7, 3), made(7, 3), made(8, 3), made(8, 0)], [3, 0, 3, 10]);
    }
}
