//! Directories in the place of servers: which file a URL names, and the response with it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::SocketAddr,
    os::unix::fs::{FileExt as _, symlink},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use levada_config::Settings;
use levada_node::Running;

use crate::{
    http2::{ask, fetch, h2c},
    support::{nodes::*, *},
};

/// A directory, and a node that serves it.
struct Stage {
    dir: tempfile::TempDir,
    node: Running,
    at: SocketAddr,
}

impl Stage {
    /// `lines`: further keys of the site; `table`: of its table `files`.
    async fn set(lines: &str, table: &str) -> Self {
        Self::set_with(lines, table, |_| {}).await
    }

    async fn set_with(lines: &str, table: &str, tweak: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let root = dir.path().join("root");
        let site = format!(
            "[[site]]\nhosts = 'a.test'\n{lines}\n[site.files]\nroot = '{}'\n{table}",
            root.display()
        );
        let (_, node, at) = alone(|settings| {
            settings.sites = sites(&site);
            tweak(settings);
        })
        .await;
        Self { dir, node, at }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    /// Writes a file that is an hour old.
    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let hour = SystemTime::now() - Duration::new(3600, 1);
        File::options().write(true).open(path).unwrap().set_modified(hour).unwrap();
    }
}

/// A body whose every part is different.
fn long(length: usize) -> Vec<u8> {
    (0..length as u64 / 8 + 1)
        .flat_map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes())
        .take(length)
        .collect()
}

const LENGTH: usize = 3_000_001;

#[tokio::test]
async fn short_file_is_answered_from_memory_until_it_is_looked_at_again() {
    let stage = Stage::set("", "recheck = '1m'\nprecompressed = ['gzip']").await;
    let text = async |target: &str, fields: &[(&str, &str)]| {
        let answer = Wire::saying(stage.at, head_of("GET", target, fields)).await.answer().await;
        answer.text()
    };
    let gzip = [("accept-encoding", "gzip")];
    for (path, content) in [("a.txt", "old"), ("a.txt.gz", "old gzip"), ("index.html", "old home")]
    {
        stage.write(path, content);
    }
    stage.write("long", vec![b'o'; 65 << 10]);
    fs::write(stage.path("young"), "old").unwrap();
    for version in ["old", "new"] {
        let (whole, coded) = (text("/a.txt", &[]).await, text("/a.txt", &gzip).await);
        assert_eq!((&*whole, &*coded), ("old", "old gzip"), "{version}");
        assert_eq!(text("/", &[]).await, "old home", "{version}");
        // A file that could change within the resolution of the clock, is long, or is asked for in part is looked at.
        assert_eq!(text("/young", &[]).await, version);
        assert_eq!(text("/long", &[]).await[..1], version[..1]);
        assert_eq!(text("/a.txt", &[("range", "bytes=0-0")]).await, version[..1]);
        for path in ["a.txt", "a.txt.gz", "index.html"] {
            stage.write(path, "new");
        }
        fs::write(stage.path("young"), "new").unwrap();
        stage.write("long", vec![b'n'; 65 << 10]);
    }
    let stage = Stage::set("", "").await;
    for version in ["old", "new"] {
        stage.write("a.txt", version);
        assert_eq!(get(stage.at, "/a.txt").await.text(), version);
    }
}

