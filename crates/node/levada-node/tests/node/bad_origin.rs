//! Origins that send wrong answers, break off and change versions: no wrong bytes are stored, versions
//! are never mixed, no resource grows.

use std::{
    net::SocketAddr,
    slice::from_ref,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use levada_config::Settings;
use levada_node::Running;
use tokio::task::JoinSet;

use crate::support::{nodes::metric, origin::Asked, *};

const BLOCK: usize = 4 << 10;

async fn world_with(tweak: impl FnOnce(&mut Settings)) -> (Origin, Running, SocketAddr) {
    alone(|settings| {
        settings.cache.block = BLOCK as u64;
        tweak(settings);
    })
    .await
}

async fn world() -> (Origin, Running, SocketAddr) {
    world_with(|_| {}).await
}

/// One state of a resource.
#[derive(Clone)]
struct Version {
    etag: &'static str,
    body: Arc<[u8]>,
}

impl Version {
    /// A body whose bytes tell the version and the position.
    fn new(etag: &'static str, length: usize) -> Self {
        let salt = etag.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        let byte = |n: u32| ((n ^ salt).wrapping_mul(2_654_435_761) >> 23) as u8;
        Self { etag, body: (0..length as u32).map(byte).collect() }
    }

    /// The answer of a correct origin that supports ranges.
    fn answer(&self, asked: &Asked) -> Reply {
        if asked.header("if-none-match").is_some_and(|tag| tag == self.etag) {
            return self.reply("304 Not Modified", &[]);
        }
        let same = asked.header("if-range").is_none_or(|tag| tag == self.etag);
        match asked_range(asked, self.body.len()).filter(|_| same) {
            None => self.reply("200 OK", &self.body),
            Some((first, end)) if first >= end => self
                .reply("416 Range Not Satisfiable", b"no")
                .with("content-range", &format!("bytes */{}", self.body.len())),
            Some((first, end)) => self
                .part(first, end)
                .with("content-range", &format!("bytes {first}-{}/{}", end - 1, self.body.len())),
        }
    }

    /// A 206 without a `Content-Range`.
    fn part(&self, first: usize, end: usize) -> Reply {
        self.reply("206 Partial Content", &self.body[first..end])
    }

    fn reply(&self, status: &str, body: &[u8]) -> Reply {
        Reply::cached(body).status(status).with("etag", self.etag)
    }
}

fn asked_range(asked: &Asked, length: usize) -> Option<(usize, usize)> {
    let range = asked.header("range")?;
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return Some((length.saturating_sub(last.parse().ok()?), length));
    }
    Some((
        first.parse().ok()?,
        last.parse().map_or(length, |last: usize| length.min(last.saturating_add(1))),
    ))
}

/// Checks that a complete answer is one version, byte for byte.
#[track_caller]
fn check(answer: &Answer, versions: &[Version], why: &str) {
    if !answer.whole || matches!(answer.status, 0 | 304 | 416 | 500..) {
        return;
    }
    let etag = answer.field("etag");
    let version = versions.iter().find(|version| version.etag == etag);
    let version = version.unwrap_or_else(|| panic!("{why}: {} {:?}", answer.status, answer.fields));
    let whole = &version.body;
    let due = match answer.status {
        200 => 0..whole.len(),
        206 => {
            let told = answer.field("content-range");
            let parsed = told.strip_prefix("bytes ").and_then(|told| {
                let (range, length) = told.split_once('/')?;
                let (first, last) = range.split_once('-')?;
                (length.parse() == Ok(whole.len())).then_some(())?;
                Some(first.parse().ok()?..last.parse::<usize>().ok()? + 1)
            });
            parsed.unwrap_or_else(|| panic!("{why}: {told} of {}", whole.len()))
        }
        status => panic!("{why}: {status}"),
    };
    assert!(answer.body == whole[due], "{why}: bytes of something else {:?}", answer.fields);
}

async fn part(at: SocketAddr, first: usize, end: usize) -> Answer {
    get_with(at, "/a", &[("Range", &format!("bytes={first}-{}", end - 1))]).await
}

type Lie = fn(&Version, &Asked) -> Reply;

