//! The admin listener at a Unix socket: commands of an operator, and a second node that finds the socket.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{Process, free, levada};

/// A directory whose path is short enough for a socket.
fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("levada").tempdir_in("/tmp").unwrap()
}

/// Writes the configuration of a node. A purge over the network would need a token.
fn configure(directory: &Path, mode: &str) -> PathBuf {
    let file = directory.join("levada.toml");
    let port = free();
    let text = format!(
        r#"
name = "a"
[[listen]]
address = "127.0.0.1:{port}"
[admin]
listen = "unix:{}/admin.sock"
mode = "{mode}"
[purge]
token = "a token of some length"
[[site]]
hosts = "www.example.com"
origin = "http://127.0.0.1:9"
"#,
        directory.display()
    );
    fs::write(&file, text).unwrap();
    file
}

/// Starts the node, and returns what it says if it ends instead.
fn start(file: &Path) -> Result<Process, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    Ok(Process::ready(command.args(["run", "-c"]).arg(file))?.0)
}

#[test]
fn every_command_reaches_a_node_by_its_socket_without_a_token() {
    let directory = directory();
    let file = configure(directory.path(), "0600");
    let _node = start(&file).unwrap();
    let socket = directory.path().join("admin.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let (config, admin) = (file.to_str().unwrap(), format!("unix:{}", socket.display()));
    let url = "http://www.example.com/";
    for arguments in [
        &["reload", "-c", config][..],
        &["reload", "--admin", &admin],
        &["purge", "--admin", &admin, "--all"],
        &["purge", "-c", config, url],
        &["explain", "--admin", &admin, url],
        &["servers", "--admin", &admin],
        &["drain", "-c", config],
        &["drain", "--admin", &admin, "--undo"],
    ] {
        let output = levada(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn socket_of_a_node_that_was_killed_is_replaced_and_that_of_a_running_one_is_not() {
    let directory = directory();
    let node = start(&configure(directory.path(), "0660")).unwrap();
    let said = start(&configure(directory.path(), "0660")).err().unwrap();
    assert!(said.contains("admin.sock: another process listens there"), "{said}");
    drop(node);
    let socket = directory.path().join("admin.sock");
    assert!(socket.exists(), "a node that is killed leaves it");
    let _node = start(&configure(directory.path(), "0660")).unwrap();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    let output = levada(&["reload", "--admin", &format!("unix:{}", socket.display())]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn health_of_a_node_is_an_exit_code_and_the_reason() {
    let directory = directory();
    let file = configure(directory.path(), "0600");
    let config = file.to_str().unwrap();
    let health = |arguments: &[&str]| {
        let output = levada(&[&["health", "-c", config], arguments].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(health(&[]).0, 2, "no node runs");
    let node = start(&file).unwrap();
    assert_eq!(health(&["--live"]).0, 0);
    assert!(levada(&["drain", "-c", config]).status.success());
    assert_eq!(health(&[]), (1, "not ready: service: the node drains\n".into()));
    assert_eq!(health(&["--live"]).0, 0);
    drop(node);
    assert_eq!(health(&["--live"]).0, 2);
}
