//! Certificates and the ACME account of a fleet, in its state: [`levada_tls::acme`] says what they mean.
//!
//! They are sealed by the fleet's key. Other tokens than those of nodes and administrators may not read them.

use std::time::Duration;

use levada_tls::acme::{SharedAnswer, SharedLock, SharedStorage};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{
    model::keys,
    state::State,
    store::{Change, StoreError},
};

/// A lock whose node is gone ends after so long.
const LEASE_SECONDS: u64 = 15;
/// Between two renewals of a lock.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The texts that nodes have in common.
pub struct SharedTexts(State);

impl SharedTexts {
    /// The texts of a state.
    pub fn new(state: &State) -> Self {
        Self(state.clone())
    }

    async fn text(&self, name: &str) -> Result<Option<(String, i64)>, StoreError> {
        let key = key(name);
        let Some(entry) = self.0.get(&key).await? else { return Ok(None) };
        let text = String::from_utf8(self.0.open_sealed(&key, &entry.value.0)?);
        let text = text.map_err(|error| StoreError::Strange(format!("{key}: {error}")))?;
        Ok(Some((text, entry.changed)))
    }

    async fn held(&self, name: &str) -> Result<Option<SharedLock>, StoreError> {
        let key = key(name);
        let lease = self.0.grant(LEASE_SECONDS).await?;
        let change = Change::put(&key, self.0.token.as_bytes()).leased(&lease);
        if !self.0.write(&[(&key, 0)], vec![change]).await? {
            self.0.revoke(&lease).await?;
            return Ok(None);
        }
        Ok(Some(Box::new(HeldLock::new(self.0.clone(), lease))))
    }
}

impl SharedStorage for SharedTexts {
    fn read(&self, name: String) -> SharedAnswer<'_, Option<(String, i64)>> {
        Box::pin(async move { self.text(&name).await.map_err(in_words) })
    }

    fn write(&self, name: String, text: Option<String>, version: i64) -> SharedAnswer<'_, bool> {
        let key = key(&name);
        let change = match text {
            Some(text) => Change::put(&key, self.0.key.seal(&key, text.as_bytes())),
            None => Change::remove(&key),
        };
        Box::pin(
            async move { self.0.write(&[(&key, version)], vec![change]).await.map_err(in_words) },
        )
    }

    fn lock(&self, name: String) -> SharedAnswer<'_, Option<SharedLock>> {
        Box::pin(async move { self.held(&name).await.map_err(in_words) })
    }
}

fn key(name: &str) -> String {
    format!("{}{name}", keys::ACME)
}

fn in_words(error: StoreError) -> String {
    error.to_string()
}

/// A lock, whose lease is renewed as long as the value lives.
struct HeldLock {
    state: State,
    lease: String,
    renewing: AbortHandle,
}

impl HeldLock {
    fn new(state: State, lease: String) -> Self {
        let (renewed, of) = (state.clone(), lease.clone());
        let renewing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL_INTERVAL).await;
                // An order that goes on without its lock does no harm: the newer certificate wins.
                let _ = renewed.renew(&of).await;
            }
        });
        Self { state, lease, renewing: renewing.abort_handle() }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.renewing.abort();
        let (state, lease) = (self.state.clone(), std::mem::take(&mut self.lease));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { state.revoke(&lease).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{file_store::FileStore, seal::FleetKey};

    #[tokio::test]
    async fn texts_are_sealed_and_change_only_as_they_were_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let store = Arc::new(FileStore::open(&path).unwrap());
        let key = FleetKey::random();
        let [one, other] =
            ["node-a", "node-b"].map(|id| SharedTexts(State::new(store.clone(), key.clone(), id)));
        let write = async |texts: &SharedTexts, text: Option<&str>, version| {
            texts.write("certificates/a".to_owned(), text.map(str::to_owned), version).await
        };
        assert_eq!(one.read("certificates/a".to_owned()).await, Ok(None));
        assert_eq!(write(&one, Some("a private key"), 0).await, Ok(true));
        assert_eq!(write(&other, Some("another key"), 0).await, Ok(false));
        let (text, version) = other.read("certificates/a".to_owned()).await.unwrap().unwrap();
        assert_eq!(text, "a private key");
        let stored = std::fs::read(&path).unwrap();
        assert!(!stored.windows(7).any(|part| part == b"private"));
        assert_eq!(write(&other, None, version).await, Ok(true));
        assert_eq!(one.read("certificates/a".to_owned()).await, Ok(None));
        let stranger = SharedTexts(State::new(store, FleetKey::random(), "node-c"));
        assert_eq!(write(&one, Some("a private key"), 0).await, Ok(true));
        assert!(stranger.read("certificates/a".to_owned()).await.is_err());
    }

    #[tokio::test]
    async fn lock_is_of_one_node_until_it_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(FileStore::open(&directory.path().join("state.json")).unwrap());
        let key = FleetKey::random();
        let [one, other] =
            ["node-a", "node-b"].map(|id| SharedTexts(State::new(store.clone(), key.clone(), id)));
        let lock = async |texts: &SharedTexts| texts.lock("locks/a".to_owned()).await;
        let held = lock(&one).await.unwrap().unwrap();
        assert!(lock(&other).await.unwrap().is_none());
        drop(held);
        while lock(&other).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    }
}
