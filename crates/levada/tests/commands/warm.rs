//! `levada warm` as a user runs it, through two nodes as a user runs them.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
};

use flate2::{Compression, write::GzEncoder};

use crate::support::{Process, free};

const HOST: &str = "www.example.com";

type Hits = Arc<Mutex<HashMap<String, usize>>>;

/// An origin that counts the requests for each path. It ends with the process.
fn origin() -> (u16, Hits) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let hits = Hits::default();
    let counted = hits.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, hits) = (stream.unwrap(), counted.clone());
            std::thread::spawn(move || answer(stream, &hits));
        }
    });
    (port, hits)
}

fn answer(mut stream: TcpStream, hits: &Hits) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut first, mut line) = (String::new(), String::from("-"));
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        let path = first.split(' ').nth(1).unwrap().to_owned();
        *hits.lock().unwrap().entry(path.clone()).or_default() += 1;
        let (status, control, body) = reply(&path);
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nCache-Control: {control}\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), &body[..]].concat()).unwrap();
    }
}

fn reply(path: &str) -> (&'static str, &'static str, Vec<u8>) {
    let text = |text: String| ("200 OK", "max-age=600", text.into_bytes());
    let sitemap = |path: &str| format!("<sitemap><loc>http://{HOST}{path}</loc></sitemap>");
    match path {
        "/account" => ("200 OK", "private", b"mine".to_vec()),
        "/gone" => ("404 Not Found", "max-age=600", b"no".to_vec()),
        "/index.xml" => text(format!(
            "<sitemapindex>{}{}</sitemapindex>",
            sitemap("/a.xml"),
            sitemap("/b.xml.gz")
        )),
        "/a.xml" => text(urlset(0..3)),
        "/b.xml.gz" => {
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            packer.write_all(urlset(3..6).as_bytes()).unwrap();
            ("200 OK", "max-age=600", packer.finish().unwrap())
        }
        "/loop.xml" => text(format!("<sitemapindex>{}</sitemapindex>", sitemap("/loop.xml"))),
        "/foreign.xml" => text(urlset(0..1).replace(HOST, "other.example.com")),
        "/bomb.xml" => {
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            packer.write_all(&vec![b' '; 51 << 20]).unwrap();
            ("200 OK", "max-age=600", packer.finish().unwrap())
        }
        _ => text(format!("{path} {}", "x".repeat(1000))),
    }
}

fn urlset(numbers: std::ops::Range<usize>) -> String {
    let url = |n: usize| format!("<url><loc>http://{HOST}/{n}.js</loc></url>");
    format!("<urlset>{}</urlset>", numbers.map(url).collect::<String>())
}

/// Two nodes in front of the origin, and their ports for clients.
fn cluster(directory: &Path, origin: u16) -> ([Process; 2], [u16; 2]) {
    let (clients, peers) = ([free(), free()], [free(), free()]);
    let start = |index: usize| {
        let name = ["a", "b"][index];
        let text = format!(
            r#"
name = "{name}"
[[listen]]
address = "127.0.0.1:{}"
[peering]
listen = "127.0.0.1:{}"
secret = "0123456789abcdef"
[[peer]]
name = "a"
address = "127.0.0.1:{}"
[[peer]]
name = "b"
address = "127.0.0.1:{}"
[[site]]
hosts = "{HOST}"
origin = "http://127.0.0.1:{origin}"
policy = {{ name = "hrw" }}
"#,
            clients[index], peers[index], peers[0], peers[1]
        );
        let file = directory.join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["run", "--stop-with-stdin", "-c"]).arg(file);
        Process::ready(command.stdin(Stdio::piped())).expect("the node starts").0
    };
    ([start(0), start(1)], clients)
}

