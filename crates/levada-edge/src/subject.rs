//! The subject of a request for the policy that chooses its server: a key and a class.

use http::{
    HeaderMap,
    header::{CONTENT_TYPE, COOKIE},
    request::Parts,
};
use levada_policy::classify::RequestAttributes;
use levada_types::{Key, ServiceClass};
use levada_upstream::{RequestBody, ServerFailure, Subject};

use crate::{resource::Resource, settings::KeyFrom, sites::Site};

/// The subject of a request with these fields. Where the request lacks what the key is to be taken from, the
/// key is that of the URL.
pub(crate) fn subject(resource: &Resource, parts: &Parts, headers: &HeaderMap) -> Subject {
    let site = &resource.site;
    let (class, rule) = class(site, resource, parts, headers);
    let key = match &site.settings.servers.switch {
        None => resource.key,
        Some(switch) => own_key(&switch.key, resource, headers).unwrap_or_else(|| {
            // A key from the body is taken later.
            if !matches!(switch.key, KeyFrom::Url | KeyFrom::Body { .. }) {
                site.fell_back();
            }
            resource.key
        }),
    };
    Subject { key, class, rule }
}

/// The class of a request, and the rule that is about it.
pub(crate) fn class(
    site: &Site,
    resource: &Resource,
    parts: &Parts,
    headers: &HeaderMap,
) -> (ServiceClass, Option<u32>) {
    let Some(classes) = &site.classes else { return Default::default() };
    let path = resource.target().split('?').next().unwrap_or_default();
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let seen = RequestAttributes {
        path,
        method: parts.method.as_str(),
        content_type: kind.and_then(|kind| kind.split(';').next()).map(str::trim),
        tls: resource.scheme == "https",
    };
    classes.of(&seen)
}

/// The key of a request whose site takes it from the beginning of the body. The bytes are read here, and are
/// sent all the same. `None` where there is no body, or it takes too long.
pub(crate) async fn body_key(
    site: &Site,
    body: &mut RequestBody,
) -> Result<Option<Key>, ServerFailure> {
    let Some(KeyFrom::Body { bytes, wait }) = site.settings.servers.switch.as_ref().map(|s| &s.key)
    else {
        return Ok(None);
    };
    let read = match body {
        RequestBody::Client(upload) => tokio::time::timeout(*wait, upload.read_ahead(*bytes)).await,
        RequestBody::None | RequestBody::Text(_) => {
            site.fell_back();
            return Ok(None);
        }
    };
    match read {
        Ok(Ok(beginning)) if beginning.is_empty() => Ok(None),
        Ok(Ok(beginning)) => Ok(Some(Key::of(&beginning))),
        Ok(Err(_)) => Err(ServerFailure::RequestBody),
        Err(_) => {
            site.fell_back();
            Ok(None)
        }
    }
}

fn own_key(from: &KeyFrom, resource: &Resource, headers: &HeaderMap) -> Option<Key> {
    let value = match from {
        KeyFrom::Url | KeyFrom::Body { .. } => return None,
        KeyFrom::Host => Some(resource.host().as_bytes()),
        KeyFrom::Header(name) => headers.get(name.as_str()).map(|value| value.as_bytes()),
        KeyFrom::Cookie(name) => headers
            .get_all(COOKIE)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
            .find_map(|pair| value_of(pair.trim_ascii(), name)),
        KeyFrom::Query(name) => {
            let (_, query) = resource.target().split_once('?')?;
            query.as_bytes().split(|byte| *byte == b'&').find_map(|pair| value_of(pair, name))
        }
    };
    value.filter(|value| !value.is_empty()).map(Key::of)
}

/// The value of `name=value`.
fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_that_of_the_whole_name() {
        assert_eq!(value_of(b"id=7", "id"), Some(&b"7"[..]));
        assert_eq!(value_of(b"idx=7", "id"), None);
        assert_eq!(value_of(b"id", "id"), None);
        assert_eq!(value_of(b"id=", "id"), Some(&b""[..]));
    }
}
