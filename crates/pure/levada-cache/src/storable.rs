//! Whether a response may be stored (RFC 9111, Sec. 3).

use crate::{
    cache_control::{DirectiveScope, RequestDirectives, ResponseDirectives},
    freshness::{Freshness, LifetimeSource, is_heuristically_cacheable},
    invalidate::resolve,
    origin_exchange::OriginExchange,
    range::ContentRange,
    rules::{CacheRules, CookieStorage},
    targeted::EffectiveDirectives,
    vary::{Vary, VaryError},
};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};

/// The data that a cache keeps of a response that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storable {
    /// The numbers from which every later decision follows.
    pub freshness: Freshness,
    /// The request fields that select the variant.
    pub vary: Vary,
    /// The fields that a qualified `no-cache` or `private` excludes from storage, in addition to
    /// those that [`crate::strip_response`] removes.
    pub strip: Vec<HeaderName>,
}

/// The reason why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStore {
    /// Only responses to `GET` are stored; they also answer `HEAD`.
    Method,
    /// The request has `no-store`.
    RequestNoStore,
    /// The response is interim (1xx).
    Interim,
    /// A 304 updates a stored response and is not stored itself.
    NotModified,
    /// The response is partial, and the caller did not ask for parts or the range is unknown.
    Partial,
    /// `must-understand`, and the status is not understood.
    NotUnderstood,
    /// `no-store`.
    NoStore,
    /// `private`.
    Private,
    /// The request has `Authorization`, and no directive allows a shared cache to store the
    /// response.
    Authorization,
    /// `Vary: *`: no other request can match.
    VaryAny,
    /// `Vary` names more fields than the cache compares.
    VaryWide,
    /// The response has `Set-Cookie` ([`CookieStorage`]).
    SetCookie,
    /// The status is not heuristically cacheable, and the response has no lifetime.
    NoLifetime,
    /// The response has neither a lifetime nor a validator, so it could never be reused.
    NoUse,
}

impl NoStore {
    /// The name that logs and `Cache-Status` details print.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::RequestNoStore => "request-no-store",
            Self::Interim => "interim",
            Self::NotModified => "not-modified",
            Self::Partial => "partial",
            Self::NotUnderstood => "not-understood",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::VaryAny => "vary-any",
            Self::VaryWide => "vary-wide",
            Self::SetCookie => "set-cookie",
            Self::NoLifetime => "no-lifetime",
            Self::NoUse => "no-use",
        }
    }
}

/// Whether the whole response of `exchange` may be stored.
///
/// # Errors
/// The reason why it may not.
pub fn may_store(exchange: &OriginExchange<'_>, rules: &CacheRules) -> Result<Storable, NoStore> {
    if exchange.status == StatusCode::PARTIAL_CONTENT {
        return Err(NoStore::Partial);
    }
    judge(exchange, rules)
}

/// Whether the part of a 206 may be stored as a part (Sec. 3.3).
///
/// Parts may be combined only if they share one strong validator (Sec. 3.4; see
/// [`crate::Validators::same_representation`]).
///
/// The reason why it may not; [`NoStore::Partial`] for any response but a single byte range.
/// The reason why it may not, [`NoStore::Partial`] for anything but one range of bytes.
pub fn may_store_part(
    exchange: &OriginExchange<'_>,
    rules: &CacheRules,
) -> Result<Storable, NoStore> {
    let part = ContentRange::of_part(exchange.response);
    if exchange.status != StatusCode::PARTIAL_CONTENT || part.is_none() {
        return Err(NoStore::Partial);
    }
    judge(exchange, rules)
}

/// Whether the response to a POST may be stored as the response to a GET of its target (RFC 9110
/// Sec. 9.3.3): a 200 with an explicit lifetime and with a `Content-Location` equal to the target.
///
/// `target` is absolute, as the node resolved it.
///
/// # Errors
/// The reason why it may not; [`NoStore::Method`] if it is a response to the POST only.
pub fn may_store_post(
    exchange: &OriginExchange<'_>,
    target: &Uri,
    rules: &CacheRules,
) -> Result<Storable, NoStore> {
    let located = exchange.response.get(header::CONTENT_LOCATION);
    let same = located.and_then(|value| resolve(target, value.to_str().ok()?.trim()));
    if exchange.status != StatusCode::OK || same.as_ref() != Some(target) {
        return Err(NoStore::Method);
    }
    let storable = judge(&OriginExchange { method: &Method::GET, ..*exchange }, rules)?;
    match storable.freshness.source() {
        LifetimeSource::Directive | LifetimeSource::Expires => Ok(storable),
        _ => Err(NoStore::NoLifetime),
    }
}

