//! A table that follows from the nodes alone, such as a circle: the shards of a policy share it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Cluster;

/// Described at the top of this file.
pub(crate) struct SharedTable<T> {
    /// The table that this shard uses.
    known: Built<T>,
    /// The newest table that one of the shards has built.
    shared: Arc<Mutex<Built<T>>>,
}

/// A table and the membership that it is for.
type Built<T> = Option<(u64, Arc<T>)>;

impl<T> SharedTable<T> {
    /// No table yet.
    pub(crate) fn new() -> Self {
        Self { known: None, shared: Arc::default() }
    }

    /// Shares tables with `first`, the instance of another shard with the same parameters.
    pub(crate) fn join(&mut self, first: &Self) {
        self.shared = first.shared.clone();
    }

    /// The table, if it is that of the nodes of `cluster`.
    #[inline]
    pub(crate) fn of(&self, cluster: &Cluster) -> Option<&T> {
        let (membership, table) = self.known.as_ref()?;
        (*membership == cluster.membership()).then_some(&**table)
    }

    /// The table that this shard has used last.
    pub(crate) fn known(&self) -> Option<&T> {
        self.known.as_ref().map(|(_, table)| &**table)
    }

    /// Goes on with the table of the nodes of `cluster`, which `build` makes if no shard has it.
    #[cold]
    pub(crate) fn follow(&mut self, cluster: &Cluster, build: impl FnOnce() -> T) {
        let membership = cluster.membership();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.as_ref().is_none_or(|(of, _)| *of != membership) {
            *shared = Some((membership, Arc::new(build())));
        }
        self.known.clone_from(&shared);
    }
}

/// A copy shares the tables: they change with the nodes only.
impl<T> Clone for SharedTable<T> {
    fn clone(&self) -> Self {
        Self { known: self.known.clone(), shared: self.shared.clone() }
    }
}
