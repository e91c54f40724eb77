//! The state in a file, for a fleet of a handful of nodes: one of them keeps it, and nothing must be installed.
//!
//! All keys are in memory. Those without a lease are in the file, which each change replaces as a whole and on disk
//! before the change is confirmed. Leases end with the process: their owners notice, and write again.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{
    seal::random_text,
    store::{Answer, Bytes, Change, Entries, Entry, Question, Reply, Store, StoreError},
};

/// A state in a file.
pub struct FileStore {
    path: PathBuf,
    keys: Mutex<Keys>,
    changed: Notify,
    /// Locked while this process keeps the state.
    _owned: File,
}

#[derive(Default)]
struct Keys {
    revision: i64,
    entries: BTreeMap<String, Value>,
    leases: HashMap<String, Lease>,
    /// The last change of keys that have gone meanwhile, by key: who waits for a prefix learns of them.
    gone: BTreeMap<String, i64>,
}

struct Value {
    value: Bytes,
    changed: i64,
    lease: Option<String>,
}

struct Lease {
    seconds: u64,
    end: Instant,
}

/// The file.
#[derive(Default, Serialize, Deserialize)]
struct Saved {
    revision: i64,
    entries: Vec<Entry>,
}

/// Why a state cannot be kept in a file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read or created.
    #[error("{}: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// It is no state.
    #[error("{} is damaged: {why}; restore it from a copy, nodes serve meanwhile", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The mistake.
        why: serde_json::Error,
    },
    /// Another process keeps it.
    #[error("another process keeps {}", .0.display())]
    Taken(PathBuf),
}

/// Added to the revision at each start: revisions that only keys with leases had are not used again.
const START_STEP: i64 = 1 << 20;
/// The longest lease.
const LONGEST_LEASE: u64 = 3600;
/// The keys that have gone and are remembered. Who waits from further back is woken without one.
const MOST_GONE: usize = 1000;

impl FileStore {
    /// Opens the state in a file, which need not exist yet.
    ///
    /// # Errors
    /// If the file cannot be used, or another process keeps it.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let unreadable = |why| OpenError::Unreadable { path: path.to_owned(), why };
        let lock = path.with_extension("lock");
        let owned = File::options().create(true).append(true).open(lock).map_err(unreadable)?;
        owned.try_lock().map_err(|_| OpenError::Taken(path.to_owned()))?;
        let saved = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|why| OpenError::Damaged { path: path.to_owned(), why })?,
            Err(why) if why.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(why) => return Err(unreadable(why)),
        };
        let entries = saved
            .entries
            .into_iter()
            .map(|Entry { key, value, changed }| (key, Value { value, changed, lease: None }));
        let revision = saved.revision + START_STEP;
        let keys = Keys { revision, entries: entries.collect(), ..Keys::default() };
        let (path, keys) = (path.to_owned(), Mutex::new(keys));
        Ok(Self { path, keys, changed: Notify::new(), _owned: owned })
    }

    fn answer(&self, question: Question) -> Result<Reply, StoreError> {
        let mut keys = self.keys.lock();
        if keys.expire(Instant::now()) {
            self.changed.notify_waiters();
        }
        Ok(match question {
            Question::Get(key) => Reply::Entries(keys.entries_in(&key, |other| other == key)),
            Question::List(prefix) => Reply::Entries(keys.entries_with(&prefix)),
            Question::Write { unchanged, changes } => {
                let holds = |(key, before): &(String, i64)| keys.changed(key) == *before;
                if !unchanged.iter().all(holds) || !keys.leases_exist(&changes) {
                    return Ok(Reply::Done(false));
                }
                self.write(&mut keys, changes)?;
                Reply::Done(true)
            }
            Question::Grant(seconds) => {
                let (id, seconds) = (random_text::<12>(), seconds.clamp(1, LONGEST_LEASE));
                let end = Instant::now() + Duration::from_secs(seconds);
                keys.leases.insert(id.clone(), Lease { seconds, end });
                Reply::Lease(id)
            }
            Question::Renew(id) => Reply::Done(keys.leases.get_mut(&id).is_some_and(|lease| {
                lease.end = Instant::now() + Duration::from_secs(lease.seconds);
                true
            })),
            Question::Revoke(id) => {
                let existed = keys.leases.remove(&id).is_some();
                keys.drop_orphans();
                self.changed.notify_waiters();
                Reply::Done(existed)
            }
            Question::Wait { prefix, after, .. } => Reply::Done(keys.has_changed(&prefix, after)),
        })
    }

    /// Carries changes out, on disk first. A change that cannot be written has not happened.
    fn write(&self, keys: &mut Keys, changes: Vec<Change>) -> Result<(), StoreError> {
        let is_lasting = |change: &Change| {
            change.lease.is_none()
                && keys.entries.get(&change.key).is_none_or(|value| value.lease.is_none())
        };
        let lasting = changes.iter().any(is_lasting);
        let revision = keys.revision + 1;
        let mut undo = Vec::new();
        for Change { key, value, lease } in changes {
            let value = value.map(|value| Value { value, changed: revision, lease });
            let before = match value {
                Some(value) => keys.entries.insert(key.clone(), value),
                None => keys.entries.remove(&key),
            };
            undo.push((key, before));
        }
        keys.revision = revision;
        if lasting && let Err(error) = save(&self.path, keys) {
            for (key, before) in undo.into_iter().rev() {
                match before {
                    Some(value) => drop(keys.entries.insert(key, value)),
                    None => drop(keys.entries.remove(&key)),
                }
            }
            return Err(error.into());
        }
        for (key, _) in undo {
            keys.note_gone(key);
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Returns when something may have changed, or at the end of the wait.
    async fn wait(&self, question: Question) -> Result<Reply, StoreError> {
        let end = tokio::time::Instant::now() + question.patience();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // It counts from here on, before the keys are looked at.
            changed.as_mut().enable();
            let reply = self.answer(question.clone())?;
            if reply == Reply::Done(true) || tokio::time::Instant::now() >= end {
                return Ok(reply);
            }
            let next = self.keys.lock().next_end().map_or(end, |at| end.min(at.into()));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }
}

impl Store for FileStore {
    fn ask(&self, question: Question) -> Answer<'_> {
        Box::pin(async move {
            match question {
                Question::Wait { .. } => self.wait(question).await,
                other => self.answer(other),
            }
        })
    }
}

