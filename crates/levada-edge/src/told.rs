//! `Cache-Status` of what passes the cache by: the same words for most requests.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue};
use levada_cache::{CACHE_STATUS, CacheStatus, NodeName};

/// What was told last, and how it is written.
#[derive(Default)]
pub(crate) struct Told(ArcSwapOption<(CacheStatus<'static>, HeaderValue)>);

impl Told {
    /// Adds this cache's member behind those nearer to the origin, as [`CacheStatus::append_to`] does.
    pub(crate) fn append_to(
        &self,
        headers: &mut HeaderMap,
        status: &CacheStatus<'static>,
        node: &NodeName,
    ) {
        if headers.contains_key(CACHE_STATUS) {
            return status.append_to(headers, node);
        }
        let last = self.0.load();
        let value = match last.as_deref().filter(|(told, _)| told == status) {
            Some((_, value)) => value.clone(),
            None => {
                let value = status.value(node);
                self.0.store(Some(Arc::new((*status, value.clone()))));
                value
            }
        };
        headers.insert(CACHE_STATUS, value);
    }
}

#[cfg(test)]
mod tests {
    use levada_cache::Forwarded;

    use super::*;

    #[test]
    fn every_status_is_told_as_it_is() {
        let (told, node) = (Told::default(), NodeName::new("n"));
        for code in [200, 200, 404, 200] {
            let status = CacheStatus {
                forwarded: Some(Forwarded::Bypass),
                forwarded_status: Some(code),
                ..CacheStatus::default()
            };
            for earlier in [None, Some(HeaderValue::from_static("shield; hit"))] {
                let mut headers: HeaderMap =
                    earlier.map(|value| (CACHE_STATUS, value)).into_iter().collect();
                let mut expected = headers.clone();
                told.append_to(&mut headers, &status, &node);
                status.append_to(&mut expected, &node);
                assert_eq!(headers, expected);
            }
        }
    }
}
