//! Ingress (networking.k8s.io/v1).

use levada_discovery::Metadata;
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ingress {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    pub(crate) status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    pub(crate) ingress_class_name: Option<String>,
    pub(crate) default_backend: Option<Backend>,
    pub(crate) tls: Vec<Tls>,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Tls {
    pub(crate) secret_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Rule {
    pub(crate) host: Option<String>,
    pub(crate) http: Option<Http>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Http {
    pub(crate) paths: Vec<Path>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Path {
    pub(crate) path: Option<String>,
    pub(crate) path_type: String,
    pub(crate) backend: Backend,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Backend {
    /// Otherwise the backend is a resource of another kind.
    pub(crate) service: Option<ServiceBackend>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceBackend {
    pub(crate) name: String,
    pub(crate) port: Port,
}

/// A port of the service, by its name or its number.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(crate) name: Option<String>,
    pub(crate) number: Option<u16>,
}
