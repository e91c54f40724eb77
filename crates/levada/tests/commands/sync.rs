//! `levada sync` as a user runs it, from a plain HTTP server with a directory, or a node before it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use crate::support::Process;

/// A server with a directory; it remembers what it was asked for, and from which byte.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    /// The fields `Authorization` and `Cookie` of requests.
    credentials: Arc<Mutex<Vec<String>>>,
    /// Of what is longer than [`HALF`], no more is sent.
    holds: Arc<AtomicBool>,
    /// Ranges are ignored.
    whole: Arc<AtomicBool>,
    /// Bytes of bodies.
    sent: Arc<AtomicU64>,
}

const HALF: usize = 1 << 20;

impl Server {
    fn new(directory: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let holds = Arc::new(AtomicBool::new(false));
        let credentials = Arc::<Mutex<Vec<String>>>::default();
        let whole = Arc::<AtomicBool>::default();
        let (log, held, shown) = (asked.clone(), holds.clone(), credentials.clone());
        let sent = Arc::<AtomicU64>::default();
        let (ignores, count) = (whole.clone(), sent.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (directory, log, held) = (directory.clone(), log.clone(), held.clone());
                let (shown, ignores, count) = (shown.clone(), ignores.clone(), count.clone());
                thread::spawn(move || {
                    serve(stream, &directory, &log, &shown, &held, &ignores, &count)
                });
            }
        });
        Self { url, asked, credentials, holds, whole, sent }
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

fn serve(
    mut stream: TcpStream,
    directory: &Path,
    log: &Mutex<Vec<String>>,
    credentials: &Mutex<Vec<String>>,
    holds: &AtomicBool,
    whole: &AtomicBool,
    sent: &AtomicU64,
) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let target = head.first()?.split(' ').nth(1)?.trim_start_matches('/');
        let path = target.split('?').next()?.to_owned();
        let is_credential = |line: &&String| {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            ["authorization", "cookie"].contains(&name.as_str())
        };
        credentials.lock().unwrap().extend(head.iter().filter(is_credential).cloned());
        let range = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("range").then_some(value.trim().strip_prefix("bytes=")?)
        });
        let range = range.filter(|_| !whole.load(SeqCst)).and_then(|range| range.split_once('-'));
        let from = range.map_or(String::new(), |(start, _)| format!(" from {start}"));
        log.lock().unwrap().push(path.clone() + &from);
        let Ok(bytes) = fs::read(directory.join(path.replace("%20", " "))) else {
            stream.write_all(b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n").ok()?;
            continue;
        };
        let length = bytes.len();
        let (status, part) = match range {
            None => ("200 OK\r\n".to_owned(), &bytes[..]),
            Some((start, last)) => {
                let start: usize = start.parse().ok()?;
                let end = last.parse().map_or(length, |last: usize| (last + 1).min(length));
                let told =
                    format!("206 P\r\nContent-Range: bytes {start}-{}/{length}\r\n", end - 1);
                (told, &bytes[start..end])
            }
        };
        let tag = hex(&bytes);
        // As an operator would set it: files may be kept, what says which files there are may not.
        let kept = if path.ends_with(".manifest") { "no-store" } else { "max-age=3600" };
        let head = format!(
            "HTTP/1.1 {status}Content-Length: {}\r\nETag: \"{tag}\"\r\nCache-Control: {kept}\r\n\r\n",
            part.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        if holds.load(SeqCst) && part.len() > HALF {
            stream.write_all(&part[..HALF]).ok()?;
            // Until the other side is gone.
            lines.next();
            return None;
        }
        stream.write_all(part).ok()?;
        sent.fetch_add(part.len() as u64, SeqCst);
    }
}

