//! The way to the API server: from within the cluster, or by a kubeconfig file.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use http::{HeaderMap, HeaderValue, Uri, header};

use super::kubeconfig::{self, KubeconfigError};
use crate::{
    ClusterAccess, Endpoint,
    api::Api,
    tls::{ClientPem, Pem, TlsError},
};

/// Everything that a request needs.
pub(super) struct Access {
    pub(super) api: Api,
    /// The beginning of every path.
    pub(super) base_path: String,
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
pub(super) enum AccessError {
    #[error("{path}: {why}")]
    File { path: String, why: io::Error },
    #[error(
        "this process is in no pod: KUBERNETES_SERVICE_HOST is not set; name a file with `kubeconfig`"
    )]
    NoPod,
    #[error("{path}: {why}")]
    Kubeconfig { path: String, why: KubeconfigError },
    #[error("the API server's address {0:?} is no URL with http or https and a host")]
    Server(String),
    #[error("the token has characters that no header field may have")]
    Token,
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
                    AccessError::Kubeconfig { path: path.display().to_string(), why }
                })?
            }
        };
        credentials.access()
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
