//! Trouble on the way to a certificate: the server, the storage, the clock.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{DAY, addresses, client::Secure, node::Node, pebble, pebble::authority, wait};

const SITE: &str = "hosts = \"a.test\"";

#[test]
fn old_certificate_is_shown_while_the_server_is_down_and_an_alarm_is_raised() {
    let [at] = addresses();
    let Some(mut pebble) = pebble(at, 30) else { return };
    let mut node = Node::alone(at, &pebble.table(""), &[SITE]);
    node.start();
    let first = node.certificate("a.test");
    pebble.stop();
    wait("a failure is told", || !node.events("certificate_failed").is_empty());
    wait("an alarm is raised", || !node.events("certificate_expiring").is_empty());
    let alarms = node.events("certificate_expiring");
    assert!(alarms[0].contains("the certificate of a.test (acme) ends in"), "{alarms:?}");
    wait("the status shows it", || {
        let state = &node.states()[0];
        state["alarm"] == true && state["problem"].as_str().is_some_and(|why| why.contains("14000"))
    });
    wait("it has ended", || node.states()[0]["days"].as_f64().unwrap() < 0.0);
    // A restart needs no server either.
    node.start();
    assert_eq!(node.certificate("a.test"), first, "it is shown even after its end");
    assert!(
        node.metric("levada_certificate_expiry_timestamp_seconds{name=\"a.test\",source=\"acme\"}")
            > 0.0
    );
    // The server that comes back knows neither account nor certificate.
    pebble.restart();
    wait("there is a new one", || node.certificate("a.test") != first);
    assert!(node.log().contains("does not know the account"), "{}", node.log());
}

#[test]
fn node_starts_without_a_certificate_and_refuses_handshakes_until_it_has_come() {
    let [at] = addresses();
    let Some(mut pebble) = pebble(at, DAY) else { return };
    pebble.stop();
    let mut node = Node::alone(at, &pebble.table(""), &[SITE]);
    node.start();
    assert!(node.secure("a.test").is_err());
    wait("the refusal is logged", || node.log().contains("handshakes are refused"));
    wait("the status says why", || {
        let state = &node.states()[0];
        state["ends"] == 0 && state["alarm"] == true && state["problem"].is_string()
    });
    pebble.restart();
    node.certificate("a.test");
    wait("the problem is over", || node.states()[0]["problem"].is_null());
}

/// The first certificate is the server's own; then a proxy before it delivers that of somebody else.
#[test]
fn certificate_for_another_name_is_refused_and_the_old_one_goes_on() {
    let [at, proxy] = addresses();
    let Some(pebble) = pebble(at, 40) else { return };
    let mut node = Node::alone(at, &pebble.table(""), &[SITE]);
    node.start();
    let first = node.certificate("a.test");
    node.wait_until_stored("a.test");
    authority(node.directory.path(), proxy);
    let other = rcgen::generate_simple_self_signed(["other.test".to_owned()]).unwrap();
    let delivered = delivering_proxy(proxy, node.directory.path(), pebble.at, other.cert.pem());
    let acme = format!(
        "[acme]\nagree = true\nstorage = \"acme\"\ndirectory = \"https://{proxy}:14000/dir\"\n\
         authority = \"{}\"",
        node.file("ca.pem").display()
    );
    node.configure("a", &acme, &[SITE], "");
    node.reload();
    wait("the failure is told", || !node.events("certificate_failed").is_empty());
    let events = node.events("certificate_failed");
    assert!(events[0].contains("what the server issued"), "{events:?}");
    assert!(delivered.load(Relaxed) >= 1);
    assert_eq!(node.certificate("a.test"), first);
    assert!(node.states()[0]["problem"].is_string());
}

