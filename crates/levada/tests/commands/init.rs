//! `levada init` as a user runs it, and nodes that serve with what it wrote.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName},
};

use crate::support::{Process, free, levada};

fn init(directory: &Path, options: &[&str], answers: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("init").args(options).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // It may end without reading all of them.
    let _ = process.stdin.take().unwrap().write_all(answers.as_bytes());
    process.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// An origin that answers each request with its path and host. It ends with the process.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(first)) = lines.next() {
                    let host = lines.by_ref().map_while(Result::ok);
                    let head: Vec<_> = host.take_while(|line| !line.is_empty()).collect();
                    let is_host = |line: &&String| line.to_lowercase().starts_with("host:");
                    let host = head.iter().find(is_host).unwrap();
                    let body = format!("{} {host}", first.split(' ').nth(1).unwrap());
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    port
}

/// Checks the file as its reader would, runs a node with it, and waits until the node is ready.
fn run(file: &Path) -> Process {
    let name = file.to_str().unwrap();
    let validated = levada(&["validate", "-c", name]);
    assert_eq!(validated.status.code(), Some(0), "{}", said(&validated));
    assert!(!said(&validated).contains("warning"), "{}", said(&validated));
    Process::node(file)
}

fn get(mut stream: impl std::io::Read + std::io::Write, host: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // A server may leave out the end of TLS.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn node_in_front_of_an_origin_serves_with_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (origin, clients, admin) = (origin(), free(), free());
    let output = init(
        directory.path(),
        &[
            &format!("--origin=http://127.0.0.1:{origin}/"),
            "--host=www.example.com",
            "--host=*.example.org",
            &format!("--listen=127.0.0.1:{clients}"),
            &format!("--admin=127.0.0.1:{admin}"),
            "--output=new.toml",
        ],
        "",
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("levada run -c new.toml"), "{}", said(&output));
    let _node = run(&directory.path().join("new.toml"));
    for host in ["www.example.com", "cdn.example.org"] {
        let answer = get(TcpStream::connect(("127.0.0.1", clients)).unwrap(), host, "/page");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.to_lowercase().contains(&format!("/page host: {host}")), "{answer}");
    }
    let other = get(TcpStream::connect(("127.0.0.1", clients)).unwrap(), "a.test", "/");
    assert!(!other.starts_with("HTTP/1.1 200"), "{other}");
    let explained =
        levada(&["explain", "http://www.example.com/", "--admin", &format!("127.0.0.1:{admin}")]);
    assert!(explained.status.success(), "{}", said(&explained));
}

#[test]
fn three_answers_make_a_file_that_serves_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let content = directory.path().join("my site");
    fs::create_dir(&content).unwrap();
    fs::write(content.join("index.html"), "welcome").unwrap();
    let (clients, admin) = (free(), free());
    // Wrong answers are asked again.
    let answers = format!(
        "\nftp://a.example\nno such place/\nmy site\nhttp://a.example\n\nlocalhost\n127.0.0.1:{clients}\n"
    );
    let output = init(directory.path(), &[&format!("--admin=127.0.0.1:{admin}")], &answers);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for reason in ["There is no default", "must be a URL", "Write a port"] {
        assert!(said.contains(reason), "{said}");
    }
    assert_eq!(said.matches('?').count(), 3, "three questions: {said}");
    let _node = run(&directory.path().join("levada.toml"));
    let answer = get(TcpStream::connect(("127.0.0.1", clients)).unwrap(), "any.example", "/");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("welcome"), "{answer}");
}

/// A certificate for localhost and the files with it and its key.
fn certificate(directory: &Path) -> (CertificateDer<'static>, [PathBuf; 2]) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = [directory.join("cdn.pem"), directory.join("cdn.key")];
    fs::write(&files[0], made.cert.pem()).unwrap();
    fs::write(&files[1], made.signing_key.serialize_pem()).unwrap();
    (made.cert.der().clone(), files)
}

#[test]
fn certificate_makes_a_file_that_serves_https() {
    let directory = tempfile::tempdir().unwrap();
    let (trusted, _) = certificate(directory.path());
    fs::write(directory.path().join("a.txt"), "secret").unwrap();
    let (clients, admin) = (free(), free());
    let output = init(
        directory.path(),
        &[
            "--files=.",
            &format!("--listen=127.0.0.1:{clients}"),
            "--certificate=cdn.pem",
            "--key=cdn.key",
            &format!("--admin=127.0.0.1:{admin}"),
        ],
        "",
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let _node = run(&directory.path().join("levada.toml"));
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(client), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", clients)).unwrap();
    let answer = get(StreamOwned::new(connection, socket), "localhost", "/a.txt");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("secret"), "{answer}");
}

#[test]
fn file_that_exists_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    fs::write(&file, "mine").unwrap();
    let output = init(directory.path(), &["--origin=http://127.0.0.1:9000"], "");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("levada.toml exists already: --output"), "{}", said(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn one_option_is_enough_without_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let output = init(directory.path(), &["--origin=www.example.com:8080"], "not read\n");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!said(&output).contains('?'), "nothing is asked: {}", said(&output));
    let understood = "it serves what http://www.example.com:8080 has under every host name, by HTTP at 0.0.0.0:8080";
    assert!(said(&output).contains(understood), "{}", said(&output));
    let text = fs::read_to_string(directory.path().join("levada.toml")).unwrap();
    assert!(text.contains("origin = \"http://www.example.com:8080\""), "{text}");
    assert!(text.contains("\norigin_host = \"www.example.com\""), "{text}");
    assert!(text.contains("address = \"0.0.0.0:8080\"") && text.contains("hosts = [\"*\"]"));
}

#[test]
fn wrong_options_and_missing_answers_are_told_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    for (options, words) in [
        (&[][..], "give --origin URL or --files DIRECTORY"),
        (&["--origin=http://a.example/path"], "--origin: origin: must be a URL"),
        (&["--files=no-such-directory"], "--files: There is no directory no-such-directory."),
        (&["--origin=a.example", "--host=a/c"], "--host: "),
        (
            &["--origin=a.example", "--host=a b"],
            "--host: \"a b\" is not one host name: repeat the option for each name.",
        ),
        (&["--origin=a.example", "--listen=nowhere"], "--listen: Write a port"),
        (&["--origin=a.example", "--files=."], "cannot be used with"),
        (
            &["--origin=a.example", "--output=no/such/levada.toml"],
            "cannot write no/such/levada.toml",
        ),
    ] {
        let output = init(directory.path(), options, "");
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", said(&output));
        assert!(said(&output).contains(words), "{options:?}: {}", said(&output));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is written");
}
