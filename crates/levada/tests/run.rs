//! `levada run` as a process among others: its limits.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

const CONFIGURATION: &str = r#"
name = "a"
[[listen]]
address = "127.0.0.1:0"
[limits]
connections = 600
[[site]]
hosts = "*"
origin = "http://127.0.0.1:9"
"#;

/// Starts a node with these limits of open files, and returns what it logs until it is ready.
fn start(soft: u32, hard: u32) -> (Child, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" run -c \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_levada")]).arg(file);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    while !said.contains("ready") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "the node starts: {said}");
    }
    (process, said)
}

/// The soft limit of open files of the process.
fn limit_of(process: &Child) -> u32 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

#[test]
fn limit_of_open_files_is_raised_and_a_low_one_is_told() {
    for (hard, is_told) in [(1200, false), (1199, true)] {
        let (mut process, said) = start(200, hard);
        let limit = limit_of(&process);
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(limit, hard);
        assert_eq!(said.contains("allow 1200 open files"), is_told, "{said}");
    }
}
