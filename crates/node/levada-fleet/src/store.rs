//! A store of keys with revisions, conditions, leases and a way to wait for changes: what a state needs, and no more.
//!
//! A question and its reply are values, so that a node that keeps the state answers them over a connection as it does
//! by itself.

use std::{future::Future, pin::Pin, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A store.
pub trait Store: Send + Sync {
    /// Answers a question.
    fn ask(&self, question: Question) -> Answer<'_>;

    /// The seconds by which the clock of this machine is ahead of the store's, one more or less; `None` if it is the same
    /// clock, or the store has not answered yet.
    fn clock_ahead(&self) -> Option<i64> {
        None
    }
}

/// The reply to a question, when it has come.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Reply, StoreError>> + Send + 'a>>;

/// A question to a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// One key; the reply is [`Reply::Entries`] with one entry or none.
    Get(String),
    /// All keys with a prefix, in their order; the reply is [`Reply::Entries`].
    List(String),
    /// Changes keys, all or none; the reply is [`Reply::Done`].
    Write {
        /// The keys that must be as they were: each with the revision of its last change, or 0 if it must not exist.
        unchanged: Vec<(String, i64)>,
        /// The changes.
        changes: Vec<Change>,
    },
    /// A lease of so many seconds; the reply is [`Reply::Lease`].
    Grant(u64),
    /// Renews a lease; the reply is [`Reply::Done`], which says whether it still existed.
    Renew(String),
    /// Ends a lease with its keys; the reply is [`Reply::Done`].
    Revoke(String),
    /// Waits until a key with a prefix has changed after a revision; the reply is [`Reply::Done`], which says whether
    /// one may have.
    Wait {
        /// The prefix.
        prefix: String,
        /// The revision.
        after: i64,
        /// The longest wait, in seconds.
        seconds: u64,
    },
}

/// The change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its value; `None` removes the key.
    pub value: Option<Bytes>,
    /// The lease that the key lives as long as.
    pub lease: Option<String>,
}

/// The reply of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Keys, and the revision of the store.
    Entries(Entries),
    /// A new lease.
    Lease(String),
    /// Whether it was done.
    Done(bool),
}

/// Keys, and the revision of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// The revision of the store.
    pub revision: i64,
    /// The keys.
    pub entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Bytes,
    /// The revision of its last change.
    pub changed: i64,
}

/// Bytes, in JSON as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// Why a store does not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached.
    #[error("the state cannot be reached: {0}")]
    Away(String),
    /// It refuses, in words for a person.
    #[error("{0}")]
    Refused(String),
    /// There is no such thing, in words for a person.
    #[error("{0}")]
    Absent(String),
    /// Its file cannot be written.
    #[error("the state cannot be written: {0}")]
    Disk(#[from] std::io::Error),
    /// It answers something else.
    #[error("the state does not answer as it should: {0}")]
    Strange(String),
}

/// A wait is as long at most.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

impl Change {
    /// Writes a key.
    pub fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), value: Some(Bytes(value.into())), lease: None }
    }

    /// Removes a key.
    pub fn remove(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None, lease: None }
    }

    /// The same, with a lease.
    #[must_use]
    pub fn leased(self, lease: &str) -> Self {
        Self { lease: Some(lease.to_owned()), ..self }
    }
}

impl Entries {
    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The entries with a prefix, each with the rest of its key.
    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        self.entries.iter().filter_map(move |entry| Some((entry.key.strip_prefix(prefix)?, entry)))
    }
}

impl Question {
    /// How long the reply may take by itself.
    pub(crate) fn patience(&self) -> Duration {
        match self {
            Self::Wait { seconds, .. } => Duration::from_secs(*seconds).min(LONGEST_WAIT),
            _ => Duration::ZERO,
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        BASE64_STANDARD.decode(&*text).map(Self).map_err(serde::de::Error::custom)
    }
}
