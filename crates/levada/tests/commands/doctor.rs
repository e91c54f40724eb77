//! `levada doctor` on machines with real defects.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// A loopback address that other tests do not use, so that its ports stay free.
const HOST: &str = "127.71.0.1";

fn configuration(directory: &Path, port: u16, more: &str) -> String {
    let file = directory.join("levada.toml");
    let text = format!(
        r#"
name = "a"
{more}
[[listen]]
address = "{HOST}:{port}"
[[site]]
hosts = "*"
origin = "http://127.0.0.1:9"
"#
    );
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The exit code and the findings of this command.
fn examined(command: &mut Command) -> (Option<i32>, Vec<Value>) {
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = report["findings"].as_array().unwrap().clone();
    let failed = findings.iter().filter(|finding| finding["level"] == "fail").count();
    assert_eq!(report["fail"], failed);
    assert_eq!(output.status.code(), Some(i32::from(failed > 0)), "{findings:#?}");
    (output.status.code(), findings)
}

fn levada() -> Command {
    Command::new(env!("CARGO_BIN_EXE_levada"))
}

fn doctor(file: &str) -> Command {
    let mut command = levada();
    command.args(["doctor", "--json", "-c", file]);
    command
}

fn free_port() -> u16 {
    TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port()
}

/// The finding of a check whose name begins so.
fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    let found = findings.iter().find(|one| one["check"].as_str().unwrap().starts_with(check));
    found.unwrap_or_else(|| panic!("no {check} in {findings:#?}"))
}

#[test]
fn every_check_of_a_configuration_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("cache");
    let more = format!("[cache.disk]\npath = {disk:?}\nsize = \"32MiB\"");
    let file = configuration(directory.path(), free_port(), &more);
    let (_, findings) = examined(&mut doctor(&file));
    for check in [
        "configuration",
        "user",
        "open files",
        "memory",
        "clock",
        "net.core.somaxconn",
        "net.ipv4.tcp_max_syn_backlog",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
        "tcp_notsent_lowat",
        "name server ",
        "port 127.71.0.1:",
        "splice",
        "handoff",
        "disk ",
    ] {
        let finding = finding(&findings, check);
        let has_remedy = finding["remedy"].is_string() || finding["meaning"].is_null();
        assert!(has_remedy || finding["level"] != "fail", "{finding:#}");
    }
    assert_eq!(finding(&findings, "port ")["level"], "ok");
    assert_eq!(finding(&findings, "splice")["level"], "ok");
    assert!(!disk.exists(), "nothing is made");
}

#[test]
fn low_limit_of_open_files_is_told_beside_the_connections() {
    if levada_skip::lacks("prlimit", "util-linux") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = configuration(directory.path(), free_port(), "limits.connections = 600");
    for (hard, level) in [(1200, "ok"), (1199, "warn"), (599, "fail")] {
        let limit = format!("--nofile=100:{hard}");
        let mut limited = Command::new("prlimit");
        limited.args([&limit, env!("CARGO_BIN_EXE_levada"), "doctor", "--json", "-c", &file]);
        let (_, findings) = examined(&mut limited);
        let finding = finding(&findings, "open files");
        assert_eq!(finding["level"], level, "{finding:#}");
        assert!(finding["seen"].as_str().unwrap().contains(&format!("hard limit {hard}")));
    }
}

