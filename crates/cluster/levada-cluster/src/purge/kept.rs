//! Values that a node keeps outside its store: a purge removes them as it does stored responses.

use std::collections::BTreeMap;

use levada_store::Label;
use parking_lot::Mutex;

use crate::purge::Purges;

/// The most values that are kept.
const MOST: usize = 64;

/// Values by their identities, with labels that purges look at.
pub struct KeptValues<T>(Mutex<BTreeMap<String, (Label, T)>>);

impl<T> Default for KeptValues<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> KeptValues<T> {
    /// The value of an identity, unless it was purged.
    pub fn get(&self, purges: &Purges, identity: &str) -> Option<T> {
        let is_kept = |(label, _): &&(Label, T)| purges.may_join(label, identity);
        self.0.lock().get(identity).filter(is_kept).map(|(_, value)| value.clone())
    }

    /// Keeps the value of an identity, in the place of another one where there are many.
    pub fn keep(&self, identity: String, label: Label, value: T) {
        let mut all = self.0.lock();
        if all.len() >= MOST && !all.contains_key(&identity) {
            all.pop_first();
        }
        all.insert(identity, (label, value));
    }
}
