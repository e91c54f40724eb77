//! A site's rules of access and limits at work: one decision for each request.
//!
//! ```text
//!   address and country  allow, deny                          403
//!   limits               rate, concurrency                    429
//!   CORS                 a preflight is answered              204
//!   referers             hotlinks                             403
//!   signed URLs          token, or digest and end             403
//!   basic auth           user and password                    401
//!   forward auth         a server's word                      its answer
//! ```
//!
//! The order is from cheap to expensive: a flood is refused before anything is computed for it, and a limit holds
//! for those who try passwords. The node that met the client decides, and no other node decides again.

use std::{hash::RandomState, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};

use levada_types::{
    ByteSize,
    text::{As, Rate, Size},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    address_list::{self, AddressRule},
    basic_auth::{BasicAuth, Users},
    concurrency::{ConcurrencyPlace, ConcurrencyTable},
    cors::{Cors, CorsAnswer},
    country::Countries,
    forward_auth::{ForwardAuth, ForwardAuthSettings},
    limit_key::LimitKey,
    pace::Pacer,
    rate::{RateBounds, RateTable, RateVerdict},
    referers::Referers,
    signed::{RequestUrl, SignedUrls},
};

/// The demands of a site on its clients, and the bounds on what it gives them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessSettings {
    /// Allow and deny, the first match decides.
    pub rules: Vec<AddressRule>,
    /// The countries of addresses.
    pub countries: Option<Arc<Countries>>,
    /// Limits of requests.
    pub limits: Vec<LimitSettings>,
    /// The most bytes of a request body.
    pub max_body: Option<u64>,
    /// Limits of bytes per time.
    pub bandwidth: Bandwidth,
    /// Users and passwords.
    pub basic: Option<BasicSettings>,
    /// Valid referers.
    pub referers: Option<Referers>,
    /// Pages of other origins.
    pub cors: Option<Cors>,
    /// How the URLs of the site are signed.
    pub signed: Option<Arc<SignedUrls>>,
    /// The server that is asked about each request.
    pub forward: Option<ForwardAuthSettings>,
    /// The route that states the limits, and counts by itself; `None`: the site.
    pub limits_of: Option<Arc<str>>,
    /// The route that states `bandwidth.site`; `None`: the site.
    pub site_rate_of: Option<Arc<str>>,
}

/// A limit of requests of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// The part of a request that is counted by.
    pub key: LimitKey,
    /// Requests per time.
    pub rate: Option<RateBounds>,
    /// Requests at once.
    pub concurrent: Option<u32>,
    /// The keys that are remembered for the rate.
    pub keys: usize,
    /// Whether the nodes that are up share the rate and the burst.
    pub cluster: bool,
}

/// Limits of bytes per time in responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bandwidth {
    /// The rate of each client connection.
    #[schemars(extend("x-minimum" = "1KiB/s", "examples" = ["2MiB/s"]))]
    #[serde(with = "As::<Option<Rate>>")]
    pub connection: Option<u64>,
    /// Bytes of a response that go out before the rate of its connection counts.
    #[schemars(extend("examples" = ["1MiB"]))]
    #[serde(with = "As::<Size>")]
    pub after: u64,
    /// The rate of all responses at this node, of the site or of the route that states it.
    #[schemars(extend("x-minimum" = "1KiB/s", "examples" = ["100MiB/s"]))]
    #[serde(with = "As::<Option<Rate>>")]
    pub site: Option<u64>,
}

/// The users of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicSettings {
    /// The realm that browsers show.
    pub realm: String,
    /// The clients that may pass.
    pub users: Arc<Users>,
}

/// A request, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// The client that it is for.
    pub client: IpAddr,
    /// The host, without its port.
    pub host: &'a str,
    /// The URL.
    pub url: RequestUrl<'a>,
    /// The method.
    pub method: &'a Method,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The time since the start of the node, in nanoseconds.
    pub now: u64,
    /// Seconds of Unix time.
    pub unix: u64,
    /// Nodes of the cluster that are up, this one included.
    pub nodes: u32,
}

/// The answer to a request that goes no further.
#[derive(Debug)]
pub struct AccessAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: HeaderMap,
    /// The sentence for the client; empty for no body.
    pub text: &'static str,
    /// The body in place of a sentence, where another server has answered.
    pub body: Option<Bytes>,
    /// The reason for the log. `None` if the request was not refused but answered.
    pub reason: Option<&'static str>,
}

