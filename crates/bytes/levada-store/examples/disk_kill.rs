//! Kills a process that writes to a disk tier, again and again, and checks the directory that it left
//! behind.
//!
//! `cargo run --release -p levada-store --example disk_kill -- [kills] [directory]`
//!
//! The writer puts, replaces and removes records without end and is killed (`kill -9`) at a random
//! moment. Then every record that the directory holds is read: whatever comes back must be, byte
//! for byte, what some writer put under its key. The directory must stay within the limit.

use std::{
    env,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use levada_cache::eviction::find_eviction;
use levada_observe::metrics::{Reading, Registry};
use levada_store::disk::{Disk, DiskMetrics, DiskSettings, Record};
use levada_types::{Key, Rng, hash64};

const LIMIT: u64 = 96 << 20;
const QUEUE: u64 = 4 << 20;
const KEYS: u64 = 3000;
const LONGEST: usize = 300_000;
/// Half of the records are as short as this, so that they share files.
const SHORT: usize = 10_000;

fn main() {
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        Some("write") => write(Path::new(&arguments.next().unwrap()), arguments.next().unwrap()),
        kills => {
            let kills = kills.map_or(100, |kills| kills.parse().expect("a number of kills"));
            drive(kills, arguments.next().map(PathBuf::from));
        }
    }
}

fn drive(kills: u32, dir: Option<PathBuf>) {
    let temporary = tempfile::tempdir().unwrap();
    let dir = dir.unwrap_or_else(|| temporary.path().to_owned());
    let mut rng = Rng::new(std::process::id().into());
    let (mut recovered, mut least, mut damaged, mut wrong, mut leftovers) = (0, u64::MAX, 0, 0, 0);
    let mut slowest = Duration::ZERO;
    for kill in 1..=kills {
        let moment = Duration::from_micros(20_000 + rng.below(600_000) as u64);
        let mut writer = Command::new(env::current_exe().unwrap())
            .arg("write")
            .arg(&dir)
            .arg(kill.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The writer sends a byte when it has started.
        writer.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        std::thread::sleep(moment);
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut parts = dir.read_dir().unwrap().flatten();
        leftovers += u32::from(parts.any(|part| part.path().join("writing").exists()));
        let found = look(&dir);
        (recovered, damaged, wrong) =
            (recovered + found.records, damaged + found.damaged, wrong + found.wrong);
        (least, slowest) = (least.min(found.records), slowest.max(found.scan));
        if kill % 10 == 0 || kill == kills {
            println!(
                "{kill} kills, {leftovers} in the middle of a record: {recovered} records recovered \
                 (at least {least} after each), {damaged} found damaged, {wrong} wrong ones served; \
                 slowest scan {slowest:?}",
            );
        }
    }
    assert_eq!(wrong, 0, "something was served that nobody wrote");
}

struct Found {
    records: u64,
    wrong: u64,
    damaged: u64,
    scan: Duration,
}

/// The records that a new start finds.
fn look(dir: &Path) -> Found {
    assert!(taken(dir) <= LIMIT, "{} bytes are more than {LIMIT}", taken(dir));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut registry = Registry::default();
    let start = Instant::now();
    let disk = Disk::open(settings(dir), DiskMetrics::registered(&mut registry)).unwrap();
    let (mut records, mut wrong) = (0, 0);
    let mut scan = Duration::ZERO;
    runtime.block_on(async {
        // Once while the scan may still run, once after it.
        for round in 0..2 {
            for n in 0..KEYS {
                if let Some(record) = disk.get(key(n)).await {
                    records += u64::from(round == 1);
                    wrong += u64::from(!is_written(n, &record));
                }
            }
            disk.scanned().await;
            if round == 0 {
                scan = start.elapsed();
            }
        }
    });
    let page = registry.read();
    let damaged = page.iter().find(|metric| &*metric.name == "cache_disk_damaged").unwrap();
    let Reading::Whole(damaged) = damaged.samples[0].value else { panic!() };
    let damaged = damaged.try_into().unwrap();
    // Sometimes the next writer begins after an orderly end.
    if records % 4 == 0 {
        disk.close(Duration::from_secs(10));
    }
    Found { records, wrong, damaged, scan }
}

fn write(dir: &Path, seed: String) {
    let disk =
        Disk::open(settings(dir), DiskMetrics::registered(&mut Registry::default())).unwrap();
    let mut rng = Rng::new(seed.parse().unwrap());
    println!("begun");
    loop {
        let n = rng.below(KEYS as usize) as u64;
        match rng.below(8) {
            0 => disk.remove(key(n)),
            _ => {
                let longest = if rng.below(2) == 0 { SHORT } else { LONGEST };
                let size = rng.below(longest) * rng.below(longest) / longest;
                let head = format!("{n} {seed} {size}");
                let body = body(&head, size);
                // Otherwise most records would be dropped, with the ones they replace.
                while disk.queued() > QUEUE / 2 {
                    std::thread::sleep(Duration::from_micros(100));
                }
                disk.put(key(n), head.into(), body);
            }
        }
    }
}

fn settings(dir: &Path) -> DiskSettings {
    DiskSettings {
        dir: dir.to_owned(),
        bytes: LIMIT,
        eviction: find_eviction("lru").unwrap(),
        queue_bytes: QUEUE,
        lock_timeout: std::time::Duration::ZERO,
    }
}

fn key(n: u64) -> Key {
    Key::of(&n.to_le_bytes())
}

/// The body that belongs to a head.
fn body(head: &str, size: usize) -> Vec<Bytes> {
    let mut number = hash64(head.as_bytes());
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ size as u64;
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.truncate(size);
    let bytes = Bytes::from(bytes);
    (0..size).step_by(100_000).map(|at| bytes.slice(at..size.min(at + 100_000))).collect()
}

fn is_written(n: u64, record: &Record) -> bool {
    let Ok(head) = std::str::from_utf8(&record.head) else { return false };
    let mut words = head.split(' ');
    let (Some(number), Some(_), Some(size)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    number.parse() == Ok(n)
        && size.parse().is_ok_and(|size| body(head, size).concat() == record.body.concat())
}

/// The size of the directory, by the file system's own account.
fn taken(path: &Path) -> u64 {
    let own = path.symlink_metadata().map_or(0, |found| found.blocks() * 512);
    let entries = path.read_dir().into_iter().flatten().flatten();
    own + entries.map(|entry| taken(&entry.path())).sum::<u64>()
}
