//! Records that share files.

use std::collections::HashMap;

use levada_types::Rng;

use super::*;

/// The size of a record that a bundle has.
const SHORT: usize = 1000;

fn smaller(dir: &Path, bytes: u64) -> Disk {
    open_with(DiskSettings { bytes, ..settings(dir) }, bundle::LONGEST)
}

#[tokio::test]
async fn short_records_share_a_file_and_take_little_more_than_their_bytes() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..500).for_each(|n| disk.put_record(n, SHORT));
    disk.put_record(500, 16 << 10);
    disk.settled().await;
    assert_eq!(bundles(dir.path()).len(), 1);
    assert_eq!(bundled(dir.path()).len(), 500);
    assert!(disk.file(500).ends_with(format!("{:016x}", key(500).0)), "a long one has its own");
    let bytes = disk.bytes() - disk.bytes() % 500;
    assert!(taken(dir.path()) < 500 * 1200 + (200 << 10), "{bytes}");
}

#[tokio::test]
async fn eviction_decides_which_records_stay() {
    let dir = TempDir::new().unwrap();
    let disk = smaller(dir.path(), MIB);
    disk.scanned().await;
    // The first hundred are asked for again and again, and so lie between ones that have gone.
    for n in 0..4000 {
        disk.put_record(n, SHORT);
        if n % 10 == 0 {
            disk.settled().await;
            for old in 0..(n / 3).min(100) {
                assert!(disk.has(old, SHORT).await, "{old} of {n}");
            }
        }
    }
    disk.settled().await;
    let kept: Vec<u64> = (0..4000).filter(|&n| disk.holds(key(n))).collect();
    let (old, new) = kept.split_at(100);
    assert_eq!(old, (0..100).collect::<Vec<_>>());
    assert_eq!(new, (4000 - new.len() as u64..4000).collect::<Vec<_>>());
    assert!(new.len() > 300, "{} records of {SHORT} bytes in a mebibyte", kept.len());
    for n in kept {
        assert!(disk.has(n, SHORT).await);
    }
}

#[tokio::test]
async fn room_comes_back_when_records_are_removed_or_replaced() {
    let dir = TempDir::new().unwrap();
    let disk = smaller(dir.path(), MIB);
    disk.scanned().await;
    let empty = disk.bytes();
    for round in 0..20 {
        (0..300).for_each(|n| disk.put_record(n, SHORT));
        disk.settled().await;
        assert_eq!(disk.entries(), 300, "round {round}");
        assert!(taken(dir.path()) <= MIB);
    }
    (0..300).for_each(|n| disk.remove(key(n)));
    disk.settled().await;
    assert!(bundles(dir.path()).len() <= 1, "one is open");
    assert!(disk.bytes() < empty + (200 << 10));
    drop(disk);
    let disk = smaller(dir.path(), MIB);
    disk.scanned().await;
    assert_eq!((disk.entries(), bundled(dir.path()).len()), (0, 0));
}

/// Puts, replaces, removes and asks for records of both forms, ends in order or by a kill, and starts again: a
/// record is what was put last or is not there, and what has gone stays away.
#[tokio::test]
async fn tier_agrees_with_a_table_whatever_happens() {
    for (seed, algorithm) in (0..).zip(EVICTIONS.iter().chain(EVICTIONS)) {
        let dir = TempDir::new().unwrap();
        let settings =
            || DiskSettings { bytes: 600 << 10, eviction: algorithm, ..settings(dir.path()) };
        let mut rng = Rng::new(seed);
        let mut model: HashMap<u64, (Bytes, usize)> = HashMap::new();
        let (mut version, mut was_killed) = (0, false);
        for start in 0..6 {
            let disk = open_with(settings(), FORMS[usize::from(start != 0)]);
            for turn in 0..3 {
                // Before the scan has ended and after it.
                agrees(&disk, &mut model, turn == 0 && was_killed).await;
                for _ in 0..150 {
                    let n = rng.below(150) as u64;
                    version += 1;
                    let most = [50, 2000, 16_000, 18_000, 40_000][rng.below(5)];
                    let (head, size) = (Bytes::from(format!("{n} {version}")), rng.below(most));
                    match rng.below(10) {
                        0 => {
                            disk.remove(key(n));
                            model.remove(&n);
                        }
                        1 => drop(disk.get(key(n)).await),
                        _ => {
                            disk.put(key(n), head.clone(), vec![body(version, size)]);
                            model.insert(n, (head, size));
                        }
                    }
                }
                disk.settled().await;
                assert!(disk.bytes() <= 600 << 10 && taken(dir.path()) <= disk.bytes());
            }
            agrees(&disk, &mut model, false).await;
            assert_eq!((disk.entries(), disk.shared.metrics.damaged.get()), (model.len(), 0));
            was_killed = rng.below(2) == 0;
            if !was_killed {
                disk.close(Duration::from_secs(10));
            }
        }
    }
}

