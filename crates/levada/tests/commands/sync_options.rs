//! The options of `levada sync` that are those of rsync, and followers, as processes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use crate::support::Process;

struct Case {
    directory: tempfile::TempDir,
    url: String,
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let www = directory.path().join("www");
        fs::create_dir_all(www.join("tree/sub")).unwrap();
        for file in ["a b.txt", "sub/keep.txt", "sub/nothing", "sub/run"] {
            fs::write(www.join("tree").join(file), file).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/tree.manifest", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let www = www.clone();
                thread::spawn(move || serve(stream, &www));
            }
        });
        Self { directory, url }
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

    fn publish(&self) -> Output {
        self.sync(&[self.tree().to_str().unwrap()])
    }

    fn pull(&self, arguments: &[&str]) -> Output {
        self.sync(&[arguments, &[&self.url, self.there().to_str().unwrap()]].concat())
    }
}

/// Answers with files of a directory, or that they are the known ones.
fn serve(mut stream: TcpStream, www: &Path) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let target = head.first()?.split([' ', '?']).nth(1)?.trim_start_matches('/').to_owned();
        let bytes = fs::read(www.join(target.replace("%20", " "))).unwrap_or_default();
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let tag: String = digest.as_ref()[..8].iter().map(|b| format!("{b:02x}")).collect();
        if head.iter().any(|line| line.to_ascii_lowercase() == format!("if-none-match: \"{tag}\""))
        {
            stream.write_all(b"HTTP/1.1 304 N\r\n\r\n").ok()?;
            continue;
        }
        let length = bytes.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nETag: \"{tag}\"\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &bytes].concat()).ok()?;
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn what_cannot_be_published_is_named_and_counted() {
    let case = Case::new();
    let fifo = case.tree().join("sub/queue");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let output = case.publish();
    assert!(output.status.success());
    let said = text(&output);
    let skipped = format!("skipped: {} is a FIFO\n1 skipped\n", fifo.display());
    assert!(said.contains(&skipped), "{said}");
}

#[test]
fn options_have_the_order_and_the_meaning_that_they_have_in_rsync() {
    let case = Case::new();
    assert!(case.publish().status.success());
    let list = |arguments: &[&str]| {
        let output = case.pull(&[&["-n", "--json"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = report["fetched"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(&["--exclude", "/sub/"]), ["a b.txt"]);
    let rest = ["sub/nothing", "sub/run"];
    assert_eq!(list(&["--exclude", "*.txt", "--include", "keep.txt"]), rest);
    let kept = ["sub/keep.txt", "sub/nothing", "sub/run"];
    assert_eq!(list(&["--include", "keep.txt", "--exclude", "*.txt"]), kept);
    let file = case.directory.path().join("rules");
    fs::write(&file, "# text\n+ keep.txt\n*.txt\n").unwrap();
    assert_eq!(list(&["--exclude-from", file.to_str().unwrap()]), kept);
    // Nothing was written.
    assert!(!case.there().exists());
    for (arguments, said) in [
        (&["--exclude", "[a"][..], "the pattern `[a` has a `[` without its `]`"),
        (&["--exclude-from", "/no/such"], "cannot read /no/such"),
        (&["--bwlimit", "fast"], "a rate limit is bytes a second"),
        (&["-X"], "publish the tree with --xattrs"),
        (&["--interval", "1s"], "--follow"),
        (&["--follow", "--interval", "1ms"], "at least 100ms"),
        (&["-H"], "publish the tree with --hard-links"),
        (&["--header", "nothing"], "write NAME: VALUE"),
    ] {
        let output = case.pull(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn follower_ends_cleanly_at_a_signal() {
    let case = Case::new();
    assert!(case.publish().status.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["sync", "--follow", "--interval", "100ms", "--delete", &case.url]);
    command.arg(case.there());
    let mut follower = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("4 files fetched"));
    fs::write(case.tree().join("new"), "new").unwrap();
    assert!(case.publish().status.success());
    assert!(lines.next().unwrap().unwrap().starts_with("1 files fetched"));
    assert_eq!(fs::read(case.there().join("new")).unwrap(), b"new");
    let id = rustix::process::Pid::from_child(&follower.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(follower.0.wait().unwrap().code(), Some(0));
    assert!(lines.next().is_none());
}
