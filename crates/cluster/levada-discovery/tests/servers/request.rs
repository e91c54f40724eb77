//! Requests of the tests themselves to etcd and to the API server.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use levada_discovery::Endpoint;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::certificates::Certificates;

/// Sends JSON, by TLS with the client's certificate if there are certificates; status and JSON of the answer.
pub(crate) async fn send(
    endpoint: &Endpoint,
    certificates: Option<&Certificates>,
    request: http::request::Builder,
    body: &Value,
) -> Result<(StatusCode, Value), String> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.header("host", "server").header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let Some(certificates) = certificates else { return exchange(stream, request).await };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.path("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_file(certificates.path("client.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificates.path("client.key")).unwrap();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let name = ServerName::try_from(endpoint.host.to_string()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    exchange(stream.map_err(|error| error.to_string())?, request).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Value), String> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let value = serde_json::Deserializer::from_slice(&body).into_iter::<Value>().next();
    let value = match value {
        Some(Ok(value)) => value,
        _ => String::from_utf8_lossy(&body).into_owned().into(),
    };
    Ok((status, value))
}
