//! The cluster as the part of the node sees it that looks after certificates.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use levada_tls::{
    acme::{OtherNodes, PEER_PATH, PeerAnswer},
    secret::Secrets,
};

use crate::nodes::Peers;

/// The largest answer: a certificate with its chain and key.
const LARGEST: usize = 1 << 20;

impl OtherNodes for Peers {
    fn me(&self) -> String {
        let now = self.now();
        now.member(now.me()).server.name.to_string()
    }

    fn nodes(&self) -> Vec<(String, bool)> {
        let now = self.now();
        let node = |member: &Arc<crate::nodes::Member>| {
            (member.server.name.to_string(), member.server.health.is_up())
        };
        now.others().map(node).collect()
    }

    fn secrets(&self) -> Option<Secrets> {
        self.now().secrets().cloned()
    }

    fn ask(&self, node: &str, message: Bytes) -> PeerAnswer {
        let member = self.now().named(node).cloned();
        Box::pin(async move {
            let member = member.ok_or("it has left the cluster")?;
            match member.ask(Method::POST, PEER_PATH, message, LARGEST).await {
                Ok((StatusCode::OK, answer)) => Ok(answer),
                Ok((status, _)) => Err(format!("it answers {status}")),
                Err(failure) => Err(failure.as_str().to_owned()),
            }
        })
    }
}
