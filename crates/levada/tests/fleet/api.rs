//! The orders over HTTP, by curl and tar as a pipeline would.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    Process, wait,
    world::{Fleet, origin, stderr, stdout},
};

struct Api {
    _process: Process,
    url: String,
    /// The token of the administrator.
    admin: String,
    archive: PathBuf,
}

struct Answer {
    status: u16,
    tag: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The last of the lines.
    fn outcome(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        let last = self.text.trim_end().lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Api {
    /// `None` if there is no curl.
    fn start(fleet: &Fleet) -> Option<Self> {
        if levada_skip::lacks("curl", "curl") {
            return None;
        }
        let mut serve = fleet.command(&["serve", "--listen", "127.0.0.1:0"]);
        let mut process = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().trim_end_matches('/').to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{line}");
        let admin = fs::read_to_string(fleet.machines[0].home.join("admin.token")).unwrap();
        let archive = fleet.root.path().join("archive");
        Some(Self { _process: Process(process), url, admin: admin.trim().to_owned(), archive })
    }

    fn ask(&self, token: &str, order: &str, more: &[&str]) -> Answer {
        let (method, path) = order.split_once(' ').unwrap();
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-i", "-X", method, "-H", &format!("Authorization: Bearer {token}")]);
        let output = curl.args(more).arg(format!("{}{path}", self.url)).output().unwrap();
        answer(&stdout(&output))
    }

    /// Sends the files of a directory.
    fn send(&self, token: &str, order: &str, directory: &Path, more: &[&str]) -> Answer {
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(directory).arg("-czf").arg(&self.archive).arg(".");
        assert!(tar.status().unwrap().success());
        let body = format!("@{}", self.archive.display());
        self.ask(token, order, &[&["--data-binary", &body], more].concat())
    }
}

fn answer(text: &str) -> Answer {
    // An answer may follow `100 Continue`.
    let text = text.rfind("HTTP/1.1 ").map_or(text, |at| &text[at..]);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
    Answer { status, tag: tag.to_owned(), text: body.to_owned() }
}

fn takes_orders(fleet: &Fleet) {
    let Some(api) = Api::start(fleet) else { return };
    let admin = |order, more: &[&str]| api.ask(&api.admin, order, more);
    let send = |order, more: &[&str]| api.send(&api.admin, order, &fleet.directory(), more);
    assert_eq!(api.ask("x", "GET /v1/status", &[]).status, 401);
    assert_eq!(admin("GET /v1/nothing", &[]).status, 404);
    assert_eq!(admin("PATCH /v1/tokens", &[]).status, 405);
    assert_eq!(admin("GET /v1/status", &[]).tag, "\"0\"");

    fleet.serve(origin("200 OK", "one"));
    let applied = send("POST /v1/apply?at_once&timeout=60s&note=first", &[]).outcome();
    assert_eq!(applied["outcome"]["everywhere"], json!({ "number": 1, "nodes": 2 }), "{applied}");
    fleet.wait_for(&["one", "one"]);
    let status = admin("GET /v1/status", &[]);
    assert_eq!(status.json()["head"], 1);
    assert_eq!(status.json()["nodes"][0]["condition"], "active", "{}", status.text);

    // A mistake is shown where it was written, and changes nothing.
    fleet.write("sites/www.toml", "[[site]]\nhosts = \"*\"\n\norigins = \"http://127.0.0.1:9\"\n");
    let refused = send("POST /v1/apply", &[]);
    assert_eq!(refused.status, 422, "{}", refused.text);
    let problem = &refused.json()["problems"][1];
    assert_eq!((&problem["file"], &problem["line"]), (&json!("sites/www.toml"), &json!(4)));
    assert_eq!(problem["nodes"], json!(["eu-1", "us-1"]));
    assert_eq!(admin("POST /v1/apply", &["--data-binary", "no tar"]).status, 422);
    assert_eq!(admin("POST /v1/apply?hodl=1s", &["--data-binary", ""]).status, 400);

    fleet.serve(origin("200 OK", "two"));
    let diff = send("POST /v1/diff", &[]);
    assert_eq!(diff.json()["files"], json!([{ "change": "changed", "path": "sites/www.toml" }]));
    assert_eq!(diff.json()["settings"][0]["what"], "site *", "{}", diff.text);
    let old = send("POST /v1/apply?at_once", &["-H", "If-Match: \"0\""]);
    assert_eq!(old.status, 412, "{}", old.text);
    let seen = format!("If-Match: {}", status.tag);
    let dry = send("POST /v1/apply?check", &["-H", &seen]);
    assert_eq!((dry.status, &dry.json()["files"]), (200, &diff.json()["files"]));
    assert_eq!(admin("GET /v1/status", &[]).tag, status.tag);
    let applied = send("POST /v1/apply?hold=1s&timeout=60s", &["-H", &seen]);
    assert_eq!(applied.outcome()["outcome"]["everywhere"]["number"], 2, "{}", applied.text);
    assert!(applied.text.contains("tried by eu-1"), "{}", applied.text);
    assert_eq!(fleet.answers(), ["two", "two"]);
    let back = admin("POST /v1/rollback?timeout=60s", &[]);
    assert_eq!(back.outcome()["outcome"]["everywhere"]["number"], 3, "{}", back.text);

    let drained = admin("PUT /v1/nodes/us-1/drain", &[]);
    assert_eq!(drained.json()["drained"], true, "{}", drained.text);
    wait("the drain", || fleet.status("us-1")["condition"] == "drained");
    assert_eq!(admin("DELETE /v1/nodes/us-1/drain", &[]).status, 200);
    assert_eq!(admin("DELETE /v1/nodes/us-9", &[]).status, 404);
    let rotated = admin("POST /v1/rotate?timeout=60s", &[]);
    assert_eq!(rotated.json(), json!("done"));

    let read = admin("POST /v1/tokens", &["-d", r#"{"role": "read", "expires": "1h"}"#]).json();
    let (id, read) = (read["id"].as_str().unwrap(), read["token"].as_str().unwrap());
    let history = api.ask(read, "GET /v1/history", &[]);
    assert_eq!(history.json()["revisions"].as_array().unwrap().len(), 3, "{}", history.text);
    assert!(history.text.contains("127.0.0.1 by HTTP"), "{}", history.text);
    let forbidden = api.send(read, "POST /v1/apply", &fleet.directory(), &[]);
    assert_eq!(forbidden.status, 403, "{}", forbidden.text);
    assert_eq!(admin(&format!("DELETE /v1/tokens/{id}"), &[]).status, 204);
    assert_eq!(api.ask(read, "GET /v1/status", &[]).status, 401);
}

#[test]
fn orders_over_http_reach_nodes_by_the_one_that_keeps_the_state() {
    takes_orders(&Fleet::kept(&["eu-1", "us-1"]));
}

#[test]
fn orders_over_http_reach_nodes_by_etcd() {
    let Some(fleet) = Fleet::in_etcd(&["eu-1", "us-1"]) else { return };
    takes_orders(&fleet);
}

#[test]
fn token_that_is_bound_to_a_site_changes_and_purges_only_that() {
    let fleet = Fleet::kept(&["eu-1"]);
    let Some(api) = Api::start(&fleet) else { return };
    let site = |host: &str, answer| {
        format!("[[site]]\nhosts = \"{host}\"\norigin = \"http://{}\"\n", origin("200 OK", answer))
    };
    fleet.write("sites/www.toml", &site("www.test", "www"));
    fleet.write("sites/shop.toml", &site("shop.test", "old"));
    fleet.applied();
    let make = |order: &str| {
        let made = api.ask(&api.admin, "POST /v1/tokens", &["-d", order]);
        assert_eq!(made.status, 201, "{}", made.text);
        made.json()["token"].as_str().unwrap().to_owned()
    };
    let bound = make(r#"{"role": "apply", "sites": ["shop.test"]}"#);
    let own = fleet.root.path().join("own");
    fs::create_dir_all(own.join("sites")).unwrap();
    fs::write(own.join("sites/shop.toml"), site("shop.test", "new")).unwrap();
    let applied = api.send(&bound, "POST /v1/apply?at_once&timeout=60s", &own, &[]);
    assert_eq!(applied.outcome()["outcome"]["everywhere"]["number"], 2, "{}", applied.text);
    let at = fleet.machines[0].clients();
    let ask = |method: &str, host: &str, token: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-i", "-X", method, "-H", &format!("Host: {host}")]);
        curl.args(["-H", &format!("Authorization: Bearer {token}")]).arg(format!("http://{at}/x"));
        answer(&stdout(&curl.output().unwrap()))
    };
    assert_eq!(ask("GET", "shop.test", "").text, "new");
    assert_eq!(ask("GET", "www.test", "").text, "www");
    fs::write(own.join("sites/www.toml"), site("www.test", "theirs")).unwrap();
    let refused = api.send(&bound, "POST /v1/apply?at_once", &own, &[]);
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("sites/www.toml: the token is for files with no other sites"));
    assert_eq!(api.ask(&bound, "GET /v1/history", &[]).status, 403);
    assert_eq!(api.ask(&bound, "GET /v1/status", &[]).status, 200);
    let direct = fleet.order(&["status", "--token", &bound]);
    assert!(stderr(&direct).contains("this is no token of a fleet"), "{direct:?}");

    assert_eq!(ask("PURGE", "shop.test", "x").status, 405);
    let made = fleet.order(&["token", "--role", "purge", "--site", "shop.test"]);
    let purge = stdout(&made).trim().to_owned();
    wait("a node that takes the token", || ask("PURGE", "shop.test", &purge).status == 200);
    assert_eq!(ask("PURGE", "www.test", &purge).status, 403);
    assert_eq!(ask("PURGE", "shop.test", "x").status, 401);
    assert_eq!(api.ask(&purge, "GET /v1/status", &[]).status, 403);
    let id = purge.split('.').next().unwrap();
    assert!(fleet.order(&["token", "--revoke", id]).status.success());
    wait("a node that does not", || ask("PURGE", "shop.test", &purge).status == 405);
}
