//! Bodies whose server breaks off or stands still: they go on elsewhere, or end in an error.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{nodes::*, origin::Asked, *};

const LENGTH: usize = 700_000;

/// The bytes of every body.
fn bytes() -> Vec<u8> {
    (0..LENGTH).map(|n| (n * 31 + n / 251) as u8).collect()
}

/// A part of a version, as an origin with ranges answers. Ends with `end` after so many bytes.
fn part(asked: &Asked, etag: &str, (most, end): (usize, Option<Piece>)) -> Reply {
    let asked_for =
        asked.header("range").filter(|_| asked.header("if-range").is_none_or(|e| e == etag));
    let first = asked_for.as_deref().and_then(|range| range.strip_prefix("bytes="));
    let first = first.and_then(|range| range.split('-').next()?.parse::<usize>().ok());
    let rest = bytes()[first.unwrap_or(0)..].to_vec();
    let mut reply = Reply::cached("").with("etag", etag);
    if let Some(first) = first {
        let range = format!("bytes {first}-{}/{LENGTH}", LENGTH - 1);
        reply = reply.status("206 Partial Content").with("content-range", &range);
    }
    let reply = reply.with("content-length", &rest.len().to_string());
    let sent = Piece::Bytes(rest[..rest.len().min(most)].to_vec());
    reply.pieces([Some(sent), end].into_iter().flatten().collect())
}

/// A script that breaks every body off after so many bytes.
fn breaks(after: usize) -> impl Fn(&Asked) -> Reply + Send + Sync + 'static {
    move |asked| part(asked, "\"v\"", (after, Some(Piece::Cut)))
}

fn is_whole(answer: &Answer) -> bool {
    answer.whole && answer.body == bytes()
}

#[tokio::test]
async fn body_that_the_origin_breaks_off_goes_on() {
    for (cache, block) in [(true, 4 << 20), (true, 64 << 10), (false, 4 << 20)] {
        let (origin, node, at) = alone(|settings| {
            settings.sites[0].handling.cache = cache;
            settings.cache.block = block;
        })
        .await;
        origin.script("/a", breaks(300_000));
        let answer = get(at, "/a").await;
        assert!(is_whole(&answer), "cache: {cache}, block: {block}, {} bytes", answer.body.len());
        let asked = origin.asked("/a");
        let ranges: Vec<_> = asked.iter().map(|asked| asked.header("range")).collect();
        let rest = |first: usize| Some(format!("bytes={first}-{}", LENGTH - 1));
        assert_eq!(ranges, [None, rest(300_000), rest(600_000)]);
        assert!(asked[1..].iter().all(|asked| asked.header("if-range").unwrap() == "\"v\""));
        settled(&node).await;
        assert_eq!(get(at, "/a").await.is_hit(), cache);
    }
}

#[tokio::test]
async fn range_that_the_origin_breaks_off_goes_on() {
    let (origin, node, at) = alone(|settings| settings.sites[0].handling.cache = false).await;
    origin.script("/a", breaks(300_000));
    let answer = get_with(at, "/a", &[("Range", "bytes=1000-")]).await;
    assert_eq!((answer.status, answer.whole), (206, true));
    assert!(answer.body == bytes()[1000..]);
    settled(&node).await;
}

#[tokio::test]
async fn body_goes_on_at_the_origin_when_the_peer_dies() {
    let (origin, peer) = (Origin::start().await, Origin::start().await);
    origin.otherwise(|asked| part(asked, "\"v\"", (LENGTH, None)));
    peer.otherwise(breaks(300_000));
    let dies = as_peer("n1", peer.address).await;
    let cluster = Cluster::start(2, origin.address, |settings| {
        settings.sites[0].servers.policy = policy("hrw");
        settings.peering.as_mut().unwrap().peers[1].address = dies.clone();
    })
    .await;
    for n in 0..12 {
        assert!(is_whole(&get(cluster.client(0), &format!("/{n}")).await), "{n}");
    }
    assert!(peer.total() > 2, "{}", peer.total());
    settled(cluster.node(0)).await;
}

#[tokio::test]
async fn body_that_stands_still_goes_on() {
    for (cache, timeout) in [(true, 60), (false, 60), (false, 2)] {
        let (origin, node, at) = alone(|settings| {
            settings.sites[0].handling.cache = cache;
            settings.limits.response_body_timeout = Duration::from_secs(timeout);
        })
        .await;
        let asked_before = AtomicUsize::new(0);
        origin.script("/a", move |asked| match asked_before.fetch_add(1, Relaxed) {
            0 => part(asked, "\"v\"", (300_000, Some(Piece::Gate(Gate::new())))),
            _ => part(asked, "\"v\"", (LENGTH, None)),
        });
        assert!(is_whole(&get(at, "/a").await), "cache: {cache}");
        assert_eq!(origin.hits("/a"), 2);
        settled(&node).await;
    }
}

