//! `levada explain` as a user runs it.

use std::process::{Command, Output};

fn explain(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_levada")).arg("explain").args(options).output().unwrap()
}

#[test]
fn explanation_names_the_route_and_the_matchers_that_ruled_others_out() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    let text = r#"
name = "a"
[[listen]]
address = "127.0.0.1:8080"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:9000"
[[site.route]]
name = "beta"
path = "/api/**"
header = { X-Beta = "1" }
[[site.route]]
path = "/img/**"
[[site.route]]
name = "api"
path = "/api/**"
cache = false
"#;
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let said = |options: &[&str]| {
        let output = explain(&[&["http://www.example.com/api/x", "-c", file], options].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let expected = "route    api
         nothing is stored
         not beta: its `header` does not match
         not 2: its `path` does not match
";
    assert!(said(&[]).contains(expected), "{}", said(&[]));
    assert!(said(&["--header", "X-Beta: 1"]).contains("route    beta\n"));
    let output = explain(&["http://www.example.com/", "-c", file]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("route    none; as the site says"));
}

#[test]
fn explanation_lists_the_rules_of_access_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    let text = r#"
name = "a"
[[listen]]
address = "127.0.0.1:8080"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:9000"
max_body = "10MiB"
access = ["allow 192.0.2.0/24", "deny all"]
referers = ["none", "*.example.com"]
signed_urls = { form = "hmac", secret_file = "secret" }
[[site.limit]]
key = "client"
rate = "10r/s"
burst = 20
[[site.route]]
name = "login"
path = "/login"
signed_urls = "off"
limit = [{ key = "path", rate = "10r/m" }]
"#;
    std::fs::write(&file, text).unwrap();
    std::fs::write(directory.path().join("secret"), "secret").unwrap();
    let output = explain(&["http://www.example.com/x", "-c", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "access   request bodies of at most 10MiB
access   allow 192.0.2.0/24
access   deny all
access   limit by client: 10r/s burst 20, at this node
access   referers none, *.example.com
access   URLs with an HMAC-SHA-256
";
    assert!(said.contains(expected), "{said}");
    let output = explain(&["http://www.example.com/login", "-c", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "access   deny all
access   limit by path (of the route login): 10r/m burst 0, at this node
access   referers none, *.example.com
policy";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_configuration_explains_itself() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    std::fs::write(
        &file,
        r#"
name = "a"
[[listen]]
address = "127.0.0.1:8080"
[peering]
listen = "127.0.0.1:7070"
secret = "0123456789abcdef"
[[peer]]
name = "a"
address = "127.0.0.1:7070"
[[peer]]
name = "b"
address = "127.0.0.1:7071"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:9000"
policy = { name = "fdr" }
"#,
    )
    .unwrap();
    let file = file.to_str().unwrap();

    let output = explain(&["http://www.example.com/x", "-c", file, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let explanation: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explanation["policy"], "fdr");
    assert_eq!(explanation["candidates"].as_array().map(Vec::len), Some(2));
    assert_eq!(explanation["set"][0], explanation["node"]);

    let output = explain(&["http://www.example.com/x", "-c", file]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("policy   fdr, decided by a"));

    let text = std::fs::read_to_string(file).unwrap().replace("fdr", "adaptive");
    std::fs::write(file, text).unwrap();
    let output = explain(&["http://www.example.com/x", "-c", file]);
    let explanation = String::from_utf8_lossy(&output.stdout);
    assert!(explanation.contains("share    0.000 % of the requests here"), "{explanation}");
    // Two idle nodes: 1.5 times a mean of 1/2, twice its root, and 1.
    assert!(explanation.contains("bound    3.2 outstanding requests per unit of weight"));

    let output = explain(&["http://other.example/x", "-c", file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no site answers to the host"));
}

#[test]
fn a_node_that_is_not_there_is_named() {
    let output = explain(&["http://www.example.com/x", "--admin", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no node listens for operators on 127.0.0.1:1"), "{error}");
}

#[test]
fn explanation_shows_the_value_or_the_failure_of_each_expression() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    let text = r#"
name = "a"
[[listen]]
address = "127.0.0.1:8080"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:9000"
cache_key = { expression = "request.cookies.plan" }
bypass_when = "int(request.query) > 1"
[[site.route]]
name = "beta"
when = "request.headers['x-beta'] == '1'"
"#;
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let cookie = ["--header", "Cookie: plan=free"];
    let output = explain(&[&["http://www.example.com/api/x", "-c", file], &cookie[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    for line in [
        "not beta: its `when` does not match",
        r#"site[0].route[0].when = "false", by request.headers['x-beta'] == '1'"#,
        r#"site[0].cache_key.expression = "free", by request.cookies.plan"#,
        "site[0].bypass_when fails: the text is no whole number, in int(request.query) > 1",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// A configuration with this admin address, in a directory of its own.
fn configured(admin: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
name = "found"
[[listen]]
address = "127.0.0.1:0"
[admin]
listen = "{admin}"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:9"
"#
    );
    std::fs::write(directory.path().join("levada.toml"), text).unwrap();
    directory
}

#[test]
fn running_node_is_found_by_the_file_of_the_working_directory() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", directory.path().join("admin.sock").display());
    let configured = configured(&socket);
    let levada = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.current_dir(configured.path());
        command
    };
    let mut node = levada().args(["run", "-c", "levada.toml"]).spawn().unwrap();
    let explained = || levada().args(["explain", "http://www.example.com/"]).output().unwrap();
    let mut output = explained();
    for _ in 0..300 {
        if output.status.success() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        output = explained();
    }
    node.kill().unwrap();
    node.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let [out, error] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(out.contains("decided by found"), "{out}");
    assert!(error.contains(&format!("the node at {socket}, by levada.toml")), "{error}");
}

#[test]
fn places_where_no_node_was_found_are_told() {
    let configured = configured("unix:/no/such/admin.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    // A host that no node of this machine serves.
    command.args(["explain", "ftp://no such url"]).current_dir(configured.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    for place in [
        "levada.toml: no node listens",
        "/no/such/admin.sock",
        "/etc/levada/",
        "127.0.0.1:9180",
        "--admin",
    ] {
        assert!(error.contains(place), "{place}: {error}");
    }
}

#[test]
fn explanation_names_the_protocol_to_each_server() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    let text = r#"
name = "a"
[[listen]]
address = "127.0.0.1:8080"
[[site]]
hosts = "www.example.com"
origin = ["http://127.0.0.1:9000", "https://origin.example"]
[[site.route]]
path = "/calls/**"
servers = ["https://127.0.0.1:9001", "http://127.0.0.1:9002"]
protocol = "h2"
"#;
    std::fs::write(&file, text).unwrap();
    let said = |path: &str| {
        let url = format!("http://www.example.com{path}");
        let output = explain(&[&url, "-c", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let plain = "server   http://127.0.0.1:9000 by HTTP/1.1\n\
                 server   https://origin.example:443 by HTTP/1.1\n";
    assert!(said("/").contains(plain), "{}", said("/"));
    let h2 = "server   https://127.0.0.1:9001 by HTTP/2\n\
              server   http://127.0.0.1:9002 by HTTP/2 without TLS (h2c)\n";
    assert!(said("/calls/x").contains(h2), "{}", said("/calls/x"));
}
