//! The calls of etcd that a source and the state of a fleet need, by its JSON gateway.
//!
//! Keys, values and tokens are base64, numbers of 64 bits are texts, and fields with the value zero are absent,
//! as the mapping of protobuf to JSON has it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, Method, header};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::{
    Endpoint, EtcdSource,
    api::{Api, ApiError, IdleConnections, Lines},
};

/// A server of etcd.
pub struct Etcd {
    api: Api,
    is_outdated: bool,
}

/// The answers that are good enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// The keys that a majority agrees on. A server without a leader refuses at once, and ends its watches.
    Agreed,
    /// The keys that this server knows, which may be outdated.
    Known,
}

/// Keys with their values, and the revision of the whole at which they were read.
pub struct Listing {
    /// The revision of the whole.
    pub revision: i64,
    /// The keys.
    pub keys: Vec<KeyValue>,
}

/// A key with its value.
#[derive(Deserialize)]
pub struct KeyValue {
    /// The key.
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    /// Its value.
    #[serde(default, deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// The revision of its last change.
    #[serde(default, deserialize_with = "number")]
    pub mod_revision: i64,
}

/// Something that happened to a key.
pub enum Event {
    /// It was written.
    Put(KeyValue),
    /// It was removed, by a call or with its lease.
    Delete(Vec<u8>),
}

/// A change of a key in a transaction.
pub struct Change<'a> {
    /// The key.
    pub key: &'a str,
    /// Its value from then on; `None` removes the key.
    pub value: Option<&'a [u8]>,
    /// The lease that the key lives as long as; `None` for ever.
    pub lease: Option<&'a str>,
}

/// Events as they happen.
pub struct Watch {
    lines: Lines,
}

/// The failure of a watch.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The call failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// etcd ended the watch, in these words.
    #[error("etcd ended the watch: {0}")]
    Ended(String),
}

#[derive(Deserialize)]
struct Found {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    #[serde(deserialize_with = "number")]
    revision: i64,
}