impl Keys {
    fn entries_with(&self, prefix: &str) -> Entries {
        self.entries_in(prefix, |key| key.starts_with(prefix))
    }

    /// The entries from a key on, as long as `belongs` holds.
    fn entries_in(&self, from: &str, belongs: impl Fn(&str) -> bool) -> Entries {
        let found = self.entries.range(from.to_owned()..).take_while(|(key, _)| belongs(key));
        let entry = |(key, value): (&String, &Value)| Entry {
            key: key.clone(),
            value: value.value.clone(),
            changed: value.changed,
        };
        Entries { revision: self.revision, entries: found.map(entry).collect() }
    }

    /// The revision of a key's last change; 0 if it does not exist.
    fn changed(&self, key: &str) -> i64 {
        self.entries.get(key).map_or(0, |value| value.changed)
    }

    fn has_changed(&self, prefix: &str, after: i64) -> bool {
        // Another process may have had that revision.
        if after > self.revision {
            return true;
        }
        let within = |key: &&String| key.starts_with(prefix);
        let from = prefix.to_owned();
        let present = self.entries.range(from.clone()..).take_while(|(key, _)| within(key));
        let gone = self.gone.range(from..).take_while(|(key, _)| within(key));
        present.map(|(_, value)| value.changed).chain(gone.map(|(_, at)| *at)).any(|at| at > after)
    }

    fn leases_exist(&self, changes: &[Change]) -> bool {
        changes.iter().flat_map(|change| &change.lease).all(|id| self.leases.contains_key(id))
    }

    /// Removes the leases that are over; whether there were any.
    fn expire(&mut self, now: Instant) -> bool {
        let before = self.leases.len();
        self.leases.retain(|_, lease| lease.end > now);
        let some = self.leases.len() < before;
        if some {
            self.drop_orphans();
        }
        some
    }

    /// Removes the keys whose lease is over.
    fn drop_orphans(&mut self) {
        let is_over =
            |value: &Value| value.lease.as_ref().is_some_and(|id| !self.leases.contains_key(id));
        let over: Vec<_> = self.entries.iter().filter(|(_, value)| is_over(value)).collect();
        let over: Vec<String> = over.into_iter().map(|(key, _)| key.clone()).collect();
        for key in over {
            self.entries.remove(&key);
            self.revision += 1;
            self.note_gone(key);
        }
    }