#[test]
fn lost_account_key_is_replaced() {
    let [at] = addresses();
    let Some(pebble) = pebble(at, DAY) else { return };
    let mut node = Node::alone(at, &pebble.table(""), &[SITE]);
    node.start();
    let first = node.certificate("a.test");
    node.wait_until_stored("a.test");
    node.stop();
    let file = |directory: &str| {
        let files = fs::read_dir(node.file("acme").join(directory)).unwrap();
        let mut files = files.map(|file| file.unwrap().path());
        files
            .find(|file| file.extension().is_some_and(|kind| kind == "json" || kind == "pem"))
            .unwrap()
    };
    let account = file("accounts");
    // Damaged, with a key of the certificate that is cut off.
    fs::write(&account, "{\"id\": \"https://").unwrap();
    let certificate = file("certificates");
    let pem = fs::read_to_string(&certificate).unwrap();
    fs::write(&certificate, &pem[pem.find("-----BEGIN CERT").unwrap()..]).unwrap();
    node.start();
    let second = node.certificate("a.test");
    assert_ne!(first, second);
    let log = node.log();
    assert!(log.contains("its key cannot be read") && log.contains("is damaged"), "{log}");
    assert!(account.with_extension("json.lost").exists());
    // Deleted.
    node.wait_until_stored("a.test");
    node.stop();
    fs::remove_file(&account).unwrap();
    fs::remove_file(&certificate).unwrap();
    node.start();
    assert_ne!(node.certificate("a.test"), second);
    node.wait_until_stored("a.test");
    assert!(account.exists());
}

#[test]
fn nothing_is_ordered_that_cannot_be_stored() {
    let [at] = addresses();
    let Some(pebble) = pebble(at, DAY) else { return };
    let mut node = Node::alone(at, &pebble.table(""), &[SITE]);
    fs::write(node.file("acme"), "a file in the place of the directory").unwrap();
    node.start();
    wait("the failure is told", || !node.events("certificate_failed").is_empty());
    let events = node.events("certificate_failed");
    assert!(events[0].contains("nothing is ordered, because it could not be stored"), "{events:?}");
    assert!(!pebble.log().contains("/sign-me-up"), "no account was made");
    fs::remove_file(node.file("acme")).unwrap();
    node.reload();
    node.certificate("a.test");
}

#[test]
fn other_node_orders_when_the_first_one_cannot_store() {
    let at = addresses::<2>();
    let Some(pebble) = pebble(at[0], DAY) else { return };
    let names: Vec<_> = (0..6).map(|number| format!("name-{number}.test")).collect();
    let sites: Vec<_> = names.iter().map(|name| format!("hosts = \"{name}\"")).collect();
    let sites: Vec<_> = sites.iter().map(String::as_str).collect();
    let mut nodes = Node::cluster(&at, &pebble.table(""), &sites);
    fs::write(nodes[0].file("acme"), "a file in the place of the directory").unwrap();
    nodes.iter_mut().for_each(Node::start);
    // Some of these certificates are the first node's to order.
    for name in &names {
        nodes[1].certificate(name);
        nodes[0].certificate(name);
    }
    assert_eq!((nodes[0].orders(), nodes[1].orders()), (0.0, 6.0));
    wait("it says that a restart would lose them", || {
        let states = nodes[0].states();
        states
            .iter()
            .all(|state| state["problem"].as_str().is_some_and(|why| why.contains("restart")))
    });
}

#[test]
fn server_that_is_not_trusted_is_named_with_the_remedy() {
    let [at] = addresses();
    let Some(pebble) = pebble(at, DAY) else { return };
    let acme = pebble.table("");
    let acme: Vec<_> = acme.lines().filter(|line| !line.starts_with("authority")).collect();
    let mut node = Node::alone(at, &acme.join("\n"), &[SITE]);
    node.start();
    wait("the failure is told", || !node.events("certificate_failed").is_empty());
    let events = node.events("certificate_failed");
    assert!(events[0].contains("is `acme.authority` the authority"), "{events:?}");
}

#[test]
fn proof_that_the_server_does_not_find_is_told_in_its_words() {
    let [at, nobody] = addresses();
    let Some(pebble) = pebble(at, DAY) else { return };
    pebble.set_address("a.test", nobody);
    let mut node = Node::alone(at, &pebble.table("challenge = \"http-01\""), &[SITE]);
    node.start();
    wait("the failure is told", || !node.events("certificate_failed").is_empty());
    let events = node.events("certificate_failed");
    assert!(events[0].contains("a.test: ") && events[0].contains("connection"), "{events:?}");
    // An operator who has repaired it does not wait for the next try.
    pebble.set_address("a.test", at);
    node.reload();
    node.certificate("a.test");
}

