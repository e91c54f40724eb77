//! The subject of a request for the policy that chooses its server: a key and a class.

use http::{HeaderMap, request::Parts};
use levada_types::{Key, ServiceClass};
use levada_upstream::{RequestBody, ServerFailure, Subject};

use crate::{resource::Resource, sites::Site};
use levada_config::KeyFrom;

/// The subject of a request with these fields, and the part of the request that its key is of. Where the request
/// lacks that part, or it is the body, the key is that of the URL.
pub fn subject<'a>(
    resource: &'a Resource,
    parts: &Parts,
    headers: &'a HeaderMap,
) -> (Subject, Option<&'a [u8]>) {
    let site = &resource.site;
    let (class, rule) = class(site, resource, parts, headers);
    let from = site.settings.servers.key_from();
    let part = from.value((resource.host(), resource.target()), headers);
    (Subject { key: part.map_or(resource.key(), Key::of), class, rule }, part)
}

/// Counts a request without the part that its key is to be taken from. A body is read later.
pub(crate) fn count_fallback(site: &Site, part: Option<&[u8]>) {
    let from = site.settings.servers.key_from();
    if part.is_none() && !matches!(from, KeyFrom::Url | KeyFrom::Body { .. }) {
        site.fell_back();
    }
}

/// The class of a request, and the rule that is about it.
pub(crate) fn class(
    site: &Site,
    resource: &Resource,
    parts: &Parts,
    headers: &HeaderMap,
) -> (ServiceClass, Option<u32>) {
    let Some(classes) = &site.classes else { return Default::default() };
    classes.of_request((resource.scheme(), &parts.method, resource.target()), headers)
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
