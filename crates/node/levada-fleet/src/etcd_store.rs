//! The state in etcd, below a prefix.

use std::sync::Arc;

use levada_discovery::{
    ApiError, Change as EtcdChange, Etcd, EtcdSource, KeyValue, Listing, Quality, WatchError,
};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::store::{Answer, Bytes, Change, Entries, Entry, Question, Reply, Store, StoreError};

/// A state in etcd.
pub(crate) struct EtcdStore {
    source: EtcdSource,
    /// The endpoint that answered last, with its connections.
    good: Mutex<Option<(usize, Arc<Etcd>)>>,
}

impl EtcdStore {
    /// A state below the prefix of a source.
    pub(crate) fn new(source: EtcdSource) -> Self {
        Self { source, good: Mutex::new(None) }
    }

    /// Asks the endpoint that answered last, then all others, and at last that one again: a login lasts for a while.
    async fn ask_any(&self, question: &Question) -> Result<Reply, StoreError> {
        let (endpoints, known) = (&self.source.endpoints, self.good.lock().clone());
        let first = known.as_ref().map_or(0, |(at, _)| *at);
        let mut failed = "no endpoint of etcd is known".to_owned();
        if let Some((_, etcd)) = known {
            match self.ask_one(&etcd, question).await {
                Ok(reply) => return Ok(reply),
                Err(error) => failed = error.to_string(),
            }
        }
        for number in first + 1..=first + endpoints.len() {
            let at = number % endpoints.len();
            let asked = async {
                let etcd = Etcd::new(&self.source, &endpoints[at], Quality::Agreed).await?;
                let etcd = Arc::new(etcd.keeping_connections());
                Ok::<_, ApiError>((self.ask_one(&etcd, question).await?, etcd))
            };
            match asked.await {
                Ok((reply, etcd)) => {
                    *self.good.lock() = Some((at, etcd));
                    return Ok(reply);
                }
                Err(error) => failed = format!("{}: {error}", endpoints[at]),
            }
        }
        *self.good.lock() = None;
        Err(StoreError::Away(failed))
    }

    async fn ask_one(&self, etcd: &Etcd, question: &Question) -> Result<Reply, ApiError> {
        Ok(match question {
            Question::Get(key) => self.entries(etcd.listing_of(&self.key(key)).await?),
            Question::List(prefix) => self.entries(etcd.list(&self.key(prefix)).await?),
            Question::Write { unchanged, changes } => {
                Reply::Done(self.write(etcd, unchanged, changes).await?)
            }
            Question::Grant(seconds) => Reply::Lease(etcd.grant(*seconds).await?),
            Question::Renew(lease) => Reply::Done(etcd.keep_alive(lease).await?),
            Question::Revoke(lease) => {
                etcd.revoke(lease).await?;
                Reply::Done(true)
            }
            Question::Wait { prefix, after, .. } => {
                let watching = watch(etcd, self.key(prefix), *after);
                match timeout(question.patience(), watching).await {
                    Ok(Err(WatchError::Api(error))) => return Err(error),
                    // A watch that etcd has ended may have missed something.
                    Ok(_) => Reply::Done(true),
                    Err(_) => Reply::Done(false),
                }
            }
        })
    }

    async fn write(
        &self,
        etcd: &Etcd,
        unchanged: &[(String, i64)],
        changes: &[Change],
    ) -> Result<bool, ApiError> {
        let unchanged: Vec<_> =
            unchanged.iter().map(|(key, before)| (self.key(key), *before)).collect();
        let unchanged: Vec<_> =
            unchanged.iter().map(|(key, before)| (key.as_str(), *before)).collect();
        let keys: Vec<_> = changes.iter().map(|change| self.key(&change.key)).collect();
        let changes = keys.iter().zip(changes).map(|(key, change)| EtcdChange {
            key,
            value: change.value.as_ref().map(|value| &value.0[..]),
            lease: change.lease.as_deref(),
        });
        let written = etcd.transact(&unchanged, &changes.collect::<Vec<_>>()).await;
        match written {
            // As with a file: a lease that is over writes nothing.
            Err(ApiError::Refused { message, .. }) if message.contains("lease not found") => {
                Ok(false)
            }
            other => other,
        }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.source.prefix)
    }

    fn entries(&self, listing: Listing) -> Reply {
        let entry = |KeyValue { key, value, mod_revision }: KeyValue| {
            let key = String::from_utf8(key).ok()?;
            let key = key.strip_prefix(&*self.source.prefix)?.to_owned();
            Some(Entry { key, value: Bytes(value), changed: mod_revision })
        };
        let entries = listing.keys.into_iter().filter_map(entry).collect();
        Reply::Entries(Entries { revision: listing.revision, entries })
    }
}

/// Returns with the first events.
async fn watch(etcd: &Etcd, prefix: String, after: i64) -> Result<(), WatchError> {
    let mut watch = etcd.watch(&prefix, after + 1).await?;
    // The first line says that the watch has started.
    while watch.next().await?.is_empty() {}
    Ok(())
}

impl Store for EtcdStore {
    fn clock_ahead(&self) -> Option<i64> {
        self.good.lock().as_ref()?.1.clock_ahead()
    }

    fn ask(&self, question: Question) -> Answer<'_> {
        Box::pin(async move { self.ask_any(&question).await })
    }
}
