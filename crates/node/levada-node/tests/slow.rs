//! Memory of clients that read slowly or not at all. A program of its own, since its allocator counts
//! the whole program.

#[allow(dead_code, unused_imports, reason = "shared with the other tests")]
#[path = "node/support/mod.rs"]
mod support;

use std::{alloc::System, net::SocketAddr, sync::LazyLock};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use support::*;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SLOW: usize = 200;
/// More than a connection and the kernel buffer of it.
const LENGTH: usize = 6 << 20;
const MEMORY: u64 = 16 << 20;
/// The most memory of a client that does not read: a piece of body, and its connection.
const EACH: u64 = 192 << 10;
/// The most memory of a fetch that waits for its readers: one read from its connection.
const FETCH: u64 = 384 << 10;

fn allocated() -> u64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64
}

/// Every body.
static BODY: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..LENGTH).map(|n| (n % 251 + n / 65_536 % 5) as u8).collect());

/// An origin of long bodies that uses no memory for them, with or without ranges.
async fn origin(ranges: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, ranges));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, ranges: bool) -> std::io::Result<()> {
    let mut asked = Vec::new();
    loop {
        while !asked.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut asked).await? == 0 {
                return Ok(());
            }
        }
        let text = String::from_utf8_lossy(&asked).to_ascii_lowercase();
        let range = text.lines().find_map(|line| line.strip_prefix("range: bytes="));
        let range = range.filter(|_| ranges).and_then(|range| range.split_once('-'));
        let (first, end) = range.map_or((0, LENGTH), |(first, last)| {
            let end = last.parse::<usize>().map_or(LENGTH, |last| LENGTH.min(last + 1));
            (first.parse().unwrap(), end)
        });
        let mut head = match range {
            Some(_) => format!(
                "HTTP/1.1 206 Part\r\nContent-Range: bytes {first}-{}/{LENGTH}\r\n",
                end - 1
            ),
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
        };
        if ranges {
            head += "Accept-Ranges: bytes\r\n";
        }
        head += "ETag: \"1\"\r\nCache-Control: max-age=600\r\n";
        head += &format!("Content-Length: {}\r\n\r\n", end - first);
        asked.clear();
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&BODY[first..end]).await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_slow_readers_of_as_many_long_bodies_cost_bounded_memory() {
    for ranges in [true, false] {
        let mut settings = single(&[origin(ranges).await]);
        settings.cache.memory = MEMORY;
        let node = start(settings).await;
        let at = node.addresses.clients[0];
        LazyLock::force(&BODY);
        let before = allocated();
        let mut most = 0;
        let mut slow = Vec::new();
        for n in 0..SLOW {
            let mut wire = Wire::narrow(at).await;
            wire.send(head_of("GET", &format!("/{n}"), &[])).await;
            assert_eq!(wire.head().await.status, 200);
            slow.push(wire);
            most = most.max(allocated());
        }
        for wire in &mut slow {
            // Without ranges, evicted blocks cannot be fetched again, and the answer is cut.
            assert!(!wire.some().await.is_empty() || !ranges);
            most = most.max(allocated());
        }
        // Without ranges, fetches wait for their readers.
        eventually("all has come that comes", || {
            most = most.max(allocated());
            node.counts().fills == 0 || !ranges
        })
        .await;
        let counts = node.counts();
        assert!(counts.lent_bytes <= MEMORY / 4, "{counts:?}");
        // The tier, unfinished blocks, loans; then the cost of every client.
        let each = if ranges { EACH } else { EACH + FETCH };
        let bound = MEMORY + MEMORY / 4 + MEMORY / 4 + SLOW as u64 * each;
        let cost = most - before;
        assert!(cost <= bound, "{} KiB for {SLOW} readers, ranges: {ranges}", cost >> 10);
        drop(slow);
        settled(&node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_get_all_of_a_body_that_the_memory_has_lost() {
    const READERS: usize = 24;
    let mut settings = single(&[origin(true).await]);
    // Room for no loan at all.
    settings.cache.memory = 1 << 20;
    settings.cache.block = 256 << 10;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let mut slow = Vec::new();
    for n in 0..READERS {
        let mut wire = Wire::narrow(at).await;
        wire.send(head_of("GET", &format!("/{n}"), &[])).await;
        assert_eq!(wire.head().await.status, 200);
        slow.push((wire, 0));
    }
    for _ in 0..4 {
        for (wire, read) in &mut slow {
            let bytes = wire.take(100_000).await;
            assert!(BODY[*read..].starts_with(&bytes));
            *read += bytes.len();
        }
    }
    for (mut wire, read) in slow {
        assert!(wire.take(LENGTH - read).await == BODY[read..]);
    }
    settled(&node).await;
}
