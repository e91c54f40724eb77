//! Downloads over real sockets from misbehaving servers, one misbehaviour per test.

mod http3;
mod moves;
mod server;
mod tls;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use levada_client::{
    Client, ClientSettings, DisconnectReason, DownloadProgress, GetError, GetReport, GetRequest,
};
use levada_fetch::{Digest, resume::Trouble};
use server::{Asked, Reply, Server, Then, content, cut, file};

const A: &str = "\"a\"";

/// A directory, and a request for a file in it.
struct Case {
    directory: tempfile::TempDir,
    request: GetRequest,
}

impl Case {
    fn new(server: &Server) -> Self {
        Self::of(server.url("/file"))
    }

    fn of(url: http::Uri) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        Self { request: GetRequest::new(url, path), directory }
    }

    fn path(&self) -> &Path {
        &self.request.path
    }

    async fn get(&self) -> (GetReport, Result<(), GetError>) {
        self.get_with(&Client::new(ClientSettings::default()).unwrap()).await
    }

    async fn get_with(&self, client: &Client) -> (GetReport, Result<(), GetError>) {
        client.get(&self.request, &DownloadProgress::default()).await
    }

    /// The file names in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    fn assert_whole(&self, expected: &[u8]) {
        assert!(fs::read(self.path()).unwrap() == expected, "the file is wrong");
        assert_eq!(self.names(), ["file"]);
    }

    fn part(&self) -> PathBuf {
        self.directory.path().join("file.levada-part")
    }
}

fn sha256(bytes: &[u8]) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Digest::parse(&format!("sha-256={hex}")).unwrap()
}

#[tokio::test]
async fn resets_and_early_closes_cost_only_what_was_under_way() {
    for then in [Then::Reset, Then::Close] {
        let bytes = content(300_000, 1);
        let whole = bytes.clone();
        let server = Server::new(move |asked| cut(asked, &whole, A, 70_000, then));
        let case = Case::new(&server);
        let (report, result) = case.get().await;
        result.unwrap();
        case.assert_whole(&bytes);
        assert!(report.complete && report.discarded == 0);
        let broken = report.connections.iter().filter(|c| c.ended != DisconnectReason::Complete);
        let expected = if then == Then::Reset {
            DisconnectReason::Reset
        } else {
            DisconnectReason::EarlyClose
        };
        assert!(broken.clone().all(|c| c.ended == expected), "{report:?}");
        assert!(broken.count() >= 4);
        // To the same address each time, with If-Range, and only for the rest.
        assert!(report.connections.iter().all(|c| c.address == server.address.to_string()));
        assert!(server.asked()[1..].iter().all(|asked| asked.field("if-range") == Some(A)));
        let sum: u64 = report.connections.iter().map(|c| c.bytes).sum();
        assert_eq!(sum, 300_000);
    }
}

#[tokio::test]
async fn a_silent_connection_is_left_after_the_stall_timeout() {
    let bytes = content(100_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| match asked.number {
        0 => cut(asked, &whole, A, 50_000, Then::Silence),
        _ => Reply(file(asked, &whole, A).0, Then::Go),
    });
    let mut case = Case::new(&server);
    case.request.stall = Some(Duration::from_millis(200));
    let (report, result) = case.get().await;
    result.unwrap();
    case.assert_whole(&bytes);
    assert_eq!(report.connections[0].ended, DisconnectReason::Stall);
    assert!(report.connections[0].lost >= 0.2 && report.lost_seconds >= 0.2);
}

#[tokio::test]
async fn a_silent_connection_is_left_soon_after_another_has_ended() {
    let bytes = content(3_000_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| match asked.number {
        0 => cut(asked, &whole, A, 100_000, Then::Silence),
        1 => cut(asked, &whole, A, 100_000, Then::Reset),
        _ => Reply(file(asked, &whole, A).0, Then::Go),
    });
    let mut case = Case::new(&server);
    (case.request.connections, case.request.pieces) = (2, 2);
    case.request.stall = Some(Duration::from_secs(600));
    let (report, result) = case.get().await;
    result.unwrap();
    case.assert_whole(&bytes);
    let ended = |reason| report.connections.iter().filter(|c| c.ended == reason).count();
    assert_eq!(ended(DisconnectReason::Reset), 1, "{report:?}");
    assert_eq!(ended(DisconnectReason::Stall), 1, "{report:?}");
    assert!(report.seconds < 600.0);
}

