//! The labs of emulated servers as a user runs them: real processes, real sockets, small.
#![cfg(target_os = "linux")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

fn lab(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("lab").args(options).stdin(Stdio::null());
    command
}

/// The report of a lab, which must have run to its end; whether the paper's statements hold in a run so
/// short is not asked.
fn report(options: &[&str]) -> Value {
    let output = lab(options).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|problem| panic!("{problem}: {error}"));
    for row in report["rows"].as_array().unwrap() {
        assert_eq!(row["quality"]["failed"], 0, "{row:#}");
        assert!(row["measured"]["throughput"].as_f64() > Some(0.0), "{row:#}");
        assert!(row["simulated"]["throughput"].as_f64() > Some(0.0), "{row:#}");
    }
    report
}

fn row<'a>(report: &'a Value, policy: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|row| row["policy"] == policy).unwrap()
}

/// Whether a machine that is busy otherwise has left the lab time enough for what is measured to mean
/// something; said where not.
fn kept_up(report: &Value) -> bool {
    let throughput = |row: &Value, of: &str| row[of]["throughput"].as_f64().unwrap();
    let slow = |row: &&Value| throughput(row, "measured") < 0.7 * throughput(row, "simulated");
    let slow = report["rows"].as_array().unwrap().iter().find(slow);
    slow.inspect(|row| {
        eprintln!("{row:#}");
        levada_skip::skipped("this machine is too busy for what is measured");
    })
    .is_none()
}

fn refused(options: &[&str], text: &str) {
    let Output { status, stderr, .. } = lab(options).output().unwrap();
    let error = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(2), "{error}");
    assert!(error.contains(text), "{options:?}: {error}");
}

#[test]
fn locality_finds_more_in_memory_than_balance_does() {
    let options = "lard --policy wrr,lard/r --nodes 4 --files 300 --warm-up 4s --duration 6s \
                   --time-scale 0.5 --json";
    let report = report(&options.split_whitespace().collect::<Vec<_>>());
    let found = |policy| row(&report, policy)["measured"]["hit_ratio"].as_f64().unwrap();
    if kept_up(&report) {
        assert!(found("lard/r") > found("wrr"), "{report:#}");
    }
    assert!(row(&report, "wrr")["quality"]["front_end_us_per_request"].as_f64() > Some(0.0));
}

#[test]
fn servers_are_busy_more_alike_when_each_class_goes_round() {
    let options = "cap --seeds 1 --policy cap,lard --mix intensive --clients 240 --warm-up 20s --duration 40s \
                   --time-scale 0.1 --files 200 --json";
    let report = report(&options.split_whitespace().collect::<Vec<_>>());
    let spread = |policy, of: &str| {
        let servers = &row(&report, policy)[of];
        servers["most_busy"].as_f64().unwrap() - servers["least_busy"].as_f64().unwrap()
    };
    assert!(spread("cap", "simulated") < spread("lard", "simulated"), "{report:#}");
    if kept_up(&report) {
        assert!(spread("cap", "measured") < spread("lard", "measured"), "{report:#}");
    }
}

#[test]
fn options_that_cannot_be_met_are_refused() {
    refused(&["lard", "--policy", "lrad"], "no such policy");
    refused(&["lard", "--policy", "wrr/gms"], "runs on an edge");
    refused(&["lard", "--nodes", "0"], "--nodes");
    refused(&["lard", "--quick", "--nodes", "4"], "--nodes");
    refused(&["lard", "--eviction", "fifo"], "gds");
    refused(&["lard", "--memory", "0B"], "--memory");
    refused(&["lard", "--trace", "/nonexistent"], "--trace");
    refused(&["lard", "--time-scale", "0"], "factor");
    refused(&["lard", "--duration", "0s"], "--duration");
    refused(&["cap", "--mix", "heavy"], "--mix");
    refused(&["cap", "--servers", "1"], "--servers");
    refused(&["cap", "--policy", "fdr-global"], "no such policy");
    refused(&["policies", "--policy", "lrad"], "no such policy");
    refused(&["policies", "--scenario", "calm"], "--scenario");
    refused(&["policies", "--nodes", "1"], "--nodes");
    refused(&["policies", "--from", "0"], "a rate is");
    refused(&["policies", "--step", "1ms"], "--step");
    refused(&["policies", "--duration", "0s"], "--duration");
    refused(&["faults", "--only", "fire"], "no such fault");
    refused(&["faults", "--rate", "0"], "--rate");
    refused(&["changes", "--only", "fire"], "no such change");
    refused(&["regions", "--only", "moon"], "no such arrangement");
    refused(&["regions", "--objects", "0"], "--objects");
    refused(&["plan", "--rate", "0"], "from 1 to 10000");
    refused(&["plan", "--duration", "1s"], "too few to plan from; 10 s");
    refused(&["plan", "--memory", "1B"], "--memory");
    refused(&["plan", "--output", "/"], "--output");
    refused(&["backend", "--service", "a"], "NAME=CPU");
    refused(&["backend", "--listen", "192.0.2.1:80"], "cannot listen");
}