/// The grants to a request.
#[derive(Debug, Default)]
pub struct Passage {
    /// Its places among the requests that are served at once.
    pub places: Vec<ConcurrencyPlace>,
    /// The time until its turn.
    pub wait: Duration,
    /// Its path and query without the signature, where URLs are signed.
    pub target: Option<String>,
    /// The fields for its response.
    pub cors: Option<CorsAnswer>,
}

/// A site's rules at work.
#[derive(Debug)]
pub struct Access {
    settings: AccessSettings,
    limits: Vec<Arc<Limit>>,
    basic: Option<Arc<BasicAuth>>,
    forward: Option<Arc<ForwardAuth>>,
    site_pacer: Option<Arc<Pacer>>,
}

#[derive(Debug)]
struct Limit {
    settings: LimitSettings,
    hasher: RandomState,
    buckets: Option<RateTable>,
    served: Option<Arc<ConcurrencyTable>>,
}

impl Access {
    /// The rules at work. A rule that is among those of `known` shares their state: these are the rules of other
    /// routes of the site, and those before a reload. `None` if the settings demand nothing.
    /// `workers`: the schedulers that use connections of their own.
    pub(crate) fn new(
        settings: &AccessSettings,
        known: &[Arc<Self>],
        workers: usize,
    ) -> Option<Arc<Self>> {
        if settings.is_empty() {
            return None;
        }
        let mut limits: Vec<Arc<Limit>> = Vec::new();
        for limit in &settings.limits {
            let alike = known.iter().filter(|known| known.settings.limits_of == settings.limits_of);
            let mut alike = alike.flat_map(|known| &known.limits);
            // Of two limits with the same words, each counts.
            let is_free = |known: &&Arc<Limit>| !limits.iter().any(|l| Arc::ptr_eq(l, known));
            let found = alike.find(|known| known.settings == *limit && is_free(known)).cloned();
            limits.push(found.unwrap_or_else(|| Arc::new(Limit::new(limit))));
        }
        let basic = settings.basic.as_ref().and_then(|basic| {
            let alike = known.iter().find(|known| known.settings.basic.as_ref() == Some(basic));
            alike.map_or_else(
                || BasicAuth::new(basic.users.clone(), &basic.realm).map(Arc::new),
                |known| known.basic.clone(),
            )
        });
        let forward = settings.forward.as_ref().and_then(|forward| {
            let alike = known.iter().find(|known| known.settings.forward.as_ref() == Some(forward));
            alike.map_or_else(
                || ForwardAuth::new(forward, workers).map(Arc::new),
                |known| known.forward.clone(),
            )
        });
        let site_pacer = settings.bandwidth.site.map(|rate| {
            let is_alike = |known: &&Arc<Self>| {
                let of = &known.settings;
                of.site_rate_of == settings.site_rate_of && of.bandwidth.site == Some(rate)
            };
            let pacer = known.iter().find(is_alike).and_then(|known| known.site_pacer.clone());
            pacer.unwrap_or_else(|| Pacer::new(rate))
        });
        Some(Arc::new(Self { settings: settings.clone(), limits, basic, forward, site_pacer }))
    }

    /// Decides about a request. [`Access::knows`] checks the password afterwards, if one is needed.
    ///
    /// # Errors
    /// With the answer, if the request goes no further.
    pub fn admit(&self, request: &AccessRequest<'_>) -> Result<Passage, Box<AccessAnswer>> {
        let cors = || self.settings.cors.as_ref().map(|cors| cors.answer(request.headers));
        match self.decide(request) {
            Ok(passage) => Ok(Passage { cors: cors(), ..passage }),
            Err(mut answer) => {
                // A page must be able to read why it was refused.
                if let Some(cors) = cors().filter(|_| answer.reason.is_some()) {
                    cors.add_to(&mut answer.headers);
                }
                Err(answer)
            }
        }
    }

    fn decide(&self, request: &AccessRequest<'_>) -> Result<Passage, Box<AccessAnswer>> {
        let AccessSettings { rules, countries, referers, cors, signed, .. } = &self.settings;
        if !address_list::admits(rules, countries.as_ref(), request.client) {
            return Err(AccessAnswer::forbidden("the client's address is denied"));
        }
        let mut passage = Passage::default();
        for limit in &self.limits {
            limit.admit(request, &mut passage)?;
        }
        let preflight =
            cors.as_ref().and_then(|cors| cors.preflight(request.method, request.headers));
        if let Some(headers) = preflight {
            let status = StatusCode::NO_CONTENT;
            let text = "";
            return Err(Box::new(AccessAnswer { status, headers, text, body: None, reason: None }));
        }
        if referers.as_ref().is_some_and(|valid| !valid.admit(request.host, request.headers)) {
            return Err(AccessAnswer::forbidden("the referer is not valid"));
        }
        if let Some(signed) = signed {
            let AccessRequest { url, client, headers, unix, .. } = request;
            let target = signed.check(url, *client, headers, *unix);
            passage.target = Some(target.map_err(AccessAnswer::forbidden)?);
        }
        Ok(passage)
    }

