//! Objects of one kind as the API server has them: a list first, then a watch from the list's version.
//!
//! The server ends a watch after a minute, and the next one goes on from the last version; whatever else ends it leads to
//! another list.

use std::{collections::BTreeMap, time::Duration};

use http::{Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;

use super::access::{Access, AccessError};
use crate::{
    ClusterAccess,
    api::{ANSWER_TIMEOUT, ApiError},
};

/// How long one watch lasts; the server ends it. The next one goes on from the last version.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// An object of Kubernetes.
pub trait Object: DeserializeOwned {
    /// Its name, namespace and version.
    fn metadata(&self) -> &Metadata;
}

/// The parts that every object has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for objects that are in none.
    pub namespace: String,
    /// Its version.
    pub resource_version: String,
    /// A number that grows with each change of its specification.
    pub generation: i64,
    /// When it was made, in RFC 3339; times in UTC have the order of their texts.
    pub creation_timestamp: Option<String>,
}

/// Objects by namespace and name.
pub type Objects<T> = BTreeMap<(String, String), T>;

/// A kind of objects, and which of them count.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its group and version as they begin a path, such as `apis/networking.k8s.io/v1` or `api/v1`.
    pub group: &'static str,
    /// Its name in paths, such as `ingresses`.
    pub plural: &'static str,
    /// The namespace; `None`: all of them.
    pub namespace: Option<String>,
    /// The arguments of the query that choose some of the objects, such as `fieldSelector=a%3Db`; empty: all count.
    pub chosen_by: String,
}

/// Follows all objects of a kind.
pub struct ObjectFollower<T> {
    resource: Resource,
    /// `None` if a watch cannot go on from where it ended.
    known: Option<Known<T>>,
}

struct Known<T> {
    version: String,
    objects: Objects<T>,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The API server cannot be asked.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// It does not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The account may not.
    #[error(
        "{message}; its role needs the verbs list and watch of {plural} in {}",
        namespace.as_ref().map_or("all namespaces".to_owned(), |name| format!("namespace {name}"))
    )]
    Forbidden {
        /// The server's words.
        message: String,
        /// The kind of objects.
        plural: &'static str,
        /// The namespace.
        namespace: Option<String>,
    },
    /// The server has no such kind.
    #[error("the API server has no {0}")]
    NoSuchKind(&'static str),
}

/// Why a watch cannot go on.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the server ended the watch: {0}")]
    Ended(String),
}

impl Resource {
    /// The path of the objects.
    fn path(&self) -> String {
        let Self { group, plural, .. } = self;
        match &self.namespace {
            Some(namespace) => format!("/{group}/namespaces/{namespace}/{plural}"),
            None => format!("/{group}/{plural}"),
        }
    }
}

impl<T: Object> ObjectFollower<T> {
    /// Nothing is known yet.
    pub fn new(resource: Resource) -> Self {
        Self { resource, known: None }
    }

    /// Lists, unless the last watch ended in order, and watches until the watch ends. Shows the objects whenever some
    /// have changed.
    ///
    /// # Errors
    /// If there is no list.
    pub async fn list_and_watch(
        &mut self,
        access: &ClusterAccess,
        mut show: impl FnMut(&Objects<T>),
    ) -> Result<(), ListError> {
        // Tokens and certificates are renewed, so they are read every time.
        let access = Access::open(access).await?;
        let mut known = match self.known.take() {
            Some(known) => known,
            None => {
                let known = self.list(&access).await?;
                show(&known.objects);
                known
            }
        };
        match self.watch(&access, &mut known, &mut show).await {
            Ok(()) => {
                show(&known.objects);
                self.known = Some(known);
            }
            // No failure of the source yet: it has failed when there is no list either.
            Err(error) => {
                tracing::debug!(kind = self.resource.plural, %error, "lists again");
            }
        }
        Ok(())
    }

