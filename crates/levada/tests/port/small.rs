//! Small configurations, at nginx and converted at Levada: what `levada convert` calls alike is answered alike, and
//! what is not alike is said.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread,
};

use crate::{
    client::{self, Body, Request, Response},
    fronts,
};

/// A request: method, target, and a field.
type Asked = (&'static str, &'static str, Option<(&'static str, &'static str)>);

/// A server's block, `ORIGIN` for a server that says what it was asked, `ROOT` for a directory with files.
struct Small {
    server: &'static str,
    /// Requests that are answered alike.
    alike: &'static [Asked],
    /// A part of the account, where the whole is not alike.
    said: Option<&'static str>,
}

const fn alike(server: &'static str, alike: &'static [Asked]) -> Small {
    Small { server, alike, said: None }
}

const fn said(server: &'static str, said: &'static str) -> Small {
    Small { server, alike: &[], said: Some(said) }
}

const PASS: &str = "proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; proxy_pass http://ORIGIN;";

const SMALL: &[Small] = &[
    // Fixed responses.
    alike(
        r#"location = /braces { default_type application/json; return 200 "{\"a\": {\"b\": 1}}"; }
           location = /page.html { return 200 "<p>"; } location = /text { return 404 "no such {thing}"; }"#,
        &[
            ("GET", "/braces", None),
            ("GET", "/page.html", None),
            ("HEAD", "/text", None),
            ("GET", "/text", None),
        ],
    ),
    alike(
        r#"set $word up; location = /set { return 200 "it is ${word}"; } location = /gone { return 410; }"#,
        &[("GET", "/set", None), ("GET", "/gone", None)],
    ),
    said(
        r#"location / { return 200 "you are $remote_addr"; }"#,
        "a fixed response has no variables",
    ),
    said(r#"location / { return 200 "ok"; }"#, "its media type is `default_type`"),
    said("location / { return 444; }", "a connection is not closed"),
    said("location / { return 301 www.example.org/x; }", "a redirect leads to a URL"),
    // Servers behind it.
    alike(
        "location / { PASS }",
        &[
            ("GET", "/a?b=c", None),
            ("HEAD", "/a", None),
            ("POST", "/a", Some(("X-A", "b"))),
            ("GET", "/hidden", None),
        ],
    ),
    alike(
        "location / { return 404; } location /img/ { PASS }",
        &[
            ("GET", "/img/a", None),
            ("GET", "/img", None),
            ("GET", "/img?x=y", None),
            ("GET", "/imgx", None),
        ],
    ),
    alike(
        "location / { return 404; } location /img/ { PASS } location /img { return 403; }",
        &[("GET", "/img/a", None), ("GET", "/img", None)],
    ),
    alike(
        "location / { PASS proxy_set_header Accept-Encoding \"\"; }",
        &[("GET", "/a", Some(("Accept-Encoding", "gzip")))],
    ),
    alike("location / { PASS }", &[("GET", "/a", Some(("Accept-Encoding", "gzip")))]),
    alike("location / { PASS }", &[("POST", "/too-large", None)]),
    alike("location / { client_max_body_size 0; PASS }", &[("POST", "/too-large", None)]),
    alike(
        "location / { return 404; } location /old/ { rewrite ^/old/(.*)$ /new/$1? break; PASS }",
        &[("GET", "/old/a?b=c", None), ("GET", "/old/a", None)],
    ),
    alike(
        "location / { return 404; } location /old/ { rewrite ^/old/(.*)$ /new/$1 break; PASS }",
        &[("GET", "/old/a?b=c", None)],
    ),
    said(
        "location / { return 404; } location /old/ { rewrite ^/old/(.*)$ /new?q=$1 break; PASS }",
        "the query of the client is not added",
    ),
    said(
        "location / { rewrite ^/a(.*)$ /b$1; rewrite ^/b(.*)$ /c$1; PASS }",
        "the next `rewrite` would look",
    ),
    said("location / { proxy_pass http://ORIGIN; }", "redirects of the server to its own name"),
    said(
        "location / { PASS proxy_next_upstream error http_502; }",
        "is not asked after `http_502`",
    ),
    said("location / { PASS expires 1h; }", "on errors, too"),
    said(
        "location / { PASS auth_basic x; auth_basic_user_file ROOT/users; }",
        "does not get the password",
    ),
    said("location / { PASS } location /in { internal; }", "X-Accel-Redirect"),
    // Fields of responses.
    alike(
        "location / { add_header X-A outer always; if ($request_method = OPTIONS) { add_header X-A inner always; return 204; } PASS }",
        &[("OPTIONS", "/a", None), ("GET", "/a", None)],
    ),
    alike(
        "add_header X-A outer always; location / { PASS } location = /in { add_header X-B inner always; PASS }",
        &[("GET", "/a", None), ("GET", "/in", None)],
    ),
    // Files.
    Small {
        server: "root ROOT; gzip on; gzip_types application/javascript text/css; include /etc/nginx/mime.types;",
        alike: &[
            ("GET", "/app.js", Some(("Accept-Encoding", "gzip"))),
            ("GET", "/a.css", Some(("Accept-Encoding", "gzip"))),
            ("GET", "/a.html", None),
        ],
        said: Some("names that begin with a dot"),
    },
    said("root ROOT; types { text/odd odd; }", "write `types` of `files`"),
    said("root ROOT; default_type text/odd;", "files of an unknown type"),
    said("root ROOT; error_page 404 /nowhere.html;", "cannot be used as it stands"),
];

/// Fields that are compared.
const FIELDS: [&str; 10] = [
    "cache-control",
    "content-encoding",
    "content-type",
    "expires",
    "server",
    "vary",
    "x-a",
    "x-accel-expires",
    "x-b",
    "x-pad",
];

/// A server that says what it was asked, in a text.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut text = String::new();
    reader.read_line(&mut text).ok()?;
    let is_head = text.starts_with("HEAD");
    let mut body = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let name = name.to_ascii_lowercase();
        if name == "content-length" {
            body = value.trim().parse().ok()?;
        }
        if ["accept-encoding", "host", "x-a", "x-forwarded-for"].contains(&name.as_str()) {
            text += &format!("{name}:{value}\n");
        }
    }
    let mut whole = vec![0; body];
    std::io::Read::read_exact(&mut reader, &mut whole).ok()?;
    text = text.replace("HTTP/1.0", "").replace("HTTP/1.1", "");
    // The order of fields is that of each program.
    let mut lines: Vec<_> = text.lines().map(str::trim).collect();
    lines[1..].sort_unstable();
    let text = format!("{}\n{body}", lines.join("\n"));
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: inner\r\nX-Accel-Expires: 9\r\nX-Pad: x\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let text = if is_head { String::new() } else { text };
    stream.write_all((head + &text).as_bytes()).ok()
}