    /// Whether clients must show a password.
    pub fn asks_for_password(&self) -> bool {
        self.basic.is_some()
    }

    /// Whether the client has shown the right password, if it must show one.
    ///
    /// # Errors
    /// With the answer that asks for it.
    pub async fn knows(&self, headers: &HeaderMap) -> Result<(), Box<AccessAnswer>> {
        let Some(basic) = &self.basic else { return Ok(()) };
        if basic.admits(headers).await {
            return Ok(());
        }
        Err(Box::new(AccessAnswer {
            status: StatusCode::UNAUTHORIZED,
            headers: HeaderMap::from_iter([(WWW_AUTHENTICATE, basic.challenge.clone())]),
            text: "user and password are needed",
            body: None,
            reason: Some("no known user, or a wrong password"),
        }))
    }

    /// Whether a server is asked about the requests.
    pub fn asks_server(&self) -> bool {
        self.forward.is_some()
    }

    /// Asks the server about a request, if there is one. The answer's fields are for [`Access::copy_fields`].
    ///
    /// # Errors
    /// With the answer for the client, if the request may not pass.
    pub async fn ask(&self, request: &AccessRequest<'_>) -> Result<HeaderMap, Box<AccessAnswer>> {
        match &self.forward {
            Some(forward) => forward.admit(request).await,
            None => Ok(HeaderMap::new()),
        }
    }

    /// Gives a request the fields of the server's answer that are for it.
    pub fn copy_fields(&self, answer: &HeaderMap, request: &mut HeaderMap) {
        if let Some(forward) = &self.forward {
            forward.copy(answer, request);
        }
    }

    /// The most bytes of a request body.
    pub fn max_body(&self) -> Option<u64> {
        self.settings.max_body
    }

    /// The limits of bytes per time.
    pub fn bandwidth(&self) -> &Bandwidth {
        &self.settings.bandwidth
    }

    /// The rate that all responses of the site share.
    pub fn site_pacer(&self) -> Option<&Arc<Pacer>> {
        self.site_pacer.as_ref()
    }
}

impl AccessSettings {
    /// Each rule in words, in the order in which they are checked.
    pub fn in_words(&self) -> Vec<String> {
        let Self { rules, limits, max_body, bandwidth, basic, referers, cors, signed, .. } = self;
        let Self { forward, limits_of, site_rate_of, .. } = self;
        let mut lines = Vec::new();
        lines.extend(max_body.map(|most| format!("request bodies of at most {}", ByteSize(most))));
        lines.extend(rules.iter().map(ToString::to_string));
        for LimitSettings { key, rate, concurrent, cluster, .. } in limits {
            let scope = if *cluster { ", shared by the cluster" } else { ", at this node" };
            let of = limits_of.as_ref().map(|route| format!(" (of the route {route})"));
            let rate = rate.map(|bounds| {
                let nodelay = if bounds.nodelay { " nodelay" } else { "" };
                format!("{} burst {}{nodelay}{scope}", bounds.rate, bounds.burst)
            });
            let at_once = concurrent.map(|most| format!("{most} at once, at this node"));
            let bounds: Vec<String> = rate.into_iter().chain(at_once).collect();
            let of = of.unwrap_or_default();
            lines.push(format!("limit by {key}{of}: {}", bounds.join("; ")));
        }
        lines.extend(cors.as_ref().map(|cors| format!("CORS for {}", cors.origins.join(", "))));
        lines.extend(referers.as_ref().map(|referers| format!("referers {referers}")));
        lines.extend(signed.as_ref().map(|signed| signed.in_words().to_owned()));
        lines.extend(basic.as_ref().map(|basic| format!("a password, realm {:?}", basic.realm)));
        lines.extend(forward.as_ref().map(ForwardAuthSettings::in_words));
        let rate = |of: &str, rate: u64| format!("{of} at {}/s", ByteSize(rate));
        lines.extend(bandwidth.connection.map(|bytes| rate("each connection", bytes)));
        let whole = site_rate_of.as_ref().map(|route| format!("the route {route}"));
        lines.extend(
            bandwidth.site.map(|bytes| rate(whole.as_deref().unwrap_or("the site"), bytes)),
        );
        lines
    }

