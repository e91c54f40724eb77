//! The cost of the disk tier alone: hits compared with a plain read of a file, what a small record takes and
//! costs to write, also when others have to go for it, and to read from the device, and starts with many records.
//!
//! `cargo bench -p levada-store --bench disk -- [records] [directory]`; the directory is on the disk that is
//! to be measured. As root, nothing is in the system's memory before a start and before the reads.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use bytes::Bytes;
use levada_cache::eviction::find_eviction;
use levada_observe::metrics::Registry;
use levada_store::disk::{Disk, DiskMetrics, DiskSettings};
use levada_types::{Key, hash64};
use tokio::runtime::Runtime;

/// The allocator of a node.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As long as that of a usual response.
static HEAD: [u8; 230] = [b'h'; 230];
/// The body of a small record.
const BODY: usize = 1024;
/// Records that are read from the disk.
const READS: u64 = 2000;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let first = arguments.next();
    if first.as_deref() == Some("start") {
        let dir = arguments.next().unwrap();
        return start(Path::new(&dir), arguments.next().unwrap().parse().unwrap());
    }
    let records = first.map_or(20_000, |records| records.parse().expect("a number of records"));
    let temporary = tempfile::tempdir().unwrap();
    let dir = arguments.next().map_or(temporary.path().to_owned(), PathBuf::from);
    hits(&dir.join("hits"));
    full(&dir.join("full"), records);
    starts(&dir.join("starts"), records);
}

fn hits(dir: &Path) {
    let runtime = Runtime::new().unwrap();
    let disk = open(dir);
    println!("processor microseconds per hit: tier, open + read + close, read and XXH3");
    for (n, size) in (0..).zip([1000, 10_000, 100_000, 1 << 20]) {
        let body = Bytes::from(vec![n as u8; size]);
        disk.put(key(n), Bytes::from_static(&HEAD), [body.clone()]);
        runtime.block_on(disk.scanned());
        while disk.entries() <= n as usize {
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = dir.join("plain");
        fs::write(&file, [&HEAD, &body[..]].concat()).unwrap();
        let gets = 2000;
        let best = |round: &dyn Fn()| {
            let rounds = (0..7).map(|_| {
                let before = processor_time();
                round();
                processor_time() - before
            });
            rounds.min().unwrap().as_secs_f64() * 1e6 / f64::from(gets)
        };
        let tier = best(&|| {
            runtime.block_on(async {
                for _ in 0..gets {
                    assert!(disk.get(key(n)).await.is_some());
                }
            });
        });
        let plain = best(&|| (0..gets).for_each(|_| drop(fs::read(&file).unwrap())));
        let hashed = best(&|| {
            (0..gets).for_each(|_| assert_ne!(hash64(&fs::read(&file).unwrap()), 0));
        });
        println!("{size:8} bytes {tier:8.1} {plain:8.1} {hashed:8.1}");
    }
}

/// Writes `records` records of 1 KB and starts with them, each time in a process of its own: after an orderly
/// end, after a kill with a snapshot, and without one.
fn starts(dir: &Path, records: u64) {
    let disk = open(dir);
    fill(&disk, 0..records);
    println!("{} records on the disk, {} bytes each", disk.entries(), taken(dir) / records);
    disk.close(Duration::from_secs(600));
    drop(disk);
    for how in ["after an orderly end", "after a kill, with the index", "without the index"] {
        if how.starts_with("without") {
            fs::remove_file(dir.join("index")).unwrap();
        }
        println!("{how}:");
        forget();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let status = command.arg("start").arg(dir).arg(records.to_string()).status();
        assert!(status.unwrap().success());
    }
}

/// Goes on writing to a tier that is full: new records, and then ones that replace others at random.
fn full(dir: &Path, records: u64) {
    let bytes = (records * 800).max(16 << 20);
    let disk = open_with(dir, bytes);
    fill(&disk, 0..records);
    println!("into a full tier of {} MB:", bytes / 1_000_000);
    fill(&disk, records..2 * records);
    let held = disk.entries() as u64;
    println!("  {held} records in it; replaced at random:");
    fill(&disk, (0..records).map(|n| 2 * records - 1 - hash64(&n.to_le_bytes()) % held));
}

/// Puts records of 1 KB.
fn fill(disk: &Disk, numbers: impl Iterator<Item = u64>) {
    Runtime::new().unwrap().block_on(disk.scanned());
    let (begun, processor, written) = (Instant::now(), processor_time(), written());
    let mut count = 0;
    for n in numbers {
        let body = Bytes::from(n.to_le_bytes().repeat(BODY / 8));
        while disk.queued() > 32 << 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        disk.put(key(n), Bytes::from_static(&HEAD), [body]);
        count += 1;
    }
    while disk.queued() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count);
    println!(
        "  {:.1} us for each of {count} writes of {} + {BODY} bytes, {:.1} of the processor, {} bytes given to the system",
        each(begun.elapsed()),
        HEAD.len(),
        each(processor_time() - processor),
        (self::written() - written) / count as u64,
    );
}

