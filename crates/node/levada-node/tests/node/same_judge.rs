//! HTTP/2 refuses what HTTP/1 refuses: the same request, sent by both protocols.

use http::{HeaderMap, HeaderName, Request, Uri, Version, uri::PathAndQuery};
use http_body_util::{BodyExt, Empty};
use hyper::body::Frame;
use proptest::{prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};

use crate::{
    http2::{Body, body_of, h2c},
    support::*,
};

/// A request, before a protocol writes it.
#[derive(Clone, Debug)]
struct Draft {
    method: &'static str,
    scheme: Option<&'static str>,
    authority: String,
    target: String,
    fields: Vec<(&'static str, String)>,
    /// A body with these trailers.
    trailers: Option<Vec<(&'static str, &'static str)>>,
}

impl Draft {
    fn new(authority: &str, target: &str) -> Self {
        Self {
            method: "GET",
            scheme: None,
            authority: authority.to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
            trailers: None,
        }
    }

    fn field(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, value.to_owned()));
        self
    }

    fn over_http1(&self) -> String {
        let Self { method, authority, target, .. } = self;
        let target = match self.scheme {
            _ if self.method == "CONNECT" => authority.clone(),
            Some(scheme) => format!("{scheme}://{authority}{target}"),
            None => target.clone(),
        };
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n");
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        match &self.trailers {
            None => text + "\r\n",
            Some(trailers) => {
                text += "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n";
                trailers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
                text + "\r\n"
            }
        }
    }

    /// `None` where no client of this library can say it.
    fn over_http2(&self) -> Option<Request<Body>> {
        let uri = if self.method == "CONNECT" {
            Uri::builder().authority(self.authority.as_str()).build().ok()?
        } else {
            let target: PathAndQuery = self.target.parse().ok()?;
            if target.as_str() != self.target {
                return None;
            }
            let uri = Uri::builder().scheme(self.scheme.unwrap_or("http"));
            uri.authority(self.authority.as_str()).path_and_query(target).build().ok()?
        };
        let mut request = Request::builder().version(Version::HTTP_2).method(self.method).uri(uri);
        for (name, value) in &self.fields {
            request = request.header(*name, value);
        }
        let body = match &self.trailers {
            None => Empty::new().map_err(|never| match never {}).boxed(),
            Some(trailers) => {
                let mut map = HeaderMap::new();
                for (name, value) in trailers {
                    map.append(HeaderName::from_static(name), value.parse().unwrap());
                }
                // Of unknown length: with a length, HTTP/1 has no trailers.
                let (frames, receiver) = tokio::sync::mpsc::channel(2);
                frames.try_send(Ok(Frame::data("ab".into()))).unwrap();
                frames.try_send(Ok(Frame::trailers(map))).unwrap();
                body_of(receiver)
            }
        };
        request.body(body).ok()
    }
}

/// The status over HTTP/2, or `None` when the stream was reset.
async fn ask_http2(at: std::net::SocketAddr, request: Request<Body>) -> Option<u16> {
    let mut sender = h2c(at).await;
    let response = within(sender.send_request(request)).await.ok()?;
    Some(response.status().as_u16())
}

async fn ask_http1(at: std::net::SocketAddr, draft: &Draft) -> u16 {
    Wire::saying(at, draft.over_http1()).await.answer_to(draft.method).await.status
}

#[tokio::test]
async fn faults_of_a_head_get_the_same_status_over_both_protocols() {
    let (origin, node, at) = alone(|settings| {
        settings.listeners[0].h2c = true;
        settings.sites[0].hosts.push("*".to_owned());
    })
    .await;
    let many = (0..120).fold(Draft::new(HOST, "/"), |draft, _| draft.field("x-many", "1"));
    let mut ftp = Draft::new(HOST, "/");
    ftp.scheme = Some("ftp");
    for (status, draft) in [
        (400, Draft::new("a.test:x@evil.com", "/")),
        (400, Draft::new("user@a.test", "/")),
        (400, Draft::new("a.test:123456", "/")),
        (400, Draft::new("a,b.test", "/")),
        (400, Draft::new(HOST, "/a\"b")),
        (400, Draft::new(HOST, "*")),
        (400, Draft::new(HOST, "/").field("content-length", "5, 5")),
        (414, Draft::new(HOST, &format!("/{}", "x".repeat(20 << 10)))),
        (400, ftp),
        (431, many),
    ] {
        assert_eq!(ask_http1(at, &draft).await, status, "{draft:?}");
        let request = draft.over_http2().unwrap();
        let answered = ask_http2(at, request).await;
        assert!(answered.is_none_or(|answered| answered == status), "{answered:?}: {draft:?}");
    }
    assert_eq!(origin.total(), 0);
    settled(&node).await;
}