#[tokio::test]
async fn parts_that_are_not_what_they_say_are_never_stored() {
    fn told(version: &Version, asked: &Asked, shift: (isize, isize), total: isize) -> Reply {
        let length = version.body.len();
        let Some((first, end)) = asked_range(asked, length) else { return version.answer(asked) };
        let told = format!(
            "bytes {}-{}/{}",
            first as isize + shift.0,
            end as isize - 1 + shift.1,
            length as isize + total
        );
        version.part(first, end).with("content-range", &told)
    }
    fn sized(version: &Version, asked: &Asked, more: isize) -> Reply {
        let length = version.body.len();
        let Some((first, end)) = asked_range(asked, length) else { return version.answer(asked) };
        let told = format!("bytes {first}-{}/{length}", end - 1);
        let body = [&version.body[..], &[b'+'; 3 * BLOCK]].concat()
            [first..end.saturating_add_signed(more)]
            .to_vec();
        version.reply("206 Partial Content", &body).with("content-range", &told)
    }
    let lies: [(&str, Lie); 14] = [
        ("start", |v, a| told(v, a, (1, 1), 0)),
        ("end", |v, a| told(v, a, (0, 1), 0)),
        ("earlier", |v, a| told(v, a, (0, -1), 0)),
        ("longer", |v, a| told(v, a, (0, 0), 1)),
        ("shorter", |v, a| told(v, a, (0, 0), -1)),
        ("fewer bytes", |v, a| sized(v, a, -1)),
        ("more bytes", |v, a| sized(v, a, 1)),
        ("many more bytes", |v, a| sized(v, a, 3 * BLOCK as isize)),
        ("no range told", |v, a| match asked_range(a, v.body.len()) {
            Some((first, end)) => v.part(first, end),
            None => v.answer(a),
        }),
        ("multipart", |v, a| {
            let Some((first, end)) = asked_range(a, v.body.len()) else { return v.answer(a) };
            let told = format!("bytes {first}-{}/{}", end - 1, v.body.len());
            let text = format!("--b\r\ncontent-range: {told}\r\n\r\n");
            let body = [text.as_bytes(), &v.body[first..end], b"\r\n--b--\r\n"].concat();
            v.reply("206 Partial Content", &body)
                .with("content-type", "multipart/byteranges; boundary=b")
        }),
        ("multipart of the right length", |v, a| {
            let Some((first, end)) = asked_range(a, v.body.len()) else { return v.answer(a) };
            let told = format!("bytes {first}-{}/{}", end - 1, v.body.len());
            v.reply("206 Partial Content", &vec![b'-'; end - first])
                .with("content-range", &told)
                .with("content-type", "multipart/byteranges; boundary=b")
        }),
        ("not there", |v, _| {
            v.reply("416 Range Not Satisfiable", b"no").with("content-range", "bytes */10")
        }),
        ("not modified", |v, a| match a.header("if-none-match") {
            None if a.header("range").is_some() => v.reply("304 Not Modified", b""),
            _ => v.answer(a),
        }),
        ("beyond all numbers", |v, a| {
            let Some((first, end)) = asked_range(a, v.body.len()) else { return v.answer(a) };
            let told = format!("bytes {first}-{}/18446744073709551614", end - 1);
            v.part(first, end).with("content-range", &told)
        }),
    ];
    for length in [300, 5 * BLOCK + 77] {
        for (name, lie) in lies {
            for before in [false, true] {
                let version = Version::new("\"v1\"", length);
                let (origin, node, at) = world().await;
                let honest = version.clone();
                if before {
                    // The first block is stored already; the origin's answers for the rest are wrong.
                    origin.script("/a", move |asked| honest.answer(asked));
                    check(&part(at, 0, 10).await, from_ref(&version), name);
                    settled(&node).await;
                }
                let lying = version.clone();
                origin.script("/a", move |asked| lie(&lying, asked));
                for first in [0, BLOCK + 5, 3 * BLOCK].into_iter().filter(|first| *first < length) {
                    part(at, first, first + 30).await;
                    settled(&node).await;
                }
                let honest = version.clone();
                origin.script("/a", move |asked| honest.answer(asked));
                for first in [0, BLOCK + 5, 4 * BLOCK].into_iter().filter(|first| *first < length) {
                    let why = format!("{name} {length} {before} {first}");
                    let answer = part(at, first, first + 30).await;
                    let told = format!("bytes {first}-{}/{length}", first + 29);
                    // A total length is believed while all parts have the same.
                    let believed = ["longer", "shorter", "beyond all numbers"].contains(&name);
                    if believed && (!answer.whole || answer.field("content-range") != told) {
                        continue;
                    }
                    assert!(answer.whole && answer.status == 206, "{why}: {:?}", answer.fields);
                    assert_eq!(answer.field("content-range"), told, "{why}");
                    check(&answer, from_ref(&version), &why);
                }
                // The stored blocks may be useless; a complete answer is correct.
                let mut answer = get(at, "/a").await;
                check(&answer, from_ref(&version), name);
                settled(&node).await;
                if !answer.whole {
                    answer = get(at, "/a").await;
                }
                assert!(answer.whole && answer.status == 200, "{name} {length} {before}");
                check(&answer, from_ref(&version), name);
                settled(&node).await;
            }
        }
    }
}

#[tokio::test]
async fn answer_for_a_range_beyond_the_end_is_nobody_elses() {
    let version = Version::new("\"v1\"", 3 * BLOCK);
    let (origin, node, at) = world().await;
    let honest = version.clone();
    origin.script("/a", move |asked| honest.answer(asked));
    for range in [
        "bytes=99999999-",
        "bytes=18446744073709551615-",
        "bytes=18446744073709551614-18446744073709551615",
    ] {
        let answer = get_with(at, "/a", &[("Range", range)]).await;
        assert_eq!(answer.status, 416, "{range}");
        settled(&node).await;
    }
    let outdated = [("Range", "bytes=99999999-"), ("If-Range", "\"v0\"")];
    let answer = get_with(at, "/a", &outdated).await;
    assert_eq!(answer.status, 200);
    check(&answer, from_ref(&version), "if-range");
    settled(&node).await;
    let answer = get(at, "/a").await;
    assert_eq!(answer.status, 200);
    check(&answer, from_ref(&version), "whole");
    settled(&node).await;
}

