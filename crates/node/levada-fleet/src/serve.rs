//! The node that keeps the state answers the questions of the others, if their tokens allow them.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::Semaphore, time::timeout};
use tokio_rustls::TlsAcceptor;

use crate::{
    access::{Refusal, judge_unbound, may_ask},
    file_store::{FileStore, OpenError, replace_file},
    model::{TokenRecord, keys},
    node_store::PATH,
    pinned::{Identity, IdentityError},
    state::unix_time,
    store::{Question, Reply, Store, StoreError},
};

/// A state that this machine keeps: where its files are, and where it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The address for the other nodes.
    pub listen: SocketAddr,
}

/// Why a state is not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Its file cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its settings cannot be used.
    #[error("{}: {why}", .path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The mistake.
        why: io::Error,
    },
    /// Its address cannot be listened on.
    #[error("the state cannot be served at {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        why: io::Error,
    },
}

/// The connections at a time: each node holds two, one of which waits for changes.
const CONNECTIONS: usize = 4096;
/// The longest question: a few parts of files.
const LONGEST: usize = 16 << 20;
/// The time for a handshake, and for the rest of a question.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may wait for a further question.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The wait before an address is tried again that a former process of this node still has.
const BIND_BACKOFF: Duration = Duration::from_millis(200);

/// The directory of the state within that of a node.
pub fn state_directory(node: &Path) -> PathBuf {
    node.join("state")
}

/// The settings of the state in a node's directory, if that node keeps it.
///
/// # Errors
/// If they cannot be read.
pub fn kept(node: &Path) -> Result<Option<Kept>, KeepError> {
    let path = state_directory(node).join("listen.json");
    let read = std::fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?));
    match read {
        Ok(kept) => Ok(Some(kept)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(KeepError::Settings { path, why }),
    }
}

/// Creates the files of a state; its store, and the digest of its certificate.
///
/// # Errors
/// If they cannot be written.
pub fn create(node: &Path, kept: &Kept) -> Result<(FileStore, String), KeepError> {
    let directory = state_directory(node);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |why| KeepError::Settings { path, why }
    };
    std::fs::create_dir_all(&directory).map_err(failed(&directory))?;
    let identity = Identity::new()?;
    identity.write(&directory.join("certificate.json"))?;
    let store = FileStore::open(&directory.join("state.json"))?;
    // It comes last: a directory with it is complete.
    let path = directory.join("listen.json");
    let text = serde_json::to_vec(kept).map_err(io::Error::from).map_err(failed(&path))?;
    replace_file(&path, &text).map_err(failed(&path))?;
    Ok((store, identity.digest()))
}

/// Keeps the state of a node's directory until the future is dropped. Waits while a former process of the node still
/// has it.
///
/// # Errors
/// If the files or the address cannot be used.
pub async fn keep(node: &Path, kept: &Kept) -> Result<Infallible, KeepError> {
    let directory = state_directory(node);
    let server = Identity::read(&directory.join("certificate.json"))?.server()?;
    let store = loop {
        match FileStore::open(&directory.join("state.json")) {
            Err(OpenError::Taken(_)) => tokio::time::sleep(BIND_BACKOFF).await,
            opened => break Arc::new(opened?),
        }
    };
    let address = kept.listen;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|why| KeepError::Listen { address, why })?;
    tracing::info!(%address, "keeps the state of the fleet");
    let (acceptor, places) = (TlsAcceptor::from(server), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            tokio::time::sleep(BIND_BACKOFF).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (acceptor, store) = (acceptor.clone(), store.clone());
        tokio::spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            let Ok(Ok(stream)) = timeout(QUESTION_TIMEOUT, acceptor.accept(stream)).await else {
                return tracing::debug!(%client, "no handshake at the state");
            };
            let service = service_fn(|request| {
                let store = store.clone();
                async move { Ok::<_, Infallible>(respond(&store, request).await) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = served.await {
                tracing::debug!(%client, %error, "a connection at the state");
            }
        });
    }
}

async fn respond(store: &FileStore, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::POST || request.uri().path() != PATH {
        return text(StatusCode::NOT_FOUND, "the state of a fleet: see levada fleet --help");
    }
    let bearer = request.headers().get(header::AUTHORIZATION).and_then(|field| field.to_str().ok());
    let bearer = bearer.and_then(|field| field.strip_prefix("Bearer ")?.split_once(':'));
    let Some((id, secret)) = bearer.map(|(id, secret)| (id.to_owned(), secret.to_owned())) else {
        return text(StatusCode::UNAUTHORIZED, "the state of a fleet needs a token");
    };
    // Strangers are refused before their question is read.
    let role = match known(store, &id, &secret).await {
        Ok(role) => role,
        Err(refusal) => return text(StatusCode::UNAUTHORIZED, &refusal.to_string()),
    };
    let body = timeout(QUESTION_TIMEOUT, Limited::new(request.into_body(), LONGEST).collect());
    let Ok(Ok(body)) = body.await else {
        return text(StatusCode::BAD_REQUEST, "the question is too long, or did not come in time");
    };
    let question: Question = match serde_json::from_slice(&body.to_bytes()) {
        Ok(question) => question,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("no question: {error}")),
    };
    if let Err(refusal) = may_ask(&id, role, &question) {
        return text(StatusCode::FORBIDDEN, &refusal.to_string());
    }
    match store.ask(question).await {
        Ok(reply) => match serde_json::to_vec(&reply) {
            Ok(body) => Response::new(Full::from(body)),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn known(
    store: &FileStore,
    id: &str,
    secret: &str,
) -> Result<crate::model::Role, TokenError> {
    let reply = store.ask(Question::Get(format!("{}{id}", keys::TOKENS))).await?;
    let Reply::Entries(found) = reply else { return Err(Refusal::Unknown(id.to_owned()).into()) };
    let record = found.entries.first();
    let record: Option<TokenRecord> =
        record.and_then(|entry| serde_json::from_slice(&entry.value.0).ok());
    Ok(judge_unbound(id, secret, record.as_ref(), unix_time())?)
}

#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn text(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(message.to_owned()));
    *response.status_mut() = status;
    response
}
