//! Connections and their requests. A request is known by its token before its body is read.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use levada_fleet::{
    Caller, CallerError, StartError, Token, model::Role, state::State, store::StoreError,
};
use percent_encoding::percent_decode_str;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    answer::{Body, Refused, json},
    openapi::description,
    orders::Asked,
    request::{Parameters, bearer, body},
    routes::{Content, Route, find},
};

/// The API of a fleet.
pub struct Server {
    pub(crate) token: Token,
    pub(crate) state: State,
    pub(crate) start_error: StartError<'static>,
}

/// A certificate with its key, for TLS.
#[derive(Clone)]
pub struct Certificate(Arc<ServerConfig>);

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file cannot be used.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The mistake.
        why: String,
    },
    /// TLS refuses the certificate.
    #[error("TLS refuses the certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// It cannot be listened at the address.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// The connections at a time.
const CONNECTIONS: usize = 64;
/// The time for a handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait after an accept that has failed.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

impl Certificate {
    /// Reads a chain of certificates and its key, both in PEM.
    ///
    /// # Errors
    /// If a file cannot be read, or the key is not that of the certificate.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, ServeError> {
        let wrong = |path: &Path, why: &dyn std::fmt::Display| ServeError::File {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let certificates = CertificateDer::pem_file_iter(chain)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(chain, &error))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        Ok(Self(Arc::new(config)))
    }
}

impl Server {
    /// The API of the fleet of a token. Tokens that are bound to sites are known only if it is that of an
    /// administrator. `start_error` says why a node could not start by settings.
    ///
    /// # Errors
    /// If the token cannot be used as one.
    pub fn new(token: Token, start_error: StartError<'static>) -> Result<Self, StoreError> {
        let state = State::open(&token)?;
        Ok(Self { token, state, start_error })
    }

    /// Serves at an address until the future is dropped; `listening` gets the address.
    ///
    /// # Errors
    /// If it cannot be listened there.
    pub async fn serve(
        self,
        address: SocketAddr,
        certificate: Option<Certificate>,
        listening: impl FnOnce(SocketAddr),
    ) -> Result<Infallible, ServeError> {
        let failed = |error| ServeError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        listening(listener.local_addr().map_err(failed)?);
        let (server, places) = (Arc::new(self), Arc::new(Semaphore::new(CONNECTIONS)));
        loop {
            let Ok((stream, client)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            };
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let (server, certificate) = (server.clone(), certificate.clone());
            tokio::spawn(async move {
                let _place = place;
                server.accept(stream, client.ip(), certificate).await;
            });
        }
    }

    async fn accept(
        self: Arc<Self>,
        stream: TcpStream,
        client: IpAddr,
        certificate: Option<Certificate>,
    ) {
        let _ = stream.set_nodelay(true);
        let Some(Certificate(config)) = certificate else {
            return self.converse(stream, client).await;
        };
        match timeout(HEAD_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream, client).await,
            _ => tracing::debug!(%client, "no handshake at the API"),
        }
    }

    async fn converse<S>(self: Arc<Self>, stream: S, client: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let server = self.clone();
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let answered = server.answer(request, client).await;
                let response = answered.unwrap_or_else(Refused::into_response);
                tracing::info!(%client, %method, path, status = response.status().as_u16(), "API");
                Ok::<_, Infallible>(response)
            }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = served.await {
            tracing::debug!(%client, %error, "a connection at the API");
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Result<Response<Body>, Refused> {
        let (parts, incoming) = request.into_parts();
        let (route, name) = match find(&parts.method, parts.uri.path()) {
            Ok(found) => found,
            Err(others) => return Ok(no_route(&others)),
        };
        let Some(role) = route.role else { return Ok(json(StatusCode::OK, &description())) };
        let caller = self.caller(bearer(&parts.headers)).await?;
        may_order(route, role, &caller)?;
        let parameters = Parameters::read(route, &parts)?;
        let name = percent_decode_str(&name).decode_utf8_lossy().into_owned();
        let body = match route.body {
            Content::None => Bytes::new(),
            _ => body(incoming).await?,
        };
        let asked = Asked { server: self, caller, client, parameters, name, body };
        asked.carry_out(route.order).await
    }

    async fn caller(&self, bearer: Option<&str>) -> Result<Caller, Refused> {
        let Some(token) = bearer else {
            let words = "the API needs a token of the fleet: Authorization: Bearer TOKEN";
            return Err(Refused::new(StatusCode::UNAUTHORIZED, words));
        };
        Caller::find(&self.token, &self.state, token).await.map_err(|error| match error {
            CallerError::Refused(why) => Refused::new(StatusCode::UNAUTHORIZED, why),
            CallerError::Store(error) => error.into(),
        })
    }
}

/// Whether the owner of a token may give the order of a route.
fn may_order(route: &Route, role: Role, caller: &Caller) -> Result<(), Refused> {
    let forbidden = |words: String| Err(Refused::new(StatusCode::FORBIDDEN, words));
    if !caller.role.includes(role) {
        return forbidden(format!(
            "a token with the role {} may not do this: use one with the role {}",
            caller.role.as_str(),
            role.as_str()
        ));
    }
    if !route.for_bound && !caller.sites.is_empty() {
        return forbidden("a token that is bound to sites may not do this".to_owned());
    }
    Ok(())
}

fn no_route(others: &[Method]) -> Response<Body> {
    if others.is_empty() {
        let words = "there is no such path: GET /openapi.json describes the API";
        return Refused::new(StatusCode::NOT_FOUND, words).into_response();
    }
    let allowed: Vec<_> = others.iter().map(Method::as_str).collect();
    let words = format!("this path takes {}", allowed.join(", "));
    let mut response = Refused::new(StatusCode::METHOD_NOT_ALLOWED, words).into_response();
    if let Ok(allowed) = HeaderValue::from_str(&allowed.join(", ")) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}