#[tokio::test]
async fn everything_instead_of_the_rest_is_compared_with_what_is_here() {
    let bytes = content(100_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| {
        let plain = Asked { number: asked.number, ..Asked::default() };
        let then = [Then::Close, Then::Go][asked.number.min(1) as usize];
        cut(&plain, &whole, A, 50_000 * (asked.number as usize + 1), then)
    });
    let case = Case::new(&server);
    let (report, result) = case.get().await;
    result.unwrap();
    case.assert_whole(&bytes);
    assert_eq!((report.restarts, report.connections_total), (0, 2));
}

#[tokio::test]
async fn a_range_elsewhere_never_gets_into_the_file() {
    for shift in [-1000_i64, 1000] {
        let bytes = content(100_000, 1);
        let whole = bytes.clone();
        let server = Server::new(move |asked| match (asked.number, asked.range()) {
            (0, _) => cut(asked, &whole, A, 50_000, Then::Close),
            (_, None) => Reply(file(asked, &whole, A).0, Then::Go),
            (_, Some((start, _))) => {
                let start = start.saturating_add_signed(shift as isize);
                let field = ("Range".to_owned(), format!("bytes={start}-"));
                let other = Asked { fields: vec![field], ..asked.clone() };
                Reply(file(&other, &whole, A).0, Then::Go)
            }
        });
        let case = Case::new(&server);
        case.get().await.1.unwrap();
        case.assert_whole(&bytes);
    }
}

#[tokio::test]
async fn a_416_at_the_end_of_what_is_here_means_done() {
    let bytes = content(5000, 1);
    // Its responses have no validator, so the end is requested once more and compared.
    let whole = bytes.clone();
    let server = Server::new(move |asked| Reply(file(asked, &whole, "").0, Then::Go));
    let mut case = Case::new(&server);
    case.request.adopt = true;
    fs::write(case.path(), &bytes).unwrap();
    case.get().await.1.unwrap();
    case.assert_whole(&bytes);
    // With a digest no comparison is needed: the response is 416.
    case.request.digest = Some(sha256(&bytes));
    let (report, result) = case.get().await;
    result.unwrap();
    assert_eq!(server.asked().last().unwrap().range(), Some((5000, None)));
    assert_eq!(report.verified, Some(sha256(&bytes).to_string()));
    case.assert_whole(&bytes);
}

#[tokio::test]
async fn what_another_program_left_is_taken_only_if_it_is_the_beginning() {
    for (name, kept) in [("right", true), ("wrong", false)] {
        let bytes = content(200_000, 1);
        let whole = bytes.clone();
        let server = Server::new(move |asked| Reply(file(asked, &whole, A).0, Then::Go));
        let mut case = Case::new(&server);
        case.request.adopt = true;
        let mut begun = bytes[..120_000].to_vec();
        if !kept {
            begun[119_999] ^= 1;
        }
        fs::write(case.path(), begun).unwrap();
        let (report, result) = case.get().await;
        result.unwrap();
        case.assert_whole(&bytes);
        let fetched: u64 = report.connections.iter().map(|c| c.bytes).sum();
        assert_eq!(fetched, if kept { 80_000 } else { 200_000 }, "{name}");
    }
}

#[tokio::test]
async fn a_length_that_lies_is_no_end() {
    let bytes = content(100_000, 1);
    // Each response promises all remaining bytes, sends 30,000 of them, and closes cleanly.
    let whole = bytes.clone();
    let server = Server::new(move |asked| cut(asked, &whole, A, 30_000, Then::Close));
    let case = Case::new(&server);
    case.get().await.1.unwrap();
    case.assert_whole(&bytes);
    // Content-Range promises more than Content-Length.
    let whole = bytes.clone();
    let server = Server::new(move |asked| {
        let (start, _) = asked.range().unwrap_or((0, None));
        let end = (start + 30_000).min(100_000);
        let head = match asked.range() {
            None => return cut(asked, &whole, A, 30_000, Then::Close),
            Some(_) => format!(
                "HTTP/1.1 206 P\r\nETag: {A}\r\nContent-Range: bytes {start}-99999/100000\r\n\
                 Content-Length: {}\r\n\r\n",
                end - start
            ),
        };
        Reply([head.as_bytes(), &whole[start..end]].concat(), Then::Go)
    });
    let case = Case::new(&server);
    case.get().await.1.unwrap();
    case.assert_whole(&bytes);
}

