//! The messages of OTLP, with the names and numbers of opentelemetry-proto 1.x: what all three signals share.
//! docs/decisions/0024 says why they are not those of the crate opentelemetry-proto.

pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod spans;

use prost::{Message, Oneof};

/// `resource/v1/resource.proto`: who sends.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// The body of a request to `/v1/traces`, `/v1/metrics` or `/v1/logs`, and the answer of a collector: the names of
/// their fields differ by signal, their numbers do not.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct ExportRequest<T: Message + Default> {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resources: Vec<OfResource<T>>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct OfResource<T: Message + Default> {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scopes: Vec<OfScope<T>>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct OfScope<T: Message + Default> {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) items: Vec<T>,
}

impl<T: Message + Default> ExportRequest<T> {
    pub(crate) fn new(resource: Resource, items: Vec<T>) -> Self {
        let (name, version) = ("levada".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let scope = Some(InstrumentationScope { name, version });
        let (resource, scopes) = (Some(resource), vec![OfScope { scope, items }]);
        Self { resources: vec![OfResource { resource, scopes }] }
    }
}

/// `common/v1/common.proto`: the part of a program that made the data.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    pub(crate) value: Option<Value>,
}

/// The kinds of values that Levada's attributes have.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// Yes or no.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// A whole number.
    #[prost(int64, tag = "3")]
    Number(i64),
    /// Any other number.
    #[prost(double, tag = "4")]
    Double(f64),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// An attribute.
pub(crate) fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
}

/// The answer of a collector.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}
