//! Answers: JSON, and errors that say what to do.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use levada_fleet::{FleetCheck, FleetProblem, apply::ApplyError, store::StoreError};
use schemars::JsonSchema;
use serde::Serialize;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A problem.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// The mistake, with the remedy.
    pub(crate) error: String,
    /// The file of the directory that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// Its line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    /// Its column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<usize>,
    /// Whether the directory can be used in spite of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) warning: bool,
    /// The nodes that have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<String>,
}

/// A directory that cannot be used.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Problems {
    /// In a sentence.
    pub(crate) error: String,
    /// Each problem once.
    pub(crate) problems: Vec<Problem>,
    /// The parts that are left out on purpose, in words.
    pub(crate) notes: Vec<String>,
}

/// An order that is not carried out.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) words: String,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self { status, words: words.into() }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let Self { status, words } = self;
        let mut response = json(status, &Problem { error: words, ..Problem::default() });
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::Absent(_) => StatusCode::NOT_FOUND,
            StoreError::Refused(_) => StatusCode::CONFLICT,
            StoreError::Away(_) => StatusCode::SERVICE_UNAVAILABLE,
            StoreError::Disk(_) | StoreError::Strange(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ApplyError> for Refused {
    fn from(error: ApplyError) -> Self {
        let status = match error {
            ApplyError::Store(error) => return error.into(),
            ApplyError::Locked(_) => StatusCode::CONFLICT,
            ApplyError::Moved => StatusCode::PRECONDITION_FAILED,
            ApplyError::LockLost => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<&FleetProblem> for Problem {
    fn from(problem: &FleetProblem) -> Self {
        let FleetProblem { problem: error, file, line, column, is_warning, nodes } =
            problem.clone();
        Self { error, file: Some(file), line, column, warning: is_warning, nodes }
    }
}

/// The problems of a check, in the form of an answer.
pub(crate) fn problems(found: &FleetCheck) -> Vec<Problem> {
    found.problems.iter().map(Problem::from).collect()
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The same, with the head that it was made of.
pub(crate) fn versioned(mut response: Response<Body>, version: &str) -> Response<Body> {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}
