//! The answers to purge orders, and the reading of orders.

use std::{io, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::purge::{OrderError, PurgeReport};

/// How long an order may take to arrive.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";

/// The answer to an order. The listener chooses the type of its body.
pub struct PurgeAnswer {
    status: StatusCode,
    field: Option<(HeaderName, HeaderValue)>,
    kind: &'static str,
    text: String,
}

/// Reads an order, or a message of a peer, of `most` bytes at most.
///
/// # Errors
/// With the answer when it is longer, or does not arrive in time.
pub async fn read_order<B>(body: B, most: usize) -> Result<Bytes, PurgeAnswer>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match tokio::time::timeout(RECEIVE_TIMEOUT, Limited::new(body, most).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let text = format!("an order has {most} bytes at most: divide it\n");
            Err(PurgeAnswer::text(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Ok(Err(_)) => Err(PurgeAnswer::text(StatusCode::BAD_REQUEST, "the order broke off\n")),
        Err(_) => Err(PurgeAnswer::text(StatusCode::REQUEST_TIMEOUT, "the order did not arrive\n")),
    }
}

impl PurgeAnswer {
    /// A text.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, field: None, kind: "text/plain; charset=utf-8", text: text.into() }
    }

    /// JSON.
    pub fn json(text: String) -> Self {
        Self { status: StatusCode::OK, field: None, kind: JSON, text }
    }

    /// The answer to a client that purges where this is off.
    pub fn off() -> Self {
        let text = "PURGE is off: there is no `token` in [purge]\n";
        let mut answer = Self::text(StatusCode::METHOD_NOT_ALLOWED, text);
        let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        answer.field = Some((ALLOW, methods));
        answer
    }

    /// The answer without the token.
    pub fn unauthorized() -> Self {
        let text = "purging needs the token: Authorization: Bearer TOKEN\n";
        let mut answer = Self::text(StatusCode::UNAUTHORIZED, text);
        answer.field = Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"purge\"")));
        answer
    }

    /// The answer to an order that goes beyond the hosts of its token.
    pub fn forbidden(hosts: &[String]) -> Self {
        let text = format!("this token purges {} only; name one as `site`\n", hosts.join(", "));
        Self::text(StatusCode::FORBIDDEN, text)
    }

    /// The answer of the process that carries out orders in place of this one.
    pub fn passed_on(answer: io::Result<(StatusCode, String)>) -> Self {
        match answer {
            Ok((status, text)) => Self { status, field: None, kind: JSON, text },
            Err(error) => {
                let text = format!("the process that replaces this one does not answer: {error}\n");
                Self::text(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }

    /// A report.
    pub fn report(report: &PurgeReport) -> Self {
        let status = if report.confirmed { StatusCode::OK } else { StatusCode::ACCEPTED };
        let text = serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
        Self { status, field: None, kind: JSON, text }
    }

    /// The answer to an order that cannot be carried out.
    pub fn order_error(error: &OrderError) -> Self {
        Self::text(error.status(), format!("{error}\n"))
    }

    /// Makes a response. `body` makes its body from the text.
    pub fn into_response<B>(self, body: impl FnOnce(String) -> B) -> Response<B> {
        let length = self.text.len();
        let mut response = Response::new(body(self.text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.field);
        response
    }
}
