//! `levada sim` as users meet it: scenario files, their mistakes, sweeps that go on where they were.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use levada_config::Source;
use levada_sim::scenario_file::{Changes, check};
use levada_sim::{Library, Source as Files, run};
use levada_trace::{RICE, Trace};
use serde_json::Value as Json;

fn crate_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn examples() -> Vec<(PathBuf, String)> {
    let mut files: Vec<_> = fs::read_dir(crate_file("../../examples/sim"))
        .expect("the examples are part of the source")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(files.len() >= 8);
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("read"))).collect()
}

/// Has one trace, whatever is asked for: making the real one takes seconds.
struct Small;

impl Files for Small {
    fn trace(&mut self, _: &str) -> Result<Trace, String> {
        Ok(RICE.scaled(400, 4000).generate(1))
    }

    fn text(&mut self, path: &str) -> Result<String, String> {
        Err(path.to_owned())
    }
}

/// Keys that make any scenario short.
fn shrunk(sets: &[(&str, &str)]) -> Changes {
    let small = [
        ("workload.trace", "small"),
        ("workload.clients", "40"),
        ("measure.requests", "2000"),
        ("measure.warm_up", "0s"),
    ];
    let sets =
        small.iter().chain(sets).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Changes { servers: Some(8), sets: sets.collect(), ..Changes::default() }
}