/// The bytes that this process has given to the system to write.
fn written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse().unwrap()
}

/// Has the system write what waits and drop what it has in memory, as far as this user may.
fn forget() {
    let _ = Command::new("sync").status();
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

/// The size of the directory, by the file system's own account.
fn taken(path: &Path) -> u64 {
    let own = path.symlink_metadata().map_or(0, |found| found.blocks() * 512);
    let entries = path.read_dir().into_iter().flatten().flatten();
    own + entries.map(|entry| taken(&entry.path())).sum::<u64>()
}

fn start(dir: &Path, records: u64) {
    let runtime = Runtime::new().unwrap();
    let before = resident();
    let begun = Instant::now();
    let disk = open(dir);
    let first = runtime.block_on(disk.get(key(7)));
    let (served, scanning) = (begun.elapsed(), disk.entries() == 0);
    let served_processor = processor_time();
    assert!(first.is_some());
    runtime.block_on(disk.scanned());
    let (scanned, scanned_processor) = (begun.elapsed(), processor_time());
    // The allocator returns the memory of the scan.
    std::thread::sleep(Duration::from_secs(1));
    println!(
        "  first record after {:.1} ms, {:.1} of the processor ({}), {} scanned after {:.2} s, {:.2} of the \
         processor, {:.0} MB resident, {:.0} of them from before",
        served.as_secs_f64() * 1e3,
        served_processor.as_secs_f64() * 1e3,
        if scanning { "during the scan" } else { "after the scan" },
        disk.entries(),
        scanned.as_secs_f64(),
        scanned_processor.as_secs_f64(),
        resident(),
        before,
    );
    forget();
    // Each one far from the one before it.
    let read = || {
        let (begun, before) = (Instant::now(), processor_time());
        let numbers = (0..READS).map(|n| n * 7919 % records);
        runtime.block_on(async {
            for n in numbers {
                assert!(disk.get(key(n)).await.is_some());
            }
        });
        let each = |time: Duration| time.as_secs_f64() * 1e6 / READS as f64;
        (each(begun.elapsed()), each(processor_time() - before))
    };
    let ((cold, _), (_, warm)) = (read(), read());
    println!(
        "  {cold:.1} us to read one from the disk; {warm:.1} of the processor from the system's memory"
    );
}

fn open(dir: &Path) -> Disk {
    open_with(dir, 64 << 30)
}

fn open_with(dir: &Path, bytes: u64) -> Disk {
    let settings = DiskSettings {
        dir: dir.to_owned(),
        bytes,
        eviction: find_eviction("lru").unwrap(),
        queue_bytes: 64 << 20,
        lock_timeout: std::time::Duration::ZERO,
    };
    Disk::open(settings, DiskMetrics::registered(&mut Registry::default())).unwrap()
}

fn key(n: u64) -> Key {
    Key::of(&n.to_le_bytes())
}

/// The processor time that the threads of this process have used.
fn processor_time() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let times = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

/// The resident memory in megabytes.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1000.0
}
