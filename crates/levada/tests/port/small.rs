//! Small configurations, at nginx and converted at Levada: what `levada convert` calls alike is answered alike, and
//! what is not alike is said.

use std::{fs, path::Path};

use crate::{
    echo, fronts,
    pair::{Asked, compared},
};

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
    alike(
        r#"location = /ip { return 200 "you are $remote_addr at $host$request_uri"; }"#,
        &[("GET", "/ip?x=y", None), ("HEAD", "/ip", None)],
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
    alike("location / { proxy_pass http://ORIGIN; }", &[("GET", "/moved/x", None)]),
    alike(
        "location / { return 404; } location /one/ { proxy_pass http://ORIGIN/two/; }",
        &[("GET", "/one/own/x", None), ("GET", "/one/moved/x", None)],
    ),
    alike(
        "location / { PASS proxy_redirect http://elsewhere.example.com/ /here/; }",
        &[("GET", "/moved/x", None)],
    ),
    alike(
        "location / { PASS proxy_redirect ~^http://(\\w+)\\.example\\.com/(.*)$ /$1/$2; }",
        &[("GET", "/moved/x", None)],
    ),
    alike(
        "location / { PASS proxy_cookie_domain app.internal www.example.com; proxy_cookie_path /in/ /; }",
        &[("GET", "/cookie/x", None)],
    ),
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
    // Internal redirects.
    alike(
        "location / { return 404; } location /old/ { rewrite ^/old/(.*)$ /new/$1 last; } location /new/ { PASS }",
        &[("GET", "/old/a?b=c", None), ("GET", "/new/x", None), ("GET", "/older", None)],
    ),
    Small {
        server: "location / { PASS error_page 404 = @app; error_page 500 =202 @app; proxy_intercept_errors on; } \
            location @app { return 200 app; }",
        alike: &[("GET", "/404/x", None), ("GET", "/500/x", None), ("GET", "/a", None)],
        said: Some("its media type is `default_type`"),
    },
    Small {
        server: "root ROOT; include /etc/nginx/mime.types; location / { try_files $uri $uri/ @app; } location @app { PASS }",
        alike: &[("GET", "/a.css", None), ("GET", "/nowhere?x=y", None)],
        said: Some("names that begin with a dot"),
    },
    Small {
        server: "include /etc/nginx/mime.types; location / { PASS } location /f/ { alias ROOT/; }",
        alike: &[("GET", "/f/a.css", None), ("GET", "/f/none", None), ("GET", "/a", None)],
        said: Some("names that begin with a dot"),
    },
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

fn furnish(root: &Path) {
    fs::create_dir(root).unwrap();
    for name in ["app.js", "a.css", "a.html"] {
        fs::write(root.join(name), "a { color: black } ".repeat(100)).unwrap();
    }
    fs::write(root.join("users"), "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n").unwrap();
}

#[test]
fn what_is_called_alike_is_answered_alike_and_all_else_is_said() {
    if !fronts::nginx_is_here() {
        return;
    }
    let origin = echo::start("", &["accept-encoding", "host", "x-a"]);
    let mut wrong = String::new();
    let mut number = 0;
    for small in SMALL {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        furnish(&root);
        let server = small
            .server
            .replace("PASS", PASS)
            .replace("ORIGIN", &origin.to_string())
            .replace("ROOT", &root.display().to_string());
        let server = format!("server {{ listen 80; server_name www.example.com;\n{server} }}");
        let account = compared(directory.path(), &server, small.alike);
        let code = if small.said.is_some() { 1 } else { 0 };
        if account.code != Some(code)
            || !small.said.is_none_or(|said| account.report.contains(said))
            || !account.differences.is_empty()
        {
            let (report, found) = (&account.report, &account.differences);
            wrong += &format!("{}\n  exit {:?}\n{report}{found}", small.server, account.code);
        }
        number += small.alike.len();
    }
    println!("{number} responses were compared");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(number >= 25, "{number}");
}
