//! `levada run` as a process among others: its limits.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Process, free};

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
fn start(configuration: &str, soft: u32, hard: u32) -> (Child, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    std::fs::write(&file, configuration).unwrap();
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
        let (mut process, said) = start(CONFIGURATION, 200, hard);
        let limit = limit_of(&process);
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(limit, hard);
        assert_eq!(said.contains("allow 1200 open files"), is_told, "{said}");
    }
}

/// The resident memory of the process in KiB.
fn resident_of(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The answer of an address to a request, empty if it closes the connection.
fn answer(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    // Connections that are turned away may be reset.
    let _ = socket.write_all(request.as_bytes());
    let _ = socket.read_to_string(&mut answer);
    answer
}

#[test]
fn admin_answers_while_memory_is_full_and_clients_are_turned_away() {
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n[limits]\nmemory = \"64MiB\"";
    let configuration = CONFIGURATION.replace("[limits]", admin);
    let (mut process, said) = start(&configuration, 1200, 1200);
    let mut addresses = said.split("127.0.0.1:").skip(1).map(|rest| {
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        format!("127.0.0.1:{port}")
    });
    let (client, admin) = (addresses.next().unwrap(), addresses.next().unwrap());
    // A program that is not optimised takes more than the least bound by itself.
    let is_full = resident_of(&process) > (64 << 10) / 32 * 31;
    let bounded = "levada_memory_limit_bytes 67108864";
    let refused = answer(&client, "/");
    let (health, metrics) = (answer(&admin, "/healthz"), answer(&admin, "/metrics"));
    // There is nothing to give back, and nobody who has anything: the node does not refuse for ever.
    let is_served = (0..300).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        answer(&client, "/").starts_with("HTTP/1.1 502")
    });
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    assert!(metrics.contains(bounded), "{metrics}");
    let is_refused = refused.is_empty() || refused.starts_with("HTTP/1.1 503");
    assert!(is_refused || !is_full, "{refused}");
    assert!(is_served);
}

/// An origin that has one page, which may be stored.
fn origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: max-age=600\r\n\
                  Connection: close\r\n\r\nhello",
            );
        }
    });
    address
}

/// Sends these bytes, and waits for as many.
fn exchange(socket: &mut TcpStream, sent: &[u8], awaited: usize) -> std::io::Result<Vec<u8>> {
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    socket.write_all(sent)?;
    let mut came = vec![0; awaited];
    socket.read_exact(&mut came)?;
    Ok(came)
}

#[test]
fn idle_connections_give_way_to_new_clients_when_files_run_out() {
    let listener = "address = \"127.0.0.1:0\"\nh2c = true";
    let configuration = CONFIGURATION
        .replace("127.0.0.1:9", &origin())
        .replace("address = \"127.0.0.1:0\"", listener);
    let (mut process, said) = start(&configuration, 64, 64);
    let (_, port) = said.split_once("clients=127.0.0.1:").unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let address = format!("127.0.0.1:{port}");
    let head = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // Connections of both protocols, and some that say nothing.
    let idle: Vec<_> = (0..60)
        .map(|number| {
            let mut socket = TcpStream::connect(&address).unwrap();
            match number % 3 {
                0 => drop(exchange(&mut socket, head, 15)),
                1 => drop(exchange(&mut socket, greeting, 9)),
                _ => {}
            }
            socket
        })
        .collect();
    let new: Vec<_> = (0..20)
        .map(|number| {
            // Of every other one the origin is asked.
            let path = if number % 2 == 0 { String::new() } else { number.to_string() };
            let head = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let mut socket = TcpStream::connect(&address).unwrap();
            let came = exchange(&mut socket, head.as_bytes(), 15);
            (socket, came.map(|came| String::from_utf8_lossy(&came).into_owned()))
        })
        .collect();
    process.kill().unwrap();
    process.wait().unwrap();
    drop(idle);
    for (_, came) in &new {
        assert_eq!(came.as_deref().unwrap_or("nothing"), "HTTP/1.1 200 OK", "{new:?}");
    }
}

/// The lines of the event log of `levada -v run`, from the start to the end by TERM.
fn logged(variables: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n[limits]";
    std::fs::write(&file, CONFIGURATION.replace("[limits]", admin)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["-v", "run", "-c"]).arg(&file).envs(variables.iter().copied());
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("ready") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "the node starts: {said}");
    }
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    stderr.read_to_string(&mut said).unwrap();
    process.wait().unwrap();
    said
}

#[test]
fn log_has_no_debug_forms_and_more_lines_with_v() {
    let said = logged(&[]);
    for form in ["Some(", "None", "{", "=[", "\x1b"] {
        assert!(!said.contains(form), "{form}: {said}");
    }
    assert!(said.contains(" ready name=\"a\" clients=127.0.0.1:"), "{said}");
    assert!(said.contains(" admin=127.0.0.1:") && !said.contains("peers="), "{said}");
    assert!(said.contains("limit=30s"), "{said}");
}

#[test]
fn colours_of_the_log_obey_the_environment() {
    assert!(logged(&[("CLICOLOR_FORCE", "1")]).contains("\x1b["));
    assert!(!logged(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains("\x1b["));
}

#[test]
fn signals_right_after_ready_do_not_end_the_node_without_a_drain() {
    for round in 0..8 {
        let (mut process, _) = start(CONFIGURATION, 1200, 1200);
        let pid = Pid::from_child(&process);
        let _ = kill_process(pid, Signal::HUP);
        let _ = kill_process(pid, Signal::TERM);
        let status = process.wait().unwrap();
        assert!(status.success(), "round {round}: {status}");
    }
}

/// The volume of a ConfigMap, as the kubelet renews it: the files are links into a directory that is swapped.
fn renew(volume: &Path, version: &str, configuration: &str) {
    let data = volume.join(version);
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("levada.toml"), configuration).unwrap();
    symlink(version, volume.join("..data_tmp")).unwrap();
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
}

#[test]
fn renewed_volume_is_a_reload_and_a_wrong_one_changes_nothing() {
    let (client, admin) = (free(), free());
    let (client, admin) = (format!("127.0.0.1:{client}"), format!("127.0.0.1:{admin}"));
    let with = |body: &str| {
        format!(
            "name = 'a'\n[[listen]]\naddress = '{client}'\n[admin]\nlisten = '{admin}'\n\
             [[site]]\nhosts = '*'\norigin = 'http://127.0.0.1:9'\n\
             [[site.route]]\nrespond = {{ body = '{body}' }}\n"
        )
    };
    let volume = tempfile::tempdir().unwrap();
    let volume = volume.path();
    renew(volume, "..1", &with("one"));
    let file = volume.join("levada.toml");
    symlink("..data/levada.toml", &file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("run").arg("-c").arg(&file).arg("--watch").arg(volume);
    let (_node, _said) = Process::ready(&mut command).unwrap();
    assert!(answer(&client, "/").ends_with("one"));

    let until = |path_at: &str, path: &str, expected: &str| {
        let comes = (0..300).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            answer(path_at, path).contains(expected)
        });
        assert!(comes, "{expected}: {}", answer(path_at, path));
    };
    renew(volume, "..2", &with("two"));
    until(&client, "/", "two");
    renew(volume, "..3", &with("three").replace("[[site]]", "[[sight]]"));
    until(&admin, "/metrics", "levada_config_last_reload_success 0");
    until(&admin, "/events", "reload_failed");
    assert!(answer(&client, "/").ends_with("two"));
    renew(volume, "..4", &with("four"));
    until(&client, "/", "four");
}
