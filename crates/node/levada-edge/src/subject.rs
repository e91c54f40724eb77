//! The subject of a request for the policy that chooses its server: a key and a class.

use http::{HeaderMap, request::Parts};
use levada_types::{Key, ServiceClass};
use levada_upstream::Subject;

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
        site.fallbacks.inc();
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
