//! Bodies that are longer than the memory tier reach their readers whole, whatever the origin and the disk can do.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_config::Settings;
use levada_store::DiskCache;
use levada_types::Rng;
use tokio::task::JoinSet;

use crate::support::{
    nodes::{Cluster, metric},
    origin::Asked,
    *,
};

const MEMORY: usize = 512 << 10;
const BLOCK: usize = 32 << 10;

/// A body in which no two blocks are the same.
fn body(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// The ranges that an origin sends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ranges {
    /// The blocks that it is asked for.
    Right,
    /// None, and it does not say so.
    None,
    /// None, although it offers them.
    OnlyOffered,
    /// The first one that it is asked for, and then none.
    Once,
    /// Others than it is asked for.
    Wrong,
}

const RANGES: [Ranges; 5] =
    [Ranges::Right, Ranges::None, Ranges::OnlyOffered, Ranges::Once, Ranges::Wrong];

impl Ranges {
    fn reply(self, asked: &Asked, body: &[u8], etag: &str, before: usize) -> Reply {
        let told = |reply: Reply| match (etag, self) {
            ("", Self::None) => reply,
            ("", _) => reply.with("accept-ranges", "bytes"),
            (_, Self::None) => reply.with("etag", etag),
            _ => reply.with("etag", etag).with("accept-ranges", "bytes"),
        };
        let range = asked.header("range").filter(|_| match self {
            Self::Right | Self::Wrong => true,
            Self::Once => before == 0,
            Self::None | Self::OnlyOffered => false,
        });
        let Some(range) = range else { return told(Reply::cached(body)) };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, end) = match (first, last) {
            ("", count) => (body.len() - count.parse::<usize>().unwrap(), body.len()),
            (first, "") => (first.parse().unwrap(), body.len()),
            (first, last) => {
                (first.parse().unwrap(), body.len().min(last.parse::<usize>().unwrap() + 1))
            }
        };
        let first = if self == Self::Wrong { first.saturating_sub(1) } else { first };
        let part = Reply::cached(&body[first..end]).status("206 Partial Content");
        told(part).with("content-range", &format!("bytes {first}-{}/{}", end - 1, body.len()))
    }
}

async fn origin(ranges: Ranges, length: usize, etag: &'static str) -> (Origin, Arc<Vec<u8>>) {
    let origin = Origin::start().await;
    let whole = Arc::new(body(length));
    let (content, parts) = (whole.clone(), AtomicUsize::new(0));
    origin.script("/body", move |asked| {
        let has_range = asked.header("range").is_some();
        let before = parts.fetch_add(has_range.into(), Relaxed);
        ranges.reply(asked, &content, etag, before)
    });
    (origin, whole)
}

fn small(settings: &mut Settings, disk: Option<&Path>) {
    settings.cache.memory = MEMORY as u64;
    settings.cache.block = BLOCK as u64;
    settings.cache.disk =
        disk.map(|path| DiskCache { path: path.join(&settings.name), size: 1 << 30 });
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug)]
struct Cell {
    length: usize,
    disk: bool,
    ranges: Ranges,
    etag: &'static str,
    nodes: usize,
    /// Half of them stand still until the other half has read everything.
    readers: usize,
}

impl Cell {
    async fn is_whole(self) {
        let dir = tempfile::tempdir().unwrap();
        let (origin, whole) = origin(self.ranges, self.length, self.etag).await;
        let disk = self.disk.then(|| dir.path());
        let cluster = Cluster::start(self.nodes, origin.address, |settings| small(settings, disk));
        let cluster = cluster.await;
        let (gate, mut slow, mut quick) = (Gate::new(), JoinSet::new(), JoinSet::new());
        for reader in 0..self.readers {
            let at = cluster.client(reader % self.nodes);
            if reader % 2 == 1 {
                slow.spawn(late(at, gate.clone()));
            } else {
                quick.spawn(async move { get(at, "/body").await });
            }
        }
        let check = |answer: Answer| {
            let got = answer.body.len();
            assert!(
                answer.status == 200 && answer.whole && answer.body == *whole,
                "{got} {self:?}"
            );
        };
        while let Some(answer) = quick.join_next().await {
            check(answer.unwrap());
        }
        for index in 0..self.nodes {
            let node = cluster.node(index);
            assert!(metric(node, "levada_cache_bytes").await <= MEMORY as f64);
            assert!(metric(node, "levada_cache_lent_bytes").await <= (MEMORY / 4) as f64);
        }
        gate.open();
        while let Some(answer) = slow.join_next().await {
            check(answer.unwrap());
        }
        // The stored body is whole as well, or is fetched again.
        check(get(cluster.client(0), "/body").await);
        for index in 0..self.nodes {
            settled(cluster.node(index)).await;
        }
    }
}

