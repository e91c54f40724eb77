//! Compares the decisions with those of `http-cache-semantics`, over random exchanges.
//!
//! Wherever the two differ, one of the [`DIFFERENCES`] must apply and cite the document that
//! supports ours. Each of them must explain some difference alone, so that the list stays accurate.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_cache_semantics::{CacheOptions, CachePolicy};
use levada_cache::{
    CacheRules, OriginExchange, RequestDirectives, ServeDecision, may_store, serve,
};
use levada_types::Rng;
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

const NOW: u64 = 1_800_000_000;
const CASES: usize = 100_000;

struct Difference {
    name: &'static str,
    because: &'static str,
    applies: fn(&Case) -> bool,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "status that the oracle does not know",
        because: "RFC 9111, Sec. 3 and 5.2.2.3: only must-understand limits final statuses",
        applies: |case| ![200, 301, 302, 404].contains(&case.status),
    },
    Difference {
        name: "must-understand",
        because: "RFC 9111, Sec. 5.2.2.3: outweighs no-store for a status that is understood",
        applies: |case| case.says("must-understand"),
    },
    Difference {
        name: "qualified private or no-cache",
        because: "RFC 9111, Sec. 5.2.2.4 and 5.2.2.7: only the named fields are concerned",
        applies: |case| case.says("=\"x\""),
    },
    Difference {
        name: "targeted directives",
        because: "RFC 9213, Sec. 2.2: they replace Cache-Control and Expires",
        applies: |case| case.has("cdn-cache-control"),
    },
    Difference {
        name: "nothing to reuse",
        because: "RFC 9111, Sec. 3: may, not must; without lifetime and validator it could never be reused",
        applies: |case| case.reason() == Some("no-use"),
    },
    Difference {
        name: "Vary: *",
        because: "RFC 9111, Sec. 4.1: matches no request, so storing it is useless",
        applies: |case| case.is("vary", "*"),
    },
    Difference {
        name: "cookies",
        because: "RFC 9111, Sec. 7.3: cookies do not forbid storing; ours stores them only where the configuration says so",
        applies: |case| case.has("set-cookie"),
    },
    Difference {
        name: "proxy-revalidate",
        because: "RFC 9111, Sec. 5.2.2.8: forbids use once stale, not while fresh",
        applies: |case| case.says("proxy-revalidate"),
    },
    Difference {
        name: "s-maxage and max-stale",
        because: "RFC 9111, Sec. 5.2.2.10: s-maxage implies proxy-revalidate",
        applies: |case| case.says("s-maxage") && case.asks("max-stale"),
    },
    Difference {
        name: "no-cache and max-stale",
        because: "RFC 9111, Sec. 4.2.4 and 5.2.2.4: what must be validated is never served stale",
        applies: |case| case.says("no-cache") && case.asks("max-stale"),
    },
    Difference {
        name: "Date in the past",
        because: "RFC 9111, Sec. 4.2.3: apparent_age counts",
        applies: |case| case.date_offset.is_some_and(|offset| offset < 0),
    },
    Difference {
        name: "several members of Age",
        because: "RFC 9111, Sec. 5.1: the first counts",
        applies: |case| case.is("age", "7200, 0"),
    },
    Difference {
        name: "Pragma in a response",
        because: "RFC 9111, Sec. 5.4: defined for requests only",
        applies: |case| case.has("pragma"),
    },
    Difference {
        name: "Pragma beside Cache-Control",
        because: "RFC 9111, Sec. 5.4: counts only without Cache-Control",
        applies: |case| {
            case.request.contains_key("pragma") && case.request.contains_key("cache-control")
        },
    },
    Difference {
        name: "immutable",
        because: "RFC 8246, Sec. 2: gives no lifetime, and saves fresh responses a reload",
        applies: |case| case.says("immutable"),
    },
    Difference {
        name: "guess longer than a day",
        because: "RFC 9111, Sec. 4.2.2: a heuristic may be bounded",
        applies: |case| case.last_modified_offset.is_some_and(|offset| offset < -864_000),
    },
    Difference {
        name: "stale-while-revalidate",
        because: "RFC 5861, Sec. 3: served stale within the window",
        applies: |case| case.says("stale-while-revalidate"),
    },
    Difference {
        name: "exactly max-stale",
        because: "RFC 9111, Sec. 5.2.1.2: no more than the specified number of seconds",
        applies: |case| case.asks("max-stale=40"),
    },
    Difference {
        name: "lifetime without a number",
        because: "RFC 9111, Sec. 4.2.1: invalid freshness information means stale",
        applies: |case| case.cache_control.contains(&"max-age"),
    },
    Difference {
        name: "lifetime beyond 2^31",
        because: "RFC 9111, Sec. 1.2.2: counts as 2^31",
        applies: |case| case.says("99999999999"),
    },
    Difference {
        name: "two values of one directive",
        because: "RFC 9111, Sec. 4.2.1: the first is used; it does not become must-revalidate",
        applies: |case| case.count("max-age") > 1 || case.count("s-maxage") > 1,
    },
];

