//! The state at another node: each question is a request over TLS, on connections that are kept.

use std::{net::SocketAddr, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use levada_discovery::{Api, ApiError, Endpoint, IdleConnections};

use crate::{
    pinned,
    store::{Answer, Question, Store, StoreError},
};

/// The path of questions.
pub(crate) const PATH: &str = "/ask";
/// How long a reply may take beyond the wait that a question asks for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A state that a node keeps.
pub(crate) struct NodeStore {
    api: Api,
}

impl NodeStore {
    /// The state at `address`, whose certificate has this digest, for a token.
    ///
    /// # Errors
    /// If the token cannot be used as one.
    pub(crate) fn new(
        address: SocketAddr,
        certificate: &str,
        (id, secret): (&str, &str),
    ) -> Result<Self, StoreError> {
        let strange = |error: &dyn std::fmt::Display| StoreError::Strange(error.to_string());
        let bearer = HeaderValue::from_str(&format!("Bearer {id}:{secret}"));
        let mut fields = HeaderMap::new();
        fields.insert(header::AUTHORIZATION, bearer.map_err(|error| strange(&error))?);
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (host, port) = (address.ip().to_string().into(), address.port());
        Ok(Self {
            api: Api {
                endpoint: Endpoint { tls: true, host, port },
                tls: Some(pinned::client(certificate).map_err(|error| strange(&error))?),
                server_name: Some(pinned::NAME.to_owned()),
                fields,
                idle: Some(IdleConnections::default()),
            },
        })
    }
}

impl Store for NodeStore {
    fn clock_ahead(&self) -> Option<i64> {
        self.api.idle.as_ref()?.clock_ahead()
    }

    fn ask(&self, question: Question) -> Answer<'_> {
        Box::pin(async move {
            let body = serde_json::to_vec(&question);
            let body = body.map_err(|error| StoreError::Strange(error.to_string()))?;
            let patience = ANSWER_TIMEOUT + question.patience();
            let asked = self.api.ask_within(patience, Method::POST, PATH, body).await;
            asked.map_err(|error| match error {
                ApiError::Refused {
                    status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN,
                    message,
                } => StoreError::Refused(message),
                other => StoreError::Away(format!("{}: {other}", self.api.endpoint)),
            })
        })
    }
}
