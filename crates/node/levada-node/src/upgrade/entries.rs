//! The memory tier on its way from one process to the other.

use std::{
    io::{BufReader, BufWriter, Write as _},
    os::unix::net::UnixStream,
};

use levada_cluster::purge::{PendingStore, Purges};
use levada_store::Store;
use levada_types::Key;

use crate::upgrade::{
    message::TakenOver,
    record::{self, EntryRecord},
    successor::SILENCE_TIMEOUT,
};

/// Bytes of entries that are gathered before they are sent.
const TOGETHER: usize = 256 << 10;

/// Sends the entries under these keys, in order. Each is freed when it is sent, except for blocks while
/// `keeps_blocks` says so.
pub(crate) fn send(
    store: &Store,
    purges: &Purges,
    keys: &[Key],
    keeps_blocks: impl Fn() -> bool,
    way: &UnixStream,
) {
    let mut out = BufWriter::with_capacity(TOGETHER, way);
    for key in keys {
        let Some(entry) = store.departing(*key, keeps_blocks()) else { continue };
        if entry.object.as_ref().is_some_and(|object| !purges.departs(object)) {
            continue;
        }
        if let Err(error) = record::write(&mut out, key.0, &entry.head, &entry.body) {
            tracing::warn!(%error, "the rest of the memory tier stays behind");
            return;
        }
    }
    let _ = out.flush();
}

/// Keeps the entries that arrive, except for what is newer here, purged, or invalidated since `pending` began,
/// before this process served.
pub(crate) fn receive(
    store: &Store,
    purges: &Purges,
    pending: Option<&PendingStore>,
    way: UnixStream,
) -> TakenOver {
    let mut taken = TakenOver::default();
    let _ = way.set_read_timeout(Some(SILENCE_TIMEOUT));
    let mut from = BufReader::with_capacity(TOGETHER, way);
    loop {
        match record::read(&mut from) {
            Ok(Some(entry)) => {
                let bytes = entry.head.len() + entry.body.iter().map(|b| b.len()).sum::<usize>();
                if keep(store, purges, pending, entry) {
                    taken.objects += 1;
                    taken.bytes += bytes as u64;
                }
            }
            Ok(None) => return taken,
            Err(error) => {
                tracing::warn!(%error, "the former process has ended before all was taken over");
                return taken;
            }
        }
    }
}

fn keep(
    store: &Store,
    purges: &Purges,
    pending: Option<&PendingStore>,
    entry: EntryRecord,
) -> bool {
    let Some(arriving) = Store::arriving(&entry.head, entry.body) else { return false };
    let key = Key(entry.key);
    let Some(object) = arriving.object() else { return store.adopt(key, &arriving) };
    let uri = Key::of(object.identity().as_bytes());
    let outdated = || pending.is_some_and(|pending| pending.is_outdated(uri));
    if outdated() || !purges.may_keep(object) || !store.adopt(key, &arriving) {
        return false;
    }
    // An invalidation notes the URI first, then removes the stored response.
    if outdated() {
        store.remove(key);
    }
    true
}
