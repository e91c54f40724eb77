//! The way to the API server: from within the cluster, or by a kubeconfig file.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use http::{HeaderMap, HeaderValue, Method, Uri, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::kubeconfig;
use crate::{
    ClusterAccess, Endpoint,
    api::{Api, ApiError, Lines},
    tls::{ClientPem, Pem, TlsError},
};

/// Everything that a request needs.
pub(super) struct Access {
    api: Api,
    /// The beginning of every path.
    base_path: String,
    /// The namespace of this pod or context.
    pub(super) namespace: String,
}

/// The contents of a cluster's files.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) server: String,
    pub(super) server_name: Option<String>,
    pub(super) pem: ClientPem,
    pub(super) token: Option<String>,
    pub(super) namespace: Option<String>,
}

/// Why the API server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file cannot be read.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        why: io::Error,
    },
    /// There is no service account.
    #[error(
        "this process is in no pod: KUBERNETES_SERVICE_HOST is not set; name a file with `kubeconfig`"
    )]
    NoPod,
    /// A kubeconfig file cannot be used.
    #[error("{path}: {why}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The address of the server cannot be used.
    #[error("the API server's address {0:?} is no URL with http or https and a host")]
    Server(String),
    /// The token cannot be used.
    #[error("the token has characters that no header field may have")]
    Token,
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Where a pod finds the credentials of its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Access {
    /// Reads the files every time: tokens and certificates change.
    pub(super) async fn open(access: &ClusterAccess) -> Result<Self, AccessError> {
        let credentials = match access {
            ClusterAccess::Pod => {
                let variable = |name| env::var(name).map_err(|_| AccessError::NoPod);
                let host = variable("KUBERNETES_SERVICE_HOST")?;
                let port = variable("KUBERNETES_SERVICE_PORT")?;
                in_pod(&host, &port, Path::new(SERVICE_ACCOUNT)).await?
            }
            ClusterAccess::Kubeconfig { path, context } => {
                kubeconfig::read(path, context.as_deref()).await.map_err(|why| {
                    AccessError::Kubeconfig {
                        path: path.display().to_string(),
                        why: why.to_string(),
                    }
                })?
            }
        };
        credentials.access()
    }

    /// Sends a request, and reads its answer.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<A, ApiError> {
        self.api.ask(method, &format!("{}{path}", self.base_path), body).await
    }

    /// Changes a part of an object by a merge patch (RFC 7396).
    pub(super) async fn patch(&self, path: &str, change: &Value) -> Result<(), ApiError> {
        let _: IgnoredAny = self.ask(Method::PATCH, path, serde_json::to_vec(change)?).await?;
        Ok(())
    }

    /// Asks for news, which come as lines.
    pub(super) async fn stream(&self, path: &str) -> Result<Lines, ApiError> {
        let path = format!("{}{path}", self.base_path);
        self.api.stream(Method::GET, &path, Vec::new()).await
    }
}

async fn in_pod(host: &str, port: &str, directory: &Path) -> Result<Credentials, AccessError> {
    let read = async |name: &str| {
        let path: PathBuf = directory.join(name);
        let content = tokio::fs::read_to_string(&path).await;
        content.map_err(|why| AccessError::File { path: path.display().to_string(), why })
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let authority = Some(Pem::read(&directory.join("ca.crt")).await?);
    Ok(Credentials {
        server: format!("https://{host}:{port}"),
        server_name: None,
        pem: ClientPem { authority, identity: None },
        token: Some(read("token").await?),
        namespace: Some(read("namespace").await?),
    })
}

impl Credentials {
    fn access(self) -> Result<Access, AccessError> {
        let wrong = || AccessError::Server(self.server.clone());
        let uri: Uri = self.server.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).into();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let mut fields = HeaderMap::new();
        // The only bodies are those of changes.
        let merge = HeaderValue::from_static("application/merge-patch+json");
        fields.insert(header::CONTENT_TYPE, merge);
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
                .map_err(|_| AccessError::Token)?;
            value.set_sensitive(true);
            fields.insert(header::AUTHORIZATION, value);
        }
        let namespace = self.namespace.as_deref().unwrap_or_default().trim();
        Ok(Access {
            base_path: uri.path().trim_end_matches('/').to_owned(),
            namespace: if namespace.is_empty() { "default" } else { namespace }.to_owned(),
            api: Api {
                endpoint: Endpoint { tls, host, port },
                tls: if tls { Some(self.pem.config()?) } else { None },
                server_name: self.server_name,
                fields,
                idle: None,
            },
        })
    }
}
