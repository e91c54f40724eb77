//! `levada dns`: a name server by the configuration of nodes, next to a node.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Process, free, levada};

/// Two nodes, of which one runs.
fn nodes(ports: [u16; 4]) -> String {
    let [clients, a, b, _] = ports;
    format!(
        r#"
name = "a"
[runtime]
threads = 1
[[listen]]
address = "127.0.0.1:{clients}"
[[site]]
hosts = ["www.cdn.test", "*"]
origin = "http://127.0.0.1:9"
[peering]
listen = "127.0.0.1:{a}"
secret = "0123456789abcdef"
[[peer]]
name = "a"
address = "127.0.0.1:{a}"
public = ["192.0.2.1", "2001:db8::1"]
[[peer]]
name = "b"
address = "127.0.0.1:{b}"
public = ["192.0.2.2"]
"#
    )
}

const ZONE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n";

fn kdig(port: u16, line: &str) -> Option<String> {
    let output = Command::new("kdig")
        .args(["@127.0.0.1", "-p", &port.to_string(), "+norec", "+time=5", "+short"])
        .args(line.split(' '))
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Waits until a query is answered so.
fn answered(port: u16, line: &str, expected: &str) {
    let begin = Instant::now();
    loop {
        let answer = kdig(port, line).unwrap();
        if answer == expected {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{line}: {answer:?}");
        sleep(Duration::from_millis(50));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn server_alone_answers_with_nodes_that_run_and_reloads() {
    if levada_skip::lacks("kdig", "knot-dnsutils") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let ports = [free(), free(), free(), free()];
    let node = file("node.toml", &nodes(ports));
    file("cdn.zone", ZONE);
    let [.., port] = ports;
    let dns = format!(
        "[dns]\nlisten = \"127.0.0.1:{port}\"\n[[dns.zone]]\nname = \"cdn.test\"\nfile = \"cdn.zone\"\n"
    );
    let server = file("server.toml", &format!("{}{dns}", nodes(ports)));
    let _node = Process::node(&node);
    let metrics = free();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    let address = format!("127.0.0.1:{metrics}");
    command.args(["dns", "--metrics", &address, "-c"]).arg(&server);
    let (server, _) = Process::ready(&mut command).unwrap();
    answered(port, "www.cdn.test A", "192.0.2.1");
    answered(port, "www.cdn.test AAAA", "2001:db8::1");
    answered(port, "www.cdn.test A +tcp", "192.0.2.1");
    file("cdn.zone", &format!("{ZONE}text TXT new\n"));
    let process = Pid::from_child(&server.0);
    kill_process(process, Signal::HUP).unwrap();
    answered(port, "text.cdn.test TXT", "\"new\"");
    // A mistake changes nothing.
    file("cdn.zone", "text TXT wrong\n");
    kill_process(process, Signal::HUP).unwrap();
    sleep(Duration::from_millis(300));
    answered(port, "text.cdn.test TXT", "\"new\"");
    let page =
        Command::new("curl").args(["-s", &format!("http://{address}/metrics")]).output().unwrap();
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(page.contains("levada_dns_queries_total{transport=\"tcp\"} 1"), "{page}");
    assert!(page.contains("levada_dns_zones 1"), "{page}");
}

#[test]
fn configuration_without_a_name_server_is_refused() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/single-node.toml");
    let refused = levada(&["dns", "-c", example.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("there is no [dns]"), "{}", said(&refused));
}
