//! Members are the ready endpoints of a service in Kubernetes, as its EndpointSlices have them.
//!
//! A list first, then a watch from the list's version. The server ends a watch after a minute, and the next one
//! goes on from the last version; whatever else ends it leads to another list.

mod access;
mod kubeconfig;
mod slices;

use std::{collections::BTreeMap, time::Duration};

use http::{Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;

use self::{
    access::{Access, AccessError},
    slices::{Metadata, Slice},
};
use crate::{
    KubernetesSource, Report,
    api::{ANSWER_TIMEOUT, ApiError},
    backoff::Pauses,
};

/// How long one watch lasts; the server ends it. The next one goes on from the last version.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Reports the ready endpoints of a service. It never returns.
pub(crate) async fn follow(source: &KubernetesSource, report: &Report) {
    let mut follower = Follower { source, report, known: None };
    let mut pauses = Pauses::new();
    loop {
        if let Err(error) = follower.list_and_watch().await {
            report.failed(error.to_string());
        }
        pauses.pause().await;
    }
}

struct Follower<'a> {
    source: &'a KubernetesSource,
    report: &'a Report,
    /// `None` if a watch cannot go on from where it ended.
    known: Option<Known>,
}

/// The service's slices by name, at a version.
struct Known {
    version: String,
    slices: BTreeMap<String, Slice>,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(
        "{message}; its role needs the verbs list and watch of endpointslices in namespace {namespace}"
    )]
    Forbidden { message: String, namespace: String },
}

/// Why a watch cannot go on.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the server ended the watch: {0}")]
    Ended(String),
}

impl Follower<'_> {
    /// Lists, unless the last watch ended in order, and watches until the watch ends.
    async fn list_and_watch(&mut self) -> Result<(), ListError> {
        // Tokens and certificates are renewed, so they are read every time.
        let access = Access::open(&self.source.access).await?;
        let mut known = match self.known.take() {
            Some(known) => known,
            None => self.list(&access).await?,
        };
        match self.watch(&access, &mut known).await {
            Ok(()) => {
                self.tell(&known);
                self.known = Some(known);
            }
            // No failure of the source yet: it has failed when there is no list either.
            Err(error) => tracing::debug!(service = &*self.source.service, %error, "lists again"),
        }
        Ok(())
    }

    async fn list(&self, access: &Access) -> Result<Known, ListError> {
        #[derive(Deserialize)]
        struct List {
            metadata: Metadata,
            items: Option<Vec<Slice>>,
        }
        let path = self.path(access, "");
        let list: List = match access.api.ask(Method::GET, &path, Vec::new()).await {
            Ok(list) => list,
            Err(ApiError::Refused { status: StatusCode::FORBIDDEN, message }) => {
                let namespace = self.namespace(access).to_owned();
                return Err(ListError::Forbidden { message, namespace });
            }
            Err(error) => return Err(error.into()),
        };
        let slices = list.items.unwrap_or_default().into_iter();
        let slices = slices.map(|slice| (slice.metadata.name.clone(), slice)).collect();
        let known = Known { version: list.metadata.resource_version, slices };
        self.tell(&known);
        Ok(known)
    }

    /// Watches from the known version until the server ends the watch.
    async fn watch(&self, access: &Access, known: &mut Known) -> Result<(), WatchError> {
        let seconds = WATCH_TIMEOUT.as_secs();
        let version = &known.version;
        let query = format!(
            "&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}"
        );
        let path = self.path(access, &query);
        let mut lines = access.api.stream(Method::GET, &path, Vec::new()).await?;
        // A server that hangs does not end the watch itself.
        let limit = WATCH_TIMEOUT + ANSWER_TIMEOUT;
        loop {
            let event = timeout(limit, lines.next()).await.map_err(|_| ApiError::Slow(limit))??;
            let Some(event) = event else { return Ok(()) };
            if known.apply(event)? {
                self.tell(known);
            }
        }
    }

    fn tell(&self, known: &Known) {
        match slices::members(known.slices.values(), self.source.port.as_ref()) {
            Ok(members) if members.is_empty() => {
                self.report
                    .failed(format!("service {} has no ready endpoint", self.source.service));
            }
            Ok(members) => self.report.members(members),
            Err(error) => self.report.failed(format!("service {}: {error}", self.source.service)),
        }
    }

    fn path(&self, access: &Access, query: &str) -> String {
        let (namespace, service) = (self.namespace(access), &self.source.service);
        format!(
            "{}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io%2Fservice-name%3D{service}{query}",
            access.base_path
        )
    }

    fn namespace<'a>(&'a self, access: &'a Access) -> &'a str {
        self.source.namespace.as_deref().unwrap_or(&access.namespace)
    }
}

/// One line of a watch.
#[derive(Deserialize)]
struct Event {
    r#type: Kind,
    object: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    /// Only the version has changed.
    Bookmark,
    /// The object is a status.
    Error,
}

impl Known {
    /// Whether slices have changed.
    fn apply(&mut self, event: Event) -> Result<bool, WatchError> {
        #[derive(Deserialize)]
        struct Bookmark {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            message: String,
        }
        match event.r#type {
            Kind::Added | Kind::Modified => {
                let slice: Slice = object(event.object)?;
                self.version.clone_from(&slice.metadata.resource_version);
                self.slices.insert(slice.metadata.name.clone(), slice);
                Ok(true)
            }
            Kind::Deleted => {
                let slice: Slice = object(event.object)?;
                self.version = slice.metadata.resource_version;
                Ok(self.slices.remove(&slice.metadata.name).is_some())
            }
            Kind::Bookmark => {
                let Bookmark { metadata } = object(event.object)?;
                self.version = metadata.resource_version;
                Ok(false)
            }
            Kind::Error => {
                let Status { message } = object(event.object)?;
                Err(WatchError::Ended(message))
            }
        }
    }
}

fn object<O: DeserializeOwned>(value: Value) -> Result<O, ApiError> {
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(known: &mut Known, line: &str) -> Result<bool, String> {
        known.apply(serde_json::from_str(line).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn watch_goes_on_from_the_version_of_its_last_line() {
        let mut known = Known { version: "1".to_owned(), slices: BTreeMap::new() };
        let slice = r#"{"kind":"EndpointSlice","metadata":{"name":"web-1","resourceVersion":"7"},
            "addressType":"IPv4","endpoints":null,"ports":null}"#;
        let added = format!(r#"{{"type":"ADDED","object":{slice}}}"#);
        assert_eq!(apply(&mut known, &added), Ok(true));
        assert_eq!((known.version.as_str(), known.slices.len()), ("7", 1));
        let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"EndpointSlice",
            "metadata":{"resourceVersion":"12","creationTimestamp":null},"endpoints":null,"ports":null}}"#;
        assert_eq!(apply(&mut known, bookmark), Ok(false));
        assert_eq!((known.version.as_str(), known.slices.len()), ("12", 1));
        let deleted = added.replace("ADDED", "DELETED").replace("\"7\"", "\"13\"");
        assert_eq!(apply(&mut known, &deleted), Ok(true));
        assert_eq!((known.version.as_str(), known.slices.len()), ("13", 0));
    }

    #[test]
    fn version_that_is_too_old_ends_the_watch() {
        let mut known = Known { version: "1".to_owned(), slices: BTreeMap::new() };
        // As kube-apiserver 1.34 writes it.
        let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},
            "status":"Failure","message":"too old resource version: 1 (3)","reason":"Expired","code":410}}"#;
        let expected = "the server ended the watch: too old resource version: 1 (3)";
        assert_eq!(apply(&mut known, line), Err(expected.to_owned()));
    }
}
