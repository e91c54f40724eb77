//! One request and the answer to it, borrowed.

use http::{HeaderMap, Method, StatusCode};
use std::time::SystemTime;

/// What was asked of the origin and what it answered.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// The header fields of the request as the client sent them: `Vary` selects among those, and
    /// `Authorization` counts even where the node does not pass it on.
    pub request: &'a HeaderMap,
    /// The status of the final response.
    pub status: StatusCode,
    /// The header fields of the response as the origin sent them.
    pub response: &'a HeaderMap,
    /// When the request was sent (`request_time` of RFC 9111, Sec. 4.2.3).
    pub requested: SystemTime,
    /// When the head of the response had arrived (`response_time`).
    pub received: SystemTime,
}
