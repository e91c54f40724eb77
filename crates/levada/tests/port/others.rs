//! Small configurations of HAProxy and Caddy, at these programs and converted at Levada: the most common patterns of
//! each get the same requests, in front of the same two servers, and answer alike.

use std::{fs, net::SocketAddr, path::Path};

use crate::{
    echo,
    pair::{compared_with, line},
};

/// A request: method, host, target, and a field.
type Asked = (&'static str, &'static str, &'static str, Option<(&'static str, &'static str)>);

/// A configuration, its requests, and a part of the account where the whole is not alike.
struct Pattern {
    name: &'static str,
    text: &'static str,
    asked: &'static [Asked],
    said: Option<&'static str>,
}

const WWW: &str = "www.example.com";

const fn get(target: &'static str) -> Asked {
    ("GET", WWW, target, None)
}

const HAPROXY: &[Pattern] = &[
    Pattern {
        name: "hosts",
        text: "use_backend other if { hdr(host) -i img.example.com }\n use_backend other if { hdr_end(host) -i .cdn.example.com }",
        asked: &[
            get("/a?b=c"),
            ("GET", "img.example.com", "/a", None),
            ("GET", "IMG.example.com", "/a", None),
            ("GET", "x.cdn.example.com", "/a", None),
            ("GET", "cdn.example.com", "/a", None),
            ("POST", "img.example.com", "/a", None),
        ],
        said: None,
    },
    Pattern {
        name: "paths",
        text: "acl api path_beg /api\n acl deep path_beg /v1/\n acl image path_end .jpg .png\n use_backend other if api or deep\n use_backend other if image METH_GET",
        asked: &[
            get("/api"),
            get("/apix"),
            get("/api/a"),
            get("/v1"),
            get("/v1/"),
            get("/a.jpg"),
            get("/a.JPG"),
            get("/a.jpg?x"),
            ("POST", WWW, "/a.jpg", None),
            ("HEAD", WWW, "/a.png", None),
        ],
        said: None,
    },
    Pattern {
        name: "expressions and fields",
        text: "use_backend other if { path_reg ^/img/[0-9]+$ }\n use_backend other if { hdr(X-A) b }\n use_backend other if { req.hdr(X-B) -m found }\n use_backend other if { url_param(v) 2 }\n use_backend other if { cook(beta) on }",
        asked: &[
            get("/img/12"),
            get("/img/x"),
            ("GET", WWW, "/", Some(("X-A", "b"))),
            ("GET", WWW, "/", Some(("X-A", "a, b"))),
            ("GET", WWW, "/", Some(("X-A", "bc"))),
            ("GET", WWW, "/", Some(("X-B", "1"))),
            get("/?v=2"),
            get("/?v=3"),
            ("GET", WWW, "/", Some(("Cookie", "a=1; beta=on"))),
        ],
        said: None,
    },
    Pattern {
        name: "addresses",
        text: "http-request deny if { path_beg /lan } !{ src 10.0.0.0/8 }\n http-request deny if { path_beg /out } { src 127.0.0.0/8 }\n http-request deny deny_status 410 if { path /gone }\n http-request deny unless { method GET HEAD }",
        asked: &[get("/lan/a"), get("/out"), get("/gone"), get("/a"), ("POST", WWW, "/a", None)],
        said: None,
    },
    Pattern {
        name: "all addresses",
        text: "http-request deny unless { src 127.0.0.1 }\n http-request deny if { path_sub secret }",
        asked: &[get("/a"), get("/a/secret/b")],
        said: None,
    },
    Pattern {
        name: "fields",
        text: "http-request set-header X-A %[src]\n http-request add-header X-B from-%[req.hdr(X-C)]\n http-request set-header X-A special if { path_beg /s }\n http-response set-header X-Frame-Options DENY\n http-response del-header X-Powered-By",
        asked: &[
            get("/a"),
            get("/s"),
            ("GET", WWW, "/a", Some(("X-C", "c"))),
            ("GET", WWW, "/a", Some(("X-A", "forged"))),
        ],
        said: None,
    },
    Pattern {
        name: "redirects",
        text: "http-request redirect location /new code 301 if { path /old }\n http-request redirect prefix https://example.org code 302 if { path_beg /moved }\n http-request redirect scheme https code 301 if { path_beg /tls }\n redirect location https://%[hdr(host)]/x%[path] code 307 if { path_beg /there }",
        asked: &[
            get("/old"),
            get("/older"),
            get("/moved/a?b=c"),
            get("/tls/a?b"),
            get("/there/x"),
            ("HEAD", WWW, "/old", None),
        ],
        said: None,
    },
    Pattern {
        name: "fixed responses",
        text: "monitor-uri /up\n http-request return status 200 content-type text/plain string \"pong {1}\" if { path /ping }\n http-request return status 404 if { path_end .php }",
        asked: &[get("/up"), get("/ping"), get("/a.php"), get("/a")],
        said: None,
    },
    Pattern {
        name: "rewrites",
        text: "http-request replace-path ^/api/(.*) /\\1",
        asked: &[get("/api/a/b?c=d"), get("/api"), get("/a"), get("/x/api/a")],
        said: None,
    },
    Pattern {
        name: "rules in the order of the file",
        text: "http-request allow if { path_beg /open }\n http-request deny if { path_end .txt }\n http-request redirect location /b if { path_beg /a }\n use_backend other if { path_beg /open }",
        asked: &[get("/open/a.txt"), get("/a.txt"), get("/a"), get("/c")],
        said: None,
    },
    Pattern {
        name: "a map of paths",
        text: "use_backend %[path,map_beg(MAP,app)]",
        asked: &[get("/one/a"), get("/one/two"), get("/b")],
        said: None,
    },
    Pattern {
        name: "users",
        text: "http-request auth realm Staff if { path_beg /staff } !{ http_auth(staff) }",
        asked: &[get("/staff/a"), get("/a")],
        said: Some("write the user with a hash"),
    },
];

const CADDY: &[Pattern] = &[
    Pattern {
        name: "a proxy",
        text: "http://www.example.com:PORT {\n bind 127.0.0.1\n reverse_proxy ORIGIN\n}",
        asked: &[get("/a?b=c"), ("POST", WWW, "/a", None), ("HEAD", WWW, "/a", None)],
        said: None,
    },
    Pattern {
        name: "hosts",
        text: "http://www.example.com:PORT {\n bind 127.0.0.1\n reverse_proxy ORIGIN\n}\nhttp://img.example.com:PORT, http://*.cdn.example.com:PORT {\n bind 127.0.0.1\n reverse_proxy OTHER\n}",
        asked: &[
            get("/a"),
            ("GET", "img.example.com", "/a", None),
            ("GET", "IMG.example.com", "/a", None),
            ("GET", "x.cdn.example.com", "/a", None),
        ],
        said: None,
    },
    Pattern {
        name: "handles",
        text: ":PORT {\n bind 127.0.0.1\n handle /api/* {\n reverse_proxy OTHER\n }\n handle /api/own/* {\n respond own 200\n }\n handle {\n reverse_proxy ORIGIN\n }\n}",
        asked: &[
            get("/api"),
            get("/api/a"),
            get("/API/a"),
            get("/api/own/x"),
            get("/b"),
            get("/%61pi/a"),
        ],
        said: None,
    },
    Pattern {
        name: "a path that is removed",
        text: ":PORT {\n bind 127.0.0.1\n handle_path /api/* {\n reverse_proxy OTHER\n }\n handle {\n reverse_proxy ORIGIN\n }\n}",
        asked: &[get("/api/a/b?c=d"), get("/api/"), get("/api"), get("/a")],
        said: None,
    },
    Pattern {
        name: "matchers",
        text: ":PORT {\n bind 127.0.0.1\n @write method POST PUT\n @img path *.jpg *.png\n @beta {\n header X-B *\n path /b*\n }\n @re path_regexp ^/n/[0-9]+$\n @q query v=2\n reverse_proxy @write OTHER\n reverse_proxy @img OTHER\n reverse_proxy @beta OTHER\n reverse_proxy @re OTHER\n reverse_proxy @q OTHER\n reverse_proxy ORIGIN\n}",
        asked: &[
            ("POST", WWW, "/a", None),
            get("/a.jpg"),
            get("/a.JPG"),
            get("/b"),
            ("GET", WWW, "/bx", Some(("X-B", "1"))),
            ("GET", WWW, "/c", Some(("X-B", "1"))),
            get("/n/12"),
            get("/n/x"),
            get("/?v=2"),
            get("/?v=3"),
        ],
        said: None,
    },
    Pattern {
        name: "addresses",
        text: ":PORT {\n bind 127.0.0.1\n @out {\n path /lan/*\n not remote_ip 10.0.0.0/8\n }\n respond @out 403\n @own remote_ip 127.0.0.0/8\n respond @own \"own\" 200\n reverse_proxy ORIGIN\n}",
        asked: &[get("/lan/a"), get("/a")],
        said: None,
    },
    Pattern {
        name: "fields",
        text: ":PORT {\n bind 127.0.0.1\n header X-Frame-Options DENY\n header /s/* X-A special\n header -X-Powered-By\n request_header X-B from-{remote_host}\n reverse_proxy ORIGIN {\n header_up X-C {method}\n }\n}",
        asked: &[get("/a"), get("/s/a"), ("GET", WWW, "/a", Some(("X-B", "forged")))],
        said: None,
    },
    Pattern {
        name: "redirects",
        text: ":PORT {\n bind 127.0.0.1\n redir /old /new 301\n redir /moved/* https://example.org{uri} permanent\n redir /there https://{host}/x temporary\n reverse_proxy ORIGIN\n}",
        asked: &[
            get("/old"),
            get("/older"),
            get("/moved/a?b=c"),
            get("/there"),
            ("HEAD", WWW, "/old", None),
        ],
        said: None,
    },
    Pattern {
        name: "fixed responses",
        text: ":PORT {\n bind 127.0.0.1\n respond /ping \"pong\" 200\n respond /gone 410\n error /hidden* 404\n reverse_proxy ORIGIN\n}",
        asked: &[get("/ping"), get("/gone"), get("/hidden/a"), get("/a")],
        said: None,
    },
    Pattern {
        name: "rewrites",
        text: ":PORT {\n bind 127.0.0.1\n @user path_regexp user ^/user/([0-9]+)$\n rewrite @user /profile?id={re.user.1}\n reverse_proxy ORIGIN\n}",
        asked: &[get("/user/12"), get("/user/x"), get("/a?b=c")],
        said: Some("matchers of the directives behind it"),
    },
    Pattern {
        name: "files",
        text: ":PORT {\n bind 127.0.0.1\n root * ROOT\n encode gzip\n file_server\n}",
        asked: &[
            get("/"),
            get("/a.txt"),
            get("/sub/"),
            get("/none"),
            ("GET", WWW, "/a.txt", Some(("Accept-Encoding", "gzip"))),
        ],
        said: Some("names that begin with a dot"),
    },
    Pattern {
        name: "an application of one page",
        text: ":PORT {\n bind 127.0.0.1\n root * ROOT\n try_files {path} /index.html\n file_server\n}",
        asked: &[get("/a.txt"), get("/some/page")],
        said: Some("names that begin with a dot"),
    },
    Pattern {
        name: "users",
        text: ":PORT {\n bind 127.0.0.1\n basicauth /staff/* bcrypt Staff {\n ann JDJhJDE0JGlIRi93bWNUMk1RSENnb3BGZVJHSy5vQ3pDYkRUbC5GSzVNeUdIYWlXbnZJenhPZHpPR1hT\n }\n reverse_proxy ORIGIN\n}",
        asked: &[get("/staff/a"), get("/a")],
        said: Some("and the hash into users.htpasswd"),
    },
];

/// The two servers, and the directory of a test.
struct World<'a> {
    servers: [SocketAddr; 2],
    root: &'a Path,
}

