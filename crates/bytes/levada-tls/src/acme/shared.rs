//! The certificates and the account that all nodes of a fleet have in common, in the fleet's state.
//!
//! ```text
//! certificates/www.example.com    key and chain of a certificate, by its first name
//! accounts/0123456789abcdef       the account at a server, by the hash of the server's URL
//! locks/www.example.com           held by the node that orders it
//! locks/accounts/0123456789abcdef held by the node that makes an account
//! ```
//!
//! Each node has a copy in its storage, with which it serves and orders while the state is away.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use levada_types::hash64;

use crate::acme::held::Held;

/// Texts that all nodes have in common, by name. They are secrets: keys are among them.
pub trait SharedStorage: Send + Sync {
    /// A text, with the version of its last change.
    fn read(&self, name: String) -> SharedAnswer<'_, Option<(String, i64)>>;
    /// Writes or removes a text that has this version; 0: that does not exist. Returns whether it had.
    fn write(&self, name: String, text: Option<String>, version: i64) -> SharedAnswer<'_, bool>;
    /// Keeps other nodes from a lock of this name as long as the value lives; `None`: another node has it.
    fn lock(&self, name: String) -> SharedAnswer<'_, Option<SharedLock>>;
}

/// An answer of what is shared. The error says in words why there is none.
pub type SharedAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// A lock that is held.
pub type SharedLock = Box<dyn Send + Sync>;

/// The state of the fleet, for a node of one.
#[derive(Clone, Default)]
pub(crate) struct Shared(pub(crate) Option<Arc<dyn SharedStorage>>);

/// The right of this node to order a certificate.
pub(crate) enum Turn {
    /// It may. The lock is `None` where no other node could be asked.
    Own(Option<SharedLock>),
    /// Another node orders it now, or has ordered it.
    OfAnother,
}

/// How often a write is tried that another node comes before.
const TRIES: usize = 3;
/// How often, and after which waits, a node asks whether another one still makes an account: a server is done in seconds.
const ACCOUNT_TRIES: usize = 30;
const ACCOUNT_BACKOFF: Duration = Duration::from_secs(1);

impl Shared {
    /// The certificate of the state, if it is newer.
    pub(crate) async fn newest(&self, name: &str, held: Option<&Held>) -> Option<Held> {
        let state = self.0.as_ref()?;
        let read = state.read(certificate(name)).await;
        let text = read.inspect_err(|why| tracing::info!(name, why, "no certificate was read"));
        let (pem, _) = text.ok()??;
        let theirs = Held::of(pem);
        let theirs = theirs.inspect_err(|why| {
            tracing::warn!(name, why, "the state of the fleet has a wrong certificate");
        });
        theirs.ok().filter(|theirs| held.is_none_or(|held| theirs.is_newer_than(held)))
    }

    /// Writes a certificate, unless the state has a newer one.
    ///
    /// # Errors
    /// In words, if the state cannot be asked.
    pub(crate) async fn offer(&self, name: &str, held: &Held) -> Result<(), String> {
        let Some(state) = &self.0 else { return Ok(()) };
        for _ in 0..TRIES {
            let (theirs, version) = state.read(certificate(name)).await?.unzip();
            let theirs = theirs.and_then(|pem| Held::of(pem).ok());
            if theirs.is_some_and(|theirs| !held.is_newer_than(&theirs)) {
                return Ok(());
            }
            let written =
                state.write(certificate(name), Some(held.pem.clone()), version.unwrap_or(0));
            if written.await? {
                return Ok(());
            }
        }
        Err("other nodes write it at the same time".to_owned())
    }

    /// Takes the lock of a certificate. A state that is away keeps no node from ordering.
    pub(crate) async fn turn(&self, name: &str, held: Option<&Held>) -> Turn {
        let Some(state) = &self.0 else { return Turn::Own(None) };
        match state.lock(format!("locks/{name}")).await {
            Ok(None) => Turn::OfAnother,
            // Another node may have been done just before.
            Ok(Some(_)) if self.newest(name, held).await.is_some() => Turn::OfAnother,
            Ok(Some(lock)) => Turn::Own(Some(lock)),
            Err(why) => {
                tracing::warn!(name, why, "a certificate is ordered while the state is away");
                Turn::Own(None)
            }
        }
    }

    /// Comes to one account with the other nodes: that of the state, or this node's `own` if it has none. `Ok(None)`:
    /// there is none yet.
    ///
    /// # Errors
    /// In words, if the state cannot be asked.
    pub(crate) async fn account(
        &self,
        directory: &str,
        own: Option<&str>,
    ) -> Result<Option<String>, String> {
        let own = own.map(str::to_owned);
        let Some(state) = &self.0 else { return Ok(own) };
        let name = account(directory);
        if let Some((theirs, _)) = state.read(name.clone()).await? {
            return Ok(Some(theirs));
        }
        if own.is_none() || state.write(name.clone(), own.clone(), 0).await? {
            return Ok(own);
        }
        // Another node was first.
        Ok(state.read(name).await?.map(|(theirs, _)| theirs))
    }