#[tokio::test]
async fn body_never_goes_on_in_another_version() {
    for (cache, first, second) in
        [(true, "\"v\"", "\"w\""), (false, "\"v\"", "\"w\""), (false, "W/\"v\"", "W/\"v\"")]
    {
        let (origin, node, at) = alone(|settings| settings.sites[0].handling.cache = cache).await;
        let asked_before = Arc::new(AtomicUsize::new(0));
        origin.script("/a", move |asked| match asked_before.fetch_add(1, Relaxed) {
            0 => part(asked, first, (300_000, Some(Piece::Cut))),
            _ => part(asked, second, (LENGTH, None)),
        });
        let answer = get(at, "/a").await;
        assert_eq!((answer.whole, answer.body.len()), (false, 300_000), "{first} {second}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn origin_that_breaks_every_body_off_is_not_asked_for_ever() {
    let (origin, node, at) =
        alone(|s| s.limits.response_body_timeout = Duration::from_secs(10)).await;
    origin.script("/a", breaks(10));
    let answer = get(at, "/a").await;
    assert_eq!((answer.status, answer.whole, answer.body.len()), (200, false, 40));
    assert_eq!(origin.hits("/a"), 4);
    settled(&node).await;
}

#[tokio::test]
async fn request_that_follows_a_late_fetch_begins_another() {
    let (origin, node, at) = alone(|settings| settings.limits.tries = 1).await;
    let (asked_before, gate) = (AtomicUsize::new(0), Gate::new());
    let hangs = gate.clone();
    origin.script("/a", move |_| match asked_before.fetch_add(1, Relaxed) {
        0 => Reply::cached("late").after(&hangs),
        _ => Reply::cached("good"),
    });
    let mut first = Wire::saying(at, head_of("GET", "/a", &[])).await;
    eventually("the first is asked", || origin.hits("/a") == 1).await;
    let mut followers = Vec::new();
    for _ in 0..10 {
        followers.push(Wire::saying(at, head_of("GET", "/a", &[])).await);
    }
    for follower in &mut followers {
        assert_eq!(follower.answer().await.text(), "good");
    }
    // Two of them may notice at the same time.
    assert!(origin.hits("/a") <= 3, "{}", origin.hits("/a"));
    gate.open();
    assert_eq!(first.answer().await.text(), "late");
    settled(&node).await;
}

#[tokio::test]
async fn later_requests_do_not_follow_a_body_that_stands_still() {
    let (origin, node, at) = alone(|_| {}).await;
    let (asked_before, gate) = (AtomicUsize::new(0), Gate::new());
    let stands = gate.clone();
    origin.script("/a", move |_| match asked_before.fetch_add(1, Relaxed) {
        0 => Reply::cached("").with("content-length", "8").pieces(vec![
            Piece::Bytes(b"half".to_vec()),
            Piece::Gate(stands.clone()),
            Piece::Cut,
        ]),
        _ => Reply::cached("the other"),
    });
    let mut first = Wire::saying(at, head_of("GET", "/a", &[])).await;
    assert_eq!(first.head().await.status, 200);
    tokio::time::sleep(levada_upstream::Relay::STILL + Duration::from_secs(1)).await;
    assert_eq!(get(at, "/a").await.text(), "the other");
    gate.open();
    settled(&node).await;
}

#[tokio::test]
async fn body_that_cannot_go_on_ends_in_a_reset() {
    let half = || vec![Piece::Bytes(vec![b'x'; 3000]), Piece::Cut];
    for (version, length, cache) in
        [("1.0", true, true), ("1.0", false, false), ("1.1", true, false), ("1.1", false, true)]
    {
        let (origin, node, at) = alone(|settings| settings.sites[0].handling.cache = cache).await;
        let reply = match length {
            true => Reply::ok("").with("content-length", "6000").pieces(half()),
            false => Reply::chunked(half()),
        };
        origin.on("/a", reply.with("cache-control", "max-age=60"));
        let request = head_of("GET", "/a", &[]).replace("HTTP/1.1", &format!("HTTP/{version}"));
        let (read, end) = Wire::saying(at, request).await.read_out().await;
        assert!(read > 3000, "HTTP/{version}, length: {length}: {read} bytes");
        let end = end.map_err(|error| error.kind());
        assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset), "HTTP/{version}, {length}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn post_succeeds_at_an_origin_that_closes_after_each_response() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut read = [0; 4096];
                let _ = stream.read(&mut read).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                // Closes as late as possible: when the next request has been sent.
                let _ = stream.read(&mut read).await;
            });
        }
    });
    let node = start(single(&[address])).await;
    let mut wire = Wire::to(node.addresses.clients[0]).await;
    for n in 0..20 {
        let length = [("Content-Length", "5")];
        wire.send(head_of("POST", "/a", &length) + "hello").await;
        assert_eq!(wire.answer().await.status, 200, "{n}");
        wire.send(head_of("DELETE", "/a", &[])).await;
        assert_eq!(wire.answer().await.status, 200, "{n}");
    }
    settled(&node).await;
}