#[test]
fn taken_port_is_told_with_the_program_that_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((HOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let file = configuration(directory.path(), port, "");
    let (code, findings) = examined(&mut doctor(&file));
    let finding = finding(&findings, "port ");
    assert_eq!((code, &finding["level"]), (Some(1), &Value::from("fail")), "{finding:#}");
    let pid = format!("(pid {})", std::process::id());
    assert!(finding["seen"].as_str().unwrap().contains(&pid), "{finding:#}");
    assert!(finding["remedy"].as_str().unwrap().contains("ss -ltnp"), "{finding:#}");
}

#[test]
fn full_disk_is_told() {
    if !rustix::process::geteuid().is_root() {
        levada_skip::skipped("needs root to mount a file system");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mount = directory.path().join("small");
    fs::create_dir(&mount).unwrap();
    let more = format!("[cache.disk]\npath = {mount:?}\nsize = \"64MiB\"");
    let file = configuration(directory.path(), free_port(), &more);
    // In a mount namespace of its own, which ends with the command.
    for (fill, words) in [
        (":", "before the cache is"),
        ("head -c 40M /dev/zero > \"$2/filler\" 2>/dev/null || :", "stores nothing on disk"),
    ] {
        let script = format!(
            "mount -t tmpfs -o size=24m none \"$2\" && {{ {fill}; }} && shift 2 && exec \"$0\" \"$@\""
        );
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_levada"), "-"]);
        inside.arg(&mount).args(["doctor", "--json", "-c", &file]);
        let (_, findings) = examined(&mut inside);
        let finding = finding(&findings, "disk ");
        assert_eq!(finding["level"], "fail", "{finding:#}");
        assert!(finding["meaning"].as_str().unwrap().contains(words), "{finding:#}");
    }
}

#[test]
fn memory_beyond_the_machine_and_names_without_addresses_fail() {
    let directory = tempfile::tempdir().unwrap();
    let file = configuration(directory.path(), free_port(), "limits.memory = \"1000TiB\"");
    let text = fs::read_to_string(&file).unwrap();
    // A label of 64 bytes is no name: no name server is asked.
    let name = format!("{}.invalid", "a".repeat(64));
    fs::write(&file, text.replace("127.0.0.1:9\"", &format!("{name}:9\""))).unwrap();
    let (_, findings) = examined(&mut doctor(&file));
    assert_eq!(finding(&findings, "memory")["level"], "fail");
    assert_eq!(finding(&findings, &format!("name {name}"))["level"], "fail");
}

#[test]
fn user_that_does_not_exist_fails() {
    let directory = tempfile::tempdir().unwrap();
    let file =
        configuration(directory.path(), free_port(), "runtime.user = \"no-such-user-of-levada\"");
    let (_, findings) = examined(&mut doctor(&file));
    let finding = finding(&findings, "user");
    assert_eq!(finding["level"], "fail", "{finding:#}");
    assert!(finding["remedy"].as_str().unwrap().contains("useradd"), "{finding:#}");
}

#[test]
fn file_with_errors_is_told_and_the_machine_is_checked_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let file = configuration(directory.path(), 8080, "nonsense = 1");
    let (code, findings) = examined(&mut doctor(&file));
    assert_eq!(code, Some(1));
    let finding = finding(&findings, "configuration");
    assert!(finding["remedy"].as_str().unwrap().contains("levada validate -c"), "{finding:#}");
    assert!(findings.len() > 8);
}

fn text(directory: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = levada();
    command.arg("doctor").current_dir(directory).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn file_of_the_working_directory_is_taken_and_colours_obey_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    configuration(directory.path(), free_port(), "");
    let told = |variables: &[(&str, &str)]| {
        String::from_utf8(text(directory.path(), variables).stdout).unwrap()
    };
    let plain = told(&[]);
    assert!(plain.contains("levada.toml can be used"), "{plain}");
    assert!(!plain.contains('\x1b'), "{plain}");
    assert!(told(&[("CLICOLOR_FORCE", "1")]).contains("\x1b[32mok"));
    assert!(!told(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\x1b'));
}

#[test]
fn file_that_cannot_be_read_ends_the_command() {
    let output = levada().args(["doctor", "-c", "no/such/levada.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read no/such/levada.toml"));
}

/// Answers every connection with these bytes, once it has said something or after nothing.
fn answering(bytes: &'static [u8], waits: bool) -> u16 {
    let listener = TcpListener::bind((HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if waits {
                let _ = stream.read(&mut [0; 24]);
            }
            let _ = stream.write_all(bytes);
            let _ = stream.read(&mut [0; 64]);
        }
    });
    port
}

#[test]
fn origins_are_tried_by_the_protocol_of_their_site() {
    let directory = tempfile::tempdir().unwrap();
    let settings = answering(b"\0\0\0\x04\0\0\0\0\0", false);
    let old = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n", true);
    let closed = free_port();
    let text = format!(
        r#"
name = "a"
[[listen]]
address = "{HOST}:{}"
[[site]]
hosts = "one.test"
origin = ["http://{HOST}:{settings}", "http://{HOST}:{old}"]
protocol = "h2"
[[site]]
hosts = "other.test"
origin = ["http://{HOST}:{old}", "http://{HOST}:{closed}", "https://{HOST}:{old}"]
"#,
        free_port()
    );
    let file = directory.path().join("levada.toml");
    fs::write(&file, text).unwrap();
    let (code, findings) = examined(doctor(file.to_str().unwrap()).arg("--origins"));
    assert_eq!(code, Some(1));
    for (seen, level) in [
        (format!("origin http://{HOST}:{settings}: HTTP/2 without TLS (h2c)"), "ok"),
        (format!("origin http://{HOST}:{old}: it answers HTTP/1.1 to HTTP/2"), "fail"),
        (format!("origin http://{HOST}:{old}: HTTP/1.1, it accepts"), "ok"),
        (format!("origin http://{HOST}:{closed}: no connection to"), "fail"),
        (format!("origin https://{HOST}:{old}: it does not speak TLS"), "fail"),
    ] {
        let found = findings.iter().any(|finding| {
            finding["level"] == level && finding["seen"].as_str().unwrap().starts_with(&seen)
        });
        assert!(found, "{level} {seen}: {findings:#?}");
    }
}

#[test]
fn needs_of_acme_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let storage = directory.path().join("acme");
    fs::write(&storage, "a file in the place of the directory").unwrap();
    let text = format!(
        r#"
name = "a"
[acme]
agree = true
storage = {storage:?}
directory = "https://{HOST}:{}/dir"
[[listen]]
address = "{HOST}:{}"
acme = true
[[site]]
hosts = ["localhost", "no-such-name.invalid"]
origin = "http://127.0.0.1:9"
"#,
        free_port(),
        free_port()
    );
    let file = directory.path().join("levada.toml");
    fs::write(&file, text).unwrap();
    let (code, findings) = examined(&mut doctor(file.to_str().unwrap()));
    assert_eq!(code, Some(1));
    for (check, level) in [
        ("acme storage", "fail"),
        ("acme directory", "fail"),
        ("acme port 443", "warn"),
        ("acme name localhost", "ok"),
        ("acme name no-such-name.invalid", "warn"),
    ] {
        let finding = finding(&findings, check);
        assert_eq!(finding["level"], level, "{finding:#}");
        assert!(level == "ok" || finding["remedy"].is_string(), "{finding:#}");
    }
    fs::remove_file(&storage).unwrap();
    let (_, findings) = examined(&mut doctor(file.to_str().unwrap()));
    assert_eq!(finding(&findings, "acme storage")["level"], "ok");
    assert!(!storage.exists(), "nothing is made");
}