#[tokio::test]
async fn files_have_types_validators_and_an_index() {
    let stage = Stage::set("", "types = { xyz = 'x/y' }\ncache_control = 'max-age=60'").await;
    stage.write("index.html", "home");
    stage.write("a/b c.css", "style");
    stage.write("a/none", "?");
    stage.write("a/x.XYZ", "own");
    stage.write(".well-known/security.txt", "contact");
    let home = get(stage.at, "/?q=1").await;
    assert_eq!((home.status, home.text()), (200, "home".to_owned()));
    assert_eq!(home.field("content-type"), "text/html; charset=utf-8");
    assert_eq!(home.field("content-length"), "4");
    assert_eq!(home.field("cache-control"), "max-age=60");
    assert!(home.field("etag").starts_with('"'), "{home:?}");
    assert!(!home.field("last-modified").is_empty() && !home.field("date").is_empty());
    assert_eq!(home.header("vary"), None);
    for (target, media_type, text) in [
        ("//a///b%20c.css", "text/css; charset=utf-8", "style"),
        ("/a/none", "application/octet-stream", "?"),
        ("/a/x.XYZ", "x/y", "own"),
        ("/.well-known/security.txt", "text/plain; charset=utf-8", "contact"),
    ] {
        let answer = get(stage.at, target).await;
        assert_eq!((answer.field("content-type").as_str(), &*answer.text()), (media_type, text));
    }
    let redirect = get(stage.at, "/a?x=1").await;
    assert_eq!((redirect.status, &*redirect.field("location")), (301, "./a/?x=1"));
    assert_eq!(get(stage.at, "/a/").await.status, 404, "directories are not listed");
    assert_eq!(get(stage.at, "/none").await.status, 404);
    let mut wire = Wire::saying(stage.at, head_of("HEAD", "/", &[])).await;
    let head = wire.answer_to("HEAD").await;
    assert_eq!((head.status, &*head.field("content-length")), (200, "4"));
    for method in ["POST", "DELETE", "OPTIONS"] {
        let length = [("content-length", "0")];
        let mut wire = Wire::saying(stage.at, head_of(method, "/", &length)).await;
        let refused = wire.answer().await;
        assert_eq!((refused.status, &*refused.field("allow")), (405, "GET, HEAD"), "{method}");
    }
    settled(&stage.node).await;
}