#[tokio::test]
async fn request_with_two_hosts_is_refused_over_http2() {
    let (origin, node, at) = alone(|settings| settings.listeners[0].h2c = true).await;
    for (status, host) in [(400, "b.test"), (200, "A.test")] {
        let request = Draft::new(HOST, "/a").field("host", host).over_http2().unwrap();
        assert_eq!(ask_http2(at, request).await, Some(status), "{host}");
    }
    assert_eq!(origin.total(), 1);
    settled(&node).await;
}

fn drafts() -> impl Strategy<Value = Draft> {
    let authority = prop_oneof![
        4 => Just(HOST.to_owned()),
        2 => select(vec!["a.test:80", "a.test:", "[::1]:80", "[]", "b.test", "a.test:x@b.test", "@a.test"])
            .prop_map(str::to_owned),
        1 => "[a-z.:@%,_!\\[\\]-]{1,12}",
    ];
    let target = prop_oneof![
        2 => select(vec!["/", "*", "/a?b=c", "//b.test/", "/%00", "/a|b^`{}"]).prop_map(str::to_owned),
        1 => "/[!-~\u{e9}]{0,8}",
        1 => (1usize..30_000).prop_map(|length| format!("/{}", "x".repeat(length))),
    ];
    let method = select(vec!["GET", "GET", "POST", "OPTIONS", "TRACE", "CONNECT", "BREW"]);
    let scheme = select(vec![None, None, Some("http"), Some("https"), Some("ftp")]);
    let field = select(vec![
        ("content-length", "0"),
        ("content-length", "x"),
        ("host", "b.test"),
        ("expect", "200-fine"),
        ("max-forwards", "0"),
        ("x-a", "b"),
        ("cdn-loop", "levada, levada, levada, levada"),
    ]);
    let fields =
        (proptest::collection::vec(field, 0..3), prop_oneof![3 => 0usize..3, 1 => 90usize..130]);
    let trailers = select(vec![
        None,
        None,
        Some(vec![("x-sum", "1")]),
        Some(vec![("host", "b.test")]),
        Some(vec![("content-length", "3")]),
        Some(vec![("x-sum", "1"); 70]),
    ]);
    (method, scheme, authority, target, fields, trailers).prop_map(
        |(method, scheme, authority, target, (some, many), trailers)| {
            let trailers = trailers.filter(|_| method == "POST");
            let mut fields: Vec<_> =
                some.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
            fields.extend((0..many).map(|_| ("x-many", "1".to_owned())));
            // A length together with a body in chunks is a fault that HTTP/2 does not have.
            fields.retain(|(name, _)| trailers.is_none() || *name != "content-length");
            // This library's client states the length of an empty body over HTTP/2, where the method may have a body.
            let has_length = fields.iter().any(|(name, _)| *name == "content-length");
            if trailers.is_none() && !has_length && !["GET", "CONNECT"].contains(&method) {
                fields.push(("content-length", "0".to_owned()));
            }
            // A body in chunks has a field more over HTTP/1: at the limit of 100, that protocol alone would refuse it.
            if trailers.is_some() && fields.len() == 99 {
                fields.pop();
            }
            // The same host a second time is a fault over HTTP/1 alone (RFC 9112 Sec. 3.2, RFC 9113 Sec. 8.3.1).
            fields.retain(|(name, value)| *name != "host" || *value != authority);
            // HTTP/1 has no scheme before `*`.
            let scheme = scheme.filter(|_| target != "*");
            Draft { method, scheme, authority, target, fields, trailers }
        },
    )
}

#[test]
fn both_protocols_refuse_the_same_requests() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (origin, node, at) = alone(|settings| {
            settings.listeners[0].h2c = true;
            settings.sites[0].handling.cache = false;
        })
        .await;
        let mut runner = TestRunner::new(ProptestConfig::with_cases(400));
        for _ in 0..400 {
            let draft = drafts().new_tree(&mut runner).unwrap().current();
            let Some(request) = draft.over_http2() else { continue };
            let http1 = ask_http1(at, &draft).await;
            let http2 = ask_http2(at, request).await;
            let refused = |status: u16| status >= 400;
            assert_eq!(refused(http1), http2.is_none_or(refused), "{http1} {http2:?}: {draft:?}");
        }
        drop(origin);
        drop(node);
    });
}

#[tokio::test]
async fn options_goes_as_far_as_max_forwards_allows() {
    let (origin, node, at) = alone(|_| {}).await;
    for (forwards, status) in [("0", 204), ("7", 200)] {
        let request = head_of("OPTIONS", "/a", &[("Max-Forwards", forwards)]);
        assert_eq!(Wire::saying(at, request).await.answer().await.status, status, "{forwards}");
    }
    let asked = origin.asked("/a");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("max-forwards").unwrap(), "6");
    settled(&node).await;
}