/// Whether the tier has the records of the model, but for ones that it has evicted. These are forgotten, unless
/// they had to be there.
async fn agrees(disk: &Disk, model: &mut HashMap<u64, (Bytes, usize)>, all: bool) {
    for n in 0..150 {
        let found = disk.get(key(n)).await;
        let Some((head, size)) = model.get(&n) else {
            assert_eq!(found, None, "{n} has been removed or evicted");
            continue;
        };
        match found {
            Some(record) => {
                let version = std::str::from_utf8(head).unwrap().split(' ').nth(1).unwrap();
                let body = body(version.parse().unwrap(), *size);
                assert_eq!((&record.head, record.body.concat()), (head, body.to_vec()));
            }
            None => {
                assert!(!all, "{n} was there before the start");
                model.remove(&n);
            }
        }
    }
}

/// Ends a process at every byte of what it writes for the last record: the bytes of the record and then those of
/// its entry.
#[tokio::test]
async fn crash_at_any_byte_loses_the_last_record_alone() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..3).for_each(|n| disk.put_record(n, 90));
    disk.settled().await;
    drop(disk);
    let (_, path) = bundles(dir.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let last = bundled(dir.path()).remove(2).part;
    let entry = usize::from(last.slot) * bundle::ENTRY as usize;
    let (record, length) = (last.at as usize, usize::from(last.length));
    assert_eq!(record + length, whole.len());
    for written in 0..=length + 32 {
        let mut bytes = whole[..record + written.min(length)].to_vec();
        bytes[entry + written.saturating_sub(length)..entry + 32].fill(0);
        fs::write(&path, &bytes).unwrap();
        let disk = open(dir.path());
        assert!(disk.has(0, 90).await && disk.has(1, 90).await, "{written} bytes");
        let third = written == length + 32;
        assert_eq!(disk.has(2, 90).await, third, "{written} bytes");
        // The tier goes on with what is there, and nothing that was torn comes back.
        disk.put_record(3, 90);
        disk.settled().await;
        drop(disk);
        let disk = open(dir.path());
        disk.scanned().await;
        assert!(disk.has(0, 90).await && disk.has(1, 90).await && disk.has(3, 90).await);
        assert_eq!((disk.has(2, 90).await, disk.entries()), (third, 3 + usize::from(third)));
        assert_eq!(disk.shared.metrics.damaged.get(), 0);
        drop(disk);
        bundles(dir.path()).into_iter().for_each(|(_, path)| fs::remove_file(path).unwrap());
    }
}

/// A machine that fails may lose any of the bytes: the end of the file, or a page of the table.
#[tokio::test]
async fn bundle_that_is_cut_or_has_holes_gives_right_records_only() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..300).for_each(|n| disk.put_record(n, 90));
    disk.settled().await;
    drop(disk);
    let (_, path) = bundles(dir.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let records = bundled(dir.path());
    let first = records[0].part.at as usize;
    let cuts = [0, 7, 31, 32, 40, 4096, first, first + 1, whole.len() - 200, whole.len() - 1];
    let holes = [(0, 4096), (4096, 8192), (first, first + 4096), (32, first)];
    for (cut, hole) in
        cuts.map(|cut| (cut, (0, 0))).into_iter().chain(holes.map(|hole| (whole.len(), hole)))
    {
        bundles(dir.path()).into_iter().for_each(|(_, path)| fs::remove_file(path).unwrap());
        let mut bytes = whole[..cut].to_vec();
        bytes[hole.0..hole.1].fill(0);
        fs::write(&path, bytes).unwrap();
        let disk = open(dir.path());
        disk.scanned().await;
        // New records must not make old ones visible that a hole has hidden.
        disk.remove(key(299));
        (1000..1010).for_each(|n| disk.put_record(n, 90));
        disk.settled().await;
        drop(disk);
        let disk = open(dir.path());
        disk.scanned().await;
        for n in 0..300 {
            let _ = disk.has(n, 90).await;
        }
        assert!(!disk.has(299, 90).await, "cut {cut}, hole {hole:?}");
        for n in 1000..1010 {
            assert!(disk.has(n, 90).await, "cut {cut}, hole {hole:?}");
        }
    }
}

