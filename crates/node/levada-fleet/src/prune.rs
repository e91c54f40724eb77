//! Old revisions leave the state: the last ones stay, and those that a node uses.

use std::collections::BTreeSet;

use crate::{
    model::{Manifest, keys},
    state::State,
    store::{Change, StoreError},
};

/// The revisions that stay where a person says nothing.
pub const KEPT_REVISIONS: usize = 100;
/// etcd takes 128 changes at a time.
const AT_ONCE: usize = 100;

/// Removes all revisions but the last `kept` ones and those whose numbers are `in_use`, with the parts of files that
/// no other revision has. The caller holds the lock: nobody publishes meanwhile. Returns how many were removed.
///
/// # Errors
/// If the state does not answer.
pub(crate) async fn prune(
    state: &State,
    kept: usize,
    in_use: &BTreeSet<u64>,
) -> Result<usize, StoreError> {
    let revisions = state.revisions().await?;
    let (old, stay) = split(revisions, kept, in_use);
    let changes: Vec<_> = gone_keys(&old, &stay).into_iter().map(Change::remove).collect();
    for some in changes.chunks(AT_ONCE) {
        state.write(&[], some.to_vec()).await?;
    }
    Ok(old.len())
}

/// The revisions to be removed, and those that stay.
fn split(
    mut revisions: Vec<Manifest>,
    kept: usize,
    in_use: &BTreeSet<u64>,
) -> (Vec<Manifest>, Vec<Manifest>) {
    let recent = revisions.split_off(revisions.len().saturating_sub(kept));
    let (used, old) = revisions.into_iter().partition(|one| in_use.contains(&one.number));
    let stay: Vec<Manifest> = used;
    (old, stay.into_iter().chain(recent).collect())
}

/// The keys of revisions, and after them those of the parts that nothing else has: a revision that is in the state
/// has all its parts.
fn gone_keys(old: &[Manifest], stay: &[Manifest]) -> Vec<String> {
    let parts = |revisions: &[Manifest]| -> BTreeSet<String> {
        let files = revisions.iter().flat_map(|one| one.files.values());
        files.flat_map(|file| file.chunks.iter().cloned()).collect()
    };
    let (gone, needed) = (parts(old), parts(stay));
    let revisions = old.iter().map(|one| keys::revision(one.number));
    let parts = gone.difference(&needed).map(|name| format!("{}{name}", keys::CHUNKS));
    revisions.chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StoredFile;

    fn revision(number: u64, chunks: &[&str]) -> Manifest {
        let chunks = chunks.iter().map(|name| (*name).to_owned()).collect();
        let files = [("node.toml".to_owned(), StoredFile { size: 1, chunks })].into();
        Manifest { number, files, ..Manifest::default() }
    }

    #[test]
    fn old_revisions_go_with_the_parts_that_only_they_have() {
        let all = vec![
            revision(1, &["a", "b"]),
            revision(2, &["a", "c"]),
            revision(3, &["d"]),
            revision(4, &["a"]),
        ];
        let (old, stay) = split(all.clone(), 2, &BTreeSet::from([2]));
        let numbers = |some: &[Manifest]| some.iter().map(|one| one.number).collect::<Vec<_>>();
        assert_eq!((numbers(&old), numbers(&stay)), (vec![1], vec![2, 3, 4]));
        assert_eq!(gone_keys(&old, &stay), ["revisions/0000000001", "chunks/b"]);
        let (old, _) = split(all, 9, &BTreeSet::new());
        assert!(old.is_empty());
    }
}