/// An origin that closes each connection that is numbered so when a request has come, and answers on the others.
async fn closing_origin(closes: fn(usize) -> bool) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = asked.clone();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let mut read = [0; 4096];
            let _ = stream.read(&mut read).await;
            count.fetch_add(1, Relaxed);
            if !closes(number) {
                let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                stream.write_all(reply).await.unwrap();
            }
        }
    });
    (address, asked)
}

#[tokio::test]
async fn single_origin_that_closes_without_a_response_is_asked_once_more() {
    let (origin, asked) = closing_origin(|number| number % 2 == 0).await;
    let node = start(single(&[origin])).await;
    let at = node.addresses.clients[0];
    for n in 0..5 {
        assert_eq!(get(at, &format!("/{n}")).await.status, 200);
    }
    assert_eq!(asked.load(Relaxed), 10);
    // A request that must not be sent twice is not.
    let mut wire = Wire::to(at).await;
    wire.send(head_of("POST", "/a", &[("Content-Length", "5")]) + "hello").await;
    assert_eq!(wire.answer().await.status, 502);
    assert_eq!(asked.load(Relaxed), 11);
    settled(&node).await;

    let (origin, asked) = closing_origin(|_| true).await;
    let node = start(single(&[origin])).await;
    assert_eq!(get(node.addresses.clients[0], "/a").await.status, 502);
    assert_eq!(asked.load(Relaxed), 2, "once more, and not for ever");
    settled(&node).await;
}

/// A downloader: its arguments are followed by FILE and URL in their places.
type Downloader = (&'static str, &'static [&'static str]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloaders_notice_nothing_of_a_body_that_goes_on() {
    let downloaders: [Downloader; 3] = [
        ("curl", &["-sfH", "Host: a.test", "-o", "FILE", "URL"]),
        ("wget", &["-q", "--tries=1", "--header=Host: a.test", "-O", "FILE", "URL"]),
        ("aria2c", &["-q", "-m1", "-x1", "--header=Host: a.test", "-d/", "-oFILE", "URL"]),
    ];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    for (program, arguments) in downloaders {
        if levada_skip::lacks(program, program.trim_end_matches("c")) {
            continue;
        }
        for cache in [true, false] {
            let (origin, node, at) =
                alone(|settings| settings.sites[0].handling.cache = cache).await;
            origin.script("/a", breaks(300_000));
            let fill = |argument: &&str| {
                let name = file.display().to_string();
                argument.replace("FILE", &name).replace("URL", &format!("http://{at}/a"))
            };
            let mut command = std::process::Command::new(program);
            command.args(arguments.iter().map(fill));
            let status = tokio::task::block_in_place(|| command.status()).unwrap();
            assert!(status.success(), "{program}: {status}");
            assert!(std::fs::read(&file).unwrap() == bytes(), "{program}, cache: {cache}");
            assert_eq!(origin.hits("/a"), 3, "{program}");
            std::fs::remove_file(&file).unwrap();
            settled(&node).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_shows_the_whole_of_a_page_that_goes_on() {
    if levada_skip::lacks("chromium", "chromium") {
        return;
    }
    let end = "<b>the very end</b>";
    let page = format!("<!doctype html><p>{}</p>{end}", "abcdefghij".repeat(LENGTH / 10));
    let (origin, node, at) = alone(|settings| settings.sites[0].hosts = vec!["*".to_owned()]).await;
    let whole = page.clone();
    origin.script("/a", move |asked| {
        let range = asked.header("range");
        let first =
            range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split('-').next());
        let first: usize = first.map_or(0, |first| first.parse().unwrap());
        let rest = &whole.as_bytes()[first..];
        let reply = Reply::cached("").with("etag", "\"v\"").with("content-type", "text/html");
        let reply = reply.with("content-length", &rest.len().to_string());
        let pieces = vec![Piece::Bytes(rest[..rest.len().min(300_000)].to_vec()), Piece::Cut];
        let last = whole.len() - 1;
        match range {
            None => reply,
            Some(_) => reply
                .status("206 Partial Content")
                .with("content-range", &format!("bytes {first}-{last}/{}", whole.len())),
        }
        .pieces(pieces)
    });
    let profile = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("http://{at}/a")).stderr(std::process::Stdio::null());
    let output = tokio::task::block_in_place(|| command.output()).unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.len() > LENGTH && shown.contains(end), "{} bytes", shown.len());
    assert_eq!(origin.hits("/a"), 3);
    settled(&node).await;
}