#[tokio::test]
async fn content_that_changes_is_fetched_anew_and_never_mixed() {
    for tags in [[A, "\"b\""], ["", ""]] {
        let (old, new) = (content(200_000, 1), content(200_000, 2));
        let expected = new.clone();
        let server = Server::new(move |asked| match asked.number {
            0 => cut(asked, &old, tags[0], 100_000, Then::Close),
            _ => Reply(file(asked, &new, tags[1]).0, Then::Go),
        });
        let case = Case::new(&server);
        let (report, result) = case.get().await;
        result.unwrap();
        case.assert_whole(&expected);
        assert_eq!((report.restarts, report.discarded), (1, 100_000), "{tags:?}");
    }
}

#[tokio::test]
async fn content_that_always_changes_is_given_up() {
    let server = Server::new(|asked| {
        let bytes = content(100_000, u64::from(asked.number));
        cut(asked, &bytes, &format!("\"{}\"", asked.number), 50_000, Then::Close)
    });
    let case = Case::new(&server);
    let (_, result) = case.get().await;
    let error = result.unwrap_err();
    assert!(matches!(error, GetError::Trouble(Trouble::KeepsChanging { .. })), "{error}");
    assert!(!case.path().exists());
}

#[tokio::test]
async fn another_nodes_tag_for_the_same_bytes_costs_an_overlap() {
    let bytes = content(500_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| {
        let tag = format!("\"node-{}\"", asked.number % 3);
        cut(asked, &whole, &tag, 150_000, Then::Close)
    });
    let case = Case::new(&server);
    let (report, result) = case.get().await;
    result.unwrap();
    case.assert_whole(&bytes);
    assert_eq!((report.restarts, report.discarded), (0, 0));
    let fetched: u64 = report.connections.iter().map(|c| c.bytes).sum();
    assert_eq!(fetched, 500_000);
}