    /// Waits until no other node makes an account. Without the lock, at worst an account too many is made.
    pub(crate) async fn account_turn(&self, directory: &str) -> Option<SharedLock> {
        let state = self.0.as_ref()?;
        for _ in 0..ACCOUNT_TRIES {
            match state.lock(format!("locks/{}", account(directory))).await {
                Ok(None) => tokio::time::sleep(ACCOUNT_BACKOFF).await,
                taken => return taken.ok().flatten(),
            }
        }
        None
    }

    /// Removes an account that the server does not know any more.
    pub(crate) async fn forget_account(&self, directory: &str, lost: &str) {
        let Some(state) = &self.0 else { return };
        let name = account(directory);
        let forgotten = async {
            match state.read(name.clone()).await? {
                Some((text, version)) if text == lost => state.write(name, None, version).await,
                _ => Ok(true),
            }
        };
        if let Err(why) = forgotten.await {
            tracing::warn!(why, "the lost account is still in the state of the fleet");
        }
    }
}

fn certificate(name: &str) -> String {
    format!("certificates/{name}")
}

fn account(directory: &str) -> String {
    format!("accounts/{:016x}", hash64(directory.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use parking_lot::Mutex;

    use super::*;
    use crate::acme::held::tests::pem;

    /// A state in memory.
    #[derive(Default)]
    struct Memory {
        texts: Mutex<HashMap<String, (String, i64)>>,
        away: bool,
    }

    impl SharedStorage for Memory {
        fn read(&self, name: String) -> SharedAnswer<'_, Option<(String, i64)>> {
            let text = self.texts.lock().get(&name).cloned();
            Box::pin(async move { if self.away { Err("away".to_owned()) } else { Ok(text) } })
        }

        fn write(
            &self,
            name: String,
            text: Option<String>,
            version: i64,
        ) -> SharedAnswer<'_, bool> {
            let mut texts = self.texts.lock();
            let is_same = texts.get(&name).map_or(0, |(_, known)| *known) == version;
            match text.filter(|_| is_same) {
                Some(text) => drop(texts.insert(name, (text, version + 1))),
                None if is_same => drop(texts.remove(&name)),
                None => {}
            }
            Box::pin(async move { Ok(is_same) })
        }

        fn lock(&self, _name: String) -> SharedAnswer<'_, Option<SharedLock>> {
            Box::pin(async move { if self.away { Err("away".to_owned()) } else { Ok(None) } })
        }
    }

    fn shared(away: bool) -> Shared {
        Shared(Some(Arc::new(Memory { away, ..Memory::default() })))
    }

    #[tokio::test]
    async fn state_has_the_newest_certificate_that_a_node_offered() {
        let state = shared(false);
        let [older, newer] =
            [2020, 2021].map(|begins| Held::of(pem(&["a.example"], begins, 2040)).unwrap());
        assert!(state.newest("a.example", None).await.is_none());
        for offered in [&older, &newer, &older] {
            state.offer("a.example", offered).await.unwrap();
        }
        assert_eq!(state.newest("a.example", Some(&older)).await.unwrap().pem, newer.pem);
        assert!(state.newest("a.example", Some(&newer)).await.is_none());
    }

    #[tokio::test]
    async fn nodes_come_to_one_account_until_the_server_has_lost_it() {
        let state = shared(false);
        assert_eq!(state.account("https://ca", None).await, Ok(None));
        for (own, agreed) in [(Some("one"), "one"), (Some("two"), "one"), (None, "one")] {
            assert_eq!(state.account("https://ca", own).await, Ok(Some(agreed.to_owned())));
        }
        assert_eq!(state.account("https://other", None).await, Ok(None));
        state.forget_account("https://ca", "two").await;
        assert_eq!(state.account("https://ca", None).await, Ok(Some("one".to_owned())));
        state.forget_account("https://ca", "one").await;
        assert_eq!(state.account("https://ca", Some("two")).await, Ok(Some("two".to_owned())));
    }

    #[tokio::test]
    async fn lock_of_another_node_is_waited_for_and_a_state_that_is_away_is_not() {
        assert!(matches!(shared(false).turn("a.example", None).await, Turn::OfAnother));
        assert!(matches!(shared(true).turn("a.example", None).await, Turn::Own(None)));
        assert!(matches!(Shared::default().turn("a.example", None).await, Turn::Own(None)));
        assert!(shared(true).account("https://ca", Some("own")).await.is_err());
    }
}
