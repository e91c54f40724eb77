//! The configuration that a newcomer brings, at nginx and converted at Levada: both get the same requests, in front
//! of the same origins, and answer alike but for the differences that are meant.

mod client;
mod echo;
mod fronts;
mod origin;
mod others;
mod pair;
mod random;
mod small;

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use client::{Body, Request, Response};

/// Fields that are compared.
const FIELDS: [&str; 17] = [
    "accept-ranges",
    "allow",
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "location",
    "retry-after",
    "set-cookie",
    "vary",
    "www-authenticate",
    "x-frame-options",
    "x-powered-by",
    "upgrade",
];

/// Differences that are meant: requests by their names, `*` at the end for all that begin so; fields, `status`,
/// `body`, or `*` for all of these; and the reason.
const MEANT: &[(&str, &[&str], &str)] = &[
    ("plain text*", PAGE, OWN_PAGES),
    ("redirect*", PAGE, OWN_PAGES),
    ("the second host in plain text", PAGE, OWN_PAGES),
    ("an unknown host", PAGE, OWN_PAGES),
    ("range beyond", PAGE, OWN_PAGES),
    ("range beyond", &["x-frame-options"], "nginx adds the field of a 416 twice"),
    ("body beyond the limit", PAGE, OWN_PAGES),
    ("body in chunks beyond the limit", PAGE, OWN_PAGES),
    ("staff with*", PAGE, OWN_PAGES),
    ("too many*", PAGE, OWN_PAGES),
    ("body*", &["cache-control"], NOT_STORED),
    ("staff with*", &["cache-control"], NOT_STORED),
    ("too many*", &["cache-control"], NOT_STORED),
    ("too many*", &["retry-after"], "nginx does not say when a client may come again"),
    (
        "staff with*",
        &["www-authenticate"],
        "Levada states the character set of passwords (RFC 7617)",
    ),
    ("redirect*", &["location"], "nginx makes paths absolute, with its port; RFC 9110 allows both"),
    ("range*", &["accept-ranges"], "nginx leaves the field out of 206 and 304"),
    ("known*", &["accept-ranges"], "nginx leaves the field out of 206 and 304"),
    ("coded*", &["accept-ranges"], "ranges of a stored coding are served"),
    ("coded*", &["etag"], "each coding has a tag of its own, so that caches tell them apart"),
    ("coded*", &["vary"], VARY),
    ("not coded*", &["vary"], VARY),
    (
        "the second host",
        &["body"],
        "nginx sends X-Forwarded-For where it is told to; Levada always",
    ),
    ("WebSocket", &["*"], "WebSocket is not there; `convert` says so"),
    ("origin is down*", &["content-type"], CHARSET),
    ("origin is down*", &["etag"], "the tag of the page's file does not stand for the error"),
    ("origin is down*", &["cache-control"], NOT_STORED),
    ("origin is down*", &["retry-after"], "nginx does not say when a client may come again"),
    ("error page itself", &["content-type"], CHARSET),
    ("error page itself", &["etag"], TAG),
    ("file, POST", PAGE, OWN_PAGES),
    ("file, POST", &["allow"], "nginx leaves out the field; RFC 9110 demands it"),
    ("file, missing", PAGE, OWN_PAGES),
    ("file with*", FILE, "segments that begin with a dot are not served"),
    ("file, range", &["accept-ranges"], "nginx leaves the field out of 206 and 304"),
    ("file, known by date", &["accept-ranges"], "nginx leaves the field out of 206 and 304"),
    (
        "file, a later date",
        &["status", "body", "content-type"],
        "nginx compares dates for equality; RFC 9110 knows later ones",
    ),
    ("file, coded", &["vary"], VARY),
    ("file*", &["content-type"], CHARSET),
    ("file*", &["etag"], TAG),
    ("directory with an index", &["content-type"], CHARSET),
    ("directory with an index", &["etag"], TAG),
    ("directory without*", PAGE, OWN_PAGES),
    ("directory without a slash", &["location"], "Levada's is relative to the URL of the client"),
    ("directory without an index", &["status"], "nginx refuses a list; Levada has none to refuse"),
    ("traversal*", FILE, OUTSIDE),
    ("traversal*", &["x-frame-options"], OUTSIDE),
];