impl World<'_> {
    fn fill(&self, text: &str) -> String {
        text.replace("CLIENT", "*:80")
            .replace("PORT", "80")
            .replace("ORIGIN", &self.servers[0].to_string())
            .replace("OTHER", &self.servers[1].to_string())
            .replace("MAP", &self.root.join("paths.map").display().to_string())
            .replace("ROOT", &self.root.join("www").display().to_string())
    }

    fn haproxy(&self, pattern: &Pattern) -> String {
        let text = format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 9s\n timeout server 9s\n\
             userlist staff\n user ann insecure-password pass\n\
             frontend web\n bind CLIENT\n {}\n default_backend app\n\
             backend app\n server a ORIGIN\nbackend other\n server b OTHER\n",
            pattern.text
        );
        // No warning of a list that nothing names.
        let text = match pattern.text.contains("http_auth") {
            true => text,
            false => text.replace("userlist staff\n user ann insecure-password pass\n", ""),
        };
        self.fill(&text)
    }
}

/// A configuration of Caddy.
fn caddy(world: &World<'_>, pattern: &Pattern) -> String {
    let options = "{\n admin off\n auto_https off\n}\n";
    world.fill(&format!("{options}{}\n", pattern.text))
}

/// Compares a server with the node that its converted configuration makes.
fn compare(former: &str, patterns: &[Pattern], text: &dyn Fn(&World<'_>, &Pattern) -> String) {
    let servers = ["one", "two"].map(|name| echo::start(name, &["host", "x-a", "x-b", "x-c"]));
    let (mut wrong, mut number) = (String::new(), 0);
    for pattern in patterns {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("www/sub")).unwrap();
        fs::write(root.join("www/index.html"), "<p>index</p>").unwrap();
        fs::write(root.join("www/a.txt"), "a text\n".repeat(200)).unwrap();
        fs::write(root.join("www/sub/index.html"), "<p>below</p>").unwrap();
        fs::write(root.join("paths.map"), "/one other\n/one/two app\n").unwrap();
        // The users that the account asks for.
        for name in ["staff.htpasswd", "users.htpasswd"] {
            fs::write(root.join(name), "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n").unwrap();
        }
        let of = |&(method, host, target, with): &Asked| line(method, host, target, with);
        let list: String = pattern.asked.iter().map(of).collect();
        let account = compared_with(former, root, &text(&World { servers, root }, pattern), &list);
        let code = if pattern.said.is_some() { 1 } else { 0 };
        let has_said = pattern.said.is_none_or(|said| account.report.contains(said));
        if account.code != Some(code) || !has_said || !account.differences.is_empty() {
            let (report, found) = (&account.report, &account.differences);
            wrong += &format!("{}: exit {:?}\n{report}{found}", pattern.name, account.code);
        }
        number += pattern.asked.len();
    }
    println!("{number} responses of {} configurations were compared", patterns.len());
    assert!(wrong.is_empty(), "{wrong}");
    assert!(patterns.len() >= 10 && number >= 40, "{number}");
}

#[test]
fn haproxy_and_the_node_that_its_configuration_becomes_answer_alike() {
    if !levada_skip::lacks("haproxy", "haproxy") {
        compare("haproxy", HAPROXY, &|world, pattern| world.haproxy(pattern));
    }
}

#[test]
fn caddy_and_the_node_that_its_configuration_becomes_answer_alike() {
    if !levada_skip::lacks("caddy", "caddy") {
        compare("caddy", CADDY, &caddy);
    }
}
