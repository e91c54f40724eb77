//! Opening, scanning, reading and sweeping the directory of a disk tier must succeed with any files
//! in it, and an object found under a key must equal an undamaged record of that key, in a file of its own or in
//! a bundle.
#![no_main]

use std::{collections::HashMap, fs, path::Path, sync::LazyLock, time::Duration};

use bytes::Bytes;
use levada_cache::eviction::EVICTIONS;
use levada_observe::metrics::Registry;
use levada_store::disk::{
    Disk, DiskMetrics, DiskSettings, Record, RecordAction, read_bundle, read_record, write_bundle,
    write_record,
};
use levada_types::{Key, hash64};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use tokio::runtime::{Builder, Runtime};

#[derive(Arbitrary, Debug)]
struct Input {
    files: Vec<(Name, Content)>,
    limit: u32,
    eviction: u8,
    removed: Vec<u8>,
    put: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum Name {
    /// A record with one of a few keys, in the directory of its key or in another one.
    Record {
        key: u8,
        part: Option<u16>,
    },
    Bundle(u8),
    Index,
    CleanIndex,
    Lock,
    Writing,
    InPart(u16, u8),
    InRoot(u8),
}

#[derive(Arbitrary, Debug)]
enum Content {
    Bytes(Vec<u8>),
    Directory,
    /// A valid record, changed at one place, and truncated.
    Record {
        key: u8,
        head: Vec<u8>,
        body: Vec<u8>,
        at: u16,
        with: u8,
        cut: u8,
    },
    /// A valid bundle of valid records, changed at some places near the front of its table or of its records,
    /// and truncated.
    Bundle {
        records: Vec<(u8, Vec<u8>)>,
        changes: Vec<(u16, bool, u8)>,
        cut: u16,
    },
    /// An index with a valid checksum.
    Index(Vec<(u8, u32, u32)>),
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().unwrap());

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir().unwrap();
    let eviction = &EVICTIONS[usize::from(input.eviction) % EVICTIONS.len()];
    for (name, content) in &input.files {
        lay(&dir.path().join(name.path()), content);
    }
    let holds = undamaged(dir.path());
    let settings = DiskSettings {
        dir: dir.path().to_owned(),
        bytes: u64::from(input.limit),
        eviction,
        queue_bytes: 1 << 20,
        lock_timeout: std::time::Duration::ZERO,
    };
    let metrics = DiskMetrics::registered(&mut Registry::default());
    let Ok(disk) = Disk::open(settings, metrics) else { return };
    RUNTIME.block_on(async {
        for scanned in [false, true] {
            for n in names(&input) {
                if let Some(record) = disk.get(key(n)).await {
                    assert!(holds[&key(n)].contains(&record), "scanned: {scanned}");
                }
            }
            disk.scanned().await;
        }
        input.removed.iter().for_each(|&n| disk.remove(key(n)));
        for n in &input.removed {
            assert_eq!(disk.get(key(*n)).await, None);
        }
        disk.sweep(u32::MAX, |found, head| {
            assert!(holds[&found].iter().any(|record| record.head == head));
            if head.len() % 2 == 0 {
                RecordAction::Keep
            } else {
                RecordAction::Rewrite(Bytes::new())
            }
        })
        .await;
        for &n in &input.put {
            disk.put(key(n), "new".into(), [Bytes::from_static(b"body")]);
        }
    });
    disk.close(Duration::from_secs(10));
});

fn key(n: u8) -> Key {
    Key(hash64(&[n]))
}

fn names(input: &Input) -> impl Iterator<Item = u8> {
    input.files.iter().flat_map(|(name, content)| match (name, content) {
        (Name::Record { key, .. }, _) => vec![*key],
        (_, Content::Bundle { records, .. }) => records.iter().map(|(n, _)| *n).collect(),
        _ => Vec::new(),
    })
}

fn file(key: Key, part: u16) -> String {
    format!("{part:03x}/{:016x}", key.0)
}

/// All undamaged records of each key.
fn undamaged(dir: &Path) -> HashMap<Key, Vec<Record>> {
    let mut holds: HashMap<Key, Vec<Record>> = HashMap::new();
    for n in 0..=255 {
        let bytes = fs::read(dir.join(file(key(n), (key(n).0 >> 54) as u16))).unwrap_or_default();
        let record = read_record(key(n), &Bytes::from(bytes));
        holds.entry(key(n)).or_default().extend(record);
        for (key, record) in read_bundle(&fs::read(dir.join(bundle(n))).unwrap_or_default()) {
            holds.entry(key).or_default().push(record);
        }
    }
    holds
}

fn bundle(n: u8) -> String {
    format!("000/{n:08x}")
}

impl Name {
    fn path(&self) -> String {
        match self {
            Self::Record { key: n, part } => {
                file(key(*n), part.unwrap_or((key(*n).0 >> 54) as u16))
            }
            Self::Bundle(n) => bundle(*n),
            Self::Index => "index".into(),
            Self::CleanIndex => "index.clean".into(),
            Self::Lock => "lock".into(),
            Self::Writing => "writing".into(),
            Self::InPart(part, n) => format!("{:03x}/{n}", part % 1024),
            Self::InRoot(n) => format!("{n:03x}"),
        }
    }
}

/// Skips a file whose path is already taken.
fn lay(path: &Path, content: &Content) {
    let _ = fs::create_dir_all(path.parent().unwrap());
    let _ = match content {
        Content::Bytes(bytes) => fs::write(path, bytes),
        Content::Directory => fs::create_dir(path),
        Content::Record { key: n, head, body, at, with, cut } => {
            let body = Bytes::copy_from_slice(body);
            let mut bytes = write_record(key(*n), head, &[body]);
            let at = usize::from(*at) % bytes.len();
            bytes[at] ^= with;
            bytes.truncate(bytes.len().saturating_sub(usize::from(*cut)));
            fs::write(path, bytes)
        }
        Content::Bundle { records, changes, cut } => {
            let record = |(n, body): &(u8, Vec<u8>)| {
                (key(*n), write_record(key(*n), b"head", &[Bytes::copy_from_slice(body)]))
            };
            let mut bytes = write_bundle(&records.iter().map(record).collect::<Vec<_>>());
            for (at, in_records, with) in changes {
                let at = usize::from(*at) + if *in_records { 512 << 10 } else { 0 };
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= with);
            }
            bytes.truncate(bytes.len().saturating_sub(usize::from(*cut)));
            fs::write(path, bytes)
        }
        Content::Index(entries) => {
            let entries: Vec<u8> = entries
                .iter()
                .flat_map(|(n, pages, stamp)| {
                    let numbers = [pages.to_le_bytes(), stamp.to_le_bytes()].concat();
                    [&key(*n).0.to_le_bytes()[..], &numbers].concat()
                })
                .collect();
            let checksum = hash64(&entries).to_le_bytes();
            fs::write(path, [&b"lindex\x01\x00"[..], &checksum, &entries].concat())
        }
    };
}
