//! A node's own key: written with a lease that the node renews, written again when it is lost, and taken back
//! when the node leaves.

use std::{convert::Infallible, time::Duration};

use tokio::time::timeout;

use super::{
    client::{Etcd, Quality},
    value,
};
use crate::{Endpoint, Registration, api::ApiError, backoff::Pauses};

/// A node that is gone without a word is a member for so long.
const LEASE_SECONDS: u64 = 10;
/// Between two renewals, and the longest pause after a failure: two may fail before the lease expires, and a lease
/// that outlived its servers is renewed in time, since etcd extends it when it is back.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
/// Stands before the key of a node whose name another one wants: outside the prefix, since a claim is no member.
const CLAIMS: &str = "levada-claims:";
/// The time limit for the last call of a node that leaves. Without it the lease ends the registration.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// How a node leaves its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The key goes with the node.
    TakeBack,
    /// Another process of the node has the key from now on.
    PassOn,
}

/// The name of a node in etcd, as the node finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameState {
    /// It is this node's.
    Own,
    /// It is another node's, in these words.
    Taken(String),
    /// It is this node's, and another node wants it, in these words.
    Claimed(String),
}

/// Keeps a member among those of its source until `leaving` is ready. `told` learns the state of its name. Failures
/// are logged and tried again; the node serves meanwhile.
pub async fn register(
    registration: &Registration,
    told: impl Fn(NameState),
    leaving: impl Future<Output = Leave>,
) {
    let key = format!("{}{}", registration.source.prefix, registration.me.name);
    let claims = format!("{CLAIMS}{key}");
    let mut registered =
        Registered { registration, key, claims, lease: None, is_refused: false, told };
    let leave = tokio::select! {
        _ = registered.keep() => Leave::TakeBack,
        leave = leaving => leave,
    };
    if leave == Leave::TakeBack {
        // If no server can be reached, the lease ends by itself.
        let _ = timeout(LEAVE_TIMEOUT, registered.take_back()).await;
    }
}

struct Registered<'a, F> {
    registration: &'a Registration,
    key: String,
    /// The key by which a node that is refused tells the one that has the name.
    claims: String,
    /// The lease that the key was written with.
    lease: Option<String>,
    /// Whether another node has the name.
    is_refused: bool,
    told: F,
}

#[derive(Debug, thiserror::Error)]
enum RegistrationError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("another node has the name {name} in etcd, {value}: give each node its own `name`")]
    Taken { name: String, value: String },
    #[error("the key changes while it is written: do two nodes have this name?")]
    Contended,
}

impl<F: Fn(NameState)> Registered<'_, F> {
    /// Renews the lease, for ever.
    async fn keep(&mut self) -> Infallible {
        let endpoints = &self.registration.source.endpoints;
        let mut pauses = Pauses::up_to(RENEWAL_INTERVAL);
        // Servers that failed one after the other.
        let mut failed = 0;
        for endpoint in endpoints.iter().cycle() {
            let Err(error) = self.keep_at(endpoint, &mut failed).await;
            match &error {
                RegistrationError::Taken { .. } => {
                    failed = 0;
                    if !std::mem::replace(&mut self.is_refused, true) {
                        tracing::error!("{error}");
                    }
                    (self.told)(NameState::Taken(error.to_string()));
                }
                RegistrationError::Api(_) | RegistrationError::Contended => {
                    failed += 1;
                    // Once for each outage.
                    if failed == endpoints.len() {
                        let node = &*self.registration.me.name;
                        tracing::warn!(node, %endpoint, %error, "the node cannot register in etcd and keeps trying");
                    }
                }
            }
            pauses.pause().await;
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
        let etcd = Etcd::new(&self.registration.source, endpoint, Quality::Agreed).await?;
        loop {
            self.renew(&etcd).await?;
            (*failed, self.is_refused) = (0, false);
            (self.told)(self.name_state(&etcd).await);
            tokio::time::sleep(RENEWAL_INTERVAL).await;
        }
    }

    /// Renews the lease, and writes the key if it is not there or its lease is not known here.
    async fn renew(&mut self, etcd: &Etcd) -> Result<(), RegistrationError> {
        let me = &self.registration.me;
        if let Some(lease) = &self.lease
            && !etcd.keep_alive(lease).await?
        {
            tracing::warn!(
                node = &*me.name,
                "the node's lease in etcd has expired; it registers again"
            );
            self.lease = None;
        }
        let value = value::write(me);
        let found = etcd.get(&self.key).await?;
        if let Some(pair) = &found {
            if pair.value != value {
                // Nothing depends on it, and a user of etcd may lack the right.
                let _ = self.claim(etcd, &value).await;
                let value = String::from_utf8_lossy(&pair.value).into_owned();
                return Err(RegistrationError::Taken { name: me.name.to_string(), value });
            }
            // By this lease, or by that of the process that takes over.
            if self.lease.is_some() {
                return Ok(());
            }
        }
        let lease = match &self.lease {
            Some(lease) => lease.clone(),
            None => etcd.grant(LEASE_SECONDS).await?,
        };
        let before = found.map_or(0, |pair| pair.mod_revision);
        if !etcd.put(&self.key, &value, &lease, before).await? {
            return Err(RegistrationError::Contended);
        }
        tracing::info!(node = &*me.name, key = self.key, "the node is registered in etcd");
        self.lease = Some(lease);
        Ok(())
    }

    /// Tells the node that has the name that this one wants it. A claim ends by itself.
    async fn claim(&self, etcd: &Etcd, value: &[u8]) -> Result<bool, ApiError> {
        let before = etcd.get(&self.claims).await?.map_or(0, |pair| pair.mod_revision);
        let lease = etcd.grant(LEASE_SECONDS).await?;
        etcd.put(&self.claims, value, &lease, before).await
    }

    /// The state of the name of a node that is registered.
    async fn name_state(&self, etcd: &Etcd) -> NameState {
        let me = &self.registration.me;
        match etcd.get(&self.claims).await {
            Ok(Some(claim)) if claim.value != value::write(me) => NameState::Claimed(format!(
                "another node wants the name {} in etcd, {}: give each node its own `name`",
                me.name,
                String::from_utf8_lossy(&claim.value)
            )),
            _ => NameState::Own,
        }
    }

    async fn take_back(self) {
        let Some(lease) = self.lease else { return };
        let source = &self.registration.source;
        for endpoint in &source.endpoints {
            let revoked =
                async { Etcd::new(source, endpoint, Quality::Agreed).await?.revoke(&lease).await };
            if revoked.await.is_ok() {
                return;
            }
        }
    }
}