#[tokio::test]
async fn part_that_nobody_asked_for_is_not_stored() {
    let version = Version::new("\"v1\"", 2 * BLOCK);
    for (first, end) in [(0, 2 * BLOCK), (0, 10), (5, 2 * BLOCK)] {
        let (origin, node, at) = world().await;
        let told = format!("bytes {first}-{}/{}", end - 1, version.body.len());
        origin.on("/a", version.part(first, end).with("content-range", &told));
        get(at, "/a").await;
        settled(&node).await;
        let honest = version.clone();
        origin.script("/a", move |asked| honest.answer(asked));
        let answer = get(at, "/a").await;
        assert_eq!((answer.status, answer.is_hit()), (200, false));
        check(&answer, from_ref(&version), "whole");
        settled(&node).await;
    }
}

#[tokio::test]
async fn not_modified_of_another_version_renews_nothing() {
    for length in [100, 4 * BLOCK] {
        let (first, second) = (Version::new("\"v1\"", length), Version::new("\"v2\"", length));
        let (origin, node, at) = world().await;
        let honest = first.clone();
        origin.script("/a", move |asked| honest.answer(asked));
        part(at, 0, 10).await;
        settled(&node).await;
        // A 304 with the changed entity tag.
        let changed = second.clone();
        origin.script("/a", move |asked| match asked.header("if-none-match") {
            Some(_) => changed.reply("304 Not Modified", b""),
            None => changed.answer(asked),
        });
        let both = [first, second];
        let again = get_with(at, "/a", &[("Cache-Control", "no-cache")]).await;
        assert!(again.whole && again.status == 200);
        check(&again, &both, "validated");
        settled(&node).await;
        for (first, end) in [(0, 10), (50, 60), (0, length)] {
            check(&part(at, first, end).await, &both, "part");
            settled(&node).await;
        }
        check(&get(at, "/a").await, &both, "whole");
        settled(&node).await;
    }
}