#[tokio::test]
async fn no_url_leads_out_of_the_directory_or_to_what_is_no_file() {
    let stage = Stage::set("", "").await;
    let outside = stage.dir.path().join("secret");
    fs::write(&outside, "secret").unwrap();
    stage.write("a/index.html", "inside");
    stage.write(".htaccess", "secret");
    stage.write("a/.git/config", "secret");
    symlink("../secret", stage.path("out")).unwrap();
    symlink(&outside, stage.path("absolute")).unwrap();
    symlink("..", stage.path("up")).unwrap();
    symlink("loop", stage.path("loop")).unwrap();
    symlink("a/index.html", stage.path("in")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(stage.path("fifo")).status().unwrap();
    assert!(fifo.success());
    let _socket = std::os::unix::net::UnixListener::bind(stage.path("socket")).unwrap();
    for (target, status) in [
        ("/../secret", 404),
        ("/a/../../secret", 404),
        ("/%2e%2e/secret", 404),
        ("/.%2e/secret", 404),
        ("/a/%2e%2e/%2e%2e/secret", 404),
        ("/..%2fsecret", 400),
        ("/a%2f..%2f..%2fsecret", 400),
        ("/..%5csecret", 400),
        ("/a/index.html%00.png", 400),
        ("/%ff", 400),
        ("/.htaccess", 404),
        ("/%2ehtaccess", 404),
        ("/a/.git/config", 404),
        ("/out", 404),
        ("/absolute", 404),
        ("/up/secret", 404),
        ("/loop", 404),
        ("/fifo", 404),
        ("/socket", 404),
        ("/a/index.html/", 404),
        ("/a/index.html/x", 404),
        ("/in", 200),
    ] {
        let answer = get(stage.at, target).await;
        assert_eq!(answer.status, status, "{target}");
        assert!(!answer.text().contains("secret\n") && answer.text() != "secret", "{target}");
    }
    let long_name = format!("/{}", "x".repeat(300));
    assert_eq!(get(stage.at, &long_name).await.status, 404);
    settled(&stage.node).await;
}

#[tokio::test]
async fn links_may_leave_the_directory_where_that_is_configured() {
    let stage = Stage::set("", "outside_links = true").await;
    fs::write(stage.dir.path().join("shared"), "shared").unwrap();
    symlink("../shared", stage.path("out")).unwrap();
    assert_eq!(get(stage.at, "/out").await.text(), "shared");
    assert_eq!(get(stage.at, "/../shared").await.status, 404);
    settled(&stage.node).await;
}

#[tokio::test]
async fn conditions_and_ranges_are_those_of_an_origin() {
    let stage = Stage::set("", "").await;
    let body = long(LENGTH);
    stage.write("long", &body);
    stage.write("short", &body[..1000]);
    for (name, body) in [("/long", &body[..]), ("/short", &body[..1000])] {
        let length = body.len();
        let whole = get(stage.at, name).await;
        assert!(whole.whole && whole.body == *body, "{name}");
        let (tag, date) = (whole.field("etag"), whole.field("last-modified"));
        let of = |fields: &'static [&'static str]| {
            let value = |field: &str| match field {
                "TAG" => tag.clone(),
                "DATE" => date.clone(),
                other => other.to_owned(),
            };
            let pairs: Vec<(String, String)> =
                fields.chunks(2).map(|pair| (pair[0].to_owned(), value(pair[1]))).collect();
            let at = stage.at;
            async move {
                let pairs: Vec<(&str, &str)> =
                    pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
                get_with(at, name, &pairs).await
            }
        };
        let old = "Thu, 01 Jan 1998 00:00:00 GMT";
        assert_eq!(of(&["if-none-match", "TAG"]).await.status, 304);
        assert_eq!(of(&["if-none-match", "TAG"]).await.field("etag"), tag);
        assert_eq!(of(&["if-none-match", "\"x\", W/\"y\""]).await.status, 200);
        assert_eq!(of(&["if-modified-since", "DATE"]).await.status, 304);
        assert_eq!(of(&["if-modified-since", "Thu, 01 Jan 1998 00:00:00 GMT"]).await.status, 200);
        assert_eq!(of(&["if-match", "TAG"]).await.status, 200);
        assert_eq!(of(&["if-match", "\"x\""]).await.status, 412);
        assert_eq!(
            of(&["if-unmodified-since", "Thu, 01 Jan 1998 00:00:00 GMT"]).await.status,
            412,
            "{old}"
        );
        assert_eq!(of(&["if-unmodified-since", "DATE"]).await.status, 200);
        let part = of(&["range", "bytes=10-99"]).await;
        assert!(part.status == 206 && part.body == body[10..100], "{name}");
        assert_eq!(part.field("content-range"), format!("bytes 10-99/{length}"));
        let last = of(&["range", "bytes=-7", "if-range", "TAG"]).await;
        assert!(last.status == 206 && last.body == body[length - 7..]);
        assert_eq!(of(&["range", "bytes=-7", "if-range", "DATE"]).await.status, 206);
        assert_eq!(of(&["range", "bytes=-7", "if-range", "\"x\""]).await.body.len(), length);
        let parts = of(&["range", "bytes=0-1, 500-"]).await;
        assert!(parts.status == 206 && parts.whole, "{name}");
        assert!(parts.field("content-type").starts_with("multipart/byteranges"));
        assert!(parts.body.windows(length - 500).any(|part| part == &body[500..]));
        let beyond = of(&["range", "bytes=9999999-"]).await;
        assert_eq!(
            (beyond.status, beyond.field("content-range")),
            (416, format!("bytes */{length}"))
        );
    }
    settled(&stage.node).await;
}