/// A client that reads nothing but the head until it is let.
async fn late(at: SocketAddr, gate: Gate) -> Answer {
    let mut wire = Wire::narrow(at).await;
    wire.send(head_of("GET", "/body", &[])).await;
    let mut answer = wire.head().await;
    gate.passed().await;
    wire.body(&mut answer, "GET").await;
    answer
}

/// The cells with all other values of the rest. `LEVADA_TEST_MATRIX=full` has all sizes.
fn cells(nodes: usize, readers: usize, of: impl Fn(&Cell) -> bool) -> Vec<Cell> {
    let full = std::env::var("LEVADA_TEST_MATRIX").is_ok_and(|value| value == "full");
    let lengths = [MEMORY / 2, MEMORY, 2 * MEMORY, 5 * MEMORY, 20 * MEMORY];
    let lengths = if full { &lengths[..] } else { &lengths[4..] };
    let mut cells = Vec::new();
    for &length in lengths {
        for disk in [false, true] {
            for ranges in RANGES {
                for etag in ["\"v1\"", "W/\"v1\"", ""] {
                    cells.push(Cell { length, disk, ranges, etag, nodes, readers });
                }
            }
        }
    }
    cells.retain(|cell| full || of(cell));
    cells
}

#[tokio::test]
async fn bodies_are_whole_at_one_node_whatever_the_origin_can_do() {
    // Each range with another validator, with and without a disk.
    let etag = |ranges: Ranges| ["", "\"v1\"", "W/\"v1\"", "\"v1\"", "\"v1\""][ranges as usize];
    for cell in cells(1, 4, |cell| cell.etag == etag(cell.ranges)) {
        cell.is_whole().await;
    }
}

#[tokio::test]
async fn bodies_are_whole_in_a_cluster() {
    for nodes in 2..=5 {
        let is_one = |cell: &Cell| cell.ranges == RANGES[nodes - 1] && cell.etag == "\"v1\"";
        let some = |cell: &Cell| is_one(cell) && cell.disk == (nodes % 2 == 0);
        for cell in cells(nodes, 2 * nodes, some) {
            cell.is_whole().await;
        }
    }
}

#[tokio::test]
async fn bodies_are_whole_for_fifty_readers() {
    for cell in
        cells(1, 50, |cell| cell.ranges == Ranges::None && cell.etag.is_empty() && !cell.disk)
    {
        cell.is_whole().await;
    }
}

/// The requests to an origin when one reader stands still while another one reads everything.
async fn left_behind(ranges: Ranges, etag: &'static str) -> usize {
    let (origin, whole) = origin(ranges, 20 * MEMORY, etag).await;
    let mut settings = single(&[origin.address]);
    small(&mut settings, None);
    let node = start(settings).await;
    let (at, gate) = (node.addresses.clients[0], Gate::new());
    let waiting = tokio::spawn(late(at, gate.clone()));
    eventually("the fetch runs", || origin.hits("/body") > 0).await;
    let quick = get(at, "/body").await;
    assert!(quick.whole && quick.body == *whole, "{ranges:?} {etag} {}", quick.body.len());
    gate.open();
    let late = waiting.await.unwrap();
    assert!(late.whole && late.body == *whole, "{ranges:?} {etag} {}", late.body.len());
    settled(&node).await;
    origin.hits("/body")
}

#[tokio::test]
async fn a_reader_that_is_left_behind_gets_a_fetch_of_its_own() {
    // With a strong validator it is tried once whether the origin sends parts.
    for (etag, requests) in [("\"v1\"", 3), ("W/\"v1\"", 2), ("", 2)] {
        assert_eq!(left_behind(Ranges::None, etag).await, requests, "{etag}");
    }
}