#[test]
fn clock_that_is_far_ahead_is_named() {
    if levada_skip::lacks("faketime", "faketime") {
        return;
    }
    let [at] = addresses();
    let Some(pebble) = pebble(at, DAY) else { return };
    let mut node = Node::alone(at, &pebble.table(""), &[SITE]);
    node.start_at("+400d");
    wait("the failure is told", || node.log().contains("no new certificate"));
    let log = node.log();
    assert!(log.contains("the clock of this machine is") && log.contains("ahead of"), "{log}");
}

/// A server that has no room for us, and says when it may have.
#[test]
fn server_that_limits_requests_is_left_alone_for_as_long_as_it_says() {
    let [at] = addresses();
    let directory = tempfile::tempdir().unwrap();
    authority(directory.path(), at);
    let wait_for = Duration::from_secs(8);
    let asked = limiting_server(at, directory.path(), wait_for);
    let acme = format!(
        "[acme]\nagree = true\nstorage = \"acme\"\ndirectory = \"https://{at}:14000/dir\"\n\
         authority = \"{}\"",
        directory.path().join("ca.pem").display()
    );
    let mut node = Node::alone(at, &acme, &[SITE]);
    node.start();
    wait("the failure is told", || !node.events("certificate_failed").is_empty());
    let events = node.events("certificate_failed");
    assert!(events[0].contains("the next try is in"), "{events:?}");
    wait("the server is asked again", || asked.lock().unwrap().len() > 1);
    let asked = asked.lock().unwrap().clone();
    assert!(asked[1] - asked[0] >= wait_for, "{:?}", asked[1] - asked[0]);
}

/// Passes requests on to pebble, and delivers another certificate in place of those that it issues.
fn delivering_proxy(at: IpAddr, files: &Path, pebble: IpAddr, other: String) -> Arc<AtomicUsize> {
    let (config, delivered) = (of_server(files), Arc::new(AtomicUsize::new(0)));
    let (listener, count) =
        (TcpListener::bind(SocketAddr::from((at, 14_000))).unwrap(), delivered.clone());
    let pass = move |stream| -> std::io::Result<()> {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut client = BufReader::new(StreamOwned::new(connection, stream));
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let start = head.len();
            if client.read_line(&mut head)? == 0 {
                return Ok(());
            }
            let line = head[start..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        client.read_exact(&mut body)?;
        let server = Secure::connect(SocketAddr::from((pebble, 14_000)), &pebble.to_string())?;
        let request = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        let mut answer = server.exchange(&[request.as_bytes(), &body].concat())?;
        // The server refuses some nonces.
        if head.starts_with("POST /certZ/") && answer.starts_with(b"HTTP/1.1 200 ") {
            count.fetch_add(1, Relaxed);
            let text = String::from_utf8_lossy(&answer).into_owned();
            let head = text.split_once("\r\n\r\n").map_or("", |(head, _)| head);
            let framing = ["content-length", "transfer-encoding"];
            let kept = |line: &&str| {
                let line = line.to_ascii_lowercase();
                !framing.iter().any(|name| line.starts_with(name))
            };
            let head: Vec<_> = head.lines().filter(kept).collect();
            let length = other.len();
            let head = head.join("\r\n");
            answer = format!("{head}\r\nContent-Length: {length}\r\n\r\n{other}").into_bytes();
        }
        client.get_mut().write_all(&answer)?;
        client.get_mut().flush()
    };
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = pass(stream);
        }
    });
    delivered
}

/// TLS with the certificate of a server that [`authority`] has made.
fn of_server(files: &Path) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(files.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(files.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key);
    Arc::new(config.unwrap())
}

fn limiting_server(at: IpAddr, files: &Path, wait_for: Duration) -> Arc<Mutex<Vec<Instant>>> {
    let (config, asked) = (of_server(files), Arc::new(Mutex::new(Vec::new())));
    let (listener, noted) =
        (TcpListener::bind(SocketAddr::from((at, 14_000))).unwrap(), asked.clone());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let mut head = [0; 4096];
            if stream.read(&mut head).unwrap_or(0) == 0 {
                continue;
            }
            noted.lock().unwrap().push(Instant::now());
            let body =
                "{\"type\": \"urn:ietf:params:acme:error:rateLimited\", \"detail\": \"busy\"}";
            let _ = write!(
                stream,
                "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\n\
                 Retry-After: {}\r\nContent-Length: {}\r\n\r\n{body}",
                wait_for.as_secs(),
                body.len()
            );
            let _ = stream.flush();
        }
    });
    asked
}