#[tokio::test]
async fn long_files_arrive_over_all_transports_and_from_the_disk() {
    let stage = Stage::set("", "").await;
    let body = long(LENGTH);
    stage.write("long", &body);
    let mut wire = Wire::saying(
        stage.at,
        [head_of("GET", "/long", &[]), head_of("GET", "/long", &[])].concat(),
    )
    .await;
    for _ in 0..2 {
        let answer = wire.answer().await;
        assert!(answer.whole && answer.body == body);
    }
    let file = File::open(stage.path("long")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(get(stage.at, "/long").await.body == body, "read again from the disk");
    let over_http2 = Stage::set_with("", "", |settings| settings.listeners[0].h2c = true).await;
    over_http2.write("long", &body);
    let mut sender = h2c(over_http2.at).await;
    let (status, received) = fetch(&mut sender, ask("/long")).await;
    assert!(status == 200 && received == body);
    drop(sender);
    let paced = Stage::set("bandwidth = { connection = '100MiB/s' }", "").await;
    paced.write("long", &body);
    assert!(get(paced.at, "/long").await.body == body);
    for stage in [stage, over_http2, paced] {
        settled(&stage.node).await;
    }
}

#[tokio::test]
async fn file_that_changes_while_it_is_sent_is_cut_and_one_that_is_replaced_is_not() {
    let stage = Stage::set("", "").await;
    // Longer than the buffers on the way.
    let body = long(64 << 20);
    type Change = fn(&PathBuf);
    let overwritten: Change = |path| {
        File::options().write(true).open(path).unwrap().write_all_at(b"!", 63 << 20).unwrap();
    };
    let appended: Change = |path| {
        File::options().append(true).open(path).unwrap().write_all(b"!").unwrap();
    };
    let shortened: Change = |path| {
        File::options().write(true).open(path).unwrap().set_len(40 << 20).unwrap();
    };
    let replaced: Change = |path| {
        let new = path.with_extension("new");
        fs::write(&new, "new").unwrap();
        fs::rename(new, path).unwrap();
    };
    let removed: Change = |path| fs::remove_file(path).unwrap();
    for (change, is_whole) in [
        (overwritten, false),
        (appended, false),
        (shortened, false),
        (replaced, true),
        (removed, true),
    ] {
        stage.write("long", &body);
        let mut wire = Wire::narrow(stage.at).await;
        wire.send(head_of("GET", "/long", &[])).await;
        let mut answer = wire.head().await;
        assert_eq!(answer.status, 200);
        change(&stage.path("long"));
        wire.body(&mut answer, "GET").await;
        assert_eq!(answer.whole, is_whole);
        assert!(!is_whole || answer.body == body);
    }
    settled(&stage.node).await;
}

#[tokio::test]
async fn changes_count_at_once_and_a_lost_directory_comes_back() {
    let stage = Stage::set("", "").await;
    stage.write("a", "one");
    let before = get(stage.at, "/a").await;
    stage.write("a", "two!");
    let after = get(stage.at, "/a").await;
    assert_eq!((before.text(), after.text()), ("one".to_owned(), "two!".to_owned()));
    assert_ne!(before.field("etag"), after.field("etag"));
    let (root, away) = (stage.path(""), stage.dir.path().join("away"));
    fs::rename(&root, &away).unwrap();
    assert_eq!(get(stage.at, "/a").await.status, 404);
    symlink(&away, root.components().as_path()).unwrap();
    assert_eq!(get(stage.at, "/a").await.text(), "two!", "the root may be a link");
    settled(&stage.node).await;
}

#[tokio::test]
async fn versions_of_equal_size_and_time_have_different_tags() {
    let stage = Stage::set("", "").await;
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let mut tags = Vec::new();
    for content in ["one", "two"] {
        let new = stage.path("new");
        fs::write(&new, content).unwrap();
        File::options().write(true).open(&new).unwrap().set_modified(epoch).unwrap();
        fs::rename(new, stage.path("a")).unwrap();
        tags.push(get(stage.at, "/a").await.field("etag"));
    }
    assert_ne!(tags[0], tags[1]);
    fs::write(stage.path("young"), "x").unwrap();
    assert!(get(stage.at, "/young").await.field("etag").starts_with("W/"), "it may change again");
    settled(&stage.node).await;
}

#[tokio::test]
async fn fallback_answers_where_there_is_no_file() {
    let stage = Stage::set("", "fallback = '/index.html'").await;
    stage.write("index.html", "app");
    stage.write("a/style.css", "style");
    for target in ["/users/7", "/a/none.css", "/a/"] {
        let answer = get(stage.at, target).await;
        assert_eq!((answer.status, &*answer.text()), (200, "app"), "{target}");
        assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
    }
    assert_eq!(get(stage.at, "/a/style.css").await.text(), "style");
    assert_eq!(get(stage.at, "/.env").await.status, 404);
    assert_eq!(get(stage.at, "/a%2fb").await.status, 400);
    settled(&stage.node).await;
}

#[tokio::test]
async fn precompressed_siblings_are_sent_to_clients_that_accept_them() {
    let stage = Stage::set("", "precompressed = ['br', 'gzip']").await;
    stage.write("a.css", "original");
    stage.write("a.css.gz", "gzipped");
    stage.write("a.css.br", "brotli");
    stage.write("old.css.gz", "older than its original");
    stage.write("old.css", "original");
    let old = SystemTime::now() - Duration::from_secs(9999);
    File::options().write(true).open(stage.path("old.css.gz")).unwrap().set_modified(old).unwrap();
    let accepting =
        async |target, codings| get_with(stage.at, target, &[("accept-encoding", codings)]).await;
    let mut tags = Vec::new();
    for (codings, coding, text) in [
        ("gzip, br", "br", "brotli"),
        ("gzip", "gzip", "gzipped"),
        ("br;q=0.5, gzip", "gzip", "gzipped"),
        ("zstd", "", "original"),
        ("br;q=0", "", "original"),
    ] {
        let answer = accepting("/a.css", codings).await;
        assert_eq!(
            (&*answer.field("content-encoding"), &*answer.text()),
            (coding, text),
            "{codings}"
        );
        assert_eq!(answer.field("vary"), "accept-encoding");
        assert_eq!(answer.field("content-type"), "text/css; charset=utf-8");
        tags.push((answer.field("etag"), coding));
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 3, "one tag per representation: {tags:?}");
    assert_eq!(accepting("/old.css", "gzip").await.text(), "original");
    let fields = [("accept-encoding", "br"), ("range", "bytes=0-2")];
    let part = get_with(stage.at, "/a.css", &fields).await;
    assert_eq!((part.status, &*part.text()), (206, "bro"));
    let tag = accepting("/a.css", "br").await.field("etag");
    let fields = [("accept-encoding", "br"), ("if-none-match", &tag)];
    assert_eq!(get_with(stage.at, "/a.css", &fields).await.status, 304);
    settled(&stage.node).await;
}

#[tokio::test]
async fn files_without_siblings_are_compressed_on_their_way() {
    let stage = Stage::set("compress = { codings = ['gzip'] }", "").await;
    let text = "a line of text\n".repeat(20_000);
    stage.write("long.txt", &text);
    let fields = [("accept-encoding", "gzip")];
    let coded = get_with(stage.at, "/long.txt", &fields).await;
    assert_eq!(coded.field("content-encoding"), "gzip");
    let mut decoded = String::new();
    flate2::read::GzDecoder::new(&*coded.body).read_to_string(&mut decoded).unwrap();
    assert!(decoded == text);
    let tag = coded.field("etag");
    let again = [("accept-encoding", "gzip"), ("if-none-match", &*tag)];
    assert_eq!(get_with(stage.at, "/long.txt", &again).await.status, 304);
    let part = [("accept-encoding", "gzip"), ("range", "bytes=0-5")];
    let part = get_with(stage.at, "/long.txt", &part).await;
    assert_eq!((part.status, &*part.text()), (206, "a line"));
    let outdated = [("accept-encoding", "gzip"), ("range", "bytes=0-5"), ("if-range", "\"x\"")];
    let outdated = get_with(stage.at, "/long.txt", &outdated).await;
    let mut decoded = String::new();
    flate2::read::GzDecoder::new(&*outdated.body).read_to_string(&mut decoded).unwrap();
    assert!(decoded == text, "a range of another version is ignored");
    assert!(get(stage.at, "/long.txt").await.text() == text);
    settled(&stage.node).await;
}

#[tokio::test]
async fn route_serves_a_directory_under_the_rules_of_its_site() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("assets")).unwrap();
    fs::write(dir.path().join("assets/a.css"), "style").unwrap();
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::cached("origin"));
    let text = format!(
        "[[site]]\nhosts = 'a.test'\norigin = 'http://{}'\n\
         [[site.limit]]\nkey = 'client'\nrate = '1r/m'\nburst = 2\nnodelay = true\n\
         [[site.route]]\npath = '/assets/**'\nfiles = '{}'\n\
         response_headers = {{ set = {{ X-By = '{{host}}' }} }}\n",
        origin.address,
        dir.path().display()
    );
    let (_, node, at) = alone(|settings| settings.sites = sites(&text)).await;
    let style = get(at, "/assets/a.css").await;
    assert_eq!((&*style.text(), &*style.field("x-by")), ("style", HOST));
    assert_eq!(get(at, "/").await.text(), "origin");
    let asked = format!("/explain?url=http://{HOST}/assets/a.css");
    let explained: serde_json::Value =
        serde_json::from_slice(&admin(&node, &asked).await.body).unwrap();
    let file = dir.path().join("assets/a.css");
    assert_eq!(explained["file"], file.to_str().unwrap());
    for _ in 0..2 {
        get(at, "/assets/a.css").await;
    }
    assert_eq!(get(at, "/assets/a.css").await.status, 429);
    assert_eq!(origin.total(), 1);
    settled(&node).await;
}