/// Random numbers, the same in every run.
fn chance() -> impl Fn(u64) -> u64 + Send + Sync + Clone {
    let state = Arc::new(AtomicU64::new(0x9e37_79b9));
    move |below| {
        let n = state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let n = (n ^ (n >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (n ^ (n >> 29)) % below
    }
}

/// A change of an origin to a version's answer.
type Twist = fn(u64, &Version, &Asked) -> Reply;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_that_change_at_any_moment_are_never_mixed() {
    // All entity tags are strong, or some parts have none, or some are cut, or some are weak.
    let twists: [Twist; 4] = [
        |_, version, asked| version.answer(asked),
        |n, version, asked| match asked_range(asked, version.body.len()) {
            // It ignores `If-Range`, and sends no `Content-Range`.
            Some((first, end)) if n % 3 == 0 && first < end => {
                let told = format!("bytes {first}-{}/{}", end - 1, version.body.len());
                Reply::cached(&version.body[first..end])
                    .status("206 Partial Content")
                    .with("content-range", &told)
            }
            _ => version.answer(asked),
        },
        |n, version, asked| match n % 3 {
            0 => {
                let length = version.body.len();
                let (first, end) = asked_range(asked, length).unwrap_or((0, length));
                let sent = version.body[first..(first + end.max(first)) / 2].to_vec();
                let pieces = vec![Piece::Bytes(sent), Piece::Cut];
                let due = (end.max(first) - first).to_string();
                let reply = match asked.header("range") {
                    Some(_) => version
                        .reply("206 Partial Content", b"")
                        .with("content-range", &format!("bytes {first}-{}/{length}", end - 1)),
                    None => version.reply("200 OK", b""),
                };
                reply.with("content-length", &due).pieces(pieces)
            }
            _ => version.answer(asked),
        },
        |n, version, asked| match asked_range(asked, version.body.len()) {
            Some((first, end)) if n % 2 == 0 && first < end => {
                let told = format!("bytes {first}-{}/{}", end - 1, version.body.len());
                Reply::cached(&version.body[first..end])
                    .status("206 Partial Content")
                    .with("etag", &format!("W/{}", version.etag))
                    .with("content-range", &told)
            }
            _ => version.answer(asked),
        },
    ];
    for (index, twist) in twists.into_iter().enumerate() {
        let versions = [
            Version::new("\"v1\"", 9 * BLOCK + 5),
            Version::new("\"v2\"", 9 * BLOCK + 5),
            Version::new("\"v3\"", 12 * BLOCK),
        ];
        let (origin, node, at) = world_with(|settings| settings.cache.memory = 1 << 20).await;
        let (theirs, random) = (versions.clone(), chance());
        origin.script("/a", move |asked| {
            let version = &theirs[random(3) as usize];
            twist(random(1 << 20), version, asked)
        });
        let mut readers = JoinSet::new();
        let random = chance();
        let whole = Arc::new(AtomicUsize::new(0));
        for _ in 0..8 {
            let (versions, random, whole) = (versions.clone(), random.clone(), whole.clone());
            readers.spawn(async move {
                for _ in 0..12 {
                    let first = random(9 * BLOCK as u64) as usize;
                    let end = first + 1 + random(4 * BLOCK as u64) as usize;
                    let answer = match random(4) {
                        0 => get(at, "/a").await,
                        1 => get_with(at, "/a", &[("Cache-Control", "no-cache")]).await,
                        _ => part(at, first, end).await,
                    };
                    whole.fetch_add(usize::from(answer.whole && answer.status < 300), Relaxed);
                    // A response that is passed on may lack a tag; the origin is responsible for it.
                    let passed = answer.header("etag").is_none_or(|tag| tag.starts_with('W'));
                    if !passed {
                        check(&answer, &versions, &format!("{index} {first}..{end}"));
                    }
                }
            });
        }
        while let Some(done) = readers.join_next().await {
            done.unwrap();
        }
        assert!(whole.load(Relaxed) > 10, "{index}: {whole:?} complete answers");
        settled(&node).await;
        let honest = versions[1].clone();
        origin.script("/a", move |asked| honest.answer(asked));
        for _ in 0..2 {
            check(&get(at, "/a").await, &versions, "afterwards");
            settled(&node).await;
        }
    }
}

#[tokio::test]
async fn bodies_that_break_their_framing_never_end_well_and_are_not_stored() {
    let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\netag: \"v1\"\r\n";
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    let long = "z".repeat(3 * BLOCK);
    let half = format!("{chunked}{:x}\r\n{long}\r\n", long.len());
    let bodies = [
        "content-length: 10\r\n\r\nhello".to_owned(),
        format!("content-length: {}\r\n\r\n{long}", 4 * BLOCK),
        format!("{chunked}5\r\nhello\r\n"),
        format!("{chunked}5\r\nhelloX\r\n0\r\n\r\n"),
        format!("{chunked}5\r\nhello\r\n0\r\n"),
        format!("{chunked}5\r\nhello\r\n-1\r\n\r\n"),
        format!("{chunked}5\r\nhello\r\nzz\r\n\r\n"),
        format!("{chunked}5\r\nhello\r\n\r\n\r\n"),
        format!("{chunked}5\r\nhello\r\nffffffffffffffff\r\nx"),
        format!("{chunked}5\r\nhello\r\n10000000000000005\r\nx"),
        format!("{chunked}5\r\nhello\r\n5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(1 << 20)),
        format!("{half}5\r\nhel"),
        format!("{half}zz\r\nhello"),
    ];
    for (n, body) in bodies.iter().enumerate() {
        let (origin, node, at) = world_with(|settings| settings.listeners[0].h2c = true).await;
        origin.on("/a", Reply::raw(format!("{head}{body}")));
        for h2 in [false, true] {
            let clean = match h2 {
                true => clean_over_http2(at).await,
                false => {
                    let answer = get(at, "/a").await;
                    answer.whole && answer.status < 500
                }
            };
            assert!(!clean, "{n} ends well, h2: {h2}");
            settled(&node).await;
        }
        origin.on("/a", Reply::cached("good"));
        let answer = get(at, "/a").await;
        assert_eq!((answer.status, answer.is_hit(), answer.text().len()), (200, false, 4), "{n}");
        settled(&node).await;
    }
}

/// Whether a GET over HTTP/2 gets a response that ends as it should.
async fn clean_over_http2(at: SocketAddr) -> bool {
    use http_body_util::{BodyExt, Empty};
    let stream = within(tokio::net::TcpStream::connect(at)).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        within(hyper::client::conn::http2::handshake(executor, io)).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{HOST}/a");
    let request = http::Request::builder().uri(uri).body(Empty::<bytes::Bytes>::new()).unwrap();
    let Ok(response) = within(sender.send_request(request)).await else { return false };
    let good = response.status().as_u16() < 500;
    within(response.into_body().collect()).await.is_ok() && good
}

#[tokio::test]
async fn length_beside_chunks_counts_for_nothing() {
    for cache_control in ["max-age=60", "no-store"] {
        for length in ["3", "50"] {
            let (origin, node, at) = world_with(|s| s.listeners[0].h2c = true).await;
            origin.on(
                "/a",
                Reply::raw(format!(
                    "HTTP/1.1 200 OK\r\ncache-control: {cache_control}\r\ncontent-length: {length}\r\n\
                     transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                )),
            );
            for _ in 0..3 {
                let answer = get(at, "/a").await;
                let refused = answer.status == 502;
                assert!(
                    refused || (answer.whole && answer.text() == "hello"),
                    "{:?}",
                    answer.fields
                );
                assert!(refused || answer.field("content-length") != length, "{:?}", answer.fields);
                settled(&node).await;
            }
        }
    }
}

#[tokio::test]
async fn what_follows_a_response_is_no_answer_to_the_next_request() {
    let (origin, node, at) = world().await;
    let evil = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncache-control: max-age=60\r\n\r\nevil";
    for n in 0..20 {
        let reply = Reply::cached("").with("content-length", "3");
        origin.on("/a", reply.pieces(vec![Piece::Bytes(format!("abc{evil}").into_bytes())]));
        let fields = [("Cache-Control", "no-cache")];
        assert_eq!(get_with(at, "/a", &fields).await.text(), "abc");
        let target = format!("/b{n}");
        let answer = get(at, &target).await;
        assert!(answer.status == 502 || answer.text() == target, "{n}: {}", answer.text());
    }
    settled(&node).await;
    for n in 0..20 {
        let target = format!("/b{n}");
        assert_eq!(get(at, &target).await.text(), target);
    }
    settled(&node).await;
}

#[tokio::test]
async fn heads_over_the_limits_are_not_stored() {
    let (origin, node, at) = world().await;
    let many: String = (0..2000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let wide = format!("x: {}\r\n", "y".repeat(4 << 20));
    let vary = format!("vary: {}\r\n", (0..5000).map(|n| format!("x{n},")).collect::<String>());
    for fields in [many, wide, vary] {
        let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 2\r\n";
        origin.on("/a", Reply::raw(format!("{head}{fields}\r\nhi")));
        let answer = get(at, "/a").await;
        assert!(answer.status == 502 || answer.text() == "hi", "{}", answer.status);
        settled(&node).await;
        assert!(!get(at, "/a").await.is_hit());
        settled(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_variants_stay_within_the_memory() {
    const VARIANTS: usize = 10_000;
    let limit = 2 << 20;
    let (origin, node, at) = world_with(|settings| settings.cache.memory = limit).await;
    origin.forget();
    origin.script("/a", |asked| {
        let variant = asked.header("x").unwrap_or_default();
        Reply::cached(variant).with("vary", "x")
    });
    let mut load = JoinSet::new();
    for lane in 0..4 {
        load.spawn(async move {
            let mut wire = Wire::to(at).await;
            let variants: Vec<String> =
                (lane..VARIANTS).step_by(4).map(|n| n.to_string()).collect();
            for some in variants.chunks(50) {
                let ask = |n: &String| head_of("GET", "/a", &[("X", n)]);
                wire.send(some.iter().map(ask).collect::<String>()).await;
                for n in some {
                    assert_eq!(wire.answer().await.text(), *n);
                }
            }
        });
    }
    while let Some(done) = load.join_next().await {
        done.unwrap();
        assert!(metric(&node, "levada_cache_bytes").await <= limit as f64);
    }
    settled(&node).await;
    get_with(at, "/a", &[("X", "7")]).await;
    settled(&node).await;
    assert!(get_with(at, "/a", &[("X", "7")]).await.is_hit());
    settled(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_thousands_of_blocks_stay_within_the_memory() {
    const BLOCKS: usize = 10_000;
    let limit = 2 << 20;
    let (origin, node, at) = world_with(|settings| settings.cache.memory = limit).await;
    origin.forget();
    origin.script("/a", |asked| {
        let (first, end) = asked_range(asked, BLOCKS * BLOCK).unwrap();
        let told = format!("bytes {first}-{}/{}", end - 1, BLOCKS * BLOCK);
        Reply::cached(vec![(first / BLOCK) as u8; end - first])
            .status("206 Partial Content")
            .with("etag", "\"v\"")
            .with("content-range", &told)
    });
    let mut load = JoinSet::new();
    for lane in 0..4 {
        load.spawn(async move {
            let mut wire = Wire::to(at).await;
            let blocks: Vec<usize> = (lane..BLOCKS).step_by(4).collect();
            for some in blocks.chunks(20) {
                let ask = |n: &usize| {
                    let range = format!("bytes={}-{}", n * BLOCK + 9, n * BLOCK + 9);
                    head_of("GET", "/a", &[("Range", &range)])
                };
                wire.send(some.iter().map(ask).collect::<String>()).await;
                for n in some {
                    let answer = wire.answer().await;
                    assert_eq!((answer.status, &answer.body[..]), (206, &[*n as u8][..]));
                }
            }
        });
    }
    while let Some(done) = load.join_next().await {
        done.unwrap();
        assert!(metric(&node, "levada_cache_bytes").await <= limit as f64);
        assert!(node.counts().filling_bytes <= limit / 2);
    }
    settled(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_leave_at_any_moment_leave_nothing_behind() {
    let version = Version::new("\"v1\"", 40 * BLOCK);
    for (ranges, chunked) in [(true, false), (false, false), (false, true)] {
        let (origin, node, at) = world_with(|settings| settings.cache.memory = 1 << 20).await;
        let theirs = version.clone();
        origin.script("/a", move |asked| match (ranges, chunked) {
            (true, _) => theirs.answer(asked),
            (_, false) => Reply::cached(&theirs.body[..]).with("etag", theirs.etag),
            (_, true) => {
                let pieces = theirs.body.chunks(1500).map(|some| Piece::Bytes(some.to_vec()));
                Reply::chunked(pieces.collect())
                    .with("cache-control", "max-age=60")
                    .with("etag", theirs.etag)
            }
        });
        let random = chance();
        let mut readers = JoinSet::new();
        for n in 0..100u64 {
            let (random, versions) = (random.clone(), [version.clone()]);
            readers.spawn(async move {
                let first = random(39 * BLOCK as u64);
                let range = format!("bytes={first}-{}", first + random(20 * BLOCK as u64));
                let (method, fields) = match n % 5 {
                    0 => ("HEAD", vec![("Range", &*range)]),
                    1 | 2 => ("GET", vec![("Range", &*range)]),
                    3 => ("GET", vec![("Cache-Control", "no-cache")]),
                    _ => ("GET", vec![]),
                };
                let mut wire = Wire::narrow(at).await;
                wire.send(head_of(method, "/a", &fields)).await;
                match random(3) {
                    0 => {}
                    1 => drop(wire.head().await),
                    _ => {
                        let answer = wire.answer_to(method).await;
                        assert!(answer.whole, "{method} {fields:?}: {}", answer.status);
                        if method == "GET" {
                            check(&answer, &versions, method);
                        }
                    }
                }
            });
        }
        while let Some(done) = readers.join_next().await {
            done.unwrap();
        }
        settled(&node).await;
        let answer = get(at, "/a").await;
        assert!(answer.whole, "{ranges} {chunked}");
        check(&answer, from_ref(&version), "afterwards");
        settled(&node).await;
    }
}

#[tokio::test]
async fn slow_readers_of_what_is_not_kept_hold_up_nobody_else() {
    const SLOW: usize = 40;
    let version = Version::new("\"v1\"", 20 * BLOCK);
    let (origin, node, at) = world_with(|settings| {
        settings.cache.memory = 16 * BLOCK as u64;
        settings.cache.max_object = 2 * BLOCK as u64;
    })
    .await;
    // Far more than a socket buffers.
    let pieces = vec![Piece::Bytes(vec![b'x'; 64 << 10]); 200];
    let mut slow = Vec::new();
    for n in 0..SLOW {
        let target = format!("/slow{n}");
        origin.on(&target, Reply::chunked(pieces.clone()).with("cache-control", "max-age=60"));
        let mut wire = Wire::narrow(at).await;
        wire.send(head_of("GET", &target, &[])).await;
        assert_eq!(wire.head().await.status, 200);
        slow.push(wire);
    }
    let held = node.counts().filling_bytes;
    assert!(held <= (SLOW * 8 * BLOCK) as u64, "{held} bytes for {SLOW} readers");
    let honest = version.clone();
    origin.script("/a", move |asked| honest.answer(asked));
    let answer = part(at, 5 * BLOCK, 9 * BLOCK).await;
    assert!(answer.whole && answer.status == 206, "{}", answer.status);
    check(&answer, from_ref(&version), "in between");
    drop(slow);
    settled(&node).await;
}

/// Date, other fields, whether the second request is a hit, and its expected age.
type Case = (Option<String>, Vec<(&'static str, String)>, bool, i64);

/// A date this many seconds from now.
fn date(offset: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let at = UNIX_EPOCH + Duration::from_secs((now + offset).max(0) as u64);
    httpdate::fmt_http_date(at)
}

#[tokio::test]
async fn clocks_that_are_wrong_keep_nothing_longer_than_they_may() {
    const HOUR: i64 = 3600;
    const YEAR: i64 = 365 * 24 * HOUR;
    let cases: Vec<Case> = vec![
        // In the past: the apparent age counts.
        (Some(date(-2 * HOUR)), vec![("cache-control", "max-age=3600".into())], false, 0),
        (Some(date(-HOUR)), vec![("cache-control", "max-age=7200".into())], true, HOUR),
        (Some(date(-9 * YEAR)), vec![("cache-control", "max-age=60".into())], false, 0),
        // In the future: the date does not prolong freshness.
        (Some(date(9 * HOUR)), vec![("cache-control", "max-age=60".into())], true, 0),
        (Some(date(9 * YEAR)), vec![("cache-control", "max-age=60".into())], true, 0),
        (Some(date(YEAR)), vec![("expires", date(YEAR + 60))], true, 0),
        (Some(date(YEAR)), vec![("expires", date(HOUR))], false, 0),
        (Some(date(-YEAR)), vec![("expires", date(-YEAR + 60))], false, 0),
        (Some(date(0)), vec![("expires", date(HOUR))], true, 0),
        (Some(date(0)), vec![("expires", date(-1))], false, 0),
        (Some(date(0)), vec![("expires", "0".into())], false, 0),
        (Some(date(0)), vec![("expires", "-1".into())], false, 0),
        (Some(date(0)), vec![("expires", "Thu, 99 Foo 2099 25:61:61 GMT".into())], false, 0),
        // Without a valid date: the response was made when it arrived.
        (None, vec![("expires", date(HOUR))], true, 0),
        (None, vec![("cache-control", "max-age=60".into())], true, 0),
        (Some("yesterday".into()), vec![("cache-control", "max-age=60".into())], true, 0),
        (Some("yesterday".into()), vec![("expires", date(-60))], false, 0),
        // Ages and lifetimes that overflow.
        (None, vec![("cache-control", "max-age=99999999999999999999".into())], true, 0),
        (None, vec![("cache-control", "max-age=-1".into())], false, 0),
        (None, vec![("cache-control", "max-age=60".into()), ("age", "9".repeat(30))], false, 0),
        (None, vec![("cache-control", "max-age=60".into()), ("age", "-5".into())], true, 0),
        (None, vec![("cache-control", "max-age=60".into()), ("age", "30".into())], true, 30),
        (
            Some(date(9 * YEAR)),
            vec![("cache-control", "max-age=60".into()), ("age", "90".into())],
            false,
            0,
        ),
    ];
    let (origin, node, at) = world().await;
    for (n, (made, fields, hit, age)) in cases.into_iter().enumerate() {
        let target = format!("/{n}");
        let mut reply = Reply::ok("x").with("etag", "\"1\"");
        if let Some(made) = &made {
            reply = reply.with("date", made);
        }
        for (name, value) in &fields {
            reply = reply.with(name, value);
        }
        origin.on(&target, reply);
        get(at, &target).await;
        settled(&node).await;
        let answer = get(at, &target).await;
        assert_eq!(answer.is_hit(), hit, "{made:?} {fields:?}: {:?}", answer.fields);
        if hit {
            let told: i64 = answer.field("age").parse().unwrap();
            assert!((age..age + 20).contains(&told), "{made:?} {fields:?}: {told}");
        }
        settled(&node).await;
    }
}

#[tokio::test]
async fn body_of_few_blocks_and_unknown_length_is_let_go() {
    for whole in [true, false] {
        let (origin, node, at) = world_with(|s| s.cache.max_object = BLOCK as u64).await;
        let mut pieces = vec![Piece::Bytes(vec![b'x'; 3 * BLOCK + 5])];
        if !whole {
            pieces.push(Piece::Cut);
        }
        origin.on("/a", Reply::chunked(pieces).with("cache-control", "max-age=60"));
        let answer = get(at, "/a").await;
        assert_eq!((answer.whole, answer.body.len()), (whole, 3 * BLOCK + 5));
        // Bytes in memory are counted here until they are freed.
        settled(&node).await;
    }
}

/// Invalidates `/a` while a request for it with these fields is fetched.
async fn invalidated_meanwhile(length: usize, fields: &[(&str, &str)], before: bool) {
    let (first, second) = (Version::new("\"v1\"", length), Version::new("\"v2\"", length));
    let (origin, node, at) = world().await;
    let gate = Gate::new();
    let (old, opened) = (first.clone(), gate.clone());
    if before {
        let old = first.clone();
        origin.script("/a", move |asked| old.answer(asked));
        get(at, "/a").await;
        settled(&node).await;
    }
    let hits = origin.hits("/a");
    origin.script("/a", move |asked| match &*asked.method {
        "POST" => Reply::ok("done"),
        _ => old.answer(asked).after(&opened),
    });
    let mut early = Wire::saying(at, head_of("GET", "/a", fields)).await;
    eventually("the fetch has begun", || origin.hits("/a") > hits).await;
    let post = head_of("POST", "/a", &[("Content-Length", "0")]);
    assert_eq!(Wire::saying(at, post).await.answer().await.text(), "done");
    let new = second.clone();
    origin.script("/a", move |asked| new.answer(asked));
    // A request that arrives now does not share the fetch that began before.
    let late = get_with(at, "/a", fields).await;
    assert!(late.whole && late.field("etag") == "\"v2\"", "{length} {fields:?}: {:?}", late.fields);
    gate.open();
    let answer = early.answer().await;
    check(&answer, from_ref(&first), "early");
    settled(&node).await;
    for fields in [fields, &[]] {
        let answer = get_with(at, "/a", fields).await;
        assert_eq!(answer.field("etag"), "\"v2\"", "{length} {before} {fields:?}");
        check(&answer, from_ref(&second), "late");
        settled(&node).await;
    }
}

#[tokio::test]
async fn what_is_invalidated_while_it_is_fetched_is_not_kept() {
    for length in [100, 3 * BLOCK] {
        invalidated_meanwhile(length, &[], false).await;
        invalidated_meanwhile(length, &[("Range", "bytes=5-9")], false).await;
        invalidated_meanwhile(length, &[("Cache-Control", "no-cache")], true).await;
    }
}

async fn purge(node: &Running) {
    let order = format!(r#"{{"url":"http://{HOST}/a"}}"#);
    let length = order.len().to_string();
    let fields = [("Content-Type", "application/json"), ("Content-Length", &*length)];
    let post = head_of("POST", "/purge", &fields) + &order;
    let answer = Wire::saying(node.addresses.admin.unwrap(), post).await.answer().await;
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_purged_is_served_to_those_who_ask_later() {
    // Short; long; long and requested in parts. With a disk, from which it may just be promoted.
    for (length, parts) in [(100, false), (12 * BLOCK, false), (12 * BLOCK, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (origin, node, at) = world_with(|settings| {
            settings.cache.memory = 1 << 20;
            let path = dir.path().to_owned();
            settings.cache.disk = Some(levada_config::DiskCache { path, size: 64 << 20 });
        })
        .await;
        let etags =
            ["\"v0\"", "\"v1\"", "\"v2\"", "\"v3\"", "\"v4\"", "\"v5\"", "\"v6\"", "\"v7\""];
        let versions: Arc<Vec<Version>> =
            Arc::new(etags.iter().map(|etag| Version::new(etag, length)).collect());
        let current = Arc::new(AtomicUsize::new(0));
        let (theirs, now) = (versions.clone(), current.clone());
        origin.script("/a", move |asked| theirs[now.load(Relaxed)].answer(asked));
        // The versions that were purged before the request is sent.
        let purged = Arc::new(AtomicUsize::new(0));
        let mut readers = JoinSet::new();
        for n in 0..4u64 {
            let (versions, purged, random) = (versions.clone(), purged.clone(), chance());
            readers.spawn(async move {
                while purged.load(Relaxed) < etags.len() - 1 {
                    let oldest = purged.load(Relaxed);
                    let first = random(length as u64 - 1) as usize;
                    let answer = match parts {
                        true => part(at, first, first + 1 + random(5000) as usize).await,
                        false => get(at, "/a").await,
                    };
                    check(&answer, &versions, "in between");
                    // The rest of an answer may be cut when its version is gone.
                    let etag = answer.field("etag");
                    let served = etags.iter().position(|known| *known == etag);
                    let new = served.is_none_or(|served| served >= oldest);
                    assert!(
                        new,
                        "{n} {length} {parts}: {served:?} after {oldest} was put in place"
                    );
                    // Other objects evict it from memory.
                    get(at, &format!("/{}", random(1000))).await;
                }
            });
        }
        for next in 1..etags.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            current.store(next, Relaxed);
            purge(&node).await;
            purged.store(next, Relaxed);
        }
        while let Some(done) = readers.join_next().await {
            done.unwrap();
        }
        settled(&node).await;
        let answer = get(at, "/a").await;
        assert_eq!(answer.field("etag"), "\"v7\"");
        check(&answer, &versions, "afterwards");
        settled(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_slow_readers_cost_bounded_memory_and_nobody_else() {
    const SLOW: usize = 200;
    // More than a socket buffers, and more than the memory tier holds.
    let version = Version::new("\"v1\"", 512 * BLOCK);
    for ranges in [true, false] {
        let limit = 64 * BLOCK as u64;
        let (origin, node, at) = world_with(|settings| settings.cache.memory = limit).await;
        origin.forget();
        let theirs = version.clone();
        origin.script("/a", move |asked| match ranges {
            true => theirs.answer(asked),
            false => Reply::cached(&theirs.body[..]).with("etag", theirs.etag),
        });
        let mut slow = Vec::new();
        for n in 0..SLOW {
            let range = format!("bytes={}-", n % 7 * BLOCK);
            let mut wire = Wire::narrow(at).await;
            let fields = [("Range", &*range)];
            wire.send(head_of("GET", "/a", if n % 2 == 0 { &fields } else { &[] })).await;
            slow.push(wire);
        }
        for wire in &mut slow {
            let head = wire.head().await;
            assert!(matches!(head.status, 200 | 206), "{}", head.status);
        }
        let answer = get(at, "/a").await;
        // Without ranges, evicted blocks cannot be fetched again, and the answer is cut.
        assert!(answer.whole || !ranges, "{} after {}", answer.status, answer.body.len());
        check(&answer, from_ref(&version), "quick");
        for wire in &mut slow {
            assert!(!wire.some().await.is_empty() || !ranges);
        }
        assert!(metric(&node, "levada_cache_bytes").await <= limit as f64);
        assert!(node.counts().filling_bytes <= limit / 2, "{:?}", node.counts());
        drop(slow);
        settled(&node).await;
    }
}

#[tokio::test]
async fn entity_tags_that_differ_between_origins_are_never_mixed() {
    for length in [100, 9 * BLOCK + 5] {
        let versions = [Version::new("\"v1\"", length), Version::new("\"v2\"", length)];
        let origins = [Origin::start().await, Origin::start().await];
        for (origin, version) in origins.iter().zip(versions.clone()) {
            // The second origin gets a request when the first fails, which happens sometimes.
            let (times, fails) = (AtomicUsize::new(0), version.etag == "\"v1\"");
            origin.script("/a", move |asked| match times.fetch_add(1, Relaxed) % 6 {
                2..5 if fails => Reply::hang_up(),
                _ => version.answer(asked),
            });
        }
        let mut settings = single(&[origins[0].address, origins[1].address]);
        settings.cache.block = BLOCK as u64;
        let node = start(settings).await;
        let at = node.addresses.clients[0];
        for n in 0..12 {
            let first = n * 700 % (length - 10);
            let answer = match n % 3 {
                0 => get_with(at, "/a", &[("Cache-Control", "no-cache")]).await,
                _ => part(at, first, first + 10).await,
            };
            check(&answer, &versions, "either");
            settled(&node).await;
        }
        assert!(origins.iter().all(|origin| origin.hits("/a") > 0), "both were asked");
    }
}