#[tokio::test]
async fn a_reader_never_gets_the_bytes_of_two_bodies() {
    let (origin, whole) = origin(Ranges::None, 20 * MEMORY, "").await;
    let mut settings = single(&[origin.address]);
    small(&mut settings, None);
    let node = start(settings).await;
    let (at, gate) = (node.addresses.clients[0], Gate::new());
    let waiting = tokio::spawn(late(at, gate.clone()));
    eventually("the fetch runs", || origin.hits("/body") > 0).await;
    assert!(get(at, "/body").await.body == *whole);
    let mut other = whole.to_vec();
    other[10] ^= 1;
    origin.on("/body", Reply::cached(other));
    gate.open();
    let late = waiting.await.unwrap();
    assert!(!late.whole && late.body == whole[..late.body.len()], "{}", late.body.len());
    settled(&node).await;
}

/// A random request of a client: a whole body or a range, read at once, with pauses, or not to its end; or a
/// purge of it.
async fn some_client(at: SocketAddr, whole: Arc<Vec<u8>>, mut rng: Rng) {
    for _ in 0..4 {
        let (first, length) = (rng.below(whole.len()), whole.len());
        let last = first + rng.below(length - first);
        let (range, span) = match rng.below(6) {
            0 => (Some(format!("bytes={first}-{last}")), first..last + 1),
            1 => (Some(format!("bytes={first}-")), first..length),
            2 => (Some(format!("bytes=-{}", length - first)), first..length),
            3 if rng.below(4) == 0 => {
                let token = [("Authorization", "Bearer some token of a length")];
                let head = head_of("PURGE", "/body", &token);
                assert_eq!(Wire::saying(at, head).await.answer().await.status, 200);
                continue;
            }
            _ => (None, 0..length),
        };
        let fields: Vec<_> = range.iter().map(|range| ("Range", &**range)).collect();
        let mut wire = if rng.below(2) == 0 { Wire::narrow(at).await } else { Wire::to(at).await };
        wire.send(head_of("GET", "/body", &fields)).await;
        let answer = wire.head().await;
        let expected = if answer.status == 206 { &whole[span] } else { &whole[..] };
        let story = format!("{range:?} {answer:?}");
        assert!(matches!(answer.status, 200 | 206), "{story}");
        // A client that leaves.
        if rng.below(4) == 0 {
            let read = wire.take(rng.below(expected.len())).await;
            assert!(read == expected[..read.len()], "{story}");
            continue;
        }
        for _ in 0..rng.below(50) {
            tokio::task::yield_now().await;
        }
        let paused = wire.take(rng.below(expected.len())).await;
        assert!(paused == expected[..paused.len()], "{story}");
        tokio::time::sleep(Duration::from_millis(rng.below(200) as u64)).await;
        let rest = wire.take(expected.len() - paused.len()).await;
        assert!(rest == expected[paused.len()..], "{story}");
    }
}

#[tokio::test]
async fn clients_that_pause_leave_and_purge_get_the_bytes_that_they_ask_for() {
    let full = std::env::var("LEVADA_TEST_MATRIX").is_ok_and(|value| value == "full");
    for seed in 0..if full { 20 } else { 1 } {
        for (number, ranges) in RANGES[..4].iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let mut rng = Rng::new(seed * 4 + number as u64);
            let etag = ["\"v1\"", "W/\"v1\"", ""][rng.below(3)];
            let (origin, whole) = origin(*ranges, 10 * MEMORY, etag).await;
            let mut settings = single(&[origin.address]);
            small(&mut settings, (rng.below(2) == 0).then(|| dir.path()));
            settings.purge.access.token = Some("some token of a length".to_owned());
            let node = start(settings).await;
            let mut clients = JoinSet::new();
            for _ in 0..8 {
                let rng = Rng::new(rng.bits());
                clients.spawn(some_client(node.addresses.clients[0], whole.clone(), rng));
            }
            while let Some(client) = clients.join_next().await {
                client.unwrap_or_else(|error| panic!("{seed} {ranges:?} {etag}: {error}"));
            }
            settled(&node).await;
        }
    }
}
