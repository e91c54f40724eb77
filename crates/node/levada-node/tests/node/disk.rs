//! The disk tier of a node: objects after their eviction from memory, and after a restart.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use levada_config::{DiskCache, Settings};
use levada_edge::node_error::NodeError;
use levada_node::{Running, StartError};

use crate::support::*;

fn settings(origin: &Origin, dir: &Path) -> Settings {
    let mut settings = single(&[origin.address]);
    settings.cache.block = 64 << 10;
    settings.cache.disk = Some(DiskCache { path: dir.to_owned(), size: 64 << 20 });
    settings
}

async fn begin(origin: &Origin, dir: &Path) -> (Running, SocketAddr) {
    let node = start(settings(origin, dir)).await;
    let at = node.addresses.clients[0];
    // Nothing is written before the directory has been scanned.
    shows(&node, "levada_cache_disk_scanned 1").await;
    (node, at)
}

/// Waits until the metrics have this line.
async fn shows(node: &Running, line: &str) {
    let admin = node.addresses.admin.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let page = Wire::saying(admin, head_of("GET", "/metrics", &[])).await.answer().await.text();
        if page.lines().any(|found| found == line) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "never {line} in {page}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn long() -> Vec<u8> {
    (0..300_000u32).map(|n| (n % 253) as u8).collect()
}

#[tokio::test]
async fn stored_responses_survive_a_restart() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    origin.on("/long", Reply::cached(long()).with("etag", "\"l\""));
    origin.script("/vary", |asked| {
        let language = asked.header("accept-language").unwrap_or_default();
        Reply::cached(language).with("vary", "accept-language")
    });
    let tongues = ["de", "pt"];
    let (node, at) = begin(&origin, dir.path()).await;
    get(at, "/a").await;
    get(at, "/long").await;
    for tongue in tongues {
        get_with(at, "/vary", &[("Accept-Language", tongue)]).await;
    }
    settled(&node).await;
    node.stop().await;
    let before = origin.total();

    let (node, at) = begin(&origin, dir.path()).await;
    let answer = get(at, "/a").await;
    assert!(answer.is_hit() && answer.text() == "/a", "{answer:?}");
    let part = get_with(at, "/long", &[("Range", "bytes=131000-200000")]).await;
    assert_eq!((part.status, &part.body[..]), (206, &long()[131_000..=200_000]));
    assert!(get(at, "/long").await.body == long());
    for tongue in tongues {
        let answer = get_with(at, "/vary", &[("Accept-Language", tongue)]).await;
        assert!(answer.is_hit() && answer.text() == tongue, "{answer:?}");
    }
    assert_eq!(origin.total(), before, "the origin was not asked");
    settled(&node).await;
    node.stop().await;
}

#[tokio::test]
async fn what_the_memory_has_lost_is_on_disk() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut small = settings(&origin, dir.path());
    small.cache.memory = 1 << 20;
    let node = start(small).await;
    let at = node.addresses.clients[0];
    shows(&node, "levada_cache_disk_scanned 1").await;
    for n in 0..100 {
        let body = vec![n as u8; 50_000];
        origin.on(&format!("/{n}"), Reply::cached(body));
        get(at, &format!("/{n}")).await;
        settled(&node).await;
    }
    for n in 0..100 {
        let answer = get(at, &format!("/{n}")).await;
        assert!(
            answer.is_hit() && answer.body == vec![n as u8; 50_000],
            "{n}: {:?}",
            answer.fields
        );
    }
    assert_eq!(origin.total(), 100);
    settled(&node).await;
}

/// The files of records, by the last byte of their bodies.
fn records(dir: &Path) -> BTreeMap<u8, PathBuf> {
    let parts = fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let files = parts.flat_map(|part| fs::read_dir(part.path()).unwrap().flatten());
    let last = |path: PathBuf| Some((*fs::read(&path).ok()?.last()?, path));
    files.filter_map(|entry| last(entry.path())).collect()
}

