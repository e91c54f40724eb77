//! Going through all records in the background, as for a purge.

use std::time::Duration;

use bytes::Bytes;
use levada_types::Key;

use super::{Disk, Shared, index::IndexEntry, queue::Work};

/// The fate of a record, judged by its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordAction {
    /// It stays.
    Keep,
    /// It goes.
    Remove,
    /// It gets this head instead.
    Rewrite(Bytes),
}

/// The work that a sweep has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records judged.
    pub judged: u64,
    /// Records removed.
    pub removed: u64,
    /// Records given another head.
    pub rewritten: u64,
}

/// How many heads are read at once.
const BATCH: usize = 64;

impl Disk {
    /// Judges every record that was put before this call, on disk or waiting, at most so many per
    /// second; it begins when the scan has ended. A record that is replaced meanwhile may be judged or
    /// not. Must be called on a runtime.
    pub async fn sweep(
        &self,
        per_second: u32,
        mut judge: impl FnMut(Key, &Bytes) -> RecordAction,
    ) -> Swept {
        self.scanned().await;
        let mut swept = self.shared.sweep_queue(&mut judge);
        let pause = Duration::from_secs(1) * BATCH as u32 / per_second.max(1);
        let mut next = Some(0);
        while let Some(from) = next {
            let mut entries = Vec::new();
            next = self.shared.state.lock().index.list(from, BATCH, &mut entries);
            let shared = self.shared.clone();
            let read = move || shared.heads(&entries);
            let Ok(heads) = tokio::task::spawn_blocking(read).await else { break };
            for (key, head) in heads {
                let verdict = judge(key, &head);
                self.shared.carry_out(key, head, verdict, &mut swept);
            }
            tokio::time::sleep(pause).await;
        }
        swept
    }
}

impl Shared {
    /// Judges what waits: the disk does not have it yet.
    fn sweep_queue(&self, judge: &mut impl FnMut(Key, &Bytes) -> RecordAction) -> Swept {
        let waiting: Vec<_> = {
            let state = self.state.lock();
            state.queue.all().map(|(key, ticket, work)| (key, ticket, work.clone())).collect()
        };
        let mut swept = Swept::default();
        for (key, ticket, work) in waiting {
            let (Work::Write { head, .. } | Work::Change { new: Some(head), .. }) = &work else {
                continue;
            };
            swept.judged += 1;
            let work = match (judge(key, head), work) {
                (RecordAction::Keep, _) => continue,
                (RecordAction::Rewrite(head), Work::Write { body, .. }) => {
                    Work::Write { head, body }
                }
                (RecordAction::Rewrite(new), Work::Change { old, .. }) => {
                    Work::Change { old, new: Some(new) }
                }
                // Whatever its head is by now: the change may be under way.
                _ => Work::Remove,
            };
            let count = match &work {
                Work::Remove => &mut swept.removed,
                _ => &mut swept.rewritten,
            };
            *count += u64::from(self.state.lock().queue.exchange(key, ticket, work));
        }
        self.news.notify_one();
        swept
    }

    fn heads(&self, entries: &[IndexEntry]) -> Vec<(Key, Bytes)> {
        let mut heads = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = Key(entry.key);
            let head = self.readable(key, entry.spot, |spot| self.files.read_head(key, spot));
            heads.extend(head.map(|head| (key, head)));
        }
        heads
    }

    fn carry_out(&self, key: Key, old: Bytes, verdict: RecordAction, swept: &mut Swept) {
        swept.judged += 1;
        let new = match verdict {
            RecordAction::Keep => return,
            RecordAction::Remove => None,
            RecordAction::Rewrite(new) => Some(new),
        };
        let mut state = self.state.lock();
        // A record that waits has been judged, or was put later. One that was put and written later has
        // another head: the change leaves it.
        if state.queue.get(key).is_some() {
            return;
        }
        let mut work = Work::Change { old, new };
        if state.queue.is_full_for(key, &work) {
            work = Work::Remove;
        }
        let count = match &work {
            Work::Change { new: Some(_), .. } => &mut swept.rewritten,
            _ => &mut swept.removed,
        };
        *count += 1;
        state.queue.push(key, work);
        self.show(&state);
        self.news.notify_one();
    }
}