fn warm(node: u16, options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    let node = format!("127.0.0.1:{node}");
    let output: Output = command.args(["warm", "--node", &node]).args(options).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// The number of URLs in a line of the report.
fn count(report: &str, kind: &str) -> usize {
    let line = report.lines().find_map(|line| line.strip_prefix(kind));
    line.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn objects_are_stored_where_the_cluster_looks_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let (origin, hits) = origin();
    let (_nodes, clients) = cluster(directory.path(), origin);
    let list: String = (0..40).map(|n| format!("http://{HOST}/{n}.css\n\n")).collect();
    let file = directory.path().join("list.txt");
    std::fs::write(&file, format!("# styles\n{list}")).unwrap();
    let file = file.to_str().unwrap();
    let (code, report) = warm(clients[0], &["--file", file]);
    assert_eq!((code, count(&report, "warmed")), (Some(0), 40), "{report}");
    let (code, report) = warm(clients[1], &["--file", file, "-j", "3", "--limit-rate", "1MiB"]);
    assert_eq!((code, count(&report, "already there")), (Some(0), 40), "{report}");
    assert!(hits.lock().unwrap().values().all(|hits| *hits == 1), "{hits:?}");

    // Objects that are not stored are named, with the reason.
    let url = |path: &str| format!("http://{HOST}{path}");
    let (code, report) =
        warm(clients[0], &[&url("/account"), &url("/gone"), "http://b.test/", &url("/0.css")]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("/account  private"), "{report}");
    assert!(report.contains("/gone  404 Not Found"), "{report}");
    assert!(report.contains("http://b.test/  421"), "{report}");
    let counts =
        ["warmed", "already there", "not storable", "failed"].map(|kind| count(&report, kind));
    assert_eq!(counts, [0, 1, 1, 2], "{report}");

    let (code, report) = warm(clients[0], &["--json", &url("/json")]);
    let json: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((code, &json["urls"][0]["result"]), (Some(0), &"warmed".into()), "{json}");
}

#[test]
fn sitemaps_are_read_within_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let (origin, hits) = origin();
    let (_nodes, clients) = cluster(directory.path(), origin);
    let url = |path: &str| format!("http://{HOST}{path}");
    let (code, report) = warm(clients[0], &["--sitemap", &url("/index.xml")]);
    assert_eq!((code, count(&report, "warmed")), (Some(0), 6), "{report}");
    let asked = hits.lock().unwrap().len();
    for (sitemap, why) in [
        ("/loop.xml", "leads to another index"),
        ("/foreign.xml", "of another host"),
        ("/bomb.xml", "more than 50 MiB"),
        ("/gone", "404"),
        ("/0.js", "not a sitemap"),
    ] {
        let (code, report) = warm(clients[0], &["--sitemap", &url(sitemap), &url("/not")]);
        assert_eq!(code, Some(2), "{report}");
        assert!(report.contains(why), "{sitemap}: {report}");
    }
    let (code, report) = warm(clients[0], &["--sitemap", &url("/index.xml"), "--max-urls", "5"]);
    assert!(code == Some(2) && report.contains("more than 5 URLs"), "{report}");
    let hits = hits.lock().unwrap();
    assert_eq!((hits.len(), hits.get("/not")), (asked + 4, None), "only sitemaps: {hits:?}");
}

#[test]
fn bytes_are_bounded_and_wrong_input_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (origin, _) = origin();
    let (_nodes, clients) = cluster(directory.path(), origin);
    let urls: Vec<String> = (0..20).map(|n| format!("http://{HOST}/{n}")).collect();
    let mut options: Vec<&str> = urls.iter().map(String::as_str).collect();
    options.extend(["--max-bytes", "5000", "-j", "1"]);
    let (code, report) = warm(clients[0], &options);
    assert_eq!((code, count(&report, "warmed")), (Some(1), 4), "{report}");
    assert_eq!(count(&report, "not tried"), 16, "{report}");

    let file = directory.path().join("list");
    std::fs::write(&file, "http://a/\nftp://a/\n").unwrap();
    let file = file.to_str().unwrap();
    for (options, why) in [
        (&["ftp://a/"][..], "only http and https"),
        (&["--file", file], "line 2"),
        (&["--file", "/nowhere"], "cannot read /nowhere"),
        (&["http://a/", "-j", "0"], "0 is not in"),
        (&["http://a/", "-H", "x"], "write NAME: VALUE"),
        (&[], "required"),
    ] {
        let (code, report) = warm(clients[0], options);
        assert_eq!(code, Some(2), "{options:?} {report}");
        assert!(report.contains(why), "{options:?} {report}");
    }
    let (code, report) = warm(0, &["--node", "x", "http://a/"]);
    assert_eq!(code, Some(2), "{report}");
}
