//! The files of revisions in the state: in parts that are named by their content and sealed. A file that does not
//! change is carried once, however many revisions have it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;

use crate::{
    directory::Directory,
    model::{Head, Manifest, StoredFile, keys},
    seal::sha256,
    state::{State, digest},
    store::{Change, StoreError},
};

/// The bytes of a part: etcd takes 1.5 MB in a request.
const CHUNK: usize = 512 << 10;
/// As many parts are on their way at a time.
const AT_ONCE: usize = 8;

/// The files of a directory as a manifest has them.
pub fn stored_files(directory: &Directory) -> BTreeMap<String, StoredFile> {
    let stored = |content: &Vec<u8>| StoredFile {
        size: content.len() as u64,
        chunks: content.chunks(CHUNK).map(sha256).collect(),
    };
    directory.files().iter().map(|(path, content)| (path.clone(), stored(content))).collect()
}

/// Writes the parts that no revision in `known` has.
///
/// # Errors
/// If the state does not answer.
pub(crate) async fn publish(
    state: &State,
    directory: &Directory,
    known: &[Manifest],
) -> Result<(), StoreError> {
    let present = known.iter().flat_map(|manifest| manifest.files.values());
    let present: BTreeSet<_> = present.flat_map(|file| file.chunks.iter().cloned()).collect();
    let chunks = directory.files().values().flat_map(|content| content.chunks(CHUNK));
    let named = chunks.map(|chunk| (sha256(chunk), chunk));
    let missing: BTreeMap<_, _> = named.filter(|(name, _)| !present.contains(name)).collect();
    let writes = missing.into_iter().map(|(name, chunk)| async move {
        let key = format!("{}{name}", keys::CHUNKS);
        let sealed = state.key.seal(&key, chunk);
        // A command that was cut may have written it.
        state.write(&[(&key, 0)], vec![Change::put(&key, sealed)]).await
    });
    // A list: futures that borrow from a closure cannot be sent to another thread.
    let writes: Vec<_> = writes.collect();
    let mut writes = futures_util::stream::iter(writes).buffer_unordered(AT_ONCE);
    while let Some(written) = writes.next().await {
        written?;
    }
    Ok(())
}

/// The manifest of a revision, which must be the one that `head` names.
///
/// # Errors
/// If the state does not answer, or has another one.
pub async fn manifest(state: &State, head: &Head) -> Result<Manifest, StoreError> {
    let key = keys::revision(head.number);
    let found = state.get(&key).await?;
    let found = found.ok_or_else(|| {
        StoreError::Strange(format!("revision {} is not in the state", head.number))
    })?;
    let manifest: Manifest = crate::state::read(&found)?;
    if digest(&manifest) != head.digest {
        let message = format!("revision {} is not the one that the head names", head.number);
        return Err(StoreError::Strange(message));
    }
    Ok(manifest)
}

/// The files of a revision. Those that `known` has with the same content are not fetched.
///
/// # Errors
/// If the state does not answer, or has something else.
pub async fn fetch(
    state: &State,
    manifest: &Manifest,
    known: &Directory,
) -> Result<Directory, StoreError> {
    let present = stored_files(known);
    let reads = manifest.files.iter().map(|(path, stored)| {
        let content = known.files().get(path).filter(|_| present.get(path) == Some(stored));
        async move {
            let content = match content {
                Some(content) => content.clone(),
                None => fetch_file(state, path, stored).await?,
            };
            Ok::<_, StoreError>((path.clone(), content))
        }
    });
    let reads: Vec<_> = reads.collect();
    let mut reads = futures_util::stream::iter(reads).buffer_unordered(AT_ONCE);
    let mut files = BTreeMap::new();
    while let Some(read) = reads.next().await {
        files.extend([read?]);
    }
    Ok(Directory::of(files))
}

async fn fetch_file(state: &State, path: &str, stored: &StoredFile) -> Result<Vec<u8>, StoreError> {
    let mut content = Vec::new();
    for chunk in &stored.chunks {
        let key = format!("{}{chunk}", keys::CHUNKS);
        let found = state.get(&key).await?;
        let found = found
            .ok_or_else(|| StoreError::Strange(format!("a part of {path} is not in the state")))?;
        let opened = state.open_sealed(&key, &found.value.0)?;
        if sha256(&opened) != *chunk {
            return Err(StoreError::Strange(format!("a part of {path} is another one")));
        }
        content.extend(opened);
    }
    Ok(content)
}