const FILE: &[&str] = &["status", "body", "content-type", "etag", "last-modified", "accept-ranges"];
const OUTSIDE: &str = "nginx refuses the path; in normal form it is outside the directory, and the site's origin is asked";
const CHARSET: &str = "Levada states the character set of texts";
const TAG: &str = "each program makes tags in its own way";
const PAGE: &[&str] = &["body", "content-type"];
const OWN_PAGES: &str = "each program has its own texts for redirects and refusals";
const NOT_STORED: &str = "refusals of a node are not to be stored by others";
const VARY: &str = "nginx leaves the field out without gzip_vary, and caches mix up codings";

fn request(name: &'static str, target: &'static str) -> Request {
    Request {
        name,
        tls: true,
        host: "www.example.com",
        method: "GET",
        target,
        fields: Vec::new(),
        body: Body::None,
    }
}

impl Request {
    fn by(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    fn body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    fn at(self, host: &'static str) -> Self {
        Self { host, ..self }
    }

    fn plain(self) -> Self {
        Self { tls: false, ..self }
    }
}

/// The requests, in the order in which they are sent.
fn requests() -> Vec<Request> {
    let pages = [
        request("plain text", "/").plain(),
        request("plain text with a query", "/a/b?c=d&e=%20f").plain(),
        request("plain text, HEAD", "/a").by("HEAD").plain(),
        request("plain text, POST", "/a").by("POST").body(Body::Sized(3)).plain(),
        request("page", "/"),
        request("page with a query", "/page?a=1&b=2"),
        request("page with escapes", "/p%C3%A4ge/%7Euser/a%2Fb?q=%26"),
        request("page with two slashes", "//page//x"),
        request("page again", "/page?a=1&b=2"),
        request("count", "/count"),
        request("count, from the cache", "/count"),
        request("count, another key", "/count?x"),
        request("HEAD before GET", "/head").by("HEAD"),
        request("GET after HEAD", "/head"),
        request("HEAD after GET", "/head").by("HEAD"),
        request("page of a host in capitals", "/capitals").at("WWW.EXAMPLE.COM"),
    ];
    let conditions = [
        request("digits", "/digits"),
        request("range", "/digits").with("Range", "bytes=2-4"),
        request("range at the end", "/digits").with("Range", "bytes=-3"),
        request("range from", "/digits").with("Range", "bytes=7-"),
        request("range beyond", "/digits").with("Range", "bytes=50-"),
        request("range that is none", "/digits").with("Range", "lines=1-2"),
        request("known by tag", "/digits").with("If-None-Match", "\"7\""),
        request("known by a weak tag", "/digits").with("If-None-Match", "W/\"7\""),
        request("known by another tag", "/digits").with("If-None-Match", "\"8\""),
        request("known by date", "/digits").with("If-Modified-Since", origin::CHANGED),
        request("known before", "/digits")
            .with("If-Modified-Since", "Wed, 01 Jan 2025 00:00:00 GMT"),
        request("range of a known version", "/digits")
            .with("Range", "bytes=0-1")
            .with("If-Range", "\"7\""),
        request("range of another version", "/digits")
            .with("Range", "bytes=0-1")
            .with("If-Range", "\"8\""),
    ];
    let methods = [
        request("POST", "/form").by("POST").body(Body::Sized(10)),
        request("POST, empty", "/form").by("POST").body(Body::Sized(0)),
        request("POST in chunks", "/form").by("POST").body(Body::Chunked(10)),
        request("PUT", "/thing").by("PUT").body(Body::Sized(5)),
        request("PATCH", "/thing").by("PATCH").body(Body::Sized(5)),
        request("DELETE", "/thing").by("DELETE"),
        request("OPTIONS", "/page").by("OPTIONS"),
        request("body at the limit", "/form").by("POST").body(Body::Sized(64 << 10)),
        request("body beyond the limit", "/form").by("POST").body(Body::Sized((64 << 10) + 1)),
        request("body in chunks beyond the limit", "/form").by("POST").body(Body::Chunked(100_000)),
    ];
    let codings = [
        request("coded", "/text/2000.css").with("Accept-Encoding", "gzip"),
        request("coded again", "/text/2000.css").with("Accept-Encoding", "gzip"),
        request("coded, of several", "/text/2000.css").with("Accept-Encoding", "br, gzip;q=0.5"),
        request("not coded", "/text/2000.css"),
        request("not coded: refused", "/text/2000.css").with("Accept-Encoding", "gzip;q=0"),
        request("not coded: too small", "/text/100.css").with("Accept-Encoding", "gzip"),
        request("not coded: an image", "/text/2000.gif").with("Accept-Encoding", "gzip"),
        request("coded, HEAD", "/text/2000.css").by("HEAD").with("Accept-Encoding", "gzip"),
    ];
    let redirects = [
        request("redirect", "/old"),
        request("redirect with a query", "/old?x=1"),
        request("redirect, HEAD", "/old").by("HEAD"),
        request("redirect, POST", "/old").by("POST").body(Body::Sized(3)),
        request("redirect with captures", "/blog/12/hello-world"),
        request("no redirect", "/blog/twelve/hello"),
        request("no redirect: longer", "/old/er"),
    ];
    let others = [
        request("images", "/images/count.png"),
        request("images, not from the cache", "/images/count.png"),
        request("images, HEAD", "/images/x.png").by("HEAD"),
        request("API", "/api/count"),
        request("API, not from the cache", "/api/count"),
        request("API, POST", "/api/items?x=1").by("POST").body(Body::Sized(20)),
        request("API, range", "/api/echo").with("Range", "bytes=0-3"),
        request("the second host", "/logo.png").at("img.example.com"),
        request("the second host in plain text", "/logo.png").at("img.example.com").plain(),
        request("an unknown host", "/x").at("unknown.example").plain(),
        request("WebSocket", "/ws")
            .with("Connection", "upgrade, close")
            .with("Upgrade", "websocket"),
        request("missing at the origin", "/missing"),
        request("missing at the origin, HEAD", "/missing").by("HEAD"),
        request("failing at the origin", "/failing"),
        request("origin is down", "/reports/today"),
        request("origin is down, HEAD", "/reports/today").by("HEAD"),
        request("error page itself", "/sorry.html"),
    ];
    let basic = |pair: &str| format!("Basic {pair}");
    let staff = [
        request("staff without a password", "/staff/a"),
        request("staff with a wrong password", "/staff/a").with("Authorization", basic("YW5uOm5v")),
        request("staff with an unknown user", "/staff/a").with("Authorization", basic("Ym9iOm5v")),
        request("staff with nonsense", "/staff/a").with("Authorization", "Basic !"),
        request("staff with the password", "/staff/a").with("Authorization", basic("YW5uOnBhc3M=")),
        request("login 1", "/login").by("POST").body(Body::Sized(4)),
        request("login 2", "/login").by("POST").body(Body::Sized(4)),
        request("login 3", "/login"),
        request("login 4", "/login"),
        request("too many logins 1", "/login"),
        request("too many logins 2", "/login").by("POST").body(Body::Sized(4)),
    ];
    let files = [
        request("file", "/static/a.txt"),
        request("file, HEAD", "/static/a.txt").by("HEAD"),
        request("file, range", "/static/a.txt").with("Range", "bytes=2-4"),
        request("file, known by date", "/static/a.txt").with("If-Modified-Since", origin::CHANGED),
        request("file, a later date", "/static/a.txt")
            .with("If-Modified-Since", "Tue, 01 Jan 2097 00:00:00 GMT"),
        request("file, POST", "/static/a.txt").by("POST").body(Body::Sized(2)),
        request("file, coded", "/static/long.css").with("Accept-Encoding", "gzip"),
        request("file, missing", "/static/none.txt"),
        request("file with a dot", "/static/.hidden"),
        request("file with dots in its path", "/static/inner/../a.txt"),
        request("directory with an index", "/static/"),
        request("directory without a slash", "/static/inner"),
        request("directory without an index", "/static/inner/"),
        request("traversal", "/static/../../secret"),
        request("traversal, escaped", "/static/%2e%2e/%2e%2e/secret"),
        request("traversal, a slash escaped", "/static/..%2f..%2fsecret"),
    ];
    [
        Vec::from(pages),
        Vec::from(conditions),
        Vec::from(methods),
        Vec::from(codings),
        Vec::from(redirects),
        Vec::from(others),
        Vec::from(staff),
        Vec::from(files),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Certificates, users and files of both fronts.
fn furnish(directory: &Path) {
    for host in ["www", "img"] {
        let name = format!("{host}.example.com");
        let certified = rcgen::generate_simple_self_signed([name]).unwrap();
        let write = |end: &str, text: String| {
            fs::write(directory.join(format!("{host}.{end}")), text).unwrap();
        };
        write("pem", certified.cert.pem());
        write("key", certified.signing_key.serialize_pem());
    }
    let types = "types { text/html html; text/plain txt; text/css css; }";
    fs::write(directory.join("mime.types"), types).unwrap();
    // The password is "pass".
    fs::write(directory.join("htpasswd"), "ann:{SHA}nU4eI71bcnBGqeO0t9tXvY1u5oQ=\n").unwrap();
    for inner in ["srv/www/static/inner", "srv/errors", "cache"] {
        fs::create_dir_all(directory.join(inner)).unwrap();
    }
    for (file, text) in [
        ("srv/errors/sorry.html", "<p>We are sorry.</p>\n".to_owned()),
        ("srv/www/static/a.txt", "a file\n".to_owned()),
        ("srv/www/static/long.css", "a { color: black }\n".repeat(100)),
        ("srv/www/static/index.html", "<p>an index</p>\n".to_owned()),
        ("srv/www/static/.hidden", "hidden\n".to_owned()),
        ("srv/secret", "secret\n".to_owned()),
    ] {
        let file = directory.join(file);
        fs::write(&file, text).unwrap();
        // This is `origin::CHANGED`.
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        fs::File::options().write(true).open(file).unwrap().set_modified(changed).unwrap();
    }
}

/// The differences of two responses: the field, or `status` or `body`, with both values.
fn differences(nginx: &Response, levada: &Response) -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    if nginx.status != levada.status {
        found.push(("status", nginx.status.to_string(), levada.status.to_string()));
    }
    if nginx.body != levada.body {
        let text = |body: &[u8]| String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        found.push(("body", text(&nginx.body), text(&levada.body)));
    }
    for name in FIELDS {
        let (one, other) = (nginx.field(name), levada.field(name));
        if one != other {
            found.push((name, one, other));
        }
    }
    found
}

fn is_for(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[test]
fn a_converted_configuration_of_18_items_answers_as_nginx_does() {
    if !fronts::nginx_is_here() {
        return;
    }
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    directories.iter().for_each(|directory| furnish(directory.path()));
    // Certificates differ: each front has its own.
    let app = Default::default();
    let pool = [origin::start(&app), origin::start(&app)];
    let images = origin::start(&Default::default());
    let down = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let servers =
        [0, 1].map(|at| [pool[0].addresses[at], pool[1].addresses[at], images.addresses[at], down]);
    let of = |front: usize| {
        let (directory, servers) = (directories[front].path(), servers[front]);
        move |clients| fronts::configuration(directory, &servers, clients)
    };
    let nginx = fronts::nginx(directories[0].path(), &of(0));
    let account = fronts::convert(directories[1].path(), &of(1));
    let levada = fronts::levada(directories[1].path());

    let requests = requests();
    assert!(requests.len() >= 60);
    let ask = |front: &fronts::Front, directory: &Path| -> Vec<_> {
        requests.iter().map(|one| client::send(one, front.addresses, directory)).collect()
    };
    let by_nginx = ask(&nginx, directories[0].path());
    let by_levada = ask(&levada, directories[1].path());

    for (request, answer) in requests.iter().zip(&by_levada) {
        let leaves = is_for("traversal*", request.name) || request.name == "file with a dot";
        let files: [&[u8]; 2] = [b"secret\n", b"hidden\n"];
        assert!(!leaves || !files.contains(&&*answer.body), "{}: {answer:?}", request.name);
    }
    let mut unmeant = String::new();
    let mut met = vec![false; MEANT.len()];
    let mut alike = 0;
    for ((request, nginx), levada) in requests.iter().zip(&by_nginx).zip(&by_levada) {
        let found = differences(nginx, levada);
        alike += usize::from(found.is_empty());
        for (what, one, other) in found {
            let meant = MEANT.iter().position(|(name, fields, _)| {
                is_for(name, request.name) && (fields.contains(&what) || fields.contains(&"*"))
            });
            match meant {
                Some(at) => met[at] = true,
                None => {
                    unmeant += &format!(
                        "{} ({} {}): {what}: nginx {one:?}, Levada {other:?}\n",
                        request.name, request.method, request.target
                    );
                }
            }
        }
    }
    println!("{alike} of {} answers do not differ at all", requests.len());
    assert!(
        unmeant.is_empty(),
        "differences that are not meant:\n{unmeant}\nleft: {:#?}",
        account.left()
    );
    let unmet: Vec<_> = MEANT.iter().zip(met).filter(|(_, met)| !met).map(|(one, _)| one).collect();
    assert!(unmet.is_empty(), "these answers do not differ any more: {unmet:#?}");
}
