//! Lines for syslog daemons: real sockets take the place of the daemon.

use std::{
    io::{BufReader, Read as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

use levada_observe::log::{FACILITIES, LineQueue, LogTarget, Syslog, SyslogTransport};
use levada_observe::metrics::Counter;

const SOON: Duration = Duration::from_secs(20);

fn queue(transport: SyslogTransport, dropped: &Counter) -> LineQueue {
    let facility = FACILITIES.iter().position(|name| *name == "local7").unwrap();
    let syslog = Syslog { transport, facility, node: "node a".to_owned() };
    LineQueue::start(LogTarget::Syslog(syslog), Duration::ZERO, dropped.clone()).unwrap()
}

/// Asserts that this is a message by RFC 5424 and returns what it says.
fn said(message: &str) -> &str {
    let fields: Vec<_> = message.splitn(8, ' ').collect();
    let [head, time, host, name, process, id, data, said] = fields[..] else {
        panic!("{message}");
    };
    assert_eq!((head, host, name, id, data), ("<190>1", "nodea", "levada", "access", "-"));
    assert!(time.len() == 25 && time.ends_with("+00:00"), "{time}");
    assert_eq!(process, std::process::id().to_string());
    said
}

/// The messages of a connection, each with its length before it.
struct Frames(BufReader<TcpStream>);

impl Iterator for Frames {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut length = 0;
        loop {
            let mut byte = [0];
            self.0.read_exact(&mut byte).ok()?;
            match byte[0] {
                b' ' => break,
                digit => length = 10 * length + usize::from(digit - b'0'),
            }
        }
        let mut message = vec![0; length];
        self.0.read_exact(&mut message).ok()?;
        Some(String::from_utf8(message).unwrap())
    }
}

fn accept(listener: &TcpListener) -> Frames {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    Frames(BufReader::new(stream))
}

#[test]
fn each_datagram_has_one_line() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    let dropped = Counter::default();
    let transport = SyslogTransport::Udp(server.local_addr().unwrap().to_string());
    let queue = queue(transport, &dropped);
    for line in ["one", "two words", r#"{"three":3}"#] {
        queue.push(line);
    }
    let mut buffer = [0; 1000];
    for line in ["one", "two words", r#"{"three":3}"#] {
        let count = server.recv(&mut buffer).unwrap();
        assert_eq!(said(std::str::from_utf8(&buffer[..count]).unwrap()), line);
    }
    // No datagram is so long.
    queue.push(&"x".repeat(70_000));
    queue.push("four");
    let count = server.recv(&mut buffer).unwrap();
    assert_eq!(said(std::str::from_utf8(&buffer[..count]).unwrap()), "four");
    assert!(queue.flush(SOON));
    assert_eq!(dropped.get(), 1);
}

#[test]
fn local_daemon_gets_what_the_c_library_sends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let server = UnixDatagram::bind(&path).unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    let dropped = Counter::default();
    let queue = queue(SyslogTransport::Unix(path), &dropped);
    queue.push("GET /");
    let mut buffer = [0; 1000];
    let count = server.recv(&mut buffer).unwrap();
    let expected = format!("<190>levada[{}]: GET /", std::process::id());
    assert_eq!(std::str::from_utf8(&buffer[..count]).unwrap(), expected);
}

#[test]
fn daemon_that_comes_late_or_starts_anew_gets_every_line_once() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let dropped = Counter::default();
    let queue = queue(SyslogTransport::Tcp(address.to_string()), &dropped);
    (0..100).for_each(|number| queue.push(&format!("line {number}")));
    assert!(!queue.flush(Duration::from_millis(1)), "nobody has taken them");
    let server = TcpListener::bind(address).unwrap();
    let mut frames = accept(&server);
    for number in 0..100 {
        assert_eq!(said(&frames.next().unwrap()), format!("line {number}"));
    }
    assert!(queue.flush(SOON));
    // The daemon closes while nothing is on its way.
    drop(frames);
    queue.push("after");
    assert_eq!(said(&accept(&server).next().unwrap()), "after");
    assert_eq!(dropped.get(), 0);
}

#[test]
fn daemon_that_reads_nothing_costs_lines_and_no_time() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let dropped = Counter::default();
    let queue = queue(SyslogTransport::Tcp(server.local_addr().unwrap().to_string()), &dropped);
    let _standing = {
        queue.push("first");
        server.accept().unwrap()
    };
    let line = "x".repeat(1000);
    let patience = Instant::now() + SOON;
    // The system's buffers hold some megabytes: until they are full, the queue may be empty at any moment.
    while dropped.get() < 1000 || queue.flush(Duration::from_millis(1)) {
        (0..1000).for_each(|_| queue.push(&line));
        assert!(Instant::now() < patience, "{} dropped", dropped.get());
    }
}

#[test]
fn queue_that_nobody_has_any_more_gives_a_dead_daemon_up() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let dropped = Counter::default();
    let queue = queue(SyslogTransport::Tcp(address.to_string()), &dropped);
    queue.push("one");
    queue.push("two");
    let weak = queue.downgrade();
    drop(queue);
    let patience = Instant::now() + SOON;
    while weak.upgrade().is_some() || dropped.get() < 2 {
        assert!(Instant::now() < patience, "{} dropped", dropped.get());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(dropped.get(), 2);
}

#[test]
fn places_of_daemons_are_read() {
    let read = |text: &str| text.parse::<SyslogTransport>();
    assert_eq!(read("syslog"), Ok(SyslogTransport::Unix("/dev/log".into())));
    assert_eq!(read("syslog:unix:/run/x"), Ok(SyslogTransport::Unix("/run/x".into())));
    let udp = Ok(SyslogTransport::Udp("10.0.0.9:514".to_owned()));
    assert_eq!(read("syslog:udp://10.0.0.9:514"), udp);
    assert_eq!(read("syslog:udp:10.0.0.9:514"), udp);
    assert_eq!(read("syslog:tcp://[::1]:601"), Ok(SyslogTransport::Tcp("[::1]:601".to_owned())));
    for wrong in [
        "syslog:",
        "syslog:udp",
        "syslog:udp://host",
        "syslog:udp://:514",
        "syslog:tcp://a:0",
        "syslog:tcp://a/b:1",
        "syslog:unix:relative",
        "syslog:tls://a:1",
        "syslog:tcp://::1:601",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