impl Etcd {
    /// Prepares requests to a server, with a token if the source has a user.
    ///
    /// # Errors
    /// If a file of TLS cannot be used, or the server refuses the user.
    pub async fn new(
        source: &EtcdSource,
        endpoint: &Endpoint,
        quality: Quality,
    ) -> Result<Self, ApiError> {
        let tls = if endpoint.tls { Some(source.tls.config().await?) } else { None };
        let mut fields = HeaderMap::new();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let is_outdated = quality == Quality::Known;
        if !is_outdated {
            fields.insert("grpc-metadata-hasleader", HeaderValue::from_static("true"));
        }
        let mut api =
            Api { endpoint: endpoint.clone(), tls, server_name: None, fields, idle: None };
        if let Some(user) = &source.user {
            #[derive(Serialize)]
            struct Login<'a> {
                name: &'a str,
                password: &'a str,
            }
            #[derive(Deserialize)]
            struct Granted {
                token: String,
            }
            let login = Login { name: &user.name, password: &user.password };
            let Granted { token } = call(&api, "/v3/auth/authenticate", &login).await?;
            let token = HeaderValue::from_str(&token).map_err(std::io::Error::other)?;
            api.fields.insert(header::AUTHORIZATION, token);
        }
        Ok(Self { api, is_outdated })
    }

    /// The same server, to which connections are kept from one call to the next.
    #[must_use]
    pub fn keeping_connections(mut self) -> Self {
        self.api.idle = Some(IdleConnections::default());
        self
    }

    /// The seconds by which the clock of this machine was ahead of the server's at the last answer on a connection that
    /// is kept, one more or less.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.api.idle.as_ref()?.clock_ahead()
    }

    /// All keys with a prefix.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn list(&self, prefix: &str) -> Result<Listing, ApiError> {
        #[derive(Serialize)]
        struct Range {
            #[serde(flatten)]
            keys: Keys,
            serializable: bool,
        }
        let range = Range { keys: Keys::with(prefix), serializable: self.is_outdated };
        let Found { header, kvs } = call(&self.api, "/v3/kv/range", &range).await?;
        Ok(Listing { revision: header.revision, keys: kvs })
    }

    /// One key, if it is there.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn get(&self, key: &str) -> Result<Option<KeyValue>, ApiError> {
        Ok(self.listing_of(key).await?.keys.pop())
    }

    /// One key, if it is there, as a list with its revision.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn listing_of(&self, key: &str) -> Result<Listing, ApiError> {
        let key = serde_json::json!({ "key": BASE64_STANDARD.encode(key) });
        let Found { header, kvs } = call(&self.api, "/v3/kv/range", &key).await?;
        Ok(Listing { revision: header.revision, keys: kvs })
    }

    /// Watches all keys with a prefix from a revision on.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, ApiError> {
        #[derive(Serialize)]
        struct Request {
            create_request: Create,
        }
        #[derive(Serialize)]
        struct Create {
            #[serde(flatten)]
            keys: Keys,
            start_revision: String,
        }
        let create_request = Create { keys: Keys::with(prefix), start_revision: from.to_string() };
        let body = serde_json::to_vec(&Request { create_request })?;
        Ok(Watch { lines: self.api.stream(Method::POST, "/v3/watch", body).await? })
    }

    /// A new lease; its number.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn grant(&self, seconds: u64) -> Result<String, ApiError> {
        #[derive(Serialize)]
        struct Grant {
            #[serde(rename = "TTL")]
            ttl: String,
        }
        #[derive(Deserialize)]
        struct Granted {
            #[serde(rename = "ID")]
            id: String,
        }
        let grant = Grant { ttl: seconds.to_string() };
        Ok(call::<_, Granted>(&self.api, "/v3/lease/grant", &grant).await?.id)
    }

    /// Renews a lease; whether it still existed.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn keep_alive(&self, lease: &str) -> Result<bool, ApiError> {
        #[derive(Deserialize)]
        struct Kept {
            result: Left,
        }
        #[derive(Deserialize)]
        struct Left {
            #[serde(rename = "TTL", default, deserialize_with = "number")]
            ttl: i64,
        }
        let kept: Kept = call(&self.api, "/v3/lease/keepalive", &Lease { id: lease }).await?;
        Ok(kept.result.ttl > 0)
    }

    /// Ends a lease; its keys go with it.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn revoke(&self, lease: &str) -> Result<(), ApiError> {
        call(&self.api, "/v3/lease/revoke", &Lease { id: lease }).await.map(|Ignored {}| ())
    }

    /// Writes a key that lives as long as a lease, unless the key has changed since `before`, which is its last
    /// revision, or 0 if there was none. Whether the key was written.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn put(
        &self,
        key: &str,
        value: &[u8],
        lease: &str,
        before: i64,
    ) -> Result<bool, ApiError> {
        let change = Change { key, value: Some(value), lease: Some(lease) };
        self.transact(&[(key, before)], &[change]).await
    }

    /// Changes all these keys at once, unless one of the keys in `unchanged` has another last revision than is given
    /// there, which is 0 for a key that does not exist. Whether they were changed.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn transact(
        &self,
        unchanged: &[(&str, i64)],
        changes: &[Change<'_>],
    ) -> Result<bool, ApiError> {
        let compare = unchanged.iter().map(|(key, before)| {
            serde_json::json!({
                "key": BASE64_STANDARD.encode(key), "target": "MOD", "result": "EQUAL",
                "mod_revision": before.to_string(),
            })
        });
        let success = changes.iter().map(|change| {
            let key = BASE64_STANDARD.encode(change.key);
            let Some(value) = change.value else {
                return serde_json::json!({ "request_delete_range": { "key": key } });
            };
            let (value, lease) = (BASE64_STANDARD.encode(value), change.lease.unwrap_or("0"));
            serde_json::json!({ "request_put": { "key": key, "value": value, "lease": lease } })
        });
        let transaction = serde_json::json!({
            "compare": compare.collect::<Vec<_>>(), "success": success.collect::<Vec<_>>(),
        });
        #[derive(Deserialize)]
        struct Done {
            #[serde(default)]
            succeeded: bool,
        }
        Ok(call::<_, Done>(&self.api, "/v3/kv/txn", &transaction).await?.succeeded)
    }
}