#[tokio::test]
async fn redirects_are_followed_within_a_bound() {
    let server = Server::new(|asked| {
        let to = format!("{}x", asked.target);
        Reply(
            format!("HTTP/1.1 302 F\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes(),
            Then::Go,
        )
    });
    let case = Case::new(&server);
    let (_, result) = case.get().await;
    assert!(matches!(result, Err(GetError::Redirects(20, _))));
    assert_eq!(server.asked().len(), 21);
    assert_eq!(case.names(), [""; 0]);
}

#[tokio::test]
async fn secrets_stay_with_the_server_they_are_for() {
    let target = Server::new(|asked| Reply(file(asked, b"hello", A).0, Then::Go));
    let to = target.url("/elsewhere");
    let server = Server::new(move |_| {
        let head = format!("HTTP/1.1 307 T\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        Reply(head.into_bytes(), Then::Go)
    });
    let mut case = Case::new(&server);
    for (name, value) in [("authorization", "Basic x"), ("cookie", "a=b"), ("x-other", "c")] {
        case.request.headers.push((name.parse().unwrap(), value.parse().unwrap()));
    }
    case.get().await.1.unwrap();
    case.assert_whole(b"hello");
    let here = &server.asked()[0];
    assert_eq!((here.field("authorization"), here.field("cookie")), (Some("Basic x"), Some("a=b")));
    let there = &target.asked()[0];
    assert_eq!((there.field("authorization"), there.field("cookie")), (None, None));
    assert_eq!(there.field("x-other"), Some("c"));
}

#[tokio::test]
async fn a_server_that_resets_after_every_byte_is_given_up_and_what_came_is_kept() {
    let bytes = content(100_000, 1);
    let whole = bytes.clone();
    let kind = std::sync::Arc::new(AtomicBool::new(false));
    let healed = kind.clone();
    let server = Server::new(move |asked| match asked.number {
        0 => cut(asked, &whole, A, 40_000, Then::Close),
        _ if healed.load(Ordering::SeqCst) => Reply(file(asked, &whole, A).0, Then::Go),
        _ => cut(asked, &whole, A, 1, Then::Reset),
    });
    let mut case = Case::new(&server);
    case.request.hopeless = 3;
    let (report, result) = case.get().await;
    let error = result.unwrap_err();
    assert!(matches!(error, GetError::Trouble(Trouble::NoProgress { .. })), "{error}");
    assert!(report.held >= 40_000 && report.length == Some(100_000));
    assert!(!case.path().exists() && case.part().exists());
    // The same call continues from there.
    kind.store(true, Ordering::SeqCst);
    let (again, result) = case.get().await;
    result.unwrap();
    assert_eq!(again.held_before, report.held);
    case.assert_whole(&bytes);
}

#[tokio::test]
async fn an_outage_is_waited_for_only_if_told_to() {
    let bytes = content(50_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| match asked.number {
        0 | 2 => Reply(b"HTTP/1.1 503 S\r\nContent-Length: 0\r\n\r\n".to_vec(), Then::Go),
        _ => Reply(file(asked, &whole, A).0, Then::Go),
    });
    let mut case = Case::new(&server);
    let (_, result) = case.get().await;
    assert!(matches!(result, Err(GetError::Unavailable { status: 503 })));
    assert_eq!(case.names(), [""; 0]);
    case.request.retries = 1;
    let _ = case.get().await;
    case.get().await.1.unwrap();
    case.assert_whole(&bytes);

    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let case = Case::of(format!("http://{gone}/file").parse().unwrap());
    assert!(matches!(case.get().await.1, Err(GetError::Connect(_))));
}

#[tokio::test]
async fn a_refusal_leaves_nothing_behind() {
    let server =
        Server::new(|_| Reply(b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n".to_vec(), Then::Go));
    let case = Case::new(&server);
    let (_, result) = case.get().await;
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "the server answered 404");
    assert_eq!(case.names(), [""; 0]);
}

#[tokio::test]
async fn the_wrong_file_never_gets_the_name() {
    let server = Server::new(|asked| Reply(file(asked, b"not it", A).0, Then::Go));
    let mut case = Case::new(&server);
    case.request.digest = Some(sha256(b"expected"));
    let (_, result) = case.get().await;
    assert!(matches!(result, Err(GetError::Trouble(Trouble::WrongDigest))));
    assert_eq!(case.names(), [""; 0]);
    // The file is also compared with a digest that the server itself sends.
    let server = Server::new(|_| {
        let digest = "Repr-Digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
        let head = format!("HTTP/1.1 200 OK\r\n{digest}\r\nContent-Length: 3\r\n\r\nabd");
        Reply(head.into_bytes(), Then::Go)
    });
    let case = Case::new(&server);
    assert!(case.get().await.1.is_err());
    assert_eq!(case.names(), [""; 0]);
}

#[tokio::test]
async fn one_process_at_a_time_fetches_a_file() {
    let bytes = content(100_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| match asked.number {
        0 => cut(asked, &whole, A, 50_000, Then::Silence),
        _ => Reply(file(asked, &whole, A).0, Then::Go),
    });
    let case = Case::new(&server);
    let progress = std::sync::Arc::new(DownloadProgress::default());
    let first = {
        let (request, progress) = (case.request.clone(), progress.clone());
        tokio::spawn(async move {
            let client = Client::new(ClientSettings::default()).unwrap();
            client.get(&request, &progress).await
        })
    };
    while progress.held() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (_, second) = case.get().await;
    let error = second.unwrap_err().to_string();
    assert!(error.ends_with("is being fetched by another process"), "{error}");
    progress.stop();
    assert!(matches!(first.await.unwrap().1, Err(GetError::Stopped)));
    let (report, result) = case.get().await;
    result.unwrap();
    assert!(report.held_before > 0);
    case.assert_whole(&bytes);
}

#[tokio::test]
async fn several_connections_share_a_file() {
    let bytes = content(3_000_000, 1);
    for (tag, ranges) in [(A, true), (A, false), ("", true)] {
        let whole = bytes.clone();
        let server = Server::new(move |asked| {
            let plain = Asked { number: asked.number, ..Asked::default() };
            let asked = if ranges { asked } else { &plain };
            // Every other connection breaks off.
            let most = if asked.number % 2 == 1 { 200_000 } else { usize::MAX / 2 };
            cut(asked, &whole, tag, most, Then::Close)
        });
        let mut case = Case::new(&server);
        (case.request.connections, case.request.pieces) = (4, 4);
        case.request.least_piece = 100_000;
        case.request.digest = (tag.is_empty()).then(|| sha256(&bytes));
        let (report, result) = case.get().await;
        result.unwrap();
        case.assert_whole(&bytes);
        if ranges {
            let lanes: std::collections::BTreeSet<_> =
                report.connections.iter().map(|c| c.lane).collect();
            assert!(lanes.len() > 1, "{report:?}");
        }
    }
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_its_last_chunk_only() {
    let server = Server::new(|asked| match asked.number {
        0 => Reply(
            b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
                .to_vec(),
            Then::Close,
        ),
        _ => Reply(file(asked, b"hello world", A).0, Then::Go),
    });
    let case = Case::new(&server);
    case.get().await.1.unwrap();
    case.assert_whole(b"hello world");
    let server = Server::new(|_| {
        let reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        Reply(reply.as_bytes().to_vec(), Then::Go)
    });
    let case = Case::new(&server);
    case.get().await.1.unwrap();
    case.assert_whole(b"hello");
}

#[tokio::test]
async fn a_file_of_no_bytes_is_a_file() {
    let server = Server::new(|asked| Reply(file(asked, b"", A).0, Then::Go));
    let case = Case::new(&server);
    case.get().await.1.unwrap();
    case.assert_whole(b"");
}

#[tokio::test]
async fn the_server_may_name_a_file_but_not_replace_one() {
    let server = Server::new(|_| {
        let name = "Content-Disposition: attachment; filename=\"../named.txt\"";
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{name}\r\n\r\nhello");
        Reply(reply.into_bytes(), Then::Go)
    });
    let mut case = Case::new(&server);
    case.request.server_names = true;
    let (report, result) = case.get().await;
    result.unwrap();
    assert_eq!(report.path, case.directory.path().join("named.txt"));
    assert_eq!(case.names(), ["named.txt"]);
    fs::write(&report.path, "mine").unwrap();
    let error = case.get().await.1.unwrap_err().to_string();
    assert!(error.contains("is not replaced"), "{error}");
    assert_eq!(fs::read(report.path).unwrap(), b"mine");
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_stale_one_is_no_error() {
    let bytes = content(1000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| match asked.number {
        // The server keeps it open, and closes it when the next request arrives.
        1 => Reply(Vec::new(), Then::Close),
        _ => Reply(file(asked, &whole, A).0, Then::Go),
    });
    let client = Client::new(ClientSettings::default()).unwrap();
    let first = Case::new(&server);
    first.get_with(&client).await.1.unwrap();
    let second = Case::new(&server);
    let (report, result) = second.get_with(&client).await;
    result.unwrap();
    second.assert_whole(&bytes);
    assert_eq!(report.connections_total, 1);
    let third = Case::new(&server);
    let (report, _) = third.get_with(&client).await;
    assert!(report.connections[0].reused);
}

#[tokio::test]
async fn the_time_is_limited_and_so_is_the_rate() {
    let bytes = content(100_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| Reply(file(asked, &whole, A).0, Then::Go));
    let mut case = Case::new(&server);
    case.request.max_time = Some(Duration::from_millis(300));
    let settings = ClientSettings { limit_rate: Some(10_000), ..ClientSettings::default() };
    let client = Client::new(settings).unwrap();
    let (report, result) = case.get_with(&client).await;
    assert!(matches!(result, Err(GetError::TooLong(_))));
    assert!(!report.complete && report.held < 100_000);
    case.request.max_time = None;
    case.get().await.1.unwrap();
    case.assert_whole(&bytes);
}

#[tokio::test]
async fn a_full_disk_is_said_and_what_came_is_kept() {
    // A file system of 1 MiB; only root may mount one.
    let case = Case::of("http://127.0.0.1:9/file".parse().unwrap());
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new("mount").args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    let place = case.directory.path().to_str().unwrap().to_owned();
    let place = place.as_str();
    if !rustix::process::geteuid().is_root()
        || !mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs", place])
    {
        levada_skip::skipped("needs root to mount a small file system");
        return;
    }
    let bytes = content(2 << 20, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| Reply(file(asked, &whole, A).0, Then::Go));
    let mut case = case;
    case.request.url = server.url("/file");
    let (report, result) = case.get().await;
    let names = case.names();
    // With more space it continues.
    mount(&["-o", "remount,size=8m", place]);
    let (again, resumed) = case.get().await;
    let whole = fs::read(case.path());
    let _ = std::process::Command::new("umount").arg(place).status();
    let error = result.unwrap_err().to_string();
    assert!(error.contains("no space is left"), "{error}");
    assert!(!names.contains(&"file".to_owned()), "{names:?}");
    resumed.unwrap();
    assert!(report.held > 0 && again.held_before > 0);
    assert!(whole.unwrap() == bytes);
}

/// The error of a transfer whose server has the same defect in all answers. It must end.
async fn given_up(case: &Case) -> (GetReport, Trouble) {
    let ended = tokio::time::timeout(Duration::from_secs(60), case.get()).await;
    let (report, result) = ended.expect("the transfer ends");
    match result.unwrap_err() {
        GetError::Trouble(trouble) => (report, trouble),
        other => panic!("{other}"),
    }
}

fn empty_416() -> Reply {
    let head = "HTTP/1.1 416 R\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n";
    Reply(head.as_bytes().to_vec(), Then::Go)
}

#[tokio::test]
async fn server_that_refuses_every_range_of_an_empty_file_is_given_up() {
    let server = Server::new(|_| empty_416());
    for connections in [1, 4] {
        let mut case = Case::new(&server);
        case.request.connections = connections;
        case.request.pieces = connections;
        let (_, trouble) = given_up(&case).await;
        assert_eq!(trouble, Trouble::Nonsense("416 to a request without a range"));
        assert_eq!(case.names(), [""; 0]);
    }
}

#[tokio::test]
async fn server_that_sends_only_what_is_here_is_given_up() {
    // The server never states the length of its file, and every part ends where the file on disk ends.
    let bytes = content(100_000, 1);
    let whole = bytes.clone();
    let server = Server::new(move |asked| {
        let (start, _) = asked.range().unwrap_or((0, None));
        let head = format!(
            "HTTP/1.1 206 P\r\nContent-Range: bytes {start}-99999/*\r\nContent-Length: {}\r\n\r\n",
            100_000 - start
        );
        Reply([head.as_bytes(), &whole[start..]].concat(), Then::Go)
    });
    let mut case = Case::new(&server);
    case.request.adopt = true;
    fs::write(case.path(), &bytes).unwrap();
    let (report, trouble) = given_up(&case).await;
    assert!(matches!(trouble, Trouble::NoProgress { .. }), "{trouble}");
    let error = report.error.unwrap();
    assert!(error.ends_with("the last one: status 206, complete"), "{error}");
}

#[tokio::test]
async fn wrong_content_is_fetched_twice_at_most_on_every_path() {
    let bytes = content(400_000, 1);
    for (connections, begun) in [(1, 0), (4, 0), (1, 100_000), (4, 100_000)] {
        let whole = bytes.clone();
        // Each answer breaks off once, so that the file is put together from several.
        let server = Server::new(move |asked| cut(asked, &whole, A, 150_000, Then::Close));
        let mut case = Case::new(&server);
        case.request.connections = connections;
        case.request.pieces = connections;
        case.request.least_piece = 10_000;
        case.request.digest = Some(sha256(b"expected"));
        if begun > 0 {
            case.request.adopt = true;
            fs::write(case.path(), &bytes[..begun]).unwrap();
        }
        let (report, trouble) = given_up(&case).await;
        assert_eq!(trouble, Trouble::WrongDigest, "{connections} connections, from {begun}");
        assert_eq!(report.restarts, 1);
        let fetched: u64 = report.connections.iter().map(|connection| connection.bytes).sum();
        assert_eq!(fetched, 800_000 - begun as u64);
    }
}

#[tokio::test]
async fn body_without_a_length_must_have_the_expected_one() {
    let reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let server = Server::new(|_| Reply(reply.as_bytes().to_vec(), Then::Go));
    for connections in [1, 4] {
        let mut case = Case::new(&server);
        case.request.connections = connections;
        case.request.length = Some(6);
        let (_, trouble) = given_up(&case).await;
        assert_eq!(trouble, Trouble::WrongLength { told: 5, expected: 6 });
    }
}