/// The decisions of one side.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    storable: bool,
    /// Whether the stored response may be reused without validation, and the remaining freshness in
    /// seconds; only if both sides store.
    reuse: Option<(bool, u64)>,
}

struct Case {
    status: u16,
    cache_control: Vec<&'static str>,
    request: HeaderMap,
    response: HeaderMap,
    date_offset: Option<i64>,
    last_modified_offset: Option<i64>,
    /// Seconds in the cache when the next request arrives, with the same fields.
    elapsed: u64,
}

impl Case {
    fn random(rng: &mut Rng) -> Self {
        let mut case = Self {
            status: pick(rng, &[200, 200, 200, 301, 302, 404, 299, 500, 503]),
            cache_control: Vec::new(),
            request: HeaderMap::new(),
            response: HeaderMap::new(),
            date_offset: pick(rng, &[None, Some(0), Some(0), Some(-100), Some(50)]),
            last_modified_offset: pick(
                rng,
                &[None, None, Some(-1000), Some(-10_000_000), Some(10)],
            ),
            elapsed: pick(rng, &[0, 10, 60, 100, 100, 5000]),
        };
        let expires = pick(rng, &[None, None, Some(-10), Some(0), Some(100), Some(5000)]);
        case.respond_date("date", case.date_offset);
        case.respond_date("last-modified", case.last_modified_offset);
        case.respond_date("expires", expires);
        case.say(rng);
        case.respond(rng);
        case.ask(rng);
        case
    }

    fn say(&mut self, rng: &mut Rng) {
        const MENU: &[&str] = &[
            "max-age=60",
            "max-age=60",
            "max-age=0",
            "max-age=3600",
            "max-age=abc",
            "max-age",
            "max-age=99999999999",
            "s-maxage=60",
            "s-maxage=0",
            "no-cache",
            "no-store",
            "private",
            "public",
            "public",
            "must-revalidate",
            "proxy-revalidate",
            "immutable",
            "foo",
            "must-understand",
            "no-cache=\"x\"",
            "private=\"x\"",
            "stale-while-revalidate=100",
        ];
        for _ in 0..rng.below(4) {
            self.cache_control.push(pick(rng, MENU));
        }
        if !self.cache_control.is_empty() {
            self.respond_with("cache-control", &self.cache_control.join(", "));
        }
    }

    fn respond(&mut self, rng: &mut Rng) {
        for (name, values) in [
            ("age", &["0", "50", "7200, 0", "abc"][..]),
            ("etag", &["\"a\"", "W/\"a\""]),
            ("set-cookie", &["a=b"]),
            ("vary", &["accept", "*"]),
            ("pragma", &["no-cache"]),
            ("cdn-cache-control", &["max-age=60", "no-store"]),
        ] {
            if rng.below(5) == 0 {
                self.respond_with(name, pick(rng, values));
            }
        }
    }

    fn ask(&mut self, rng: &mut Rng) {
        const MENU: &[&str] = &[
            "no-cache",
            "no-store",
            "max-age=0",
            "max-age=60",
            "min-fresh=30",
            "max-stale",
            "max-stale=40",
            "max-stale=40",
            "only-if-cached",
        ];
        for (name, values) in
            [("cache-control", MENU), ("authorization", &["x"]), ("pragma", &["no-cache"])]
        {
            if rng.below(4) == 0 {
                let value = HeaderValue::from_static(pick(rng, values));
                self.request.insert(HeaderName::from_static(name), value);
            }
        }
    }

    fn respond_with(&mut self, name: &'static str, value: &str) {
        self.response.insert(HeaderName::from_static(name), value.parse().unwrap());
    }

    fn respond_date(&mut self, name: &'static str, offset: Option<i64>) {
        if let Some(offset) = offset {
            let moment = time(NOW.checked_add_signed(offset).unwrap());
            self.respond_with(name, &httpdate::fmt_http_date(moment));
        }
    }