fn judge(exchange: &OriginExchange<'_>, rules: &CacheRules) -> Result<Storable, NoStore> {
    if exchange.method != Method::GET {
        return Err(NoStore::Method);
    }
    final_status(exchange.status)?;
    if RequestDirectives::of(exchange.request).no_store {
        return Err(NoStore::RequestNoStore);
    }
    let effective = EffectiveDirectives::under(rules, exchange.response);
    permitted(exchange, &effective.directives)?;
    let vary = match rules.ignored.vary {
        true => Vary::default(),
        false => Vary::of(exchange.response).map_err(|error| match error {
            VaryError::Any => NoStore::VaryAny,
            VaryError::Wide => NoStore::VaryWide,
        })?,
    };
    let freshness = Freshness::of(exchange, &effective, rules);
    useful(exchange, &effective.directives, &freshness)?;
    let mut strip = effective.directives.fields.clone();
    if rules.ignored.set_cookie && exchange.response.contains_key(header::SET_COOKIE) {
        strip.push(header::SET_COOKIE);
    }
    cookies(exchange.response, &strip, &effective.directives, &freshness, rules)?;
    Ok(Storable { freshness, vary, strip })
}

fn final_status(status: StatusCode) -> Result<(), NoStore> {
    match status {
        _ if status.is_informational() => Err(NoStore::Interim),
        StatusCode::NOT_MODIFIED => Err(NoStore::NotModified),
        _ => Ok(()),
    }
}

/// Checks the directives that forbid storing, and Sec. 3.5 for requests with `Authorization`.
fn permitted(
    exchange: &OriginExchange<'_>,
    directives: &ResponseDirectives,
) -> Result<(), NoStore> {
    if directives.must_understand {
        // If the status is understood, `no-store` is meant for caches that do not implement
        // `must-understand` (Sec. 5.2.2.3).
        if !is_understood(exchange.status) {
            return Err(NoStore::NotUnderstood);
        }
    } else if directives.no_store {
        return Err(NoStore::NoStore);
    }
    if directives.private == DirectiveScope::Whole {
        return Err(NoStore::Private);
    }
    let shared = directives.public || directives.must_revalidate || directives.s_maxage.is_some();
    if exchange.request.contains_key(header::AUTHORIZATION) && !shared {
        return Err(NoStore::Authorization);
    }
    Ok(())
}

/// Checks the last condition of Sec. 3, and our own: a response that can never be reused is not
/// stored.
fn useful(
    exchange: &OriginExchange<'_>,
    directives: &ResponseDirectives,
    freshness: &Freshness,
) -> Result<(), NoStore> {
    if freshness.source() == LifetimeSource::None
        && !directives.public
        && !is_heuristically_cacheable(exchange.status)
    {
        return Err(NoStore::NoLifetime);
    }
    let may_be_used = !freshness.lifetime().is_zero() && !freshness.validates_always();
    let may_be_validated = exchange.response.contains_key(header::ETAG)
        || exchange.response.contains_key(header::LAST_MODIFIED);
    let stale_use = !freshness.forbids_stale()
        && (freshness.stale_while_revalidate() > 0 || freshness.stale_if_error() > 0);
    if may_be_used || may_be_validated || stale_use { Ok(()) } else { Err(NoStore::NoUse) }
}

fn cookies(
    response: &HeaderMap,
    strip: &[HeaderName],
    directives: &ResponseDirectives,
    freshness: &Freshness,
    rules: &CacheRules,
) -> Result<(), NoStore> {
    // A cookie that `no-cache="set-cookie"` names is not stored, so it is no reason against
    // storing.
    if !response.contains_key(header::SET_COOKIE) || strip.contains(&header::SET_COOKIE) {
        return Ok(());
    }
    let stored = match rules.cookies {
        CookieStorage::Refuse => false,
        CookieStorage::StoreIfExplicit => freshness.source().is_explicit() || directives.public,
        CookieStorage::Store => true,
    };
    if stored { Ok(()) } else { Err(NoStore::SetCookie) }
}

