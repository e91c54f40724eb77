//! GatewayClass, Gateway and HTTPRoute (gateway.networking.k8s.io/v1).

use std::collections::BTreeMap;

use levada_discovery::Metadata;
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GatewayClass {
    pub(crate) metadata: Metadata,
    pub(crate) spec: ClassSpec,
    pub(crate) status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClassSpec {
    pub(crate) controller_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Gateway {
    pub(crate) metadata: Metadata,
    pub(crate) spec: GatewaySpec,
    pub(crate) status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GatewaySpec {
    pub(crate) gateway_class_name: String,
    pub(crate) listeners: Vec<Listener>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) hostname: Option<String>,
    pub(crate) port: u16,
    pub(crate) protocol: String,
    pub(crate) tls: Option<ListenerTls>,
    pub(crate) allowed_routes: AllowedRoutes,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListenerTls {
    pub(crate) mode: Option<String>,
    pub(crate) certificate_refs: Vec<Reference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AllowedRoutes {
    pub(crate) namespaces: AllowedNamespaces,
    /// Empty: every kind that fits the protocol.
    pub(crate) kinds: Vec<Reference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AllowedNamespaces {
    pub(crate) from: Option<String>,
}

/// A resource that another one names. What is left out has a default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reference {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) section_name: Option<String>,
    pub(crate) port: Option<u16>,
    /// Of a backend.
    pub(crate) weight: Option<u32>,
    /// Of a backend.
    pub(crate) filters: Vec<Value>,
}

impl Reference {
    /// Whether it is of this group and kind, which are also those that it has if it does not say.
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.group.as_deref().unwrap_or(group) == group
            && self.kind.as_deref().unwrap_or(kind) == kind
    }

    /// The namespace that it means from within another one.
    pub(crate) fn namespace<'a>(&'a self, own: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(own)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HttpRoute {
    pub(crate) metadata: Metadata,
    pub(crate) spec: RouteSpec,
    pub(crate) status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RouteSpec {
    pub(crate) parent_refs: Vec<Reference>,
    pub(crate) hostnames: Vec<String>,
    pub(crate) rules: Vec<RouteRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RouteRule {
    pub(crate) matches: Vec<RouteMatch>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) backend_refs: Vec<Reference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RouteMatch {
    pub(crate) path: Option<Matched>,
    pub(crate) headers: Vec<Matched>,
    pub(crate) query_params: Vec<Matched>,
    pub(crate) method: Option<String>,
    /// Conditions that this program does not know: leaving them out would let in more.
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

/// A value that is compared; `type` says how.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Matched {
    pub(crate) r#type: Option<String>,
    /// Of a header field or an argument.
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Filter {
    pub(crate) r#type: String,
    pub(crate) request_header_modifier: Option<Modifier>,
    pub(crate) response_header_modifier: Option<Modifier>,
    pub(crate) request_redirect: Option<Redirect>,
    pub(crate) url_rewrite: Option<Rewrite>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Modifier {
    pub(crate) set: Vec<Field>,
    pub(crate) add: Vec<Field>,
    pub(crate) remove: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Redirect {
    pub(crate) scheme: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<PathChange>,
    pub(crate) port: Option<u16>,
    pub(crate) status_code: Option<u16>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Rewrite {
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<PathChange>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PathChange {
    pub(crate) r#type: String,
    pub(crate) replace_full_path: Option<String>,
    pub(crate) replace_prefix_match: Option<String>,
}