#[test]
fn every_example_is_valid_and_runs() {
    for (path, text) in examples() {
        let mut library = Library::new(Box::new(Small));
        let source = Source { name: path.display().to_string(), text };
        // Sessions of WWW10 have no trace.
        let sessions = source.text.contains("\n[cap");
        let regions = source.text.contains("\n[regions");
        let changes = match (sessions, regions) {
            (true, _) => Changes::default(),
            // The small trace has no times.
            (false, true) => shrunk(&[("workload.arrivals", "constant")]),
            (false, false) => shrunk(&[]),
        };
        let checked = check(&source, Path::new(""), &changes, &mut library);
        assert_eq!(checked.errors, Vec::<String>::new(), "{}", source.name);
        let scenario = checked.scenario.expect("no errors");
        assert!(!scenario.title.is_empty(), "{}", source.name);
        if !sessions {
            let prepared = scenario.prepare(&mut library).expect("checked");
            let outcome = run(&prepared, &mut |_| std::ops::ControlFlow::Continue(()));
            let requests = outcome.reading(levada_sim::Metric::Requests);
            assert!(requests.is_some_and(|requests| requests > 500.0), "{}", source.name);
        }
    }
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let text = "\
title = \"wrong\"
[servers]
count = 0
activ = 5
[workload]
trace = \"no/such.log\"
rate = \"fast\"
[policy]
name = \"fdr\"
bussy = 3
[cache]
eviction = \"fifo\"
";
    let source = Source { name: "wrong.toml".to_owned(), text: text.to_owned() };
    let changes = Changes {
        sets: vec![("cache.memory".to_owned(), "5 furlongs".to_owned())],
        ..Changes::default()
    };
    let mut library = Library::without_files();
    let checked = check(&source, Path::new("/etc"), &changes, &mut library);
    assert!(checked.scenario.is_none());
    let said = checked.errors.concat();
    for part in [
        "wrong.toml:3:9: error: servers.count: ",
        "error: servers.activ: there is no such key; did you mean `active`?",
        "wrong.toml:6:9: error: workload.trace: ",
        "wrong.toml:7:8: error: workload.rate: ",
        "error: policy.bussy: ",
        "error: cache.eviction: there is no `fifo`",
        "--set: error: cache.memory: ",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn mistakes_in_the_syntax_are_named_all() {
    let source = Source { name: "wrong.toml".to_owned(), text: "seed =\n[servers\n".to_owned() };
    let mut library = Library::without_files();
    let changes = Changes::default();
    let checked = check(&source, Path::new(""), &changes, &mut library);
    let said = checked.errors.concat();
    assert!(said.contains("wrong.toml:1:") && said.contains("wrong.toml:2:"), "{said}");
}

/// A directory with a scenario that takes no time.
fn world() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let mut trace = String::new();
    for n in 0..600 {
        writeln!(trace, "{n} {} {}", n * 7 % 50, 1000 + n * 7 % 50 * 100).expect("written");
    }
    fs::write(directory.path().join("small.tr"), trace).expect("written");
    let scenario = "\
title = \"A small world\"
[topology]
name = \"star\"
[servers]
count = 2
[workload]
trace = \"small.tr\"
clients = 5
arrivals = \"constant\"
rate = 50.0
[measure]
requests = 500
";
    fs::write(directory.path().join("small.toml"), scenario).expect("written");
    directory
}

fn levada(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(["sim", "run", "small.toml", "--results", "kept"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("it runs")
}

#[test]
fn a_sweep_goes_on_where_it_was() {
    let world = world();
    let first = levada(world.path(), &["--policy", "fdr,random", "--json"]);
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    let kept = fs::read_to_string(world.path().join("kept/run.jsonl")).expect("kept");
    assert_eq!(kept.lines().count(), 2);
    let more = levada(world.path(), &["--policy", "fdr,random,p2c", "--json", "--html", "a.html"]);
    assert!(String::from_utf8_lossy(&more.stderr).contains("2 of 3 runs are finished already"));
    let kept = fs::read_to_string(world.path().join("kept/run.jsonl")).expect("kept");
    assert_eq!(kept.lines().count(), 3);
    let [first, more] = [first, more]
        .map(|output| -> Json { serde_json::from_slice(&output.stdout).expect("JSON") });
    assert_eq!(first["runs"][0], more["runs"][0]);
    assert_eq!(more["runs"][2]["scenario"]["policy"]["name"], "p2c");
    assert!(more["runs"][2]["outcome"]["readings"]["throughput"].as_f64() > Some(20.0));
    let page = fs::read_to_string(world.path().join("a.html")).expect("written");
    assert!(page.contains("<svg") && page.contains("A small world"));
    let fresh = levada(world.path(), &["--policy", "fdr", "--fresh", "--csv"]);
    assert!(!String::from_utf8_lossy(&fresh.stderr).contains("already"));
    let csv = String::from_utf8(fresh.stdout).expect("text");
    assert!(
        csv.starts_with("table,row,") && csv.contains("small,fdr,fdr,,,throughput,req/s,"),
        "{csv}"
    );
}

#[test]
fn rows_that_share_a_run_tell_it_once() {
    let world = world();
    let ramp = ["workload.arrivals=\"ramp\"", "workload.rate=20", "measure.latency_at=[20, 21]"];
    let sets = ramp.iter().flat_map(|set| ["--set", set]);
    let output = levada(world.path(), &sets.chain(["--json"]).collect::<Vec<_>>());
    let report: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["tables"].as_array().expect("tables").iter();
    let rows: usize = rows.map(|table| table["rows"].as_array().map_or(0, Vec::len)).sum();
    assert!(rows > 1, "{report:#}");
    assert_eq!(report["runs"].as_array().expect("runs").len(), 1);
}

#[test]
fn what_cannot_run_is_code_2_and_says_why() {
    let world = world();
    let output = levada(world.path(), &["--policy", "fdr,fdrr", "--set", "servers.cpu=-1"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--policy: error: policy.name") && said.contains("--set: error: servers.cpu")
    );
    assert_eq!(said.matches("servers.cpu").count(), 1, "{said}");
    let output = Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(["sim", "paper", "osdi02", "--table", "99"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("osdi02-fig5"));
}

#[test]
fn everything_is_listed() {
    let output = Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(["sim", "list", "--json"])
        .output()
        .expect("it runs");
    let lists: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    for list in ["scenarios", "papers", "topologies", "workloads", "collectors", "policies"] {
        let items = lists[list].as_array().expect(list);
        assert!(!items.is_empty() && items.iter().all(|item| item["name"].is_string()), "{list}");
    }
}

#[test]
fn a_result_that_does_not_mean_what_it_says_is_code_1() {
    let world = world();
    let tiny = ["servers.active=1", "servers.queue=2", "workload.rate=5000"];
    let ramp = [&tiny[..], &["workload.arrivals=\"ramp\""]].concat();
    let cases: [(&[&str], &str); 4] = [
        (&["measure.requests=100000"], "the trace ended after"),
        (&tiny, "overloaded: a server's queue was full"),
        (&ramp, "the rate at the start is above the capacity"),
        (&["policy.busy=5000"], "no server is ever busy before it fails"),
    ];
    for (sets, expected) in cases {
        let sets: Vec<_> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let output = levada(world.path(), &[&["--policy", "fdr"], &sets[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{sets:?}: {said}");
        let report = String::from_utf8_lossy(&output.stdout);
        // The report breaks lines.
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(expected) && report.contains(expected), "{sets:?}: {said}{report}");
    }
    let never = ["--set", "measure.duration=\"1m\"", "--set", "measure.warm_up=\"1m\""];
    assert_eq!(levada(world.path(), &never).status.code(), Some(2));
    let output = levada(world.path(), &["--set", "measure.warm_up=\"1h\""]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("nothing is measured before `measure.warm_up`"), "{said}");
}

#[test]
fn several_seeds_have_a_mean_and_an_interval() {
    let world = world();
    let output = levada(world.path(), &["--policy", "fdr,random", "--seeds", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8(output.stdout).expect("text");
    assert!(report.contains("Means over seeds") && report.contains('±'), "{report}");
    assert!(report.contains("the difference may be chance between fdr and random"), "{report}");
    assert!(report.contains("random seed 2"), "{report}");
}

#[test]
fn a_matrix_compares_policies_over_scenarios_and_goes_on_where_it_was() {
    let world = world();
    let matrix = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_levada"))
            .args(["sim", "matrix", "small.toml", "--results", "kept", "--seeds", "2"])
            .args(["--policy", "fdr:busy=5,random"])
            .args(more)
            .current_dir(world.path())
            .output()
            .expect("it runs")
    };
    let first = matrix(&["--json"]);
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    let numbers: Json = serde_json::from_slice(&first.stdout).expect("JSON");
    let cells = numbers["rows"][0]["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["scores"].as_array().map(Vec::len) == Some(2)));
    assert!(cells.iter().any(|cell| cell["relative"].as_f64() == Some(1.0)), "{numbers:#}");
    let again = matrix(&["--html", "matrix.html"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("4 of 4 runs are finished already"));
    assert!(String::from_utf8_lossy(&again.stdout).contains("geometric mean"));
    let page = fs::read_to_string(world.path().join("matrix.html")).expect("written");
    assert!(page.contains("fdr:busy=5") && !page.contains("<script"));
}