impl Watch {
    /// The next events.
    ///
    /// # Errors
    /// If the watch has ended.
    pub async fn next(&mut self) -> Result<Vec<Event>, WatchError> {
        match self.lines.next::<Line>().await? {
            Some(line) => line.events(),
            None => Err(WatchError::Ended("the stream is over".to_owned())),
        }
    }
}

/// One line of a watch.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Result(News),
    Error(Failure),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct News {
    events: Vec<RawEvent>,
    canceled: bool,
    #[serde(deserialize_with = "number")]
    compact_revision: i64,
    cancel_reason: String,
}

#[derive(Deserialize)]
struct RawEvent {
    #[serde(default)]
    r#type: EventType,
    kv: KeyValue,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventType {
    #[default]
    Put,
    Delete,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    message: String,
}

impl Line {
    fn events(self) -> Result<Vec<Event>, WatchError> {
        let news = match self {
            Self::Result(news) => news,
            Self::Error(failure) => return Err(WatchError::Ended(failure.message)),
        };
        if news.canceled {
            let reason = match news.compact_revision {
                0 => news.cancel_reason,
                oldest => format!("revisions before {oldest} are compacted"),
            };
            return Err(WatchError::Ended(reason));
        }
        let events = news.events.into_iter().map(|event| match event.r#type {
            EventType::Put => Event::Put(event.kv),
            EventType::Delete => Event::Delete(event.kv.key),
        });
        Ok(events.collect())
    }
}

#[derive(Serialize)]
struct Keys {
    key: String,
    range_end: String,
}

impl Keys {
    /// The keys with a prefix: they end before the prefix whose last byte is greater by one.
    fn with(prefix: &str) -> Self {
        let mut end = prefix.as_bytes().to_vec();
        // The last byte of a text is never 255.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self { key: BASE64_STANDARD.encode(prefix), range_end: BASE64_STANDARD.encode(end) }
    }
}

#[derive(Serialize)]
struct Lease<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
}

/// An answer of which nothing matters.
#[derive(Deserialize)]
struct Ignored {}

async fn call<Q: Serialize, A: DeserializeOwned>(
    api: &Api,
    path: &str,
    question: &Q,
) -> Result<A, ApiError> {
    api.ask(Method::POST, path, serde_json::to_vec(question)?).await
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(from)?;
    BASE64_STANDARD.decode(&*text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(line: &str) -> String {
        let line: Line = serde_json::from_str(line).unwrap();
        line.events().err().map(|error| error.to_string()).unwrap_or_default()
    }

    // The lines are those of etcd 3.4.

    #[test]
    fn events_are_read_with_their_absent_fields() {
        let line = r#"{"result":{"header":{"cluster_id":"17300438976491492131","revision":"3"},"events":[
            {"kv":{"key":"L20vYQ==","create_revision":"2","mod_revision":"2","version":"1",
                "value":"MS4yLjMuNDo4MA==","lease":"4111120184323810823"}},
            {"type":"DELETE","kv":{"key":"L20vYQ==","mod_revision":"3"}}]}}"#;
        let line: Line = serde_json::from_str(line).unwrap();
        let events = line.events().unwrap();
        let [Event::Put(put), Event::Delete(key)] = &events[..] else { panic!("two events") };
        assert_eq!(
            (&*put.key, &*put.value, put.mod_revision),
            (&b"/m/a"[..], &b"1.2.3.4:80"[..], 2)
        );
        assert_eq!(key, b"/m/a");
    }

    #[test]
    fn compaction_and_a_lost_leader_end_a_watch() {
        let created = r#"{"result":{"header":{"revision":"3"},"created":true}}"#;
        assert_eq!(ended(created), "");
        let compacted =
            r#"{"result":{"header":{"raft_term":"2"},"canceled":true,"compact_revision":"3"}}"#;
        assert_eq!(ended(compacted), "etcd ended the watch: revisions before 3 are compacted");
        let leader =
            r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#;
        assert_eq!(ended(leader), "etcd ended the watch: etcdserver: no leader");
    }

    #[test]
    fn keys_with_a_prefix_end_before_the_next_prefix() {
        let keys = Keys::with("/web/");
        assert_eq!(BASE64_STANDARD.decode(keys.key).unwrap(), b"/web/");
        assert_eq!(BASE64_STANDARD.decode(keys.range_end).unwrap(), b"/web0");
    }
}