    fn note_gone(&mut self, key: String) {
        if self.entries.contains_key(&key) {
            self.gone.remove(&key);
            return;
        }
        if self.gone.len() >= MOST_GONE {
            let oldest = self.gone.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone());
            oldest.map(|key| self.gone.remove(&key));
        }
        self.gone.insert(key, self.revision);
    }

    fn next_end(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.end).min()
    }
}

/// Replaces the file: it has the former keys or these, whatever happens meanwhile.
fn save(path: &Path, keys: &Keys) -> io::Result<()> {
    let lasting = keys.entries.iter().filter(|(_, value)| value.lease.is_none());
    let entry = |(key, value): (&String, &Value)| Entry {
        key: key.clone(),
        value: value.value.clone(),
        changed: value.changed,
    };
    let saved = Saved { revision: keys.revision, entries: lasting.map(entry).collect() };
    replace_file(path, &serde_json::to_vec(&saved)?)
}

/// Writes a file that only its owner can read, in the place of the former one, and returns when it is on disk.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let next = path.with_extension("next");
    let mut file =
        File::options().create(true).write(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    File::open(path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")))?
        .sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(directory: &tempfile::TempDir) -> Result<FileStore, OpenError> {
        FileStore::open(&directory.path().join("state.json"))
    }

    fn write(unchanged: &[(&str, i64)], changes: Vec<Change>) -> Question {
        let unchanged = unchanged.iter().map(|(key, at)| ((*key).to_owned(), *at)).collect();
        Question::Write { unchanged, changes }
    }

    async fn entries(store: &FileStore, question: Question) -> Entries {
        match store.ask(question).await.unwrap() {
            Reply::Entries(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    async fn lease(store: &FileStore, seconds: u64) -> String {
        match store.ask(Question::Grant(seconds)).await.unwrap() {
            Reply::Lease(lease) => lease,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn keys_change_together_if_the_others_are_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&directory).unwrap();
        let both = || vec![Change::put("a", "1"), Change::put("b", "2")];
        let ask = async |question| store.ask(question).await.unwrap();
        assert_eq!(ask(write(&[("a", 0)], both())).await, Reply::Done(true));
        assert_eq!(ask(write(&[("a", 0)], vec![Change::remove("b")])).await, Reply::Done(false));
        let listed = entries(&store, Question::List(String::new())).await;
        assert_eq!(listed.entries.len(), 2);
        let at = listed.entries[0].changed;
        assert_eq!(ask(write(&[("a", at)], vec![Change::remove("b")])).await, Reply::Done(true));
        assert!(entries(&store, Question::Get("b".to_owned())).await.entries.is_empty());
    }

    #[tokio::test]
    async fn lasting_keys_are_there_after_a_restart_and_revisions_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&directory).unwrap();
        assert!(matches!(opened(&directory), Err(OpenError::Taken(_))));
        let lease = lease(&store, 60).await;
        let changes = vec![Change::put("a", "1"), Change::put("b", "2").leased(&lease)];
        store.ask(write(&[], changes)).await.unwrap();
        let before = entries(&store, Question::List(String::new())).await.revision;
        drop(store);
        let store = opened(&directory).unwrap();
        let listed = entries(&store, Question::List(String::new())).await;
        let keys: Vec<_> = listed.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!(keys, ["a"]);
        assert!(listed.revision > before);
    }

    #[tokio::test]
    async fn end_of_a_lease_takes_its_keys_and_wakes_who_waits() {
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&directory).unwrap();
        let lease = lease(&store, 1).await;
        store.ask(write(&[], vec![Change::put("f/a", "1").leased(&lease)])).await.unwrap();
        let listed = entries(&store, Question::List("f/".to_owned())).await;
        let wait = |prefix: &str, seconds| Question::Wait {
            prefix: prefix.to_owned(),
            after: listed.revision,
            seconds,
        };
        let (followed, other) =
            tokio::join!(store.ask(wait("f/", 60)), store.ask(wait("other/", 1)));
        assert_eq!(followed.unwrap(), Reply::Done(true));
        assert_eq!(other.unwrap(), Reply::Done(false));
        assert!(entries(&store, Question::List("f/".to_owned())).await.entries.is_empty());
        assert_eq!(store.ask(Question::Renew(lease)).await.unwrap(), Reply::Done(false));
    }
}