/// The statuses whose caching rules this crate implements (`must-understand`, Sec. 5.2.2.3): those
/// of RFC 9110 except 206, which only [`may_store_part`] handles, and 304.
fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=206 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 451 | 500..=505
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rules::IgnoredFields,
        status_ttl::{StatusTtl, Statuses},
        testing::{Fetched, NOW, http_date},
    };
    use std::time::Duration;

    fn judged(got: &Fetched) -> Result<Storable, NoStore> {
        may_store(&got.exchange(), &CacheRules::default())
    }

    fn refused(status: u16, response: &[(&'static str, &str)]) -> Option<NoStore> {
        judged(&Fetched::new(status, response)).err()
    }

    fn refused_when(asked: &[(&'static str, &str)], cache_control: &str) -> Option<NoStore> {
        judged(&Fetched::new(200, &[("cache-control", cache_control)]).asking(asked)).err()
    }

    #[test]
    fn explicit_lifetime_makes_any_final_status_storable() {
        for status in [200, 203, 204, 299, 301, 302, 303, 307, 400, 404, 410, 499, 500, 504, 599] {
            assert_eq!(refused(status, &[("cache-control", "max-age=60")]), None, "{status}");
        }
        assert_eq!(refused(206, &[("cache-control", "max-age=60")]), Some(NoStore::Partial));
        assert_eq!(refused(304, &[("cache-control", "max-age=60")]), Some(NoStore::NotModified));
        assert_eq!(refused(103, &[("cache-control", "max-age=60")]), Some(NoStore::Interim));
    }

    #[test]
    fn only_answers_to_get_are_stored() {
        for method in [Method::HEAD, Method::POST, Method::OPTIONS] {
            let mut got = Fetched::new(200, &[("cache-control", "max-age=60")]);
            got.method = method;
            assert_eq!(judged(&got).err(), Some(NoStore::Method));
        }
    }

    #[test]
    fn answer_to_post_is_stored_where_it_is_what_its_target_gives() {
        let target = Uri::from_static("http://a.test/x?y");
        let judged = |status: u16, response: &[(&'static str, &str)]| {
            let mut got = Fetched::new(status, response);
            got.method = Method::POST;
            may_store_post(&got.exchange(), &target, &CacheRules::default()).err()
        };
        let fresh = ("cache-control", "max-age=60");
        for location in ["", "/x?y", "x?y", "?y", "http://a.test/x?y", "//A.test/x?y"] {
            assert_eq!(judged(200, &[fresh, ("content-location", location)]), None, "{location}");
        }
        for location in ["/", "/x", "https://a.test/x?y", "http://b.test/x?y", "/x?z"] {
            let judged = judged(200, &[fresh, ("content-location", location)]);
            assert_eq!(judged, Some(NoStore::Method), "{location}");
        }
        let here = ("content-location", "/x?y");
        assert_eq!(judged(200, &[fresh]), Some(NoStore::Method));
        assert_eq!(judged(201, &[fresh, here]), Some(NoStore::Method));
        assert_eq!(judged(200, &[here, ("etag", "\"1\"")]), Some(NoStore::NoLifetime));
        let private = ("cache-control", "max-age=60, private");
        assert_eq!(judged(200, &[private, here]), Some(NoStore::Private));
    }

    #[test]
    fn what_forbids_storing_is_heard() {
        for (directives, why) in [
            ("max-age=60, no-store", NoStore::NoStore),
            ("max-age=60, private", NoStore::Private),
            ("max-age=60, private=\"a b\"", NoStore::Private),
        ] {
            assert_eq!(refused(200, &[("cache-control", directives)]), Some(why), "{directives}");
        }
        assert_eq!(
            refused_when(&[("cache-control", "no-store")], "max-age=60"),
            Some(NoStore::RequestNoStore)
        );
    }

    #[test]
    fn understood_status_outweighs_no_store() {
        let directives = [("cache-control", "max-age=60, no-store, must-understand")];
        assert_eq!(refused(200, &directives), None);
        assert_eq!(refused(599, &directives), Some(NoStore::NotUnderstood));
    }

    #[test]
    fn authorised_answer_needs_leave_to_be_shared() {
        let asked = [("authorization", "Basic x")];
        assert_eq!(refused_when(&asked, "max-age=60"), Some(NoStore::Authorization));
        for leave in ["public", "s-maxage=60", "must-revalidate"] {
            assert_eq!(refused_when(&asked, &format!("max-age=60, {leave}")), None, "{leave}");
        }
    }

    #[test]
    fn targeted_directives_decide_instead() {
        let lines = |cdn| [("cache-control", "no-store"), ("cdn-cache-control", cdn)];
        assert_eq!(refused(200, &lines("max-age=60")), None);
        assert_eq!(refused(200, &lines("max-age=60, &&&")), Some(NoStore::NoStore));
        let reversed = [("cache-control", "max-age=60"), ("cdn-cache-control", "private")];
        assert_eq!(refused(200, &reversed), Some(NoStore::Private));
    }

    #[test]
    fn response_without_use_is_not_stored() {
        assert_eq!(refused(200, &[]), Some(NoStore::NoUse));
        assert_eq!(refused(200, &[("cache-control", "max-age=0")]), Some(NoStore::NoUse));
        assert_eq!(
            refused(200, &[("cache-control", "max-age=60, no-cache")]),
            Some(NoStore::NoUse)
        );
        assert_eq!(refused(201, &[("etag", "\"a\"")]), Some(NoStore::NoLifetime));
        assert_eq!(refused(200, &[("etag", "\"a\"")]), None);
        assert_eq!(refused(200, &[("cache-control", "no-cache"), ("etag", "\"a\"")]), None);
        assert_eq!(refused(200, &[("cache-control", "max-age=0, stale-if-error=60")]), None);
    }

    #[test]
    fn response_that_varies_on_all_is_not_stored() {
        assert_eq!(
            refused(200, &[("cache-control", "max-age=60"), ("vary", "a, *")]),
            Some(NoStore::VaryAny)
        );
        let stored =
            judged(&Fetched::new(200, &[("cache-control", "max-age=60"), ("vary", "A")])).unwrap();
        assert_eq!(stored.vary.fields(), ["a"]);
    }

    #[test]
    fn cookie_is_stored_only_where_that_is_allowed() {
        let cookie = ("set-cookie", "s=1");
        let (date, changed) = (http_date(NOW), http_date(NOW - 9000));
        let guess = [cookie, ("date", &*date), ("last-modified", &*changed)];
        let fields = [cookie, ("cache-control", "max-age=60, public")];
        assert_eq!(refused(200, &guess), Some(NoStore::SetCookie));
        assert_eq!(refused(200, &fields), Some(NoStore::SetCookie));
        let rules = CacheRules { cookies: CookieStorage::StoreIfExplicit, ..CacheRules::default() };
        assert!(may_store(&Fetched::new(200, &fields).exchange(), &rules).is_ok());
        let guessed = Fetched::new(200, &guess);
        assert_eq!(may_store(&guessed.exchange(), &rules), Err(NoStore::SetCookie));
        let rules = CacheRules { cookies: CookieStorage::Store, ..CacheRules::default() };
        assert!(may_store(&guessed.exchange(), &rules).is_ok());
        let kept_out =
            Fetched::new(200, &[cookie, ("cache-control", "max-age=60, no-cache=\"set-cookie\"")]);
        assert_eq!(may_store(&kept_out.exchange(), &rules).unwrap().strip, [header::SET_COOKIE]);
    }

    #[test]
    fn part_is_judged_only_as_a_part() {
        let got = Fetched::new(
            206,
            &[("cache-control", "max-age=60"), ("content-range", "bytes 0-4/10")],
        );
        assert!(may_store_part(&got.exchange(), &CacheRules::default()).is_ok());
        for (status, range) in [
            (206, "bytes */10"),
            (206, "bytes 5-4/10"),
            (206, "lines 0-4/10"),
            (200, "bytes 0-4/10"),
        ] {
            let got =
                Fetched::new(status, &[("cache-control", "max-age=60"), ("content-range", range)]);
            let judged = may_store_part(&got.exchange(), &CacheRules::default());
            assert_eq!(judged.err(), Some(NoStore::Partial), "{status} {range}");
        }
    }

    #[test]
    fn ignored_fields_forbid_nothing() {
        let all =
            IgnoredFields { cache_control: true, expires: true, set_cookie: true, vary: true };
        let rules = CacheRules {
            ignored: all,
            default_ttl: Some(Duration::from_secs(5)),
            ..CacheRules::default()
        };
        let fields = [
            ("cache-control", "private, no-store"),
            ("cdn-cache-control", "no-store"),
            ("expires", "0"),
            ("vary", "*"),
            ("set-cookie", "s=1"),
        ];
        let got = Fetched::new(200, &fields);
        let stored = may_store(&got.exchange(), &rules).unwrap();
        assert_eq!(stored.freshness.source(), LifetimeSource::Default);
        assert_eq!((stored.vary.fields().len(), &stored.strip[..]), (0, &[header::SET_COOKIE][..]));
        for (ignored, why) in [
            (IgnoredFields { cache_control: false, ..all }, NoStore::NoStore),
            (IgnoredFields { set_cookie: false, ..all }, NoStore::SetCookie),
            (IgnoredFields { vary: false, ..all }, NoStore::VaryAny),
        ] {
            let rules = CacheRules { ignored, ..rules.clone() };
            assert_eq!(may_store(&got.exchange(), &rules).err(), Some(why));
        }
        let authorised = got.asking(&[("authorization", "Basic x")]);
        assert_eq!(may_store(&authorised.exchange(), &rules).err(), Some(NoStore::Authorization));
    }

    #[test]
    fn forced_lifetime_comes_before_the_origins_and_counts_from_the_arrival() {
        let ttl = |statuses, ttl| StatusTtl { statuses, ttl: Duration::from_secs(ttl) };
        let rules = CacheRules {
            ttl: vec![ttl(Statuses::Listed(vec![200, 302]), 600), ttl(Statuses::Any, 60)],
            ..CacheRules::default()
        };
        let lifetime = |status, fields: &[(&'static str, &str)]| {
            let got = Fetched::new(status, fields);
            let freshness = may_store(&got.exchange(), &rules).unwrap().freshness;
            assert_eq!(freshness.source(), LifetimeSource::Forced);
            freshness.ttl(got.exchange().received)
        };
        assert_eq!(lifetime(200, &[("cache-control", "max-age=5")]), 600);
        assert_eq!(lifetime(302, &[("expires", "0"), ("age", "4000")]), 600);
        assert_eq!(lifetime(500, &[]), 60);
        // It is about freshness: what may not be stored still may not.
        for directive in ["no-store", "private"] {
            let got = Fetched::new(200, &[("cache-control", directive)]);
            assert!(may_store(&got.exchange(), &rules).is_err(), "{directive}");
        }
    }

    #[test]
    fn lifetime_by_status_is_for_responses_without_one() {
        let ttl = |status, ttl| StatusTtl {
            statuses: Statuses::Listed(vec![status]),
            ttl: Duration::from_secs(ttl),
        };
        let rules = CacheRules {
            status_ttl: vec![ttl(302, 600), ttl(404, 1)],
            default_ttl: Some(Duration::from_secs(30)),
            negative_ttl: Some(Duration::from_secs(9)),
            ..CacheRules::default()
        };
        let lifetime = |status, fields: &[(&'static str, &str)]| {
            let got = Fetched::new(status, fields);
            may_store(&got.exchange(), &rules).unwrap().freshness.lifetime().as_secs()
        };
        assert_eq!(lifetime(302, &[]), 600);
        assert_eq!(lifetime(302, &[("cache-control", "max-age=5")]), 5);
        assert_eq!((lifetime(404, &[]), lifetime(410, &[]), lifetime(200, &[])), (1, 9, 30));
    }

    #[test]
    fn errors_are_stored_as_the_site_says() {
        let rules =
            CacheRules { negative_ttl: Some(Duration::from_secs(5)), ..CacheRules::default() };
        let by = |status| may_store(&Fetched::new(status, &[]).exchange(), &rules).err();
        assert_eq!((by(404), by(503)), (None, Some(NoStore::NoLifetime)));
    }
}
