//! A node that root starts and that becomes another user.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

use crate::support::Process;

/// The user `nobody` of most systems.
const NOBODY: u32 = 65534;

/// Whether the tests may become another user.
fn is_possible() -> bool {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let here = rustix::process::geteuid().is_root() && passwd.contains("nobody:x:65534:");
    if !here {
        levada_skip::skipped("needs root, and the user nobody");
    }
    here
}

/// A directory that every user may enter, with the configuration of a node.
fn configure(port: u16) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::Builder::new().prefix("levada").tempdir_in("/tmp").unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(directory.path(), mode(0o755)).unwrap();
    let shown = directory.path().display();
    let text = format!(
        r#"
name = "a"
[runtime]
user = "nobody"
threads = 3
[[listen]]
address = "127.0.0.1:{port}"
[admin]
listen = "unix:{shown}/admin.sock"
[purge]
token_file = "token"
[cache.disk]
path = "{shown}/cache"
size = "64MiB"
[log]
access = "{shown}/access.log"
[[site]]
hosts = "*"
origin = "http://127.0.0.1:9"
"#
    );
    let file = directory.path().join("levada.toml");
    fs::write(&file, text).unwrap();
    fs::write(directory.path().join("token"), "a token of some length").unwrap();
    (directory, file)
}

/// Starts the node as this user, and returns it when it is ready, with everything that it has said; or only
/// that, if it ends.
fn start(file: &Path, user: u32) -> Result<(Process, String), String> {
    let mut command = Command::new("/proc/self/fd/0");
    // The directory of the executable may be closed to the user.
    command.stdin(fs::File::open(env!("CARGO_BIN_EXE_levada")).unwrap());
    command.args(["run", "-c"]).arg(file);
    Process::ready(command.uid(user))
}

/// A free port that only root may listen on. Tests that run at once get different ones.
fn low_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(600);
    loop {
        let port = NEXT.fetch_add(1, Relaxed);
        assert!(port < 1024, "all low ports are taken");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn get(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn node_that_root_starts_runs_as_the_user_and_reloads() {
    if !is_possible() {
        return;
    }
    let port = low_port();
    let (directory, file) = configure(port);
    let (node, said) = start(&file, 0).unwrap();
    assert!(said.contains("runs as nobody without capabilities"), "{said}");
    for thread in fs::read_dir(format!("/proc/{}/task", node.0.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        for line in [
            "Uid:\t65534\t65534\t65534\t65534",
            "CapPrm:\t0000000000000000",
            "CapEff:\t0000000000000000",
            "CapAmb:\t0000000000000000",
        ] {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    assert!(get(port).starts_with("HTTP/1.1 502 "), "it serves at a port of root's");
    for name in ["admin.sock", "cache", "access.log"] {
        assert_eq!(fs::metadata(directory.path().join(name)).unwrap().uid(), NOBODY, "{name}");
    }
    let reload = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["reload", "-c"]).arg(&file).output().unwrap()
    };
    let output = reload();
    assert!(output.status.success(), "{output:?}");
    let token = directory.path().join("token");
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let output = reload();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("token: Permission denied"), "{said}");
    assert!(get(port).starts_with("HTTP/1.1 502 "), "the settings stay in use");
}

#[test]
fn file_that_the_user_cannot_read_keeps_the_node_from_starting() {
    if !is_possible() {
        return;
    }
    let (directory, file) = configure(low_port());
    let token = directory.path().join("token");
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let said = start(&file, 0).err().unwrap();
    assert!(said.contains("the user nobody cannot read the configuration"), "{said}");
    assert!(said.contains("token: Permission denied"), "{said}");

    let text = fs::read_to_string(&file).unwrap().replace("nobody", "nobody-at-all");
    fs::write(&file, text).unwrap();
    let said = start(&file, 0).err().unwrap();
    assert!(said.contains("`user` in [runtime]: there is no user nobody-at-all"), "{said}");
}

#[test]
fn node_says_that_it_stays_root_or_that_it_cannot_change_its_user() {
    if !is_possible() {
        return;
    }
    let (_directory, file) = configure(low_port());
    let without = fs::read_to_string(&file).unwrap().replace("user = \"nobody\"\n", "");
    fs::write(&file, &without).unwrap();
    let (node, said) = start(&file, 0).unwrap();
    assert!(said.contains("runs as root with all its rights"), "{said}");
    drop(node);

    let (directory, file) = configure(0);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("user = \"nobody\"", "user = \"daemon\"")).unwrap();
    std::os::unix::fs::chown(directory.path(), Some(NOBODY), None).unwrap();
    let (_node, said) = start(&file, NOBODY).unwrap();
    assert!(said.contains("runs as nobody without capabilities: `user`"), "{said}");
}
