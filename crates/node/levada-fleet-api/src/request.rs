//! A request that fits a route: its parameters, and its body.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use levada_types::parse_duration;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use crate::{
    answer::Refused,
    routes::{Parameter, Route},
};

/// The most bytes of a body: a directory of a fleet as a tar.
const LONGEST: usize = 80 << 20;
/// The time for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The parameters of a request.
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads those that the route has, and refuses others.
    pub(crate) fn read(route: &Route, parts: &Parts) -> Result<Self, Refused> {
        let mut given = BTreeMap::new();
        let query = parts.uri.query().unwrap_or_default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
            let known = route.parameters.iter().any(|one| !one.is_header && one.name == name);
            if !known {
                let names: Vec<_> = route.parameters.iter().map(|one| one.name).collect();
                let words = format!("unknown parameter {name:?}: there are {}", names.join(", "));
                return Err(Refused::new(StatusCode::BAD_REQUEST, words));
            }
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            given.insert(name.to_owned(), value);
        }
        for one in route.parameters.iter().filter(|one| one.is_header) {
            let value = parts.headers.get(one.name).and_then(|value| value.to_str().ok());
            given.extend(value.map(|value| (one.name.to_owned(), value.to_owned())));
        }
        Ok(Self(given))
    }

    pub(crate) fn text(&self, parameter: &Parameter) -> Option<&str> {
        self.0.get(parameter.name).map(String::as_str)
    }

    pub(crate) fn switch(&self, parameter: &Parameter) -> Result<bool, Refused> {
        match self.text(parameter) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(wrong(parameter, other, "true or false")),
        }
    }

    pub(crate) fn number(&self, parameter: &Parameter) -> Result<Option<u64>, Refused> {
        let read = |text: &str| text.parse().map_err(|_| wrong(parameter, text, "a whole number"));
        self.text(parameter).map(read).transpose()
    }

    pub(crate) fn percent(&self, parameter: &Parameter, usual: u64) -> Result<f64, Refused> {
        match self.number(parameter)?.unwrap_or(usual) {
            percent @ 1..=100 => Ok(percent as f64 / 100.0),
            other => Err(wrong(parameter, &other.to_string(), "from 1 to 100")),
        }
    }

    pub(crate) fn time(&self, parameter: &Parameter, usual: Duration) -> Result<Duration, Refused> {
        let read =
            |text| parse_duration(text).map_err(|_| wrong(parameter, text, "a time, such as 10s"));
        self.text(parameter).map_or(Ok(usual), read)
    }
}

fn wrong(parameter: &Parameter, value: &str, form: &str) -> Refused {
    let words = format!("{} = {value:?}: write {form}", parameter.name);
    Refused::new(StatusCode::BAD_REQUEST, words)
}

/// The token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

/// The whole body.
pub(crate) async fn body(body: Incoming) -> Result<Bytes, Refused> {
    let read = timeout(BODY_TIMEOUT, Limited::new(body, LONGEST).collect()).await;
    match read {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => {
            let words = format!("the body cannot be read, or is too long: {error}");
            Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, words))
        }
        Err(_) => {
            let words = format!("the body did not come within {} s", BODY_TIMEOUT.as_secs());
            Err(Refused::new(StatusCode::REQUEST_TIMEOUT, words))
        }
    }
}
