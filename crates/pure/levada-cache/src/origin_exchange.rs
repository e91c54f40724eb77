//! A request to an origin and its response, borrowed.

use http::{HeaderMap, Method, StatusCode};
use std::time::SystemTime;

/// A request to an origin and its response.
#[derive(Clone, Copy, Debug)]
pub struct OriginExchange<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// The header fields of the request as the client sent them: `Vary` selects among them, and
    /// `Authorization` counts even if the node does not forward it.
    pub request: &'a HeaderMap,
    /// The status of the final response.
    pub status: StatusCode,
    /// The header fields of the response as the origin sent them.
    pub response: &'a HeaderMap,
    /// The time at which the request was sent (`request_time` of RFC 9111, Sec. 4.2.3).
    pub requested: SystemTime,
    /// The time at which the head of the response arrived (`response_time`).
    pub received: SystemTime,
}