#[tokio::test]
async fn every_node_of_a_cluster_answers_with_its_own_files() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let origin = Origin::start().await;
    let cluster = Cluster::start(3, origin.address, |settings| {
        let number: usize = settings.name[1..].parse().unwrap();
        let root = dirs[number].path();
        fs::write(root.join("a"), number.to_string()).unwrap();
        settings.sites =
            sites(&format!("[[site]]\nhosts = 'a.test'\nfiles = '{}'", root.display()));
    })
    .await;
    for number in 0..3 {
        assert_eq!(get(cluster.client(number), "/a").await.text(), number.to_string());
    }
    assert_eq!(origin.total(), 0);
    cluster.settled().await;
}

#[tokio::test]
async fn directory_without_an_index_is_listed_where_it_may_be() {
    let stage = Stage::set("", "listing = true").await;
    stage.write("b.txt", "12345");
    stage.write("a <&>\"'.txt", "1");
    stage.write(".hidden", "1");
    stage.write("indexed/index.html", "index");
    stage.write("z/inner", "1");
    symlink("/etc/passwd", stage.path("outer")).unwrap();
    symlink("b.txt", stage.path("inner")).unwrap();
    let page = get(stage.at, "/").await;
    assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
    let text = page.text();
    assert!(
        text.contains("<a href=\"a%20%3C%26%3E%22%27.txt\">a &lt;&amp;&gt;&quot;&#39;.txt</a>")
    );
    assert!(text.contains("<a href=\"z/\">z/</a>"), "{text}");
    for hidden in ["hidden", "outer", "../"] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
    let names = async |target: &str| {
        let head = head_of("GET", target, &[("accept", "application/json")]);
        let answer = Wire::saying(stage.at, head).await.answer().await;
        assert_eq!(answer.field("content-type"), "application/json");
        let list: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let name = |entry: &serde_json::Value| entry["name"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    let odd = "a <&>\"'.txt";
    assert_eq!(names("/").await, ["indexed", "z", odd, "b.txt", "inner"]);
    assert_eq!(names("/?sort=size").await, ["indexed", "z", odd, "b.txt", "inner"]);
    assert_eq!(names("/?sort=size&order=desc").await, ["z", "indexed", "inner", "b.txt", odd]);
    assert_eq!(get(stage.at, "/indexed/").await.text(), "index");
    assert_eq!(get(stage.at, "/z").await.status, 301);
    assert!(get(stage.at, "/z/").await.text().contains("<a href=\"../\">../</a>"));
    let mut head = Wire::saying(stage.at, head_of("HEAD", "/", &[])).await;
    let head = head.answer_to("HEAD").await;
    assert_eq!(head.field("content-length"), text.len().to_string());
    assert_eq!(get(stage.at, "/none/").await.status, 404);
    let closed = Stage::set("", "").await;
    closed.write("a", "1");
    assert_eq!(get(closed.at, "/").await.status, 404);
}