fn configuration(small: &Small, root: &Path, origin: SocketAddr, client: SocketAddr) -> String {
    let server = small
        .server
        .replace("PASS", PASS)
        .replace("ORIGIN", &origin.to_string())
        .replace("ROOT", &root.display().to_string());
    format!(
        "events {{ }}\nhttp {{\nserver {{ listen {client}; server_name www.example.com;\n{server} }} }}\n"
    )
}

fn furnish(root: &Path) {
    fs::create_dir(root).unwrap();
    for name in ["app.js", "a.css", "a.html"] {
        fs::write(root.join(name), "a { color: black } ".repeat(100)).unwrap();
    }
    fs::write(root.join("users"), "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n").unwrap();
}

/// A field, without what `README.md` says of every new file.
fn field(response: &Response, name: &str) -> String {
    let value = response.field(name).to_ascii_lowercase();
    match name {
        // nginx names itself, a node does not.
        "server" => value.replace("nginx/", "").chars().filter(char::is_ascii_alphabetic).collect(),
        "content-type" => {
            let value = value.replace("; charset=utf-8", "").replace(";charset=utf-8", "");
            value.replace("application/javascript", "text/javascript")
        }
        // nginx leaves it out without gzip_vary.
        "vary" => String::new(),
        _ => value,
    }
}

/// `/a` of `http://www.example.com:80/a`.
fn location(response: &Response) -> String {
    let value = response.field("location");
    match value.strip_prefix("http://www.example.com") {
        Some(rest) => rest[rest.find('/').unwrap_or(0)..].to_owned(),
        None => value,
    }
}

fn differences(nginx: &Response, levada: &Response) -> Vec<String> {
    let is_own_page = nginx.body.windows(13).any(|part| part == b"<hr><center>n");
    let mut found = Vec::new();
    let mut compare = |name: &str, one: String, other: String| {
        if one != other {
            found.push(format!("{name}: nginx {one:?}, Levada {other:?}"));
        }
    };
    compare("status", nginx.status.to_string(), levada.status.to_string());
    compare("location", location(nginx), location(levada));
    if !is_own_page && nginx.status != 204 {
        let text = |response: &Response| String::from_utf8_lossy(&response.body).into_owned();
        compare("body", text(nginx), text(levada));
    }
    let is_own = is_own_page || nginx.status == 204;
    for name in FIELDS.into_iter().filter(|name| !is_own || name.starts_with("x-")) {
        compare(name, field(nginx, name), field(levada, name));
    }
    found
}

fn send(front: &fronts::Front, root: &Path, (method, target, with): Asked) -> Response {
    let body = match (method, target) {
        ("POST", "/too-large") => Body::Sized(2 << 20),
        ("POST", _) => Body::Sized(3),
        _ => Body::None,
    };
    let fields = with.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    let request =
        Request { name: target, tls: false, host: "www.example.com", method, target, fields, body };
    client::send(&request, front.addresses, root)
}

#[test]
fn what_is_called_alike_is_answered_alike_and_all_else_is_said() {
    if !fronts::nginx_is_here() {
        return;
    }
    let origin = origin();
    let mut wrong = String::new();
    let mut compared = 0;
    for small in SMALL {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let root = directories[0].path().join("root");
        furnish(&root);
        let of = |clients: [SocketAddr; 2]| configuration(small, &root, origin, clients[0]);
        let account = fronts::convert(directories[1].path(), &of);
        let code = if small.said.is_some() { 1 } else { 0 };
        if account.code != Some(code)
            || !small.said.is_none_or(|said| account.report.contains(said))
        {
            wrong += &format!("{}\n  exit {:?}\n{}", small.server, account.code, account.report);
            continue;
        }
        if small.alike.is_empty() {
            continue;
        }
        let nginx = fronts::nginx(directories[0].path(), &of);
        let levada = fronts::levada(directories[1].path());
        for asked in small.alike {
            let (method, target, with) = asked;
            let [one, other] = [&nginx, &levada].map(|front| send(front, &root, *asked));
            for found in differences(&one, &other) {
                wrong += &format!("{}\n  {method} {target} {with:?}: {found}\n", small.server);
            }
            compared += 1;
        }
    }
    println!("{compared} answers were compared");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared >= 25, "{compared}");
}
