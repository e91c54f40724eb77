//! The rest of a body whose server broke off or stands still: from the origin, by range.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
    time::SystemTime,
};

use http::{HeaderMap, StatusCode};
use levada_access::fields::{LARGE, PIECE};
use levada_body::{ReadError, part};
use levada_cache::{Validators, strip_fields};
use levada_types::Key;
use levada_upstream::{AskedRest, NoRest, Relay, Rest, UpstreamHead};

use super::{
    Cache,
    part_origin::{PartOrigin, PartsOf},
};
use crate::sites::Site;

/// The rest of one body.
struct BodyRest {
    origin: Arc<PartOrigin>,
    key: Key,
    identity: Box<str>,
    validators: Validators,
    /// Bytes of the representation.
    length: Option<u64>,
    /// The end of the part that the body is.
    end: u64,
}

/// Lets the body of a response to a GET go on at the origin, if its version can be distinguished from others. `onward`
/// makes the request for the whole.
pub(crate) fn heal(
    relay: &mut Relay,
    cache: &Arc<Cache>,
    (site, key, identity): (&Arc<Site>, Key, &str),
    (status, headers): (StatusCode, &HeaderMap),
    onward: impl FnOnce() -> UpstreamHead,
) {
    if relay.has_come() {
        return;
    }
    let Some((span, length)) = part::span(status, headers) else { return };
    let validators = Validators::of(headers, SystemTime::now());
    let onward = || {
        let mut head = onward();
        strip_fields(&mut head.headers, &[LARGE, PIECE]);
        head.interim = None;
        head
    };
    let Some(origin) = PartOrigin::of_parts(cache, site, key, (&validators, headers), onward)
    else {
        return;
    };
    let of = PartsOf { key, identity, validators: &validators, length: Some(length) };
    heal_part(relay, &origin, &of, span);
}

/// Lets a body that has these bytes of a representation go on at the same origin.
pub(crate) fn heal_part(
    relay: &mut Relay,
    origin: &Arc<PartOrigin>,
    of: &PartsOf<'_>,
    span: Range<u64>,
) {
    let rest = BodyRest {
        origin: origin.clone(),
        key: of.key,
        identity: of.identity.into(),
        validators: of.validators.clone(),
        length: of.length,
        end: span.end,
    };
    relay.heal(Arc::new(rest), span);
}

impl Rest for BodyRest {
    fn ask(self: Arc<Self>, position: u64, beside: bool) -> AskedRest {
        Box::pin(async move {
            if beside && !self.origin.affords_retry() {
                return Err(NoRest::Failed);
            }
            let Self { key, identity, validators, length, .. } = &*self;
            let of = PartsOf { key: *key, identity, validators, length: *length };
            let asked = self.origin.ask(&of, position..self.end, &AtomicBool::default()).await;
            asked.map_err(|error| match error {
                ReadError::Gone => NoRest::Gone,
                _ => NoRest::Failed,
            })
        })
    }
}