#[tokio::test]
async fn damage_in_a_bundle_costs_the_damaged_record() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..20).for_each(|n| disk.put_record(n, SHORT));
    disk.settled().await;
    let (_, path) = bundles(dir.path()).remove(0);
    let records = bundled(dir.path());
    let file = File::options().write(true).open(&path).unwrap();
    let flip = |at: usize| {
        let byte = fs::read(&path).unwrap()[at];
        file.write_all_at(&[byte ^ 8], at as u64).unwrap();
    };
    // In the mark, format, checksum, key, lengths, body checksum, head and body.
    for (n, at) in [0, 6, 8, 16, 24, 28, 32, 40, 60, 900].into_iter().enumerate() {
        let listed = records.iter().find(|listed| listed.key == key(n as u64).0).unwrap();
        flip(listed.part.at as usize + at);
        assert!(!disk.has(n as u64, SHORT).await, "byte {at}");
        disk.settled().await;
        assert_eq!(disk.shared.metrics.damaged.get(), n as u64 + 1);
        assert!(!disk.is_on_disk(n as u64));
    }
    // In the entries of the table: a start does not find the record.
    for (n, at) in (10..).zip([0, 8, 12, 16, 20, 24]) {
        let listed = records.iter().find(|listed| listed.key == key(n).0).unwrap();
        flip(usize::from(listed.part.slot) * bundle::ENTRY as usize + at);
    }
    drop(disk);
    let disk = open(dir.path());
    disk.scanned().await;
    for n in 0..20 {
        assert_eq!(disk.has(n, SHORT).await, n >= 16, "{n}");
    }
    assert_eq!(disk.entries(), 4);
    drop(disk);
    // In the mark: it is no bundle.
    flip(3);
    let disk = open(dir.path());
    disk.scanned().await;
    assert_eq!((disk.entries(), disk.shared.metrics.damaged.get()), (0, 1));
    assert!(!path.exists());
}

#[tokio::test]
async fn interrupted_move_ends_at_the_next_start_and_nothing_comes_back() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..50).for_each(|n| disk.put_record(n, SHORT));
    disk.settled().await;
    drop(disk);
    let (_, path) = bundles(dir.path()).remove(0);
    let before = fs::read(&path).unwrap();
    let disk = open(dir.path());
    disk.scanned().await;
    // The other bundle has the first half of them.
    let later = disk.shared.files.bundle(std::num::NonZeroU32::new(7).unwrap());
    drop(disk);
    let half = bundled(dir.path())[25].part;
    let mut bytes = before[..half.at as usize].to_vec();
    bytes[usize::from(half.slot) * 32..half.at as usize]
        .iter_mut()
        .take(25 * 32)
        .for_each(|byte| *byte = 0);
    fs::write(&later, bytes).unwrap();

    let disk = open(dir.path());
    disk.remove(key(3));
    for n in (0..50).filter(|n| *n != 3) {
        assert!(disk.has(n, SHORT).await, "{n}");
    }
    disk.settled().await;
    assert_eq!(disk.entries(), 49);
    assert!(!path.exists() && later.exists());
    drop(disk);
    let disk = open(dir.path());
    disk.scanned().await;
    assert_eq!((disk.entries(), disk.has(3, SHORT).await), (49, false));
}