    /// Whether they demand and bound nothing.
    pub fn is_empty(&self) -> bool {
        let Self {
            rules,
            countries: _,
            limits,
            max_body,
            bandwidth,
            basic,
            referers,
            cors,
            signed,
            forward,
            limits_of: _,
            site_rate_of: _,
        } = self;
        rules.is_empty()
            && limits.is_empty()
            && max_body.is_none()
            && *bandwidth == Bandwidth { after: bandwidth.after, ..Bandwidth::default() }
            && basic.is_none()
            && referers.is_none()
            && cors.is_none()
            && signed.is_none()
            && forward.is_none()
    }
}

impl AccessAnswer {
    /// A refusal. The client gets no reason: it would tell an attacker what to change.
    pub fn forbidden(reason: &'static str) -> Box<Self> {
        Box::new(Self {
            status: StatusCode::FORBIDDEN,
            headers: HeaderMap::new(),
            text: "access is denied",
            body: None,
            reason: Some(reason),
        })
    }

    /// The request's body is larger than the site allows.
    pub fn body_too_large() -> Box<Self> {
        Box::new(Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            headers: HeaderMap::new(),
            text: "the request body is too large",
            body: None,
            reason: Some("the request body is too large"),
        })
    }
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

impl Limit {
    fn new(settings: &LimitSettings) -> Self {
        Self {
            settings: settings.clone(),
            hasher: RandomState::new(),
            buckets: settings.rate.map(|_| RateTable::new(settings.keys)),
            served: settings.concurrent.map(|_| ConcurrencyTable::new()),
        }
    }

    fn admit(
        &self,
        request: &AccessRequest<'_>,
        passage: &mut Passage,
    ) -> Result<(), Box<AccessAnswer>> {
        let AccessRequest { client, url, headers, .. } = *request;
        let path = url.target.split('?').next().unwrap_or_default();
        let Some(key) = self.settings.key.of(&self.hasher, client, path, headers) else {
            return Ok(());
        };
        if let (Some(served), Some(most)) = (&self.served, self.settings.concurrent) {
            match served.enter(key, most) {
                Some(place) => passage.places.push(place),
                None => return Err(self.too_many_at_once()),
            }
        }
        if let (Some(buckets), Some(bounds)) = (&self.buckets, &self.settings.rate) {
            let nodes = if self.settings.cluster { request.nodes } else { 1 };
            match buckets.admit(key, request.now, bounds, nodes) {
                RateVerdict::Pass { wait } => passage.wait = passage.wait.max(wait),
                RateVerdict::Refused { retry } => return Err(self.too_often(bounds, nodes, retry)),
            }
        }
        Ok(())
    }

    /// The refusal of a request that comes too soon, with the fields of draft-ietf-httpapi-ratelimit-headers.
    fn too_often(&self, bounds: &RateBounds, nodes: u32, retry: Duration) -> Box<AccessAnswer> {
        let seconds = retry.as_nanos().div_ceil(1_000_000_000).max(1) as u64;
        let (quota, window) = bounds.quota(nodes);
        let name = &self.settings.key;
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        // The text of a key has no quotes.
        for (field, text) in [
            (RATE_LIMIT_POLICY, format!("\"{name}\";q={quota};w={window}")),
            (RATE_LIMIT, format!("\"{name}\";r=0;t={seconds}")),
        ] {
            headers.extend(HeaderValue::try_from(text).map(|value| (field, value)));
        }
        too_many(headers, "requests come too often", "the rate limit is exceeded")
    }

    fn too_many_at_once(&self) -> Box<AccessAnswer> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from(1))]);
        too_many(
            headers,
            "too many requests at once",
            "the limit of concurrent requests is reached",
        )
    }
}

