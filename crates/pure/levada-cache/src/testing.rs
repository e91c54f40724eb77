//! Helpers for the tests of several modules.

use crate::OriginExchange;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use std::time::{Duration, SystemTime};

/// The current time of all tests, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

pub(crate) fn http_date(seconds: u64) -> String {
    httpdate::fmt_http_date(time(seconds))
}

pub(crate) fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            (HeaderName::from_static(name), value)
        })
        .collect()
}

/// A `GET` and its response, which takes no time.
pub(crate) struct Fetched {
    pub(crate) method: Method,
    pub(crate) request: HeaderMap,
    pub(crate) status: u16,
    pub(crate) response: HeaderMap,
    pub(crate) delay: u64,
}

impl Fetched {
    pub(crate) fn new(status: u16, response: &[(&'static str, &str)]) -> Self {
        let (method, request, response) = (Method::GET, HeaderMap::new(), headers(response));
        Self { method, request, status, response, delay: 0 }
    }

    pub(crate) fn asking(mut self, request: &[(&'static str, &str)]) -> Self {
        self.request = headers(request);
        self
    }

    pub(crate) fn exchange(&self) -> OriginExchange<'_> {
        OriginExchange {
            method: &self.method,
            request: &self.request,
            status: StatusCode::from_u16(self.status).unwrap(),
            response: &self.response,
            requested: time(NOW - self.delay),
            received: time(NOW),
        }
    }
}
