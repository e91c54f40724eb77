//! The tier with real files.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use levada_cache::eviction::{EVICTIONS, find_eviction};
use levada_observe::metrics::Registry;
use tempfile::TempDir;

use super::*;

mod bundles;

const MIB: u64 = 1 << 20;

fn settings(dir: &Path) -> DiskSettings {
    DiskSettings {
        dir: dir.to_owned(),
        bytes: 64 * MIB,
        eviction: find_eviction("lru").unwrap(),
        queue_bytes: 64 * MIB,
        lock_timeout: std::time::Duration::ZERO,
    }
}

fn open(dir: &Path) -> Disk {
    open_with(settings(dir), bundle::LONGEST)
}

/// A tier that gives every record a file of its own.
fn open_unbundled(dir: &Path) -> Disk {
    open_with(settings(dir), 0)
}

fn open_with(settings: DiskSettings, longest_bundled: u64) -> Disk {
    let metrics = DiskMetrics::registered(&mut Registry::default());
    Disk::bundling(settings, metrics, longest_bundled).unwrap()
}

/// The longest record in a bundle: no short record is, or all are.
const FORMS: [u64; 2] = [0, bundle::LONGEST];

/// The bytes of record `n`: all that a test must know of it.
fn body(n: u64, size: usize) -> Bytes {
    (0..size).map(|at| (n as usize * 31 + at * 7) as u8).collect()
}

/// Keys spread as hashes are.
fn key(n: u64) -> Key {
    Key::of(&n.to_le_bytes())
}

impl Disk {
    fn put_record(&self, n: u64, size: usize) {
        self.put(key(n), head(n), vec![body(n, size)]);
    }

    async fn has(&self, n: u64, size: usize) -> bool {
        let Some(record) = self.get(key(n)).await else { return false };
        assert_eq!((record.head, record.body.concat()), (head(n), body(n, size).to_vec()));
        true
    }

    /// Waits until nothing waits.
    async fn settled(&self) {
        self.scanned().await;
        until(|| self.shared.state.lock().queue.is_empty()).await;
    }

    /// The file that has record `n`, or could have it.
    fn file(&self, n: u64) -> PathBuf {
        let spot = self.shared.state.lock().index.spot(key(n));
        self.shared.files.path(key(n), spot.unwrap_or(Spot::File { pages: 0 }))
    }

    /// Whether a new start would find record `n`.
    fn is_on_disk(&self, n: u64) -> bool {
        let mut bundled = bundled(self.shared.files.root()).into_iter();
        self.shared.files.path(key(n), Spot::File { pages: 0 }).exists()
            || bundled.any(|listed| listed.key == key(n).0)
    }
}

/// All bundles of a directory.
fn bundles(dir: &Path) -> Vec<(std::num::NonZeroU32, PathBuf)> {
    let entries = fs::read_dir(dir.join("000")).into_iter().flatten().flatten();
    let bundle = |entry: fs::DirEntry| Some((files::bundle_of(&entry.file_name())?, entry.path()));
    let mut bundles: Vec<_> = entries.filter_map(bundle).collect();
    bundles.sort();
    bundles
}

/// All records that the bundles of a directory have.
fn bundled(dir: &Path) -> Vec<bundle::Listed> {
    let read = |(number, path)| bundle::listed_in(number, &fs::read(path).unwrap_or_default());
    bundles(dir).into_iter().flat_map(read).collect()
}

fn head(n: u64) -> Bytes {
    format!("head of {n}").into()
}

async fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "it took too long");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The size of the directory, by the file system's own account. While files come and go, one look counts a
/// file that has gone and the one that took its room: only what two looks find was there at one moment.
fn taken(dir: &Path) -> u64 {
    let [mut first, mut second] = [HashSet::new(), HashSet::new()];
    look(dir, &mut first);
    look(dir, &mut second);
    first.intersection(&second).map(|(_, _, blocks)| blocks * 512).sum()
}

/// Collects every file and directory, with its inode and the blocks that it takes.
fn look(path: &Path, found: &mut HashSet<(PathBuf, u64, u64)>) {
    found.extend(path.symlink_metadata().map(|of| (path.to_owned(), of.ino(), of.blocks())));
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.for_each(|entry| look(&entry.path(), found));
}