    fn says(&self, part: &str) -> bool {
        self.cache_control.iter().any(|directive| directive.contains(part))
    }

    fn count(&self, name: &str) -> usize {
        let values = self.cache_control.iter().filter(|d| d.split('=').next() == Some(name));
        values.collect::<std::collections::BTreeSet<_>>().len()
    }

    fn has(&self, name: &str) -> bool {
        self.response.contains_key(name)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.response.get(name).is_some_and(|v| v == value)
    }

    fn asks(&self, part: &str) -> bool {
        self.request.get("cache-control").is_some_and(|v| v.to_str().unwrap().contains(part))
    }

    fn exchange(&self) -> OriginExchange<'_> {
        OriginExchange {
            method: &Method::GET,
            request: &self.request,
            status: StatusCode::from_u16(self.status).unwrap(),
            response: &self.response,
            requested: time(NOW),
            received: time(NOW),
        }
    }

    fn reason(&self) -> Option<&'static str> {
        may_store(&self.exchange(), &CacheRules::default()).err().map(|reason| reason.as_str())
    }

    fn ours(&self) -> (bool, (bool, u64)) {
        let Ok(stored) = may_store(&self.exchange(), &CacheRules::default()) else {
            return (false, (false, 0));
        };
        let now = time(NOW + self.elapsed);
        let served = serve(&stored.freshness, &RequestDirectives::of(&self.request), now);
        let left = if stored.freshness.validates_always() { 0 } else { stored.freshness.ttl(now) };
        let at_once = matches!(served, ServeDecision::Fresh { .. } | ServeDecision::Stale { .. });
        (true, (at_once, left.max(0) as u64))
    }

    fn theirs(&self) -> (bool, (bool, u64)) {
        let mut request = Request::get("http://a.example/").body(()).unwrap();
        request.headers_mut().clone_from(&self.request);
        let mut response = Response::builder().status(self.status).body(()).unwrap();
        response.headers_mut().clone_from(&self.response);
        let options = CacheOptions { shared: true, ..CacheOptions::default() };
        let policy = CachePolicy::new_options(&request, &response, time(NOW), options);
        let now = time(NOW + self.elapsed);
        let at_once = policy.before_request(&request, now).satisfies_without_revalidation();
        (policy.is_storable(), (at_once, policy.time_to_live(now).as_secs()))
    }

    fn decisions(&self) -> (Decision, Decision) {
        let ((our_store, our_reuse), (their_store, their_reuse)) = (self.ours(), self.theirs());
        let both = our_store && their_store;
        let verdict = |storable, reuse| Decision { storable, reuse: both.then_some(reuse) };
        (verdict(our_store, our_reuse), verdict(their_store, their_reuse))
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len())]
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn decisions_differ_from_the_oracle_only_as_documented() {
    let mut rng = Rng::new(9111);
    let mut alone: BTreeMap<&str, usize> = DIFFERENCES.iter().map(|d| (d.name, 0)).collect();
    let (mut same, mut stored, mut at_once) = (0, 0, 0);
    for _ in 0..CASES {
        let case = Case::random(&mut rng);
        let (ours, theirs) = case.decisions();
        stored += usize::from(ours.storable);
        at_once += usize::from(ours.reuse.is_some_and(|(at_once, _)| at_once));
        if ours == theirs {
            same += 1;
            continue;
        }
        let applying: Vec<&Difference> =
            DIFFERENCES.iter().filter(|difference| (difference.applies)(&case)).collect();
        assert!(
            !applying.is_empty(),
            "undocumented: ours {ours:?}, theirs {theirs:?}\nasked {:?}\n{} {:?}\nafter {} s",
            case.request,
            case.status,
            case.response,
            case.elapsed,
        );
        if let [only] = applying[..] {
            *alone.entry(only.name).or_default() += 1;
        }
    }
    println!("{CASES} exchanges: {same} alike, {stored} stored, {at_once} served at once");
    for difference in DIFFERENCES {
        println!("{:6}  {}: {}", alone[difference.name], difference.name, difference.because);
    }
    let idle: Vec<_> = alone.iter().filter(|(_, times)| **times == 0).collect();
    assert!(idle.is_empty(), "these explain no difference alone: {idle:?}");
    assert!(stored > CASES / 10 && at_once > CASES / 100, "too few cases reach the store");
}
