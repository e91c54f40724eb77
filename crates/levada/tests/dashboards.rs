//! The dashboards and alerts that packages bring along, against a real Prometheus that scrapes two loaded nodes.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// A port that is free now.
fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An origin with an answer for every path. It ends with the process.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 8192]);
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
                );
            });
        }
    });
    port
}

/// The status and the body of the answer to a GET.
fn get(port: u16, host: &str, target: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let head = format!("GET {target} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// The tries of a start: another process may take a port between its release and its use.
const TRIES: usize = 5;

/// Whether a process answers at this port and path with 200, before it ends.
fn is_ready(process: &mut Process, port: u16, path: &str) -> bool {
    let begun = Instant::now();
    while process.0.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {path} at port {port}");
        if get(port, "localhost", path).is_some_and(|(status, _)| status == 200) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Two nodes that are peers, with their ports for clients and for operators.
fn nodes(directory: &Path) -> Vec<(Process, u16, u16)> {
    let origin = origin();
    for _ in 0..TRIES {
        let mut nodes = started(directory, origin);
        if nodes.iter_mut().all(|(process, _, admin)| is_ready(process, *admin, "/readyz")) {
            return nodes;
        }
    }
    panic!("the nodes do not start");
}

fn started(directory: &Path, origin: u16) -> Vec<(Process, u16, u16)> {
    let ports: Vec<[u16; 3]> = (0..2).map(|_| [free(), free(), free()]).collect();
    let peer = |(number, [_, peer, _]): (usize, &[u16; 3])| {
        format!("[[peer]]\nname = 'n{number}'\naddress = '127.0.0.1:{peer}'\n")
    };
    let peers: String = ports.iter().enumerate().map(peer).collect();
    let start = |(number, [clients, peering, admin]): (usize, &[u16; 3])| {
        let file = directory.join(format!("n{number}.toml"));
        let text = format!(
            "name = 'n{number}'\n[admin]\nlisten = '127.0.0.1:{admin}'\n\
             [[listen]]\naddress = '127.0.0.1:{clients}'\n\
             [peering]\nlisten = '127.0.0.1:{peering}'\nsecret = 'sixteen bytes or more'\n{peers}\
             [[site]]\nhosts = ['www.test']\norigin = ['http://127.0.0.1:{origin}']\n"
        );
        fs::write(&file, text).unwrap();
        let mut node = Command::new(env!("CARGO_BIN_EXE_levada"));
        let node = node.args(["run", "-c"]).arg(&file);
        let node = node.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        (Process(node), *clients, *admin)
    };
    ports.iter().enumerate().map(start).collect()
}

/// The expressions of all panels, with the names of their panels.
fn queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for file in fs::read_dir(packaging().join("grafana/dashboards")).unwrap() {
        let file = file.unwrap().path();
        let model: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for panel in model["panels"].as_array().unwrap() {
            let name = format!("{}: {}", model["title"], panel["title"]);
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let expression = expression.replace("$__rate_interval", "10s");
                let expression = ["$instance", "$site"]
                    .iter()
                    .fold(expression, |text, variable| text.replace(variable, ".*"));
                assert!(!expression.contains('$'), "{expression}");
                queries.push((name.clone(), expression));
            }
        }
    }
    assert!(queries.len() > 30);
    queries
}

/// The values that Prometheus has for an expression now; `None` before it answers.
fn values(prometheus: u16, expression: &str) -> Option<Vec<f64>> {
    let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
    let target = format!("/api/v1/query?query={query}");
    let (status, body) = get(prometheus, "localhost", &target)?;
    let answer: Value = serde_json::from_str(&body).ok()?;
    match (status, answer["data"]["resultType"].as_str()) {
        (200, Some("vector")) => {
            let value = |series: &Value| series["value"][1].as_str().unwrap().parse().unwrap();
            Some(answer["data"]["result"].as_array()?.iter().map(value).collect())
        }
        (503, _) => None,
        _ => panic!("{expression}: {body}"),
    }
}

/// A Prometheus that scrapes these nodes, and its port; `None` where there is none.
fn prometheus(
    directory: &Path,
    nodes: &[(Process, u16, u16)],
    options: &[&str],
) -> Option<(Process, u16)> {
    let file = directory.join("prometheus.yml");
    let targets: Vec<String> =
        nodes.iter().map(|(_, _, admin)| format!("'127.0.0.1:{admin}'")).collect();
    let targets = targets.join(", ");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: levada\n    static_configs: [{{targets: [{targets}]}}]\n"
    );
    fs::write(&file, text).unwrap();
    for number in 0..TRIES {
        let port = free();
        let prometheus = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join(format!("data{number}")).display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if prometheus.is_err() {
            levada_skip::skipped("prometheus is missing (Debian: prometheus)");
        }
        let mut prometheus = Process(prometheus.ok()?);
        if is_ready(&mut prometheus, port, "/-/ready") {
            return Some((prometheus, port));
        }
    }
    panic!("Prometheus does not start");
}

#[test]
fn no_panel_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = nodes(directory.path());
    let Some((_prometheus, port)) = prometheus(directory.path(), &nodes, &[]) else { return };
    let (mut empty, begun, mut number) = (queries(), Instant::now(), 0);
    while !empty.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "empty: {empty:#?}");
        for (_, clients, _) in &nodes {
            for _ in 0..20 {
                number += 1;
                get(*clients, "www.test", &format!("/{}", number % 50));
            }
        }
        empty.retain(|(_, expression)| {
            values(port, expression).is_none_or(|values| values.is_empty())
        });
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn prometheus_that_asks_for_native_histograms_gets_them() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = nodes(directory.path());
    let options = ["--enable-feature=native-histograms"];
    let Some((_prometheus, port)) = prometheus(directory.path(), &nodes, &options) else { return };
    let times = r#"levada_http_request_duration_seconds{site="www.test"}"#;
    let heads = r#"levada_upstream_head_duration_seconds{kind="origin"}"#;
    let (begun, mut number) = (Instant::now(), 0);
    for histogram in [times, heads] {
        let (count, quantile) = (
            format!("sum(histogram_count({histogram}))"),
            format!("histogram_quantile(0.99, sum(rate({histogram}[10s])))"),
        );
        // A quantile lies within a bucket of 9 percent: between the shortest request and the longest one.
        let is_there = || {
            let counted = values(port, &count)?.first().copied()? >= 20.0;
            let quantile = values(port, &quantile)?.first().copied()?;
            Some(counted && quantile > 0.0 && quantile < begun.elapsed().as_secs_f64())
        };
        while is_there() != Some(true) {
            assert!(begun.elapsed() < Duration::from_secs(120), "{histogram}");
            for (_, clients, _) in &nodes {
                for _ in 0..20 {
                    number += 1;
                    get(*clients, "www.test", &format!("/{number}"));
                }
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    // All other series are there, too, with the names of the text format.
    let others =
        "sum(levada_http_requests_total) + sum(levada_connections) + sum(process_open_fds)";
    assert!(values(port, others).unwrap()[0] > 0.0);
    let classic = "levada_policy_server_set_size_count";
    assert_eq!(values(port, classic).unwrap().len(), 2);
}

#[test]
fn alerts_fire_and_stay_silent_where_they_should() {
    if levada_skip::lacks("promtool", "prometheus") {
        return;
    }
    let rules = packaging().join("prometheus");
    for words in
        [["check", "rules", "levada.rules.yml"], ["test", "rules", "levada.rules.test.yml"]]
    {
        let output = Command::new("promtool").args(words).current_dir(&rules).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
