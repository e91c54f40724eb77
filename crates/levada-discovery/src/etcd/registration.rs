//! A node's own key: written with a lease that the node renews, written again when it is lost, and taken back
//! when the node leaves.

use std::{convert::Infallible, time::Duration};

use tokio::time::timeout;

use super::{
    client::{Etcd, Quality},
    value,
};
use crate::{Endpoint, EtcdSource, Member, api::ApiError, backoff::Backoff};

/// A node that is gone without a word is a member for so long.
const LEASE_SECONDS: u64 = 10;
/// Between two renewals: two may fail before the lease expires.
const RENEWAL: Duration = Duration::from_secs(3);
/// The time limit for the last call of a node that leaves.
const PATIENCE: Duration = Duration::from_secs(3);

/// Keeps `me` among the members of a prefix until `leaving` is ready, and takes it back then. Failures are logged
/// and tried again; the node serves meanwhile.
pub async fn register(source: &EtcdSource, me: &Member, leaving: impl Future<Output = ()>) {
    let key = format!("{}{}", source.prefix, me.name);
    let mut registration = Registration { source, me, key, lease: None };
    tokio::select! {
        () = registration.keep() => {}
        () = leaving => {}
    }
    // If no server can be reached, the lease ends by itself.
    let _ = timeout(PATIENCE, registration.take_back()).await;
}

struct Registration<'a> {
    source: &'a EtcdSource,
    me: &'a Member,
    key: String,
    /// The lease that the key was written with.
    lease: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum RegistrationError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("another node is registered with this name: {0}; give each node its own `name`")]
    Taken(String),
    #[error("the key changes while it is written: do two nodes have this name?")]
    Contended,
}

impl Registration<'_> {
    /// Renews the lease, for ever.
    async fn keep(&mut self) {
        let (source, node) = (self.source, &*self.me.name);
        let mut backoff = Backoff::new();
        // Servers that failed one after the other.
        let mut failed = 0;
        for endpoint in source.endpoints.iter().cycle() {
            let Err(error) = self.keep_at(endpoint, &mut failed).await;
            failed += 1;
            // Once for each outage.
            if failed == source.endpoints.len() {
                tracing::warn!(node, %endpoint, %error, "the node cannot register in etcd and keeps trying");
            }
            backoff.pause().await;
        }
        // Without endpoints, which the configuration refuses.
        std::future::pending().await
    }

    /// Renews the lease by one server until that fails.
    async fn keep_at(
        &mut self,
        endpoint: &Endpoint,
        failed: &mut usize,
    ) -> Result<Infallible, RegistrationError> {
        let etcd = Etcd::new(self.source, endpoint, Quality::Agreed).await?;
        loop {
            self.renew(&etcd).await?;
            *failed = 0;
            tokio::time::sleep(RENEWAL).await;
        }
    }

    /// Renews the lease. Without one, or with one that has expired, writes the key with a new one.
    async fn renew(&mut self, etcd: &Etcd) -> Result<(), RegistrationError> {
        let node = &*self.me.name;
        if let Some(lease) = &self.lease {
            if etcd.keep_alive(lease).await? {
                return Ok(());
            }
            tracing::warn!(node, "the node's lease in etcd has expired; it registers again");
            self.lease = None;
        }
        let before = etcd.get(&self.key).await?;
        let value = value::write(self.me);
        if let Some(pair) = &before
            && pair.value != value
        {
            return Err(RegistrationError::Taken(
                String::from_utf8_lossy(&pair.value).into_owned(),
            ));
        }
        let lease = etcd.grant(LEASE_SECONDS).await?;
        let before = before.map_or(0, |pair| pair.mod_revision);
        if !etcd.put(&self.key, &value, &lease, before).await? {
            return Err(RegistrationError::Contended);
        }
        tracing::info!(node, key = self.key, "the node is registered in etcd");
        self.lease = Some(lease);
        Ok(())
    }

    async fn take_back(self) {
        let Some(lease) = self.lease else { return };
        for endpoint in &self.source.endpoints {
            let revoked = async {
                Etcd::new(self.source, endpoint, Quality::Agreed).await?.revoke(&lease).await
            };
            if revoked.await.is_ok() {
                return;
            }
        }
    }
}
