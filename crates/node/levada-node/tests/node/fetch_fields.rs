//! Fetches that others share have the fields of a list and of the key; what is not shared has all fields.

use std::net::SocketAddr;

use levada_node::Running;

use crate::support::{
    nodes::{Cluster, sites},
    origin::Asked,
    *,
};

/// Fields that are in no key, and change what many origins answer.
const UNKEYED: [(&str, &str); 10] = [
    ("X-Host", "evil.test"),
    ("X-Original-Host", "evil.test"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Middleware-Subrequest", "middleware"),
    ("X-Accel-Redirect", "/secret"),
    ("X-Sendfile", "/secret"),
    ("Origin", "https://evil.test"),
    ("Content-Type", "text/evil"),
    ("Referer", "https://evil.test/"),
    ("Sec-Fetch-Mode", "cors"),
];

/// Fields that pass.
const LISTED: [(&str, &str); 6] = [
    ("Accept", "text/html"),
    ("Accept-Language", "de"),
    ("User-Agent", "test"),
    ("Cookie", "a=b"),
    ("TraceParent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("Cache-Control", "max-age=1000"),
];

async fn world(lines: &str) -> (Origin, Running, SocketAddr) {
    alone(|settings| {
        let origin = settings.sites[0].servers.origins[0].to_string();
        let text = format!("[[site]]\nhosts = \"{HOST}\"\norigin = \"{origin}\"\n{lines}");
        settings.sites = sites(&text);
        settings.cache.block = 64 << 10;
    })
    .await
}

fn has_none(asked: &Asked) -> bool {
    UNKEYED.iter().all(|(name, _)| asked.header(name).is_none())
}

#[tokio::test]
async fn shared_fetch_has_the_fields_of_the_list_of_the_key_and_of_the_operator() {
    let (origin, node, at) = world(
        "cache_key = { headers = [\"X-Lang\"] }\nrequest_headers.set = { \"X-Set\" = \"mine\" }\n\
         request_headers.add = { \"X-Added\" = \"mine\" }\n",
    )
    .await;
    let own = [("X-Lang", "de"), ("X-Set", "evil"), ("X-Added", "evil")];
    let fields = [&UNKEYED[..], &LISTED, &own].concat();
    assert_eq!(get_with(at, "/a", &fields).await.status, 200);
    let asked = &origin.asked("/a")[0];
    assert!(has_none(asked), "{}", asked.head);
    for (name, value) in LISTED.iter().filter(|(name, _)| *name != "TraceParent") {
        assert_eq!(asked.header(name).as_deref(), Some(*value), "{name}");
    }
    assert!(asked.header("traceparent").is_some());
    for (name, value) in [("x-lang", "de"), ("x-set", "mine"), ("x-added", "mine")] {
        assert_eq!(asked.header(name).as_deref(), Some(value), "{name}");
    }
    for name in ["host", "via", "cdn-loop", "x-forwarded-for", "x-forwarded-host"] {
        assert!(asked.header(name).is_some(), "{name}");
    }
    assert!(get_with(at, "/a", &[("X-Lang", "de")]).await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn fields_that_the_expression_of_the_key_names_pass() {
    let key = "request.headers['x-plan'] == 'gold' ? 'gold' : 'free'";
    let (origin, node, at) = world(&format!("cache_key = {{ expression = \"{key}\" }}")).await;
    get_with(at, "/a", &[("X-Plan", "gold"), ("X-Other", "1")]).await;
    let asked = &origin.asked("/a")[0];
    assert_eq!(asked.header("x-plan").as_deref(), Some("gold"));
    assert_eq!(asked.header("x-other"), None);
    settled(&node).await;
}

#[tokio::test]
async fn site_lets_more_fields_pass_or_all() {
    let (origin, node, at) = world("fetch_fields = [\"Origin\"]\n").await;
    get_with(at, "/a", &UNKEYED).await;
    let asked = &origin.asked("/a")[0];
    assert!(asked.header("origin").is_some() && asked.header("x-host").is_none());
    settled(&node).await;
    let (origin, node, at) = world("fetch_fields = [\"*\"]\n").await;
    get_with(at, "/a", &UNKEYED).await;
    let asked = &origin.asked("/a")[0];
    assert!(UNKEYED.iter().all(|(name, _)| asked.header(name).is_some()), "{}", asked.head);
    settled(&node).await;
}

#[tokio::test]
async fn blocks_revalidations_and_refreshes_are_shared_fetches_too() {
    let (origin, node, at) = world("stale_while_revalidate = \"1h\"\n").await;
    let body: Vec<u8> = (0..200 << 10).map(|at| (at % 251) as u8).collect();
    origin.script("/long", move |asked| {
        let whole = Reply::cached(body.clone()).with("etag", "\"x\"");
        let Some(range) = asked.header("range") else { return whole };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, end): (usize, usize) =
            (first.parse().unwrap(), body.len().min(last.parse::<usize>().unwrap() + 1));
        Reply::cached(&body[first..end])
            .status("206 Partial Content")
            .with("etag", "\"x\"")
            .with("content-range", &format!("bytes {first}-{}/{}", end - 1, body.len()))
    });
    let ranged = |range| [&UNKEYED[..], &[("Range", range)]].concat();
    for range in ["bytes=0-9", "bytes=150000-150009"] {
        let answer = get_with(at, "/long", &ranged(range)).await;
        assert_eq!((answer.status, answer.body.len()), (206, 10), "{range}");
        settled(&node).await;
    }
    assert!(origin.hits("/long") >= 2 && origin.asked("/long").iter().all(has_none));
    for (path, freshness) in [("/checked", "no-cache"), ("/stale", "max-age=0")] {
        origin.on(path, Reply::ok("x").with("cache-control", freshness).with("etag", "\"x\""));
        for _ in 0..3 {
            assert_eq!(get_with(at, path, &UNKEYED).await.text(), "x");
            settled(&node).await;
        }
        assert!(origin.hits(path) >= 3 && origin.asked(path).iter().all(has_none), "{path}");
    }
}

/// An origin whose response varies by a field, as it says.
fn vary_by(origin: &Origin, field: &'static str) {
    origin.script("/a", move |asked| {
        let value = asked.header(field).unwrap_or_else(|| "none".to_owned());
        Reply::cached(value).with("vary", field)
    });
}

#[tokio::test]
async fn field_by_which_responses_vary_is_in_the_key_and_passes() {
    let (origin, node, at) = world("").await;
    vary_by(&origin, "x-foo");
    for (value, hit) in [
        (Some("1"), false),
        (Some("1"), true),
        (None, true),
        (Some("2"), false),
        (Some("2"), true),
        (Some("1"), true),
    ] {
        let fields: Vec<_> =
            value.map(|value| ("X-Foo", value)).into_iter().chain(UNKEYED).collect();
        let answer = get_with(at, "/a", &fields).await;
        assert_eq!(answer.text(), value.unwrap_or("none"));
        assert_eq!(answer.is_hit(), hit, "{value:?} {}", answer.field("cache-status"));
        settled(&node).await;
    }
    assert_eq!(origin.hits("/a"), 3, "without the field, with 1 and with 2");
    assert!(origin.asked("/a").iter().all(has_none));
}

#[tokio::test]
async fn response_that_a_field_selected_without_saying_so_is_not_shared() {
    let (origin, node, at) = world("").await;
    vary_by(&origin, "x-foo");
    get_with(at, "/a", &[("X-Foo", "1")]).await;
    settled(&node).await;
    origin.script("/a", |asked| {
        let value = asked.header("x-foo").unwrap_or_else(|| "none".to_owned());
        Reply::cached(value)
    });
    for _ in 0..2 {
        let answer = get_with(at, "/a", &[("X-Foo", "evil")]).await;
        assert_eq!((answer.text(), answer.is_hit()), ("evil".to_owned(), false));
        assert!(answer.field("cache-status").contains("unkeyed-field"), "{answer:?}");
        settled(&node).await;
    }
    let others = get_with(at, "/a", &[("X-Foo", "1")]).await;
    assert_eq!((others.text(), others.is_hit()), ("1".to_owned(), true));
    settled(&node).await;
}

#[tokio::test]
async fn what_is_not_shared_has_all_fields() {
    let (origin, node, at) = world("[[site.route]]\npath = \"/off\"\ncache = false\n").await;
    origin.otherwise(|asked| {
        let who = asked.header("x-api-key").unwrap_or_else(|| "nobody".to_owned());
        Reply::ok(who).with("cache-control", "private, max-age=60")
    });
    for (round, asked) in [(1, 2), (2, 3), (3, 4)] {
        let answer = get_with(at, "/mine", &[("X-Api-Key", "me")]).await;
        assert_eq!(answer.text(), "me", "{round}");
        assert!(answer.field("cache-status").contains("private"), "{answer:?}");
        // The first was asked as if it were for all; from then on it is known that it is not.
        assert_eq!(origin.hits("/mine"), asked, "{round}");
        settled(&node).await;
    }
    // The fields that browsers always send are not missed.
    get_with(at, "/page", &[("Sec-Fetch-Mode", "navigate"), ("DNT", "1")]).await;
    assert_eq!(origin.hits("/page"), 1);
    get_with(at, "/off", &UNKEYED).await;
    let head = head_of("POST", "/post", &[&UNKEYED[..], &[("Content-Length", "0")]].concat());
    Wire::saying(at, head).await.answer_to("POST").await;
    for path in ["/off", "/post"] {
        let asked = &origin.asked(path)[0];
        assert!(UNKEYED.iter().all(|(name, _)| asked.header(name).is_some()), "{}", asked.head);
    }
    settled(&node).await;
}

#[tokio::test]
async fn answer_to_a_post_with_unkeyed_fields_is_not_for_later_requests() {
    let (origin, node, at) = world("").await;
    origin.script("/a", |asked| {
        let host = asked.header("x-host").unwrap_or_else(|| "good".to_owned());
        Reply::cached(host).with("content-location", "/a")
    });
    let post = |fields: &[(&str, &str)]| {
        let own = [("Content-Length", "2"), ("Content-Type", "text/plain")];
        head_of("POST", "/a", &[fields, &own].concat()) + "hi"
    };
    Wire::saying(at, post(&[("X-Host", "evil")])).await.answer_to("POST").await;
    settled(&node).await;
    assert_eq!(get(at, "/a").await.text(), "good");
    settled(&node).await;
    Wire::saying(at, post(&[])).await.answer_to("POST").await;
    settled(&node).await;
    assert!(get(at, "/a").await.is_hit());
}

#[tokio::test]
async fn peer_gets_what_its_key_is_made_of() {
    let origin = Origin::start().await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        let origin = settings.sites[0].servers.origins[0].to_string();
        let lines = "cache_key = { headers = [\"X-Lang\"] }";
        let text = format!("[[site]]\nhosts = \"{HOST}\"\norigin = \"{origin}\"\n{lines}");
        settings.sites = sites(&text);
    })
    .await;
    origin.otherwise(|asked| Reply::cached(asked.header("x-lang").unwrap_or_default()));
    for number in 0..8 {
        let path = format!("/{number}");
        for lang in ["de", "en"] {
            let fields = [&UNKEYED[..], &[("X-Lang", lang)]].concat();
            for node in 0..2 {
                let answer = get_with(cluster.client(node), &path, &fields).await;
                assert_eq!(answer.text(), lang, "{path} {node}");
            }
        }
        assert!(origin.asked(&path).iter().all(has_none), "{path}");
    }
    cluster.settled().await;
}