#[tokio::test]
async fn record_that_is_in_a_file_and_in_a_bundle_goes() {
    let dir = TempDir::new().unwrap();
    let disk = open_unbundled(dir.path());
    disk.put_record(1, SHORT);
    disk.settled().await;
    let file = disk.file(1);
    let bytes = fs::read(&file).unwrap();
    drop(disk);
    let disk = open(dir.path());
    disk.put(key(1), "new".into(), vec![]);
    disk.put_record(2, SHORT);
    disk.settled().await;
    assert!(!file.exists());
    drop(disk);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, bytes).unwrap();
    let disk = open(dir.path());
    disk.settled().await;
    assert_eq!((disk.get(key(1)).await, disk.has(2, SHORT).await), (None, true));
    assert!(!disk.is_on_disk(1));
}

#[tokio::test]
async fn directory_without_bundles_is_read_as_before() {
    let dir = TempDir::new().unwrap();
    for orderly in [true, false] {
        let disk = open_unbundled(dir.path());
        (0..50).for_each(|n| disk.put_record(n, SHORT));
        disk.settled().await;
        if orderly {
            disk.close(Duration::from_secs(10));
        }
        drop(disk);
        let disk = open(dir.path());
        disk.put_record(1, SHORT);
        disk.settled().await;
        for n in 0..50 {
            assert!(disk.has(n, SHORT).await);
        }
        assert_eq!((disk.entries(), bundled(dir.path()).len()), (50, 1));
        assert!(disk.is_on_disk(1) && disk.file(2).ends_with(format!("{:016x}", key(2).0)));
    }
}

#[tokio::test]
async fn tier_that_has_ended_does_not_serve_what_another_node_has_replaced() {
    let dir = TempDir::new().unwrap();
    let first = open(dir.path());
    first.put_record(1, SHORT);
    first.put_record(2, 50_000);
    first.close(Duration::from_secs(10));
    let second = open(dir.path());
    second.put(key(1), "new".into(), vec![]);
    second.remove(key(2));
    second.settled().await;
    assert_eq!((first.get(key(1)).await, first.get(key(2)).await), (None, None));
    second.close(Duration::from_secs(10));
    first.reopen().unwrap();
    first.scanned().await;
    assert_eq!(first.get(key(1)).await.unwrap().head, "new");
}

#[tokio::test]
async fn full_disk_costs_bundles_and_goes_on() {
    let Some(mount) = Mount::new("2m") else { return };
    // The bundles of a tier that thinks it has eight mebibytes.
    let disk = smaller(mount.0.path(), 8 * MIB);
    for n in 0..4000 {
        disk.put_record(n, SHORT);
        disk.settled().await;
    }
    assert!(disk.has(3999, SHORT).await, "the room that there is goes on being used");
    assert!((1000..2000).contains(&disk.entries()), "{} records", disk.entries());
    let held: Vec<u64> = (0..4000).filter(|&n| disk.holds(key(n))).collect();
    for n in &held {
        assert!(disk.has(*n, SHORT).await, "{n}");
    }
    drop(disk);
    let disk = smaller(mount.0.path(), 8 * MIB);
    disk.scanned().await;
    assert_eq!((disk.entries(), disk.shared.metrics.damaged.get()), (held.len(), 0));
}

#[tokio::test]
async fn bundle_that_is_gone_costs_its_records() {
    let dir = TempDir::new().unwrap();
    let disk = smaller(dir.path(), MIB);
    (0..300).for_each(|n| disk.put_record(n, SHORT));
    disk.settled().await;
    disk.put_record(5000, 50_000);
    disk.settled().await;
    let mut paths = bundles(dir.path());
    // The first one, and the one that is open.
    for (_, path) in [paths.remove(0), paths.pop().unwrap()] {
        fs::remove_file(path).unwrap();
    }
    disk.put_record(5001, SHORT);
    disk.settled().await;
    let mut lost = 0;
    for n in 0..300 {
        lost += u32::from(!disk.has(n, SHORT).await);
    }
    assert!((50..150).contains(&lost), "{lost}");
    assert!(disk.has(5000, 50_000).await && disk.has(5001, SHORT).await);
    disk.settled().await;
    assert_eq!(disk.entries(), 302 - lost as usize);
    (300..2000).for_each(|n| disk.put_record(n, SHORT));
    disk.settled().await;
    assert!(disk.has(1999, SHORT).await && taken(dir.path()) <= MIB);
}