/// A back-end that ends with the test.
struct Backend {
    address: SocketAddr,
    process: Child,
}

impl Backend {
    fn start(options: &[&str]) -> Self {
        let mut process = lab(&["backend"]).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { address: line.trim().parse().unwrap(), process }
    }

    /// The whole answer to one request.
    fn get(&self, target: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let body = answer.split_off(end + 4);
        let head = String::from_utf8(answer).unwrap();
        (head.split_whitespace().nth(1).unwrap().to_owned(), body)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn back_end_answers_like_the_machine_that_it_stands_for() {
    let fast = ["--time-scale", "0.001", "--service", "search=10ms+20ms"];
    let backend = Backend::start(&fast);
    let (status, first) = backend.get("/file/a/100000");
    assert_eq!((&*status, first.len()), ("200", 100_000));
    assert_eq!(backend.get("/file/a/100000"), ("200".to_owned(), first));
    assert_eq!(backend.get("/service/search/500").1.len(), 500);
    for absent in ["/", "/file/a", "/file/a/x", "/file/a/99999999999", "/service/find/1"] {
        assert_eq!(backend.get(absent).0, "404", "{absent}");
    }
    let usage: Value = serde_json::from_slice(&backend.get("/-/usage").1).unwrap();
    let usage = &usage["usage"];
    assert_eq!(
        (&usage["answered"], &usage["hits"], &usage["misses"]),
        (&3.into(), &1.into(), &1.into())
    );
    // One file of 25 times 4 KB in three blocks, and the service: ASPLOS'98 Sec. 3.1.
    let disk = (28_000 + 2 * 14_000 + 25 * 410 + 20_000) * 1_000;
    assert_eq!(usage["disk"], disk, "{usage:#}");
}

#[test]
fn connections_are_handed_over_where_that_can_be() {
    if levada_skip::possible(levada_net::lab::possible()).is_none() {
        return;
    }
    let options = "lard --policy lard/r --nodes 2 --files 200 --warm-up 2s --duration 3s \
                   --transport handoff --json";
    let report = report(&options.split_whitespace().collect::<Vec<_>>());
    let handed = row(&report, "lard/r")["quality"]["handed_over"].as_f64();
    assert!(handed > Some(0.5), "{report:#}");
}

#[test]
fn policies_are_compared_behind_links_of_limited_rate() {
    if levada_skip::possible(levada_net::lab::possible()).is_none() {
        return;
    }
    let options = "policies --scenario crowd,links --policy adaptive --nodes 2 --rate 1Mbit/s --from 100 \
                   --warm-up 0s --step 1s --duration 2s --json";
    let output = lab(&options.split_whitespace().collect::<Vec<_>>()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [crowd, links] = [0, 1].map(|at| &report["rows"][at]);
    // 170 requests per second over two links of 1 Mbit/s are too many, and 100 are as well.
    assert!(crowd["all"]["requests"].as_u64() > Some(200), "{report:#}");
    assert!(crowd["settled_after_s"].is_null(), "{report:#}");
    assert!(links["capacity"].is_null(), "{report:#}");
    assert!(links["simulated_capacity"].is_null(), "{report:#}");
    assert!(!report.to_string().contains("NaN"), "{report:#}");
}

#[test]
fn faults_make_no_bytes_wrong_or_stale() {
    let options = "faults --duration 3600ms --rate 30 --json";
    let output = lab(&options.split_whitespace().collect::<Vec<_>>()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    // Three of twelve need root.
    assert!(rows.len() >= 9, "{error}");
    let confirmed = rows.iter().filter_map(|row| row["purges_confirmed"].as_u64());
    assert!(confirmed.sum::<u64>() > 20, "{report:#}");
    for row in rows {
        assert!(row["requests"].as_u64() > Some(30), "{row:#}");
        for never in ["wrong", "stale"] {
            assert_eq!(row[never], 0, "{row:#}");
        }
        let failed = row["failed"].as_u64().unwrap();
        if row["fault"] == "secret" {
            assert_eq!(failed, 0, "{row:#}");
        }
        // A client is unknown while an answer to it is late, as some are on a busy machine. All others are served.
        if row["fault"] == "many-addresses" {
            assert!(failed <= row["requests"].as_u64().unwrap() / 20, "{row:#}");
        }
        assert_eq!(row["nodes_lost"].as_array().map(Vec::len), Some(0), "{row:#}");
    }
}

#[test]
fn changes_let_no_request_suffer() {
    let options = "changes --duration 1s --rate 60 --no-handoff --json \
                   --only none,certificate,listener,limits,site,policy,peer-added,peer-removed,upgrade";
    let output = lab(&options.split_whitespace().collect::<Vec<_>>()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|problem| panic!("{problem}: {error}"));
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() == 9, "{error}");
    for row in rows {
        assert!(row["handed_off"].is_null(), "{row:#}");
        assert!(row["made"].as_u64() > Some(0) && row["not_made"].is_null(), "{row:#}");
        for never in ["refused", "failed", "cut", "wrong"] {
            assert_eq!(row[never], 0, "{row:#}");
        }
    }
    assert_eq!(output.status.code(), Some(0), "{error}");
}

#[test]
fn regions_share_an_origin_and_one_that_is_cut_off_goes_on() {
    if levada_skip::possible(levada_net::lab::possible()).is_none() {
        return;
    }
    let options = "regions --only shield --objects 30 --requests 60 --cut 3s --json";
    let output = lab(&options.split_whitespace().collect::<Vec<_>>()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|problem| panic!("{problem}: {error}"));
    let row = &report["rows"][0];
    for region in ["eu", "us", "ap"] {
        for phase in ["cold", "warm"] {
            assert_eq!(row[phase][region]["share"], 1.0, "{row:#}");
        }
    }
    // A node of the shield that a busy machine makes late is not waited for; without a shield there would be three.
    assert!(row["origin_requests_per_object"].as_f64() < Some(2.0), "{row:#}");
    assert!(row["cut"]["warm"]["ap"]["share"].as_f64() >= Some(0.95), "{row:#}");
    assert!(!row["by_shield_after_s"].is_null(), "{row:#}");
    assert_eq!(row["purge"]["confirmed"], 12, "{row:#}");
    assert_eq!(row["old_after_purge"], 0, "{row:#}");
    assert_eq!(row["purge_with_one_away"]["missing"], serde_json::json!(["ap-4"]), "{row:#}");
}

#[test]
fn connections_are_handed_off_while_nodes_restart() {
    if levada_skip::possible(levada_net::lab::possible()).is_none() {
        return;
    }
    let options = "changes --only none,restart --duration 2s --rate 60 --json";
    let output = lab(&options.split_whitespace().collect::<Vec<_>>()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|problem| panic!("{problem}: {error}"));
    for row in report["rows"].as_array().unwrap() {
        assert!(row["made"].as_u64() > Some(0) && row["not_made"].is_null(), "{row:#}");
        assert!(row["handed_off"].as_u64() > Some(10), "{row:#}");
        // A stop waits one second for requests that are on their way, which a busy machine may need for more.
        for never in ["refused", "wrong"] {
            assert_eq!(row[never], 0, "{row:#}");
        }
    }
}

#[test]
fn nodes_that_are_planned_from_logs_run_and_are_compared() {
    if levada_skip::possible(levada_net::lab::possible()).is_none() {
        return;
    }
    let options = "plan --rate 250 --duration 4s --documents 300 --json";
    let output = lab(&options.split_whitespace().collect::<Vec<_>>()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|problem| panic!("{problem}: {error}"));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12, "{error}");
    for row in rows {
        for of in ["predicted", "informed", "measured"] {
            let value = row[of].as_f64().or_else(|| row[of]["mean"].as_f64());
            assert!(value > Some(0.0), "{row:#}");
        }
        let logged = row["cluster"] == "logged";
        assert_eq!(row["candidate"]["nodes"] == 4, logged, "{row:#}");
    }
}
