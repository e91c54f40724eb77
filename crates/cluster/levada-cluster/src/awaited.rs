//! The things that a node waits for before it serves clients, by names that operators read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The named things that are still missing.
#[derive(Clone, Debug, Default)]
pub struct Awaited(Arc<Mutex<Vec<Missing>>>);

#[derive(Debug)]
struct Missing {
    number: usize,
    name: String,
    state: String,
}

/// One of them. It is there when this is dropped.
#[derive(Debug)]
pub struct AwaitedThing {
    all: Awaited,
    number: usize,
}

impl Awaited {
    /// Something is missing, and this is its state.
    pub fn begin(&self, name: impl Into<String>, state: impl Into<String>) -> AwaitedThing {
        let mut all = self.lock();
        let number = all.last().map_or(0, |last| last.number + 1);
        all.push(Missing { number, name: name.into(), state: state.into() });
        AwaitedThing { all: self.clone(), number }
    }

    /// The names and states of all that is missing.
    pub fn missing(&self) -> Vec<String> {
        self.lock().iter().map(|one| format!("{}: {}", one.name, one.state)).collect()
    }

    /// No code under the lock can panic and leave the list inconsistent.
    fn lock(&self) -> MutexGuard<'_, Vec<Missing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AwaitedThing {
    /// Changes its state.
    pub fn is_now(&self, state: impl Into<String>) {
        if let Some(one) = self.all.lock().iter_mut().find(|one| one.number == self.number) {
            one.state = state.into();
        }
    }
}

impl Drop for AwaitedThing {
    fn drop(&mut self) {
        self.all.lock().retain(|one| one.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_missing_until_they_are_dropped() {
        let awaited = Awaited::default();
        let purges = awaited.begin("purges", "compared with none of 3 peers");
        let members = awaited.begin("members of app", "no answer yet");
        purges.is_now("compared with 1 of 3 peers");
        let both = ["purges: compared with 1 of 3 peers", "members of app: no answer yet"];
        assert_eq!(awaited.missing(), both);
        drop(purges);
        assert_eq!(awaited.missing(), both[1..]);
        drop(members);
        assert!(awaited.missing().is_empty());
    }
}