/// A file system of a few bytes, where the test may mount one.
struct Mount(TempDir);

impl Mount {
    fn new(size: &str) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            levada_skip::skipped("needs root to mount a tmpfs");
        }
        mounted.then_some(Self(dir))
    }

    fn remount(&self, options: &str) {
        let option = format!("remount,{options}");
        let output = Command::new("mount").args(["-o", &option]).arg(self.0.path()).output();
        assert!(output.unwrap().status.success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// Makes `path` a pipe: who opens it hangs, as in a disk that does not answer.
fn hang(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn records_of_all_sizes_come_back() {
    for form in FORMS {
        let dir = TempDir::new().unwrap();
        let disk = open_with(settings(dir.path()), form);
        let sizes = [0, 1, 4055, 4056, 4057, 65_535, 262_144, 262_145, 1 << 20];
        for (n, size) in (0..).zip(sizes) {
            disk.put_record(n, size);
            assert!(disk.has(n, size).await, "while it waits");
        }
        disk.settled().await;
        for (n, size) in (0..).zip(sizes) {
            assert!(disk.has(n, size).await, "{size} bytes");
        }
        assert!(!disk.has(99, 1).await);
        assert_eq!(disk.entries(), sizes.len());
        assert!(disk.holds(key(1)) && !disk.holds(key(99)));
        let metrics = &disk.shared.metrics;
        assert_eq!((metrics.hits.get(), metrics.misses.get(), metrics.writes.get()), (18, 1, 9));
    }
}

#[tokio::test]
async fn long_body_that_was_read_of_late_stays_in_its_file() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    let sizes = [60_000, 64 << 10, 1 << 20];
    for (n, size) in (0..).zip(sizes) {
        disk.put_record(n, size);
    }
    disk.settled().await;
    if disk.shared.files.read_at_once(key(0), Spot::File { pages: 0 }, false).is_err() {
        levada_skip::skipped("this file system does not say what it has in memory");
        return;
    }
    for (n, size) in (1..).zip(&sizes[1..]) {
        assert!(disk.in_file(key(n)).is_none(), "it may be damaged");
        assert!(disk.has(n, *size).await);
        let found = disk.in_file(key(n)).unwrap();
        let mut bytes = vec![0; found.body.length() as usize];
        found.body.file().read_exact_at(&mut bytes, found.body.start()).unwrap();
        assert_eq!((found.head, bytes), (head(n), body(n, *size).to_vec()));
    }
    assert!(disk.in_file(key(0)).is_none(), "a short one is copied");
    disk.put_record(2, 1 << 20);
    assert!(disk.in_file(key(2)).is_none(), "another file takes its place");
}

#[tokio::test]
async fn last_put_is_found() {
    for form in FORMS {
        let dir = TempDir::new().unwrap();
        let disk = open_with(settings(dir.path()), form);
        disk.put(key(1), "old".into(), vec![]);
        disk.settled().await;
        disk.put(key(1), "new".into(), vec!["a".into(), "b".into()]);
        assert_eq!(disk.get(key(1)).await.unwrap().head, "new");
        disk.settled().await;
        let record = disk.get(key(1)).await.unwrap();
        assert_eq!((&record.head[..], record.body.concat()), (&b"new"[..], b"ab".to_vec()));
        assert_eq!(disk.entries(), 1);
    }
}

#[tokio::test]
async fn records_survive_an_orderly_end_and_a_kill() {
    for form in FORMS {
        let dir = TempDir::new().unwrap();
        for orderly in [true, false, true] {
            let disk = open_with(settings(dir.path()), form);
            (0..50).for_each(|n| disk.put_record(n, 5000));
            disk.settled().await;
            let bytes = disk.bytes();
            if orderly {
                disk.close(Duration::from_secs(10));
            }
            drop(disk);
            assert_eq!(dir.path().join("index.clean").exists(), orderly);

            let disk = open_with(settings(dir.path()), form);
            for n in 0..50 {
                assert!(disk.holds(key(n)) && disk.has(n, 5000).await);
            }
            disk.scanned().await;
            assert_eq!(disk.entries(), 50);
            assert!(disk.bytes().abs_diff(bytes) <= 2 * levada_cache::disk_room::PAGE);
            assert!(!dir.path().join("index.clean").exists(), "it would be out of date");
        }
    }
}

#[tokio::test]
async fn what_waits_is_written_at_an_orderly_end() {
    for form in FORMS {
        let dir = TempDir::new().unwrap();
        let disk = open_with(settings(dir.path()), form);
        (0..100).for_each(|n| disk.put_record(n, 20_000));
        disk.close(Duration::from_secs(30));
        disk.put_record(500, 10);
        assert_eq!(disk.shared.metrics.dropped_for("stopping"), 1);
        drop(disk);
        let disk = open_with(settings(dir.path()), form);
        disk.scanned().await;
        assert_eq!(disk.entries(), 100);
    }
}

#[tokio::test]
async fn order_of_eviction_survives_a_restart() {
    for (size, all) in [(100_000, 40), (10_000, 400), (1000, 3000)] {
        order_of_eviction_survives(size, all).await;
    }
}

async fn order_of_eviction_survives(size: usize, all: u64) {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..all).for_each(|n| disk.put_record(n, size));
    disk.settled().await;
    let now = unix_time();
    // Asked for last: the first ones.
    (0..all).for_each(|n| {
        assert!(disk.shared.state.lock().index.touch(key(n), now - n as u32).is_some())
    });
    disk.close(Duration::from_secs(10));
    drop(disk);
    let smaller = DiskSettings { bytes: 2 * MIB, ..settings(dir.path()) };
    let disk = Disk::open(smaller, DiskMetrics::registered(&mut Registry::default())).unwrap();
    disk.scanned().await;
    let kept: Vec<u64> = (0..all).filter(|&n| disk.holds(key(n))).collect();
    assert_eq!(kept, (0..kept.len() as u64).collect::<Vec<_>>());
    let least = 2 * MIB * 2 / 3 / (size as u64 + 100);
    assert!(kept.len() as u64 > least && disk.has(0, size).await, "{} fit into 2 MiB", kept.len());
    assert!(taken(dir.path()) <= 2 * MIB);
}

#[tokio::test]
async fn limit_holds_for_everything_in_the_directory() {
    let sizes = [(60_000, 400), (4000, 2000)];
    for (algorithm, (most, puts)) in EVICTIONS.iter().flat_map(|it| sizes.map(|size| (it, size))) {
        let dir = TempDir::new().unwrap();
        let limit = 3 * MIB;
        let settings = DiskSettings { bytes: limit, eviction: algorithm, ..settings(dir.path()) };
        let disk = Disk::open(settings, DiskMetrics::registered(&mut Registry::default())).unwrap();
        disk.scanned().await;
        for n in 0..puts {
            disk.put_record(n % (puts / 4 * 3), (n as usize * 7919) % most);
            disk.has(n / 2, (n as usize / 2 * 7919) % most).await;
            if n % (puts / 20) == 0 {
                assert!(taken(dir.path()) <= limit, "{}: {}", algorithm.name, taken(dir.path()));
            }
        }
        disk.settled().await;
        assert!(disk.shared.metrics.evictions.get() > 100);
        assert!(disk.bytes() <= limit && taken(dir.path()) <= disk.bytes());
        assert!(disk.bytes() > limit * 9 / 10, "{} are used of {limit}", disk.bytes());
        disk.put_record(1000, limit as usize);
        assert_eq!(disk.shared.metrics.dropped_for("too_large"), 1);
        disk.close(Duration::from_secs(10));
        assert!(taken(dir.path()) <= limit);
    }
}

#[tokio::test]
async fn damage_anywhere_is_a_miss_and_removes_the_file() {
    let dir = TempDir::new().unwrap();
    let disk = open_unbundled(dir.path());
    // In the mark, format, checksum, key, lengths, body checksum, head, body; and cut, and grown.
    let places = [0, 6, 8, 16, 24, 28, 32, 40, 60, 9000];
    for (count, at) in (1..).zip(places) {
        disk.put_record(1, 10_000);
        disk.settled().await;
        let mut bytes = fs::read(disk.file(1)).unwrap();
        bytes[at] ^= 16;
        fs::write(disk.file(1), bytes).unwrap();
        assert!(!disk.has(1, 10_000).await, "byte {at}");
        disk.settled().await;
        assert_eq!((disk.shared.metrics.damaged.get(), disk.entries()), (count, 0));
        assert!(!disk.file(1).exists());
    }
    for length in [0, 1, 39, 40, 45, 4096, 9_999, 20_000] {
        disk.put_record(1, 10_000);
        disk.settled().await;
        fs::File::options().write(true).open(disk.file(1)).unwrap().set_len(length).unwrap();
        assert!(!disk.has(1, 10_000).await, "{length} bytes");
        disk.settled().await;
        assert!(!disk.file(1).exists());
    }
    disk.put_record(1, 100);
    disk.put_record(2, 100);
    disk.settled().await;
    fs::copy(disk.file(2), disk.file(1)).unwrap();
    assert!(!disk.has(1, 100).await, "the file of another key");
    assert!(disk.has(2, 100).await);
}

#[tokio::test]
async fn scan_removes_what_is_no_record() {
    let dir = TempDir::new().unwrap();
    let disk = open_unbundled(dir.path());
    (0..20).for_each(|n| disk.put_record(n, 3000));
    disk.settled().await;
    let (cut, part) = (disk.file(1), disk.file(2).parent().unwrap().to_owned());
    drop(disk);
    fs::write(&cut, b"levada").unwrap();
    fs::write(dir.path().join("writing"), b"half an ind").unwrap();
    fs::write(part.join("writing"), b"half a rec").unwrap();
    fs::write(part.join("somebody's notes"), b"").unwrap();
    fs::write(dir.path().join("000"), b"not a directory").unwrap();
    fs::write(dir.path().join("index"), b"no index").unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    let disk = open_unbundled(dir.path());
    disk.settled().await;
    assert_eq!(disk.entries(), 19);
    let metrics = &disk.shared.metrics;
    assert_eq!((metrics.damaged.get(), metrics.foreign.get()), (1, 1));
    assert_eq!(metrics.errors_of(Kind::Missing), 1, "one part is no directory");
    assert!(!cut.exists() && !dir.path().join("writing").exists());
    assert!(!part.join("writing").exists() && !part.join("somebody's notes").exists());
    assert!(dir.path().join("lost+found").exists(), "only what could be its own is touched");
}

#[tokio::test]
async fn records_are_served_while_the_scan_runs() {
    for form in FORMS {
        let dir = TempDir::new().unwrap();
        let disk = open_with(settings(dir.path()), form);
        (0..3000).for_each(|n| disk.put_record(n, 100));
        disk.settled().await;
        drop(disk);
        let disk = open_with(settings(dir.path()), form);
        disk.remove(key(2999));
        disk.put_record(5000, 100);
        let mut during = 0;
        for n in (0..2999).rev() {
            during += u32::from(!*disk.shared.scanned.borrow());
            assert!(disk.has(n, 100).await);
        }
        assert!(!disk.has(2999, 100).await && disk.has(5000, 100).await);
        eprintln!("{during} records were read before the scan had ended");
        disk.settled().await;
        assert_eq!(disk.entries(), 3000);
        assert!(!disk.is_on_disk(2999));
        assert!(!disk.has(2999, 100).await);
        assert_eq!(disk.shared.metrics.errors_of(Kind::Missing), 0, "a removal is no loss");
    }
}

#[tokio::test]
async fn removal_and_put_take_effect_in_order() {
    for form in FORMS {
        let dir = TempDir::new().unwrap();
        let disk = Arc::new(open_with(settings(dir.path()), form));
        disk.put_record(1, 100);
        disk.remove(key(1));
        assert!(!disk.holds(key(1)) && !disk.has(1, 100).await);
        disk.settled().await;
        assert!(!disk.has(1, 100).await && !disk.is_on_disk(1));

        // Each of four threads has the last word on its own keys, and meddles with the file writes.
        let threads = (0..4u64).map(|thread| {
            let disk = disk.clone();
            std::thread::spawn(move || {
                for round in 0..500 {
                    let n = thread * 10 + round % 7;
                    disk.put_record(n, 2000);
                    if (round / 7 + n).is_multiple_of(2) {
                        disk.remove(key(n));
                    }
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        let last = |thread: u64, place: u64| {
            let round = (0..500u64).rev().find(|round| round % 7 == place).unwrap();
            !(round / 7 + thread * 10 + place).is_multiple_of(2)
        };
        for settled in [false, true] {
            for (thread, place) in
                (0..4).flat_map(|thread| (0..7).map(move |place| (thread, place)))
            {
                let n = thread * 10 + place;
                assert_eq!(disk.has(n, 2000).await, last(thread, place), "{n}");
                assert!(!settled || disk.is_on_disk(n) == last(thread, place));
            }
            disk.settled().await;
        }
    }
}

#[tokio::test]
async fn disk_that_hangs_costs_a_bounded_queue_and_nobody_waits() {
    let dir = TempDir::new().unwrap();
    let settings = DiskSettings { queue_bytes: 100_000, ..settings(dir.path()) };
    let disk = open_with(settings, 0);
    disk.put_record(50, 100);
    disk.settled().await;
    let writing = disk.file(50).with_file_name("writing");
    hang(&writing);
    disk.put_record(50, 200);
    (0..50).for_each(|n| disk.put_record(n, 10_000));
    assert_eq!(disk.shared.metrics.dropped_for("queue_full"), 41);
    assert!(disk.shared.state.lock().queue.bytes() <= 100_000);
    assert!(disk.has(3, 10_000).await && !disk.has(20, 10_000).await && disk.has(50, 200).await);
    // A dropped record leaves nothing older behind.
    disk.put_record(50, 99_999);
    assert!(!disk.has(50, 100).await);
    let start = Instant::now();
    disk.close(Duration::from_millis(50));
    assert!(start.elapsed() < Duration::from_secs(10));
    fs::read(writing).unwrap();
}

#[tokio::test]
async fn read_that_hangs_is_a_miss() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    disk.put_record(1, 100);
    disk.settled().await;
    hang(&disk.file(1));
    assert!(!disk.has(1, 100).await);
    assert_eq!(disk.shared.metrics.errors_of(Kind::Timeout), 1);
    fs::write(disk.file(1), b"").unwrap();
}

#[tokio::test]
async fn disk_slower_than_the_origin_is_passed_by_until_it_is_quick_again() {
    let dir = TempDir::new().unwrap();
    let disk = open_unbundled(dir.path());
    let shared = &disk.shared;
    (0..60).for_each(|n| disk.put_record(n, 100));
    disk.settled().await;
    let origin: OriginTime<'_> = &|| Duration::from_millis(1);
    hang(&disk.file(1));
    while shared.metrics.slow.get() == 0 {
        assert_eq!(disk.get_before(key(1), origin).await, None);
        assert!(shared.metrics.misses.get() < 60, "it never becomes slow");
    }
    let asked = shared.metrics.misses.get();
    assert!(asked > 2, "one late read is not enough");
    assert_eq!(shared.metrics.errors_of(Kind::Timeout), 0, "it has not failed");
    // This read is the one that finds out.
    assert_eq!(disk.get_before(key(1), origin).await, None);
    assert_eq!(shared.metrics.passed_by.get(), 1);
    let file = fs::File::open(disk.file(0)).unwrap();
    if levada_net::cached::is_cached(&file, 1).is_ok() {
        let found = disk.get_before(key(0), origin).await;
        assert!(found.is_some(), "the system has it in its memory");
    }
    assert!(disk.has(0, 100).await, "no origin is asked for it");
    // Readers go on, also one that begins later.
    let _writer = fs::File::options().read(true).write(true).open(disk.file(1)).unwrap();
    // Damaged records are read from the disk, which is quick now.
    (2..60).for_each(|n| fs::write(disk.file(n), b"").unwrap());
    let mut turn = (2..60).cycle();
    while shared.metrics.slow.get() == 1 {
        assert!(disk.entries() > 2, "it never becomes quick");
        disk.get_before(key(turn.next().unwrap()), origin).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(disk.has(0, 100).await);
}

#[tokio::test]
async fn unreadable_record_is_a_miss_and_leaves_the_disk_alone_for_a_while() {
    let dir = TempDir::new().unwrap();
    let disk = open_unbundled(dir.path());
    (0..2).for_each(|n| disk.put_record(n, 100));
    disk.settled().await;
    fs::remove_file(disk.file(1)).unwrap();
    fs::create_dir(disk.file(1)).unwrap();
    assert!(!disk.has(1, 100).await);
    assert_eq!(disk.shared.metrics.errors_of(Kind::Io), 1);
    assert!(disk.shared.state.lock().reading.until().is_some());
    let deadline = Instant::now() + Duration::from_secs(10);
    while !disk.has(0, 100).await {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(disk.shared.state.lock().reading.until().is_none());
}

#[tokio::test]
async fn full_disk_is_lived_with() {
    let Some(mount) = Mount::new("2m") else { return };
    let disk = open(mount.0.path());
    for n in 0..200 {
        disk.put_record(n, 50_000);
        disk.settled().await;
    }
    assert!(disk.has(199, 50_000).await, "the room that there is goes on being used");
    assert!((10..40).contains(&disk.entries()), "{} records", disk.entries());
    // Something else takes it all.
    for n in (0..200).filter(|&n| disk.holds(key(n))) {
        disk.remove(key(n));
    }
    disk.settled().await;
    let other = mount.0.path().join("other");
    fs::write(&other, vec![0; 4 << 20]).unwrap_err();
    disk.put_record(300, 500_000);
    until(|| disk.shared.metrics.errors_of(Kind::Full) == 1).await;
    disk.put_record(301, 10);
    assert_eq!(disk.shared.metrics.dropped_for("failing"), 1);
    assert!(!disk.has(300, 500_000).await && !disk.has(301, 10).await);
    fs::remove_file(other).unwrap();
    until(|| {
        disk.put_record(302, 10);
        disk.holds(key(302))
    })
    .await;
    disk.settled().await;
    assert!(disk.has(302, 10).await);
}

#[tokio::test]
async fn read_only_disk_still_serves_and_what_is_removed_stays_removed() {
    let Some(mount) = Mount::new("4m") else { return };
    let disk = open(mount.0.path());
    (0..10).for_each(|n| disk.put_record(n, 5000));
    disk.settled().await;
    mount.remount("ro");
    disk.put_record(1, 6000);
    until(|| disk.shared.metrics.errors_of(Kind::ReadOnly) > 0).await;
    disk.remove(key(2));
    assert!(disk.has(3, 5000).await);
    assert!(disk.get(key(1)).await.is_none(), "the old one must not come back");
    assert!(!disk.has(2, 5000).await);
    mount.remount("rw");
    disk.settled().await;
    assert!(!disk.is_on_disk(1) && !disk.is_on_disk(2));
    drop(disk);
    mount.remount("ro");
    let disk = open(mount.0.path());
    disk.scanned().await;
    assert!(disk.has(3, 5000).await, "a start finds it as well");
}

#[tokio::test]
async fn directory_that_cannot_be_used_is_tried_again() {
    let dir = TempDir::new().unwrap();
    let Some(mount) = Mount::new("4m") else { return };
    mount.remount("ro");
    let disk = open(&mount.0.path().join("cache"));
    disk.put_record(1, 10);
    assert!(!disk.holds(key(1)) && !disk.has(1, 10).await);
    assert_eq!(disk.shared.metrics.dropped_for("failing"), 1);
    mount.remount("rw");
    disk.scanned().await;
    disk.put_record(1, 10);
    disk.settled().await;
    assert!(disk.has(1, 10).await);
    drop(dir);
}

#[tokio::test]
async fn directory_removed_under_way_begins_anew() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("some/where");
    let disk = open(&path);
    (0..10).for_each(|n| disk.put_record(n, 5000));
    disk.settled().await;
    fs::remove_dir_all(dir.path().join("some")).unwrap();
    assert!(!disk.has(1, 5000).await);
    disk.put_record(20, 5000);
    disk.settled().await;
    assert!(disk.has(20, 5000).await && !disk.has(2, 5000).await);
    assert_eq!(disk.entries(), 1);
    assert!(disk.shared.metrics.errors_of(Kind::Missing) > 0);
    assert!(matches!(
        Disk::open(settings(&path), DiskMetrics::registered(&mut Registry::default())),
        Err(DiskError::InUse(_))
    ));
}

#[tokio::test]
async fn directory_is_one_nodes() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    let second =
        Disk::open(settings(dir.path()), DiskMetrics::registered(&mut Registry::default()));
    assert!(matches!(second, Err(DiskError::InUse(_))));
    drop(disk);
    drop(open(dir.path()));
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for path in [file.clone(), file.join("below")] {
        let wrong = Disk::open(settings(&path), DiskMetrics::registered(&mut Registry::default()));
        assert!(matches!(wrong, Err(DiskError::NotADirectory(_))));
    }
    let _ = fs::set_permissions(&file, fs::Permissions::from_mode(0o600));
}

#[tokio::test]
async fn sweep_judges_every_record_on_disk_and_waiting() {
    let dir = TempDir::new().unwrap();
    let disk = open_unbundled(dir.path());
    (0..200).for_each(|n| disk.put_record(n, 6000));
    disk.settled().await;
    let writing = disk.file(200).with_file_name("writing");
    fs::create_dir_all(writing.parent().unwrap()).unwrap();
    hang(&writing);
    (200..300).for_each(|n| disk.put_record(n, 10));
    let judge = |key_found: Key, head: &Bytes| {
        let n: u64 = std::str::from_utf8(&head[8..]).unwrap().parse().unwrap();
        assert_eq!(key_found, key(n));
        match n % 3 {
            0 => RecordAction::Keep,
            1 => RecordAction::Remove,
            _ => RecordAction::Rewrite("new".into()),
        }
    };
    let swept = disk.sweep(100_000, judge).await;
    assert_eq!(swept, Swept { judged: 300, removed: 100, rewritten: 100 });
    fs::read(writing).unwrap();
    for settled in [false, true] {
        for n in (0..300).filter(|n| *n != 200) {
            let record = disk.get(key(n)).await;
            match n % 3 {
                0 => assert_eq!(record.unwrap().head, head(n)),
                1 => assert_eq!(record, None, "{n}"),
                _ => assert_eq!(record.unwrap().head, "new", "{n}, settled: {settled}"),
            }
        }
        disk.settled().await;
    }
}

#[tokio::test]
async fn sweep_leaves_a_record_that_has_replaced_the_judged_one() {
    for form in FORMS {
        let dir = TempDir::new().unwrap();
        let disk = open_with(settings(dir.path()), form);
        disk.put_record(1, 10);
        disk.settled().await;
        let judge = |_: Key, _: &Bytes| {
            disk.put(key(1), "new".into(), vec![body(1, 10)]);
            while !disk.shared.state.lock().queue.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            RecordAction::Remove
        };
        disk.sweep(100_000, judge).await;
        disk.settled().await;
        assert_eq!(disk.get(key(1)).await.map(|record| record.head), Some("new".into()));
    }
}

#[tokio::test]
async fn metrics_are_named_as_the_others_are() {
    let mut registry = Registry::default();
    let metrics = DiskMetrics::registered(registry.part("levada"));
    metrics.dropped("queue_full");
    metrics.error(Kind::Full);
    let page = registry.read();
    assert_eq!(page.len(), 16);
    assert!(page.iter().all(|metric| metric.name.starts_with("levada_cache_disk_")));
}

#[test]
fn directory_is_closed_to_other_users() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("a/new"), dir.path().join("old"));
    fs::create_dir(&old).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    for path in [new, old] {
        let _disk = open(&path);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{path:?}");
    }
}

#[test]
fn directory_that_cannot_be_made_says_why() {
    let Some(mount) = Mount::new("1m") else { return };
    mount.remount("ro");
    let files = Files::new(mount.0.path().join("cache"), 1);
    assert_eq!(files.take().unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
}