fn too_many(headers: HeaderMap, text: &'static str, reason: &'static str) -> Box<AccessAnswer> {
    let status = StatusCode::TOO_MANY_REQUESTS;
    Box::new(AccessAnswer { status, headers, text, body: None, reason: Some(reason) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed::{Digest, Link};

    fn request(headers: &HeaderMap) -> AccessRequest<'_> {
        AccessRequest {
            client: IpAddr::from([192, 0, 2, 1]),
            host: "a.test",
            url: RequestUrl { scheme: "http", host: "a.test", target: "/" },
            method: &Method::GET,
            headers,
            now: 1_000_000_000,
            unix: 1,
            nodes: 1,
        }
    }

    fn limit(rate: Option<&str>, concurrent: Option<u32>) -> LimitSettings {
        let bounds =
            |text: &str| RateBounds { rate: text.parse().unwrap(), burst: 1, nodelay: true };
        let (key, rate) = (LimitKey::Client(32), rate.map(bounds));
        LimitSettings { key, rate, concurrent, keys: 64, cluster: false }
    }

    fn access(limits: Vec<LimitSettings>, before: Option<&Arc<Access>>) -> Arc<Access> {
        let settings = AccessSettings { limits, ..AccessSettings::default() };
        Access::new(&settings, before.map_or(&[], std::slice::from_ref), 1).unwrap()
    }

    #[test]
    fn settings_that_demand_nothing_make_no_rules() {
        assert!(Access::new(&AccessSettings::default(), &[], 1).is_none());
    }

    #[test]
    fn refusal_by_rate_says_when_to_come_back() {
        let access = access(vec![limit(Some("30r/m"), None)], None);
        let headers = HeaderMap::new();
        for _ in 0..2 {
            assert_eq!(access.admit(&request(&headers)).unwrap().wait, Duration::ZERO);
        }
        let answer = access.admit(&request(&headers)).unwrap_err();
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers[RETRY_AFTER], "2");
        assert_eq!(answer.headers[RATE_LIMIT_POLICY], "\"client\";q=2;w=4");
        assert_eq!(answer.headers[RATE_LIMIT], "\"client\";r=0;t=2");
        let other = AccessRequest { client: IpAddr::from([192, 0, 2, 2]), ..request(&headers) };
        assert!(access.admit(&other).is_ok());
    }

    #[test]
    fn reload_keeps_the_state_of_limits_that_stay() {
        let (rate, places) = (limit(Some("1r/m"), None), limit(None, Some(1)));
        let before = access(vec![rate.clone(), places.clone()], None);
        let headers = HeaderMap::new();
        let passage = before.admit(&request(&headers)).unwrap();
        let same = access(vec![places], Some(&before));
        assert!(same.admit(&request(&headers)).is_err(), "its place is still taken");
        drop(passage);
        assert!(same.admit(&request(&headers)).is_ok());
        let same = access(vec![rate], Some(&before));
        assert!(same.admit(&request(&headers)).is_ok(), "one of the burst");
        assert!(same.admit(&request(&headers)).is_err());
        let other = access(vec![limit(Some("2r/m"), None)], Some(&before));
        assert!(other.admit(&request(&headers)).is_ok());
    }

    #[test]
    fn page_of_another_origin_may_read_answers_and_refusals() {
        let cors = Cors {
            origins: vec!["*".to_owned()],
            methods: Vec::new(),
            headers: None,
            expose: Vec::new(),
            credentials: false,
            max_age: Duration::ZERO,
        };
        let headers = HeaderMap::new();
        let answer = cors.answer(&headers);
        let limits = vec![limit(None, Some(1))];
        let settings = AccessSettings { limits, cors: Some(cors), ..AccessSettings::default() };
        let access = Access::new(&settings, &[], 1).unwrap();
        let passage = access.admit(&request(&headers)).unwrap();
        let refusal = access.admit(&request(&headers)).unwrap_err();
        assert_eq!(refusal.headers[http::header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert_eq!(passage.cors, Some(answer));
    }

    #[test]
    fn signed_url_goes_on_without_its_signature_and_any_other_is_refused() {
        let signed = SignedUrls::Link(Link {
            digest: Digest::HmacSha256,
            message: "{expires}{path}".parse().unwrap(),
            secrets: vec!["secret".to_owned()],
            signature: "s".to_owned(),
            expires: "e".to_owned(),
        });
        let headers = HeaderMap::new();
        let url = request(&headers).url;
        let target = signed.sign(&url, None, 1).unwrap();
        let settings =
            AccessSettings { signed: Some(Arc::new(signed)), ..AccessSettings::default() };
        let access = Access::new(&settings, &[], 1).unwrap();
        let admit = |target| {
            access.admit(&AccessRequest { url: RequestUrl { target, ..url }, ..request(&headers) })
        };
        assert_eq!(admit(&target).unwrap().target.as_deref(), Some("/"));
        assert_eq!(admit("/").unwrap_err().status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn request_that_is_refused_later_gives_its_place_back() {
        let limits = vec![limit(None, Some(1))];
        let settings = AccessSettings {
            limits,
            referers: Some(Referers::default()),
            ..AccessSettings::default()
        };
        let access = Access::new(&settings, &[], 1).unwrap();
        let headers = HeaderMap::new();
        for _ in 0..3 {
            let answer = access.admit(&request(&headers)).unwrap_err();
            assert_eq!(answer.status, StatusCode::FORBIDDEN);
        }
    }
}
