//! Service and Secret (v1).

use std::collections::BTreeMap;

use levada_discovery::Metadata;
use serde::Deserialize;

use super::ingress::Port;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    pub(crate) metadata: Metadata,
    spec: Spec,
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    r#type: String,
    ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ServicePort {
    name: Option<String>,
    port: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancer {
    pub(crate) ingress: Vec<Address>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Address {
    pub(crate) ip: Option<String>,
    pub(crate) hostname: Option<String>,
}

impl Service {
    /// The name that endpoints have for a port, which is empty if the service has one port without a name.
    pub(crate) fn port(&self, asked: &Port) -> Result<&str, String> {
        let Metadata { namespace, name, .. } = &self.metadata;
        if self.spec.r#type == "ExternalName" {
            return Err(format!("service {namespace}/{name} is of type ExternalName"));
        }
        let is_asked = |port: &&ServicePort| match (&asked.name, asked.number) {
            (Some(asked), _) => port.name.as_deref() == Some(asked),
            (None, number) => number == Some(port.port),
        };
        let found = self.spec.ports.iter().find(is_asked);
        let number = || asked.number.map(|number| number.to_string());
        let absent = || {
            let port = asked.name.clone().or_else(number).unwrap_or_else(|| "that".to_owned());
            format!("service {namespace}/{name} has no port {port}")
        };
        Ok(found.ok_or_else(absent)?.name.as_deref().unwrap_or_default())
    }
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Secret {
    pub(crate) metadata: Metadata,
    pub(crate) r#type: String,
    /// In base64.
    pub(crate) data: BTreeMap<String, String>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}
