//! `levada sync` as a user runs it, from a plain HTTP server with a directory.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex},
    thread,
};

/// A server with a directory; it remembers what it was asked for.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(directory: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (directory, log) = (directory.clone(), log.clone());
                thread::spawn(move || serve(stream, &directory, &log));
            }
        });
        Self { url, asked }
    }

    /// What was asked for since the last time.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

fn serve(mut stream: TcpStream, directory: &Path, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let path = head.first()?.split(' ').nth(1)?.trim_start_matches('/').to_owned();
        log.lock().unwrap().push(path.clone());
        let reply = match fs::read(directory.join(path.replace("%20", " "))) {
            Ok(bytes) => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
                [head.as_bytes(), &bytes].concat()
            }
            Err(_) => b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n".to_vec(),
        };
        stream.write_all(&reply).ok()?;
    }
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
        let url = format!("{}/tree.manifest", self.server.url);
        let there = self.there();
        self.sync(&[arguments, &[&url, there.to_str().unwrap()]].concat())
    }

    fn pull_well(&self, arguments: &[&str]) {
        let output = self.pull(arguments);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Replaces the manifest, its last line being right.
    fn forge(&self, lines: &str) {
        let text = format!("levada-manifest 1\nroot tree/\n{lines}");
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
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
        assert_eq!(case.server.asked(), ["tree.manifest", "tree/a%20b.txt", "tree/sub/new"]);
        assert_eq!(listing(&case.there()), listing(&case.tree()));
    }
}

#[test]
fn a_first_deployment_comes_in_one_piece() {
    let case = Case::new();
    case.publish(&["--tar"]);
    case.pull_well(&["--tar"]);
    assert_eq!(case.server.asked(), ["tree.manifest", "tree.tar"]);
    assert_eq!(listing(&case.there()), listing(&case.tree()));
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
    case.publish(&[]);
    fs::write(case.tree().join("a b.txt"), "jello").unwrap();
    let output = case.pull(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("failed: a b.txt: the file does not have the digest"), "{said}");
    assert!(!case.there().join("a b.txt").exists());
    // The others are there, and the next time it goes on.
    assert!(case.there().join("sub/run").exists());
    case.publish(&[]);
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
    assert!(text(&output).contains("is no directory at the destination"), "{}", text(&output));
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