/// A pipe in the place of a record is a disk that stands: its reader waits.
#[tokio::test]
async fn disk_that_stands_is_passed_by_and_waited_for_when_the_origin_fails() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let mut small = settings(&origin, dir.path());
    small.cache.memory = 1 << 20;
    let node = start(small).await;
    let at = node.addresses.clients[0];
    shows(&node, "levada_cache_disk_scanned 1").await;
    for n in 0..60 {
        origin.on(&format!("/{n}"), Reply::cached(vec![n; 50_000]));
        get(at, &format!("/{n}")).await;
        settled(&node).await;
    }
    shows(&node, "levada_cache_disk_queue_bytes 0").await;
    let records = records(dir.path());
    // A record that is written again takes the name, and the pipe is still to be found.
    let (pipes, pipe) = (tempfile::tempdir().unwrap(), |dir: &Path, n: u8| dir.join(n.to_string()));
    for n in 0..20 {
        let pipe = pipe(pipes.path(), n);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::remove_file(&records[&n]).unwrap();
        fs::hard_link(pipe, &records[&n]).unwrap();
    }
    for n in 0..20 {
        let answer = get(at, &format!("/{n}")).await;
        assert!(!answer.is_hit() && answer.body == vec![n; 50_000], "{:?}", answer.fields);
        settled(&node).await;
    }
    shows(&node, "levada_cache_disk_slow 1").await;
    // The system is not to have this one in its memory.
    let other = fs::File::open(&records[&20]).unwrap();
    other.sync_all().unwrap();
    rustix::fs::fadvise(&other, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    origin.on("/20", Reply::hang_up());
    let mut answer = get(at, "/20").await;
    for _ in 0..100 {
        if answer.status != 200 {
            // The disk is left alone for a moment after a read that got no answer.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            answer = get(at, "/20").await;
        }
    }
    assert_eq!((answer.status, answer.body), (200, vec![20; 50_000]));
    shows(&node, "levada_cache_disk_errors_total{kind=\"timeout\"} 1").await;
    // Readers go on.
    let open = |n| fs::File::options().read(true).write(true).open(pipe(pipes.path(), n)).unwrap();
    let _writers: Vec<_> = (0..20).map(open).collect();
    settled(&node).await;
    node.stop().await;
}

#[tokio::test]
async fn invalidation_reaches_the_disk() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let (node, at) = begin(&origin, dir.path()).await;
    get(at, "/a").await;
    settled(&node).await;
    let post = head_of("POST", "/a", &[("Content-Length", "2")]) + "hi";
    assert_eq!(Wire::saying(at, post).await.answer().await.status, 200);
    settled(&node).await;
    node.stop().await;
    let (node, at) = begin(&origin, dir.path()).await;
    assert!(!get(at, "/a").await.is_hit());
    settled(&node).await;
    node.stop().await;
}

#[tokio::test]
async fn purge_reaches_the_disk_and_outlives_a_restart() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let tagged =
        |text: &str| Reply::cached(text).with("surrogate-key", "shop").with("etag", "\"1\"");
    origin.on("/a", tagged("a"));
    origin.on("/b", tagged("b"));
    let (node, at) = begin(&origin, dir.path()).await;
    for path in ["/a", "/b", "/c"] {
        get(at, path).await;
    }
    settled(&node).await;
    let admin = node.addresses.admin.unwrap();
    let order = format!(r#"{{"tag":["shop"],"site":"{HOST}"}}"#);
    let length = order.len().to_string();
    let fields = [("Content-Type", "application/json"), ("Content-Length", &*length)];
    let post = head_of("POST", "/purge", &fields) + &order;
    let answer = Wire::saying(admin, post).await.answer().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    node.stop().await;
    let (node, at) = begin(&origin, dir.path()).await;
    assert!(get(at, "/c").await.is_hit());
    for path in ["/a", "/b"] {
        assert!(!get(at, path).await.is_hit(), "{path}");
    }
    settled(&node).await;
    node.stop().await;
    // The scan does not treat the journal as an unknown file.
    let (node, at) = begin(&origin, dir.path()).await;
    for path in ["/a", "/b", "/c"] {
        assert!(get(at, path).await.is_hit(), "{path}");
    }
    settled(&node).await;
}

#[tokio::test]
async fn damaged_record_is_fetched_again() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let (node, at) = begin(&origin, dir.path()).await;
    let body = vec![b'x'; 40_000];
    origin.on("/a", Reply::cached(body.clone()));
    get(at, "/a").await;
    settled(&node).await;
    node.stop().await;
    let mut records = 0;
    for entry in walk(dir.path()) {
        let mut bytes = std::fs::read(&entry).unwrap();
        if let Some(at) = bytes.windows(100).position(|w| w.iter().all(|b| *b == b'x')) {
            bytes[at + 50] ^= 1;
            std::fs::write(&entry, bytes).unwrap();
            records += 1;
        }
    }
    assert_eq!(records, 1);
    let (node, at) = begin(&origin, dir.path()).await;
    let answer = get(at, "/a").await;
    assert!(!answer.is_hit() && answer.body == body);
    shows(&node, "levada_cache_disk_damaged_total 1").await;
    assert_eq!(origin.hits("/a"), 2);
    settled(&node).await;
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn directory_of_another_node_is_refused() {
    let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
    let (_node, _) = begin(&origin, dir.path()).await;
    let second = Running::start(settings(&origin, dir.path())).await;
    assert!(matches!(second, Err(StartError::Node(NodeError::Disk(_)))));
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let third = Running::start(settings(&origin, &file)).await;
    assert!(matches!(third, Err(StartError::Node(NodeError::Disk(_)))));
}