/// A second kill, before the scan has ended, finds neither of the two.
#[tokio::test]
async fn record_in_a_file_and_in_a_bundle_goes_from_the_bundle_first() {
    let dir = TempDir::new().unwrap();
    let disk = open_unbundled(dir.path());
    // The scan has much to do after the directory of the first one.
    let first = (0..200).min_by_key(|&n| key(n).0).unwrap();
    (0..200).for_each(|n| disk.put_record(n, SHORT));
    disk.settled().await;
    let file = disk.file(first);
    let bytes = fs::read(&file).unwrap();
    drop(disk);
    let disk = open(dir.path());
    disk.put_record(first, SHORT);
    disk.settled().await;
    drop(disk);
    fs::write(&file, bytes).unwrap();
    let disk = open(dir.path());
    while file.exists() {
        std::hint::spin_loop();
    }
    let left = bundled(dir.path());
    assert_eq!(left, []);
    drop(disk);
}

#[test]
fn file_that_is_too_long_for_a_bundle_is_none() {
    let mut bytes = bundle::bytes_of([(key(1), &[1; 100][..])].into_iter());
    let entry = &mut bytes[32..64];
    entry[8..12].copy_from_slice(&(u32::MAX - 50).to_le_bytes());
    let checksum = levada_types::hash64(&entry[..20]);
    entry[24..].copy_from_slice(&checksum.to_le_bytes());
    let read = |into: &mut [u8], at: u64| {
        let length = into.len().min(bytes.len() - at as usize);
        into[..length].copy_from_slice(&bytes[at as usize..][..length]);
        Ok(length)
    };
    let table = bundle::table(std::num::NonZeroU32::MIN, 5 << 30, read);
    assert!(matches!(table, Err(ReadError::Damaged(Damage::Length))));
}

/// Bundles that cannot be removed, since something is mounted on them.
struct Pinned(Vec<PathBuf>);

impl Pinned {
    fn new(paths: Vec<PathBuf>) -> Option<Self> {
        let mount = |path: &PathBuf| {
            let mounted = Command::new("mount").arg("--bind").args([path, path]).output();
            mounted.is_ok_and(|output| output.status.success())
        };
        let pinned = Self(paths);
        let all = pinned.0.iter().all(mount);
        if !all {
            levada_skip::skipped("needs root to mount a file");
        }
        all.then_some(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = Command::new("umount").arg("-l").arg(path).output();
        }
    }
}

#[tokio::test]
async fn records_without_room_stay_away_when_their_bundle_cannot_be_removed() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..3000).for_each(|n| disk.put_record(n, SHORT));
    disk.settled().await;
    (0..3000).step_by(3).for_each(|n| disk.remove(key(n)));
    disk.settled().await;
    drop(disk);
    let disk = open(dir.path());
    disk.scanned().await;
    let bytes = disk.bytes();
    drop(disk);
    let paths = bundles(dir.path()).into_iter().map(|(_, path)| path).collect();
    let Some(pinned) = Pinned::new(paths) else { return };
    // No record can be moved before its bundle has gone.
    let disk = smaller(dir.path(), bytes + 4096);
    disk.scanned().await;
    assert!(disk.entries() < 2000);
    drop(pinned);
    (0..3000).for_each(|n| disk.remove(key(n)));
    disk.settled().await;
    drop(disk);
    let disk = open(dir.path());
    disk.scanned().await;
    assert_eq!(disk.entries(), 0);
}

/// A file system in a file: a copy of that file is what a machine that fails now leaves behind.
struct Device(TempDir);

impl Device {
    fn new() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(32 * MIB).unwrap();
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).output();
        let device = Self(dir);
        if made.is_ok_and(|made| made.status.success()) && device.mount("image") {
            return Some(device);
        }
        levada_skip::skipped("needs root to mount a file system in a file");
        None
    }

    fn mount(&self, image: &str) -> bool {
        let (image, at) = (self.0.path().join(image), self.0.path().join("at"));
        let _ = fs::create_dir(&at);
        let mounted = Command::new("mount").args(["-o", "loop"]).args([image, at]).output();
        mounted.is_ok_and(|mounted| mounted.status.success())
    }

    fn cache(&self) -> PathBuf {
        self.0.path().join("at/cache")
    }

    /// Starts the machine with the copy.
    fn start(&self) {
        let unmounted = Command::new("umount").arg(self.0.path().join("at")).output();
        assert!(unmounted.unwrap().status.success() && self.mount("left"));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path().join("at")).output();
    }
}

