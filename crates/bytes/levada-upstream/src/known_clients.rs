//! The clients that a site knows: those whose last request at its origins was answered.
//!
//! Clients with thousands of addresses that ask for what is never answered are not among them, however many they are:
//! so what is kept does not grow with an attack, and says who should go before others.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        OnceLock,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

/// Clients that are remembered, at most. Of two that have the same place, the last one is.
const PLACES: usize = 8192;

/// See the module.
#[derive(Default)]
pub struct KnownClients {
    /// A few bits of the hash of each, and one that says that there is one; made for the first of them.
    prints: OnceLock<Box<[AtomicU16]>>,
    /// Differs in each process, so that no client can take the place of another one.
    hasher: RandomState,
}

impl KnownClients {
    /// Notes whether the last request of a client was answered.
    pub(crate) fn note(&self, client: &impl Hash, is_answered: bool) {
        if !is_answered && self.prints.get().is_none() {
            return;
        }
        let prints = self.prints.get_or_init(|| (0..PLACES).map(|_| AtomicU16::new(0)).collect());
        let (at, print) = self.of(client);
        let has = prints[at].load(Relaxed) == print;
        if has != is_answered {
            prints[at].store(if is_answered { print } else { 0 }, Relaxed);
        }
    }

    /// Whether a client is known.
    pub(crate) fn has(&self, client: &impl Hash) -> bool {
        let (at, print) = self.of(client);
        self.prints.get().is_some_and(|prints| prints[at].load(Relaxed) == print)
    }

    fn of(&self, client: &impl Hash) -> (usize, u16) {
        let hash = self.hasher.hash_one(client);
        (hash as usize % PLACES, (hash >> 48) as u16 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_known_while_its_last_request_was_answered() {
        let known = KnownClients::default();
        assert!(!known.has(&1));
        known.note(&1, false);
        assert!(known.prints.get().is_none(), "nothing is kept before the first answer");
        for answered in [true, true, false, false, true] {
            known.note(&1, answered);
            assert_eq!(known.has(&1), answered);
        }
        known.note(&2, false);
        assert!(known.has(&1) && !known.has(&2));
    }

    #[test]
    fn clients_that_are_not_answered_do_not_drive_out_others() {
        let known = KnownClients::default();
        (0..1000).for_each(|client| known.note(&client, true));
        (1000..100_000).for_each(|client| known.note(&client, false));
        let still = (0..1000).filter(|client| known.has(client)).count();
        assert!(still > 850, "{still}: the others have the same place as a later one");
        let unknown = (1000..100_000).filter(|client| known.has(client)).count();
        assert!(unknown < 50, "{unknown}");
    }
}