fn hex(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// So many bytes, no two blocks alike.
fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

struct Case {
    directory: tempfile::TempDir,
    server: Server,
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("www/tree");
        fs::create_dir_all(tree.join("sub/empty")).unwrap();
        fs::write(tree.join("a b.txt"), "hello").unwrap();
        fs::write(tree.join("sub/run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(tree.join("sub/run"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(tree.join("sub/nothing"), "").unwrap();
        symlink("sub/run", tree.join("link")).unwrap();
        let server = Server::new(directory.path().join("www"));
        Self { directory, server }
    }

    fn tree(&self) -> PathBuf {
        self.directory.path().join("www/tree")
    }

    /// A file next to the tree.
    fn beside(&self, extension: &str) -> PathBuf {
        self.tree().with_extension(extension)
    }

    fn there(&self) -> PathBuf {
        self.directory.path().join("there")
    }

    fn sync(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.arg("sync").args(arguments).output().unwrap()
    }

    fn publish(&self, arguments: &[&str]) {
        let tree = self.tree();
        let output = self.sync(&[arguments, &[tree.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", text(&output));
    }

    fn pull(&self, arguments: &[&str]) -> Output {
        self.pull_from(&self.server.url, &self.there(), arguments)
    }

    fn pull_from(&self, server: &str, there: &Path, arguments: &[&str]) -> Output {
        let url = format!("{server}/tree.manifest");
        self.sync(&[arguments, &[&url, there.to_str().unwrap()]].concat())
    }

    /// How many bytes of files that are not complete are at `there`, and said to be.
    fn held(&self, there: &Path) -> u64 {
        let staged = fs::read_dir(there.join(".levada-sync")).into_iter().flatten();
        let states = staged.filter_map(|entry| fs::read(entry.ok()?.path()).ok());
        let states = states.filter_map(|s| serde_json::from_slice::<serde_json::Value>(&s).ok());
        let ranges = states.flat_map(|s| s["held"].as_array().cloned().unwrap_or_default());
        ranges.map(|r| r[1].as_u64().unwrap_or(0) - r[0].as_u64().unwrap_or(0)).sum()
    }

    fn pull_well(&self, arguments: &[&str]) {
        let output = self.pull(arguments);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Replaces the manifest, its last line being right.
    fn forge(&self, lines: &str) {
        let text = format!("levada-manifest 1\nroot tree/\n{lines}");
        let hex = hex(text.as_bytes());
        let count = lines.lines().count();
        let file = self.directory.path().join("www/tree.manifest");
        fs::write(file, format!("{text}end {count} sha-256={hex}\n")).unwrap();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Everything in a directory: path, permissions, content.
fn listing(directory: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            // The destination's knowledge of its files.
            if path.ends_with(".levada-sync") {
                continue;
            }
            let there = fs::symlink_metadata(&path).unwrap();
            let content = if there.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if there.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let path = path.strip_prefix(directory).unwrap().to_owned();
            all.push((path, there.permissions().mode() & 0o777, content));
        }
    }
    all.sort();
    all
}

#[test]
fn a_pulled_tree_is_equal_and_only_what_differs_is_fetched() {
    for digest in ["sha-256", "md5"] {
        let case = Case::new();
        case.publish(&["--digest", digest]);
        case.pull_well(&[]);
        assert_eq!(listing(&case.there()), listing(&case.tree()));
        case.server.asked();
        case.pull_well(&[]);
        assert_eq!(case.server.asked(), ["tree.manifest"]);
        // One changes, one comes, one goes, one is only touched.
        fs::write(case.tree().join("a b.txt"), "hello again").unwrap();
        fs::write(case.tree().join("sub/new"), "new").unwrap();
        fs::remove_file(case.tree().join("sub/nothing")).unwrap();
        fs::write(case.tree().join("sub/run"), "#!/bin/sh\n").unwrap();
        case.publish(&["--digest", digest]);
        let output = case.pull(&["--delete", "--dry-run"]);
        assert!(text(&output).contains("delete  sub/nothing\n"), "{}", text(&output));
        assert!(case.there().join("sub/nothing").exists());
        case.server.asked();
        case.pull_well(&["--delete"]);
        assert_eq!(case.server.asked(), ["tree.manifest", "tree.pack from 0"]);
        assert_eq!(listing(&case.there()), listing(&case.tree()));
    }
}

#[test]
fn small_files_come_in_one_piece() {
    let case = Case::new();
    case.publish(&[]);
    case.pull_well(&[]);
    assert_eq!(case.server.asked(), ["tree.manifest", "tree.pack"]);
    assert_eq!(listing(&case.there()), listing(&case.tree()));
}

#[test]
fn a_pack_that_cannot_be_used_costs_requests_only() {
    type Damage = fn(&Case);
    let damages: [(&str, Damage); 4] = [
        ("refused with 404", |case| fs::remove_file(case.beside("pack")).unwrap()),
        ("of another version", |case| {
            let length = fs::read(case.beside("pack")).unwrap().len();
            fs::write(case.beside("pack"), bytes(length)).unwrap();
        }),
        ("another length", |case| {
            let longer = [fs::read(case.beside("pack")).unwrap(), bytes(1)].concat();
            fs::write(case.beside("pack"), longer).unwrap();
        }),
        ("no ranges", |case| case.server.whole.store(true, SeqCst)),
    ];
    for (name, damage) in damages {
        let case = Case::new();
        fs::write(case.tree().join("sub/other"), "other").unwrap();
        case.publish(&[]);
        damage(&case);
        // Not all files of the pack are wanted.
        let output = case.pull(&["--exclude", "*.txt"]);
        assert!(output.status.success(), "{name}: {}", text(&output));
        assert!(text(&output).contains("fetched one by one"), "{name}: {}", text(&output));
        assert!(case.server.asked().contains(&"tree/sub/run".to_owned()), "{name}");
        case.pull_well(&[]);
        assert_eq!(listing(&case.there()), listing(&case.tree()), "{name}");
    }
}

/// Bytes without any pattern.
fn random(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn of_a_changed_file_only_what_changed_is_fetched() {
    let case = Case::new();
    let mut big = random(4 * HALF);
    fs::write(case.tree().join("big"), &big).unwrap();
    case.publish(&[]);
    case.pull_well(&[]);
    big[HALF..HALF + 1000].fill(7);
    big.splice(10..10, *b"inserted");
    fs::write(case.tree().join("big"), &big).unwrap();
    case.publish(&[]);
    case.server.sent.store(0, SeqCst);
    case.pull_well(&[]);
    assert_eq!(listing(&case.there()), listing(&case.tree()));
    let sent = case.server.sent.load(SeqCst);
    assert!(sent < HALF as u64 / 4, "{sent} bytes were sent");
}

#[test]
fn renamed_and_copied_files_are_not_fetched() {
    let case = Case::new();
    fs::write(case.tree().join("big"), random(HALF)).unwrap();
    case.publish(&[]);
    case.pull_well(&[]);
    fs::copy(case.tree().join("sub/run"), case.tree().join("sub/run2")).unwrap();
    fs::rename(case.tree().join("big"), case.tree().join("sub/moved")).unwrap();
    case.publish(&[]);
    case.server.asked();
    case.pull_well(&["--delete"]);
    assert_eq!(case.server.asked(), ["tree.chunks", "tree.manifest"]);
    assert_eq!(listing(&case.there()), listing(&case.tree()));
    // A content that is missing twice is fetched once.
    fs::write(case.tree().join("one"), random(3 * HALF)).unwrap();
    fs::write(case.tree().join("two"), random(3 * HALF)).unwrap();
    case.publish(&[]);
    let there = case.directory.path().join("other");
    case.server.asked();
    let output = case.pull_from(&case.server.url, &there, &[]);
    assert!(output.status.success(), "{}", text(&output));
    let asked = case.server.asked();
    assert_eq!(asked.iter().filter(|path| ["tree/one", "tree/two"].contains(&&***path)).count(), 1);
    assert_eq!(listing(&there), listing(&case.tree()));
}

#[test]
fn chunk_lists_that_lie_cost_bytes_only() {
    type Damage = fn(&Case, &[u8]);
    let damages: [(&str, Damage); 3] = [
        ("no chunk lists", |case, _| fs::remove_file(case.beside("chunks")).unwrap()),
        ("other bytes", |case, old| fs::write(case.beside("chunks"), bytes(old.len())).unwrap()),
        ("lists of the version before", |case, old| {
            fs::write(case.beside("chunks"), old).unwrap();
            let text = fs::read_to_string(case.beside("manifest")).unwrap();
            let (start, rest) = text.split_once("chunks ").unwrap();
            let told = rest.split_once("sha-256=").unwrap().1[..64].to_owned();
            let start = format!("{start}chunks {}", rest.replace(&told, &hex(old)));
            let (start, end) = start.rsplit_once("end ").unwrap();
            let count = end.split(' ').next().unwrap();
            let text = format!("{start}end {count} sha-256={}\n", hex(start.as_bytes()));
            fs::write(case.beside("manifest"), text).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let case = Case::new();
        let mut big = random(HALF);
        fs::write(case.tree().join("big"), &big).unwrap();
        case.publish(&[]);
        case.pull_well(&[]);
        let old = fs::read(case.beside("chunks")).unwrap();
        big[HALF / 2..HALF / 2 + 20].fill(7);
        fs::write(case.tree().join("big"), &big).unwrap();
        case.publish(&[]);
        damage(&case, &old);
        let output = case.pull(&[]);
        assert!(output.status.success(), "{name}: {}", text(&output));
        assert!(text(&output).contains("fetched whole"), "{name}: {}", text(&output));
        assert_eq!(listing(&case.there()), listing(&case.tree()), "{name}");
    }
}

#[test]
fn credentials_are_for_the_origin_of_the_manifest_only() {
    let case = Case::new();
    let secrets = ["--header", "Authorization: Bearer x", "--header", "Cookie: a=b"];
    let other = Server::new(case.directory.path().join("www"));
    for (root, server) in
        [("tree/".to_owned(), &case.server), (format!("{}/tree/", other.url), &other)]
    {
        case.publish(&["--pack", "0", "--root", &root]);
        let there = case.directory.path().join(format!("there-{}", root.len()));
        let output = case.pull_from(&case.server.url, &there, &secrets);
        assert!(output.status.success(), "{}", text(&output));
        assert!(!server.asked().is_empty(), "{root}");
    }
    assert!(!case.server.credentials.lock().unwrap().is_empty());
    assert_eq!(*other.credentials.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn what_is_excluded_is_neither_fetched_nor_removed() {
    let case = Case::new();
    case.publish(&[]);
    fs::create_dir_all(case.there()).unwrap();
    fs::write(case.there().join("mine.txt"), "mine").unwrap();
    fs::write(case.there().join("other"), "other").unwrap();
    case.pull_well(&["--exclude", "*.txt", "--delete"]);
    assert!(!case.there().join("a b.txt").exists() && !case.there().join("other").exists());
    assert_eq!(fs::read(case.there().join("mine.txt")).unwrap(), b"mine");
    assert!(case.there().join("sub/run").exists());
}

#[test]
fn a_file_that_is_not_what_the_manifest_says_does_not_get_its_place() {
    let case = Case::new();
    case.publish(&["--pack", "0"]);
    fs::write(case.tree().join("a b.txt"), "jello").unwrap();
    let output = case.pull(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("failed: a b.txt: the file does not have the digest"), "{said}");
    assert!(!case.there().join("a b.txt").exists());
    // The others are there, and the next time it goes on.
    assert!(case.there().join("sub/run").exists());
    case.publish(&["--pack", "0"]);
    case.pull_well(&[]);
    assert_eq!(listing(&case.there()), listing(&case.tree()));
}

#[test]
fn nothing_is_written_outside_of_the_destination() {
    let case = Case::new();
    let digest = format!("sha-256={}", "0".repeat(64));
    for lines in [
        format!("file 5 644 0.000000000 {digest} ../out\n"),
        format!("file 5 644 0.000000000 {digest} /tmp/out\n"),
        "link l ../../etc\n".to_owned(),
        format!("link l sub\nfile 5 644 0.000000000 {digest} l/out\n"),
    ] {
        case.forge(&lines);
        let output = case.pull(&[]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("of the manifest: "), "{}", text(&output));
    }
    // A link that is there already is not written through.
    case.publish(&[]);
    let elsewhere = case.directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::remove_dir_all(case.there()).ok();
    fs::create_dir(case.there()).unwrap();
    symlink(&elsewhere, case.there().join("sub")).unwrap();
    let output = case.pull(&["--delete"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("is not a directory at the destination"), "{}", text(&output));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_manifest_that_was_cut_or_edited_is_refused() {
    let case = Case::new();
    case.publish(&[]);
    let file = case.directory.path().join("www/tree.manifest");
    let whole = fs::read_to_string(&file).unwrap();
    for (broken, said) in [
        (whole[..whole.len() / 2].to_owned(), "cut off"),
        (whole.replace("755", "777"), "edited or damaged"),
        ("<html></html>\n".to_owned(), "no manifest"),
    ] {
        fs::write(&file, broken).unwrap();
        let output = case.pull(&["--delete"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    let names = fs::read_dir(case.there()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), [".levada-sync"]);
}

#[test]
fn a_killed_pull_goes_on_and_fetches_nothing_twice() {
    let case = Case::new();
    fs::write(case.tree().join("big"), random(3 * HALF)).unwrap();
    case.publish(&[]);
    case.server.holds.store(true, SeqCst);
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    let url = format!("{}/tree.manifest", case.server.url);
    command.args(["sync", "-q", "--transfers", "1", &url]).arg(case.there());
    let pull = Process(command.spawn().unwrap());
    while case.held(&case.there()) < HALF as u64 {
        thread::sleep(Duration::from_millis(20));
    }
    // SIGKILL.
    drop(pull);
    assert_eq!(case.server.asked(), ["tree.manifest", "tree.pack", "tree/big"]);
    assert!(case.there().join("a b.txt").exists() && !case.there().join("big").exists());
    case.server.holds.store(false, SeqCst);
    case.pull_well(&["--transfers", "1"]);
    let rest = format!("tree/big from {HALF}");
    assert_eq!(case.server.asked(), ["tree.chunks", "tree.manifest", &rest]);
    assert_eq!(listing(&case.there()), listing(&case.tree()));
}

/// A file system in memory; only root may have one.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf, options: &str) -> Option<Self> {
        let mut command = Command::new("mount");
        let output = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at).output();
        match output {
            Ok(output) if output.status.success() => return Some(Self(at)),
            Ok(output) => {
                levada_skip::skipped(format_args!("no tmpfs: {}", text(&output).trim_end()))
            }
            Err(why) => levada_skip::skipped(format_args!("no tmpfs: mount: {why}")),
        }
        None
    }

    fn resize(&self, options: &str) {
        let mut command = Command::new("mount");
        let status = command.args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_a_pull_and_with_more_room_it_goes_on() {
    let case = Case::new();
    fs::write(case.tree().join("big"), random(3 * HALF)).unwrap();
    case.publish(&[]);
    fs::create_dir(case.there()).unwrap();
    let Some(small) = Small::mount(case.there(), "size=2m") else { return };
    let output = case.pull(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("failed: big: no space is left"), "{}", text(&output));
    assert!(!case.there().join("big").exists());
    let held = case.held(&case.there());
    assert!(held > 0);
    small.resize("size=16m");
    case.server.asked();
    case.pull_well(&[]);
    let asked = case.server.asked();
    // Chunks that were written after the last state are found in the incomplete file.
    let from = asked.iter().find_map(|path| path.strip_prefix("tree/big from ")?.parse().ok());
    assert!(from.is_some_and(|from: u64| from >= held), "{held} were held: {asked:?}");
    assert_eq!(listing(&case.there()), listing(&case.tree()));
}

#[test]
fn names_that_differ_in_case_only_are_two_files_or_are_refused() {
    let case = Case::new();
    fs::write(case.directory.path().join("probe"), "").unwrap();
    let one = case.directory.path().join("PROBE").exists();
    let digests = ["upper", "lower"].map(|content| hex(content.as_bytes()));
    case.forge(&format!(
        "file 5 644 0.000000000 sha-256={} NAME\nfile 5 644 0.000000000 sha-256={} name\n",
        digests[0], digests[1]
    ));
    if one {
        let output = case.pull(&[]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("NAME and name are one file"), "{}", text(&output));
        assert!(!case.there().join("name").exists());
        return;
    }
    fs::write(case.tree().join("NAME"), "upper").unwrap();
    fs::write(case.tree().join("name"), "lower").unwrap();
    case.pull_well(&[]);
    assert_eq!(fs::read(case.there().join("NAME")).unwrap(), b"upper");
    assert_eq!(fs::read(case.there().join("name")).unwrap(), b"lower");
}

#[test]
fn a_file_in_a_directorys_place_and_the_reverse_are_replaced_if_deletion_is_asked_for() {
    for pack in ["0", "64KiB"] {
        let case = Case::new();
        case.publish(&["--pack", pack]);
        // `sub` and `sub/empty` are directories there, `a b.txt` and `link` are not.
        let there = case.there();
        fs::create_dir_all(there.join("a b.txt/deep/er")).unwrap();
        fs::write(there.join("a b.txt/deep/file"), "old").unwrap();
        fs::create_dir(there.join("link")).unwrap();
        fs::write(there.join("sub"), "old").unwrap();
        let before = listing(&there);
        let output = case.pull(&[]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        for said in ["a b.txt is a directory", "link is a directory", "sub is not a directory"] {
            assert!(text(&output).contains(said), "{}", text(&output));
        }
        fs::remove_dir_all(there.join(".levada-sync")).unwrap();
        assert_eq!(listing(&there), before);
        // Excluded paths stay, and so does what they are in.
        let output = case.pull(&["--delete", "--exclude", "er"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(there.join("a b.txt/deep/er").exists() && there.join("a b.txt/deep/file").exists());
        let output = case.pull(&["--delete", "--dry-run"]);
        assert!(text(&output).contains("delete  a b.txt/deep/file\n"), "{}", text(&output));
        case.pull_well(&["--delete"]);
        assert_eq!(listing(&there), listing(&case.tree()));
    }
}

/// A node that fetches large files in pieces; its URL.
fn node(case: &Case) -> (Process, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "name = \"a\"\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n[[site]]\nhosts = \"*\"\n\
         origin = \"{}\"\n[site.large]\nenabled = true\nthreshold = \"1MiB\"\n",
        case.server.url
    );
    let file = case.directory.path().join("levada.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    let command = command.args(["run", "--stop-with-stdin", "-c"]).arg(file);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut log = BufReader::new(process.0.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("ready")), "the node starts");
    // A thread must read on, or the node's log would block it.
    thread::spawn(move || log.for_each(drop));
    (process, format!("http://127.0.0.1:{port}"))
}

#[test]
fn a_node_is_told_the_digest_and_gives_no_older_version() {
    let case = Case::new();
    let (_node, url) = node(&case);
    let pull = |there: &str| {
        let there = case.directory.path().join(there);
        let output = case.pull_from(&url, &there, &["--delete"]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(listing(&there), listing(&case.tree()));
    };
    let mut big = bytes(3 * HALF);
    fs::write(case.tree().join("big"), &big).unwrap();
    case.publish(&[]);
    pull("one");
    case.server.asked();
    // The second destination costs the origin a manifest.
    pull("two");
    assert_eq!(case.server.asked(), ["tree.manifest"]);
    // The node's copy is fresh for an hour, but it is not the wanted version.
    big[2 * HALF] ^= 1;
    fs::write(case.tree().join("big"), &big).unwrap();
    fs::write(case.tree().join("sub/run"), "#!/bin/zsh").unwrap();
    case.publish(&[]);
    pull("one");
    let asked = case.server.asked();
    assert!(asked.iter().any(|path| path.starts_with("tree/big from ")), "{asked:?}");
    assert!(asked.contains(&"tree/sub/run".to_owned()), "{asked:?}");
    pull("two");
    assert_eq!(case.server.asked(), ["tree.manifest"]);
}
