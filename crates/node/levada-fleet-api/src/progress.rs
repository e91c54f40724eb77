//! The steps of an order as lines of JSON, while it goes on.

use std::{convert::Infallible, time::Instant};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use levada_fleet::{
    Directory,
    apply::{Applied, ApplyError, Plan, Progress, apply},
    state::State,
};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::answer::{Body, Refused};

/// A line.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Line {
    /// Since the order began.
    pub(crate) seconds: f64,
    /// The step or the outcome in words.
    pub(crate) words: String,
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Applied>,
    /// Why it was not carried to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

enum Step {
    Progress(Progress),
    End(Result<Applied, ApplyError>),
}

/// Applies a directory that was checked. The answer comes with the first step; an order that is refused before is an
/// error. When the client goes, the order ends as a command that is cut: nodes go back to the head.
pub(crate) async fn bring(
    state: State,
    directory: Directory,
    plan: Plan,
) -> Result<Response<Body>, Refused> {
    let (steps, mut coming) = mpsc::unbounded_channel();
    let began = Instant::now();
    tokio::spawn(async move {
        let told = steps.clone();
        let mut said = move |progress| drop(told.send(Step::Progress(progress)));
        tokio::select! {
            outcome = apply(&state, &directory, &plan, &mut said) => {
                let _ = steps.send(Step::End(outcome));
            }
            () = steps.closed() => tracing::warn!("the client of an order has gone: it is not carried to its end"),
        }
    });
    let first = match coming.recv().await {
        Some(Step::End(Err(error))) => return Err(error.into()),
        Some(first) => first,
        None => return Err(ApplyError::LockLost.into()),
    };
    let lines = stream::unfold((Some(first), coming), move |(first, mut coming)| async move {
        let step = match first {
            Some(first) => first,
            None => coming.recv().await?,
        };
        Some((Ok::<_, Infallible>(Frame::data(line(step, began))), (None, coming)))
    });
    let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn line(step: Step, began: Instant) -> Bytes {
    let seconds = (began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
    let line = match step {
        Step::Progress(progress) => Line {
            seconds,
            words: progress.to_string(),
            progress: Some(progress),
            ..Line::default()
        },
        Step::End(Ok(applied)) => {
            Line { seconds, words: applied.to_string(), outcome: Some(applied), ..Line::default() }
        }
        Step::End(Err(error)) => {
            let (words, error) = (error.to_string(), Some(error.to_string()));
            Line { seconds, words, error, ..Line::default() }
        }
    };
    Bytes::from(serde_json::to_string(&line).unwrap_or_default() + "\n")
}