    async fn list(&self, access: &Access) -> Result<Known<T>, ListError> {
        #[derive(Deserialize)]
        struct List<T> {
            metadata: Metadata,
            items: Option<Vec<T>>,
        }
        let plural = self.resource.plural;
        let list: List<T> = match access.ask(Method::GET, &self.path(""), Vec::new()).await {
            Ok(list) => list,
            Err(ApiError::Refused { status: StatusCode::FORBIDDEN, message }) => {
                let namespace = self.resource.namespace.clone();
                return Err(ListError::Forbidden { message, plural, namespace });
            }
            Err(ApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => {
                return Err(ListError::NoSuchKind(plural));
            }
            Err(error) => return Err(error.into()),
        };
        let objects = list.items.unwrap_or_default().into_iter();
        let objects = objects.map(|object| (key(object.metadata()), object)).collect();
        Ok(Known { version: list.metadata.resource_version, objects })
    }

    /// Watches from the known version until the server ends the watch.
    async fn watch(
        &self,
        access: &Access,
        known: &mut Known<T>,
        show: &mut impl FnMut(&Objects<T>),
    ) -> Result<(), WatchError> {
        let seconds = WATCH_TIMEOUT.as_secs();
        let version = &known.version;
        let path = self.path(&format!(
            "&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}"
        ));
        let mut lines = access.stream(&path).await?;
        // A server that hangs does not end the watch itself.
        let limit = WATCH_TIMEOUT + ANSWER_TIMEOUT;
        loop {
            let event = timeout(limit, lines.next()).await.map_err(|_| ApiError::Slow(limit))??;
            let Some(event) = event else { return Ok(()) };
            if known.apply(event)? {
                show(&known.objects);
            }
        }
    }

    fn path(&self, query: &str) -> String {
        format!("{}?{}{query}", self.resource.path(), self.resource.chosen_by)
    }
}

fn key(metadata: &Metadata) -> (String, String) {
    (metadata.namespace.clone(), metadata.name.clone())
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

impl<T: Object> Known<T> {
    /// Whether objects have changed.
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
                let object: T = read(event.object)?;
                self.version.clone_from(&object.metadata().resource_version);
                self.objects.insert(key(object.metadata()), object);
                Ok(true)
            }
            Kind::Deleted => {
                let object: T = read(event.object)?;
                self.version.clone_from(&object.metadata().resource_version);
                Ok(self.objects.remove(&key(object.metadata())).is_some())
            }
            Kind::Bookmark => {
                let Bookmark { metadata } = read(event.object)?;
                self.version = metadata.resource_version;
                Ok(false)
            }
            Kind::Error => {
                let Status { message } = read(event.object)?;
                Err(WatchError::Ended(message))
            }
        }
    }
}

fn read<O: DeserializeOwned>(value: Value) -> Result<O, ApiError> {
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Slice {
        metadata: Metadata,
    }

    impl Object for Slice {
        fn metadata(&self) -> &Metadata {
            &self.metadata
        }
    }

    fn apply(known: &mut Known<Slice>, line: &str) -> Result<bool, String> {
        known.apply(serde_json::from_str(line).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn watch_goes_on_from_the_version_of_its_last_line() {
        let mut known = Known { version: "1".to_owned(), objects: BTreeMap::new() };
        let slice = r#"{"kind":"EndpointSlice","metadata":{"name":"web-1","resourceVersion":"7"},
            "addressType":"IPv4","endpoints":null,"ports":null}"#;
        let added = format!(r#"{{"type":"ADDED","object":{slice}}}"#);
        assert_eq!(apply(&mut known, &added), Ok(true));
        assert_eq!((known.version.as_str(), known.objects.len()), ("7", 1));
        let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"EndpointSlice",
            "metadata":{"resourceVersion":"12","creationTimestamp":null},"endpoints":null,"ports":null}}"#;
        assert_eq!(apply(&mut known, bookmark), Ok(false));
        assert_eq!((known.version.as_str(), known.objects.len()), ("12", 1));
        let deleted = added.replace("ADDED", "DELETED").replace("\"7\"", "\"13\"");
        assert_eq!(apply(&mut known, &deleted), Ok(true));
        assert_eq!((known.version.as_str(), known.objects.len()), ("13", 0));
    }

    #[test]
    fn version_that_is_too_old_ends_the_watch() {
        let mut known = Known { version: "1".to_owned(), objects: BTreeMap::new() };
        // As kube-apiserver 1.34 writes it.
        let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},
            "status":"Failure","message":"too old resource version: 1 (3)","reason":"Expired","code":410}}"#;
        let expected = "the server ended the watch: too old resource version: 1 (3)";
        assert_eq!(apply(&mut known, line), Err(expected.to_owned()));
    }
}
