//! kubeconfig files: a cluster, and a user with a token or a certificate.

use std::{
    io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::access::Credentials;
use crate::tls::{ClientPem, Pem, TlsError};

/// Why a kubeconfig file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeconfigError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it is no YAML: {0}")]
    Yaml(#[from] yaml_rust2::ScanError),
    #[error("it is no kubeconfig: {0}")]
    Form(#[from] serde_json::Error),
    #[error("it has no {kind} {name:?}")]
    Absent { kind: &'static str, name: String },
    #[error("it has no current context; choose one with `context`")]
    NoContext,
    #[error("{0} is not base64")]
    Base64(&'static str),
    #[error(
        "user {0:?} gets its credentials from a program; use the token of a service account, \
         or a client certificate"
    )]
    Program(String),
    #[error(
        "cluster {0:?} has insecure-skip-tls-verify, which is refused; add its certificate-authority"
    )]
    Insecure(String),
    #[error("{path}: {why}")]
    Token { path: String, why: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    contexts: Option<Vec<Named<Context>>>,
    clusters: Option<Vec<Named<Cluster>>>,
    users: Option<Vec<Named<User>>>,
}

/// An entry; the key of its content is its kind.
#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    content: T,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    // The one key that is not written with hyphens.
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
}

/// Reads the file, and what it refers to. Relative paths begin at its directory.
pub(super) async fn read(
    path: &Path,
    context: Option<&str>,
) -> Result<Credentials, KubeconfigError> {
    let text = tokio::fs::read_to_string(path).await?;
    let file: Kubeconfig = from_yaml(&text)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let context = context.unwrap_or(&file.current_context);
    if context.is_empty() {
        return Err(KubeconfigError::NoContext);
    }
    let context = find("context", context, file.contexts)?;
    let cluster = find("cluster", &context.cluster, file.clusters)?;
    let user = find("user", &context.user, file.users)?;
    if user.exec.is_some() || user.auth_provider.is_some() {
        return Err(KubeconfigError::Program(context.user));
    }
    if cluster.insecure_skip_tls_verify {
        return Err(KubeconfigError::Insecure(context.cluster));
    }
    let authority = ("certificate-authority-data", cluster.certificate_authority_data);
    let authority = pem(directory, authority, cluster.certificate_authority).await?;
    let certificate = ("client-certificate-data", user.client_certificate_data);
    let certificate = pem(directory, certificate, user.client_certificate).await?;
    let key = pem(directory, ("client-key-data", user.client_key_data), user.client_key).await?;
    let token = match (user.token_file, user.token) {
        (Some(name), _) => {
            let path = directory.join(name);
            let read = tokio::fs::read_to_string(&path).await;
            let path = path.display().to_string();
            Some(read.map_err(|why| KubeconfigError::Token { path, why })?)
        }
        (None, token) => token,
    };
    Ok(Credentials {
        server: cluster.server,
        server_name: cluster.tls_server_name,
        pem: ClientPem { authority, identity: certificate.zip(key) },
        token,
        namespace: context.namespace,
    })
}

fn find<T>(
    kind: &'static str,
    name: &str,
    list: Option<Vec<Named<T>>>,
) -> Result<T, KubeconfigError> {
    let found = list.into_iter().flatten().find(|entry| entry.name == name);
    let absent = || KubeconfigError::Absent { kind, name: name.to_owned() };
    found.map(|entry| entry.content).ok_or_else(absent)
}

/// PEM text from the file itself, or else from another one.
async fn pem(
    directory: &Path,
    (key, data): (&'static str, Option<String>),
    file: Option<PathBuf>,
) -> Result<Option<Pem>, KubeconfigError> {
    match (data, file) {
        (Some(data), _) => {
            let text = BASE64_STANDARD.decode(data.trim());
            let text = text.map_err(|_| KubeconfigError::Base64(key))?;
            Ok(Some(Pem { text, place: key.to_owned() }))
        }
        (None, Some(file)) => Ok(Some(Pem::read(&directory.join(file)).await?)),
        (None, None) => Ok(None),
    }
}

fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<T, KubeconfigError> {
    let documents = YamlLoader::load_from_str(text)?;
    let value = documents.first().map_or(Value::Null, json);
    Ok(serde_json::from_value(value)?)
}

/// The same in JSON. Scalars of other types than the expected one are refused by the reader of the value.
fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::String(text) | Yaml::Real(text) => text.as_str().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(yes) => (*yes).into(),
        Yaml::Array(list) => list.iter().map(json).collect(),
        Yaml::Hash(map) => {
            let pairs = map.iter().filter_map(|(key, value)| Some((key.as_str()?, json(value))));
            pairs.map(|(key, value)| (key.to_owned(), value)).collect()
        }
        Yaml::Alias(_) | Yaml::Null | Yaml::BadValue => Value::Null,
    }
}
