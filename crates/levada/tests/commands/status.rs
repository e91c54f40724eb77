//! `levada status` and `levada top` against a running node.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use crate::support::{Process, free};

fn address() -> String {
    format!("127.0.0.1:{}", free())
}

/// Starts a node in this directory, and returns it with its admin address.
fn start(directory: &Path) -> (Process, String) {
    let file = directory.join("levada.toml");
    let (clients, admin) = (address(), address());
    let text = format!(
        r#"
name = "alpha"
[[listen]]
address = "{clients}"
[admin]
listen = "{admin}"
[[site]]
hosts = "www.example.com"
files = "{}"
"#,
        directory.display()
    );
    fs::write(&file, text).unwrap();
    (Process::node(&file), admin)
}

fn status(options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("status").args(options).output().unwrap()
}

#[test]
fn status_shows_a_running_node_and_tells_by_its_exit_code_whether_it_is_well() {
    let directory = tempfile::tempdir().unwrap();
    let (node, admin) = start(directory.path());
    let shown = status(&["--admin", &admin]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        text.starts_with("node      alpha, version ") && text.contains("\nstate     "),
        "{text}"
    );
    let told = status(&["--json", "-c", directory.path().join("levada.toml").to_str().unwrap()]);
    let json: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(json["name"], "alpha");
    let expected = if json["ready"] == true { 0 } else { 3 };
    assert_eq!((shown.status.code(), told.status.code()), (Some(expected), Some(expected)));
    let cluster = status(&["--cluster", "--admin", &admin]);
    let text = String::from_utf8_lossy(&cluster.stdout).into_owned();
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("alpha")), "{text}");
    drop(node);
    let gone = status(&["--admin", &admin]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    assert!(String::from_utf8_lossy(&gone.stderr).contains(&admin));
}

/// `levada top` on a terminal of 100 columns and 30 rows, with what it has shown.
struct Terminal {
    script: Child,
    screen: vt100::Parser,
}

impl Terminal {
    fn open(admin: &str) -> Self {
        let top =
            format!("stty rows 30 cols 100; {} top --admin {admin}", env!("CARGO_BIN_EXE_levada"));
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &top, "/dev/null"]).env("TERM", "xterm");
        let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self { script, screen: vt100::Parser::new(30, 100, 0) }
    }

    /// Reads until the screen satisfies `wanted`.
    fn wait_for(&mut self, wanted: impl Fn(&vt100::Screen) -> bool) -> String {
        let mut bytes = [0; 4096];
        while !wanted(self.screen.screen()) {
            let read = self.script.stdout.as_mut().unwrap().read(&mut bytes).unwrap();
            assert!(read > 0, "it has ended; the screen:\n{}", self.screen.screen().contents());
            self.screen.process(&bytes[..read]);
        }
        self.screen.screen().contents()
    }

    fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
fn top_shows_the_node_obeys_keys_and_gives_the_terminal_back() {
    if levada_skip::lacks("script", "bsdutils") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (node, admin) = start(directory.path());
    let mut terminal = Terminal::open(&admin);
    let shown = terminal.wait_for(|screen| screen.contents().contains("alpha"));
    assert!(terminal.screen.screen().alternate_screen(), "{shown}");
    terminal.press("?");
    terminal.wait_for(|screen| screen.contents().contains("the next pane"));
    terminal.press("?");
    drop(node);
    terminal.wait_for(|screen| screen.contents().contains("no answer"));
    terminal.press("q");
    terminal.wait_for(|screen| !screen.alternate_screen());
    assert_eq!(terminal.script.wait().unwrap().code(), Some(0));
}
