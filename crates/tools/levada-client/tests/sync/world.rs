//! A tree, a plain HTTP server before it, and a destination.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{
        ffi::OsStringExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime},
};

use levada_client::{
    Client, ClientSettings, FilterRule, GetRequest, PathFilter, Publication, Published, PullReport,
    PullRequest, Pulling, SyncError, parse_url,
};
use levada_fetch::manifest::Extras;

pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl World {
    /// A tree with two files, a directory in a directory, and a link.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("www/tree");
        fs::create_dir_all(tree.join("sub/empty")).unwrap();
        fs::write(tree.join("a"), "hello").unwrap();
        fs::write(tree.join("sub/b"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(tree.join("sub/b"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("sub/b", tree.join("link")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/tree.manifest", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (www, log) = (directory.path().join("www"), asked.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (www, log) = (www.clone(), log.clone());
                thread::spawn(move || serve(stream, &www, &log));
            }
        });
        Self { directory, url, asked }
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.directory.path().join("www/tree")
    }

    pub(crate) fn there(&self) -> PathBuf {
        self.directory.path().join("there")
    }

    /// The paths that were asked for since the last call, sorted, with the status if it is not 200.
    pub(crate) fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }

    pub(crate) fn publication(&self) -> Publication {
        // Each file by a request of its own, so that a test sees which were fetched.
        Publication { pack_limit: 0, ..Publication::new(self.tree()).unwrap() }
    }

    pub(crate) fn publish(&self) -> Published {
        self.publication().publish().unwrap()
    }

    pub(crate) fn publish_with(&self, extras: Extras) -> Published {
        Publication { extras, ..self.publication() }.publish().unwrap()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn request(&self) -> PullRequest {
        Self::request_of(&self.url, self.there())
    }

    pub(crate) fn request_of(url: &str, directory: PathBuf) -> PullRequest {
        PullRequest {
            get: GetRequest::new(parse_url(url).unwrap(), PathBuf::new()),
            directory,
            filter: PathFilter::default(),
            delete: true,
            delete_excluded: false,
            dry_run: false,
            thorough: false,
            extras: Extras::default(),
            numeric_ids: false,
            sparse: false,
            delay: false,
            fsync: false,
            unless: None,
            transfers: 4,
        }
    }

    pub(crate) async fn try_pull(&self, request: &PullRequest) -> Result<PullReport, SyncError> {
        let client = Client::new(ClientSettings::default()).unwrap();
        client.pull(request, &Pulling::default()).await
    }

    /// A pull with everything that is not in the manifest deleted.
    pub(crate) async fn pull(&self) -> PullReport {
        self.pull_with(|_| {}).await
    }

    pub(crate) async fn pull_with(&self, change: impl FnOnce(&mut PullRequest)) -> PullReport {
        let mut request = self.request();
        change(&mut request);
        let report = self.try_pull(&request).await.unwrap();
        assert!(report.complete, "{:?}", report.failed);
        report
    }

    pub(crate) fn assert_equal(&self) {
        self.assert_equal_at(&self.there());
    }

    pub(crate) fn assert_equal_at(&self, there: &Path) {
        let (tree, there) = (facts(&self.tree()), facts(there));
        for (path, fact) in &tree {
            assert_eq!(there.get(path), Some(fact), "{}", path.display());
        }
        assert_eq!(tree.len(), there.len(), "{there:?}");
    }
}

/// A filter with the lines of a file of exclusions.
pub(crate) fn filter(lines: &str) -> PathFilter {
    PathFilter::new(&FilterRule::of_file(lines, false)).unwrap()
}

/// Type and permissions, time, content or target of an entry.
pub(crate) type Fact = (u32, (i64, i64), Vec<u8>);

/// The entries of a directory, without what a destination keeps for itself.
pub(crate) fn facts(directory: &Path) -> BTreeMap<PathBuf, Fact> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let relative = path.strip_prefix(directory).unwrap().to_owned();
            if relative == Path::new(".levada-sync") {
                continue;
            }
            let there = fs::symlink_metadata(&path).unwrap();
            let content = if there.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if there.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if there.is_file() {
                fs::read(&path).unwrap()
            } else {
                b"special".to_vec()
            };
            // Links have no permissions of their own.
            let mode = if there.is_symlink() { 0 } else { there.mode() };
            all.insert(relative, (mode, (there.mtime(), there.mtime_nsec()), content));
        }
    }
    all
}

/// Writes a file and gives it a time of the past.
pub(crate) fn write_at(path: &Path, content: impl AsRef<[u8]>, seconds: u64) {
    fs::write(path, content).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn serve(mut stream: TcpStream, www: &Path, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let target = head.first()?.split(' ').nth(1)?.trim_start_matches('/').to_owned();
        let field = |wanted: &str| {
            head.iter().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
            })
        };
        let path = levada_fetch::manifest::decoded(&target)?;
        let path = www.join(std::ffi::OsString::from_vec(path));
        let Ok(bytes) = fs::read(path) else {
            log.lock().unwrap().push(format!("{target} 404"));
            stream.write_all(b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n").ok()?;
            continue;
        };
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let tag: String = digest.as_ref()[..8].iter().map(|b| format!("{b:02x}")).collect();
        let tag = format!("\"{tag}\"");
        if field("if-none-match") == Some(tag.clone()) {
            log.lock().unwrap().push(format!("{target} 304"));
            stream.write_all(format!("HTTP/1.1 304 N\r\nETag: {tag}\r\n\r\n").as_bytes()).ok()?;
            continue;
        }
        log.lock().unwrap().push(target);
        let range = field("range").and_then(|range| {
            let (start, last) = range.strip_prefix("bytes=")?.split_once('-')?;
            let end = last.parse().map_or(bytes.len(), |last: usize| (last + 1).min(bytes.len()));
            Some((start.parse::<usize>().ok()?, end))
        });
        let (status, part) = match range {
            None => ("200 OK".to_owned(), &bytes[..]),
            Some((start, end)) => {
                let told = format!("bytes {start}-{}/{}", end - 1, bytes.len());
                (format!("206 P\r\nContent-Range: {told}"), &bytes[start..end])
            }
        };
        let length = part.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: {tag}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), part].concat()).ok()?;
    }
}
