//! Bodies that the kernel sends from the files of the disk tier: the bytes are the origin's whatever
//! happens to the files, and no file stays open.

use std::{
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use levada_config::DiskCache;
use levada_node::Running;
use rustix::io::{ReadWriteFlags, preadv2};

use crate::support::{nodes::metric, *};

/// Longer than the memory tier's largest object, so that every hit is one of the disk.
const LENGTH: usize = 6_000_000;

fn body(seed: usize) -> Vec<u8> {
    (0..LENGTH).map(|n| ((n * 31 + n / 251) ^ seed) as u8).collect()
}

struct Stage {
    origin: Origin,
    node: Running,
    at: SocketAddr,
    dir: tempfile::TempDir,
}

impl Stage {
    /// A node that has `/1` and `/2` on disk, verified, and nothing in memory.
    async fn set(block: u64) -> Self {
        let (origin, dir) = (Origin::start().await, tempfile::tempdir().unwrap());
        let mut settings = single(&[origin.address]);
        settings.cache.memory = 200 << 10;
        settings.cache.block = block;
        settings.cache.disk = Some(DiskCache { path: dir.path().to_owned(), size: 1 << 30 });
        let node = start(settings).await;
        let at = node.addresses.clients[0];
        shows(&node, "levada_cache_disk_scanned 1").await;
        for n in 1..=2 {
            origin.on(&format!("/{n}"), Reply::cached(body(n)).with("etag", "\"e\""));
            get(at, &format!("/{n}")).await;
        }
        shows(&node, "levada_cache_disk_queue_bytes 0").await;
        let stage = Self { origin, node, at, dir };
        for n in 1..=2 {
            assert!(get(at, &format!("/{n}")).await.body == body(n));
        }
        stage
    }

    async fn sent(&self) -> f64 {
        metric(&self.node, "levada_cache_disk_sent_files_total").await
    }

    /// The file of `/n`.
    fn file(&self, n: usize) -> PathBuf {
        let part = &body(n)[1000..2000];
        let holds = |path: &PathBuf| {
            fs::read(path).is_ok_and(|bytes| bytes.windows(part.len()).any(|w| w == part))
        };
        walk(self.dir.path()).into_iter().find(holds).unwrap()
    }

    /// A client that has requested `/1`, has read its head and a few bytes, and then reads slowly.
    async fn slow(&self) -> (Wire, Vec<u8>) {
        let mut wire = Wire::narrow(self.at).await;
        wire.send(head_of("GET", "/1", &[])).await;
        let head = wire.head().await;
        assert!(head.is_hit(), "{head:?}");
        let begun = wire.take(10_000).await;
        (wire, begun)
    }
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Waits until the metrics have this line.
async fn shows(node: &Running, line: &str) {
    let (name, value) = line.split_once(' ').unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while metric(node, name).await != value.parse::<f64>().unwrap() {
        assert!(tokio::time::Instant::now() < deadline, "never {line}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Whether the file system of `dir` tells which pages are in memory.
fn tells(dir: &Path) -> bool {
    let path = dir.join("probe");
    fs::write(&path, "x").unwrap();
    let mut byte = [0];
    let into = &mut [io::IoSliceMut::new(&mut byte)];
    let told = preadv2(File::open(&path).unwrap(), into, 0, ReadWriteFlags::NOWAIT).is_ok();
    if !told {
        levada_skip::skipped("this file system does not say what it has in memory");
    }
    told
}

#[tokio::test]
async fn answers_in_a_row_are_the_origins_whole_in_part_and_without_bodies() {
    let stage = Stage::set(8 << 20).await;
    let before = stage.sent().await;
    let asked = [
        head_of("GET", "/1", &[]),
        head_of("HEAD", "/2", &[]),
        head_of("GET", "/2", &[("Range", "bytes=1999999-4000000")]),
        head_of("GET", "/2", &[]),
        head_of("GET", "/1", &[("Range", "bytes=-1")]),
        head_of("GET", "/1", &[("If-None-Match", "\"e\"")]),
        head_of("GET", "/2", &[("Range", "bytes=0-9, 3000000-4999999")]),
        head_of("GET", "/1", &[]),
    ];
    let mut wire = Wire::narrow(stage.at).await;
    wire.send(asked.concat()).await;
    assert!(wire.answer().await.body == body(1));
    assert_eq!(wire.answer_to("HEAD").await.field("content-length"), LENGTH.to_string());
    let part = wire.answer().await;
    assert!(part.status == 206 && part.body == body(2)[1_999_999..=4_000_000]);
    assert!(wire.answer().await.body == body(2));
    assert_eq!(wire.answer().await.body, body(1)[LENGTH - 1..]);
    assert_eq!(wire.answer().await.status, 304);
    let parts = wire.answer().await;
    let (first, second) = (&body(2)[..10], &body(2)[3_000_000..5_000_000]);
    let holds = |part: &[u8]| parts.body.windows(part.len()).any(|w| w == part);
    assert!(parts.status == 206 && holds(first) && holds(second));
    assert!(wire.answer().await.body == body(1));
    if tells(stage.dir.path()) {
        assert_eq!(stage.sent().await - before, asked.len() as f64);
    }
    assert_eq!(stage.origin.total(), 2);
    drop(wire);
    settled(&stage.node).await;
}

#[tokio::test]
async fn body_in_blocks_is_sent_from_their_files() {
    let stage = Stage::set(1 << 20).await;
    let before = stage.sent().await;
    let asked = [
        head_of("GET", "/1", &[]),
        head_of("GET", "/2", &[("Range", "bytes=1048570-3145730")]),
        head_of("GET", "/2", &[("Range", "bytes=5999990-")]),
    ];
    let mut wire = Wire::saying(stage.at, asked.concat()).await;
    assert!(wire.answer().await.body == body(1));
    assert!(wire.answer().await.body == body(2)[1_048_570..=3_145_730]);
    assert!(wire.answer().await.body == body(2)[5_999_990..]);
    if tells(stage.dir.path()) {
        // A record is read and verified again after a minute, which ends at another time for each of them.
        let sent = stage.sent().await - before;
        assert!((9.0..=6.0 + 4.0 + 1.0).contains(&sent), "{sent}");
    }
    drop(wire);
    settled(&stage.node).await;
}

#[tokio::test]
async fn file_that_goes_while_it_is_sent_is_sent_to_its_end() {
    let stage = Stage::set(8 << 20).await;
    let (mut wire, mut got) = stage.slow().await;
    // Evicted, and another file is in its place.
    let file = stage.file(1);
    fs::remove_file(&file).unwrap();
    fs::write(&file, "something else").unwrap();
    got.extend(wire.take(LENGTH - got.len()).await);
    assert!(got == body(1));
    // The file is not a record now.
    assert!(get(stage.at, "/1").await.body == body(1));
    shows(&stage.node, "levada_cache_disk_damaged_total 1").await;
    drop(wire);
    settled(&stage.node).await;
}

#[tokio::test]
async fn file_that_becomes_shorter_while_it_is_sent_cuts_the_response() {
    let stage = Stage::set(8 << 20).await;
    if !tells(stage.dir.path()) {
        return;
    }
    let (mut wire, mut got) = stage.slow().await;
    File::options().write(true).open(stage.file(1)).unwrap().set_len(100_000).unwrap();
    got.extend(wire.rest().await);
    assert!(got.len() < LENGTH && got[..90_000] == body(1)[..90_000], "{}", got.len());
    assert!(get(stage.at, "/1").await.body == body(1));
    settled(&stage.node).await;
}

#[tokio::test]
async fn client_that_leaves_in_the_middle_leaves_nothing_behind() {
    let stage = Stage::set(8 << 20).await;
    let slow = [stage.slow().await, stage.slow().await, stage.slow().await];
    if tells(stage.dir.path()) {
        assert!(stage.node.counts().sending_files > 0);
    }
    drop(slow);
    settled(&stage.node).await;
    assert!(get(stage.at, "/1").await.body == body(1));
    settled(&stage.node).await;
}

#[tokio::test]
async fn damage_after_verification_is_noticed() {
    let stage = Stage::set(8 << 20).await;
    let file = stage.file(1);
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let answer = get(stage.at, "/1").await;
    assert!(!answer.is_hit() && answer.body == body(1));
    shows(&stage.node, "levada_cache_disk_damaged_total 1").await;
    settled(&stage.node).await;
}

#[tokio::test]
async fn more_than_may_be_sent_from_files_at_once_is_answered_all_the_same() {
    let stage = Stage::set(8 << 20).await;
    let mut slow = Vec::new();
    // Sixty-four mebibytes of files in a tier of a gibibyte.
    for _ in 0..15 {
        slow.push(stage.slow().await);
    }
    assert!(stage.node.counts().sending_files <= 64);
    for (mut wire, mut got) in slow {
        got.extend(wire.take(LENGTH - got.len()).await);
        assert!(got == body(1));
    }
    settled(&stage.node).await;
}