#[tokio::test]
async fn what_a_sweep_has_removed_stays_away_when_the_machine_fails() {
    let Some(device) = Device::new() else { return };
    let disk = open(&device.cache());
    (0..20).for_each(|n| disk.put_record(n, SHORT));
    disk.put_record(20, 50_000);
    disk.settled().await;
    for (_, path) in bundles(&device.cache()) {
        File::open(path).unwrap().sync_all().unwrap();
    }
    File::open(disk.file(20)).unwrap().sync_all().unwrap();
    disk.sweep(1000, |n, _| match n {
        n if n == key(0) || n == key(20) => RecordAction::Remove,
        _ => RecordAction::Keep,
    })
    .await;
    disk.flushed().await;
    // As the journal of purges is, before a rule is forgotten.
    let journal = File::create(device.cache().join("purge.journal")).unwrap();
    journal.write_all_at(b"swept", 0).unwrap();
    journal.sync_data().unwrap();
    let at = |name| device.0.path().join(name);
    fs::copy(at("image"), at("left")).unwrap();
    drop((disk, journal));
    device.start();
    let disk = open(&device.cache());
    disk.scanned().await;
    assert_eq!((disk.has(0, SHORT).await, disk.has(20, 50_000).await), (false, false));
    assert!(disk.has(1, SHORT).await);
    drop(disk);
}

#[tokio::test]
async fn bundles_that_cannot_be_listed_for_a_moment_are_not_taken_for_newer_ones() {
    let dir = TempDir::new().unwrap();
    for n in 0..3 {
        let disk = smaller(dir.path(), MIB);
        (100 * n..100 * (n + 1)).for_each(|n| disk.put_record(n, SHORT));
        disk.settled().await;
    }
    assert!(bundles(dir.path()).len() > 2);
    let (there, away) = (dir.path().join("000"), dir.path().join("away"));
    fs::rename(&there, &away).unwrap();
    std::os::unix::fs::symlink("000", &there).unwrap();
    let disk = smaller(dir.path(), MIB);
    until(|| disk.shared.metrics.errors_of(Kind::Io) > 0).await;
    fs::remove_file(&there).unwrap();
    fs::rename(&away, &there).unwrap();
    disk.scanned().await;
    until(|| disk.shared.state.lock().writing.is_over(Instant::now())).await;
    disk.put(key(299), "new".into(), vec![]);
    disk.settled().await;
    drop(disk);
    let disk = smaller(dir.path(), MIB);
    disk.scanned().await;
    assert!(disk.get(key(299)).await.is_none_or(|record| record.head == "new"));
}

#[tokio::test]
async fn bundle_that_a_start_cannot_read_does_not_come_back() {
    let dir = TempDir::new().unwrap();
    let disk = open(dir.path());
    (0..10).for_each(|n| disk.put_record(n, SHORT));
    disk.settled().await;
    drop(disk);
    let (_, path) = bundles(dir.path()).remove(0);
    // A program that opens or reads it learns that there is no such process.
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let memory = format!("/proc/{}/mem", process.id());
    let mounted = Command::new("mount").args(["--bind", &memory]).arg(&path).output();
    let mounted = mounted.is_ok_and(|output| output.status.success());
    process.kill().unwrap();
    process.wait().unwrap();
    if !mounted {
        return levada_skip::skipped("needs root to mount a file");
    }
    let pinned = Pinned(vec![path.clone()]);
    let disk = open(dir.path());
    disk.scanned().await;
    assert_eq!(disk.entries(), 0);
    disk.remove(key(1));
    drop(pinned);
    until(|| disk.shared.state.lock().writing.is_over(Instant::now())).await;
    disk.put_record(20, SHORT);
    disk.settled().await;
    drop(disk);
    let disk = open(dir.path());
    disk.scanned().await;
    assert_eq!((disk.has(1, SHORT).await, disk.entries()), (false, 1));
}
