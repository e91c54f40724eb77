//! Clients that close one side first, take nothing for a while, are idle for long, or speak HTTP/1.0.

use super::{upgrade::eventually, *};

impl Cluster {
    /// How often the kernel of a host has counted an event; `table` and `name` as in `netstat -s`.
    pub(super) fn counted(host: &Host, table: &str, name: &str) -> u64 {
        let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let text = host.namespace().run(|| read("snmp").unwrap() + &read("netstat").unwrap());
        let text = text.unwrap();
        let mut rows = text.lines().filter(|line| line.split(':').next() == Some(table));
        let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
        let at = names.split(' ').position(|word| word == name).unwrap();
        values.split(' ').nth(at).unwrap().parse().unwrap()
    }

    /// Connections of the client that were reset while they were open.
    fn resets(&self) -> u64 {
        Self::counted(&self.client, "Tcp", "EstabResets")
    }

    fn wait_until_ended(&self, ended: u64) {
        eventually("it did not end in order", || {
            self.metric("levada_handoffs_total{result=\"ended\"}") == ended
                && self.metric("levada_handed_over") == 0
        });
    }

    fn ended(&self) -> u64 {
        self.metric("levada_handoffs_total{result=\"ended\"}")
    }
}

#[test]
fn either_side_may_close_first() {
    const SIZE: usize = 3_000_000;
    let Some(cluster) = Cluster::new("stay") else { return };
    let (ended, resets) = (cluster.ended(), cluster.resets());
    for (turn, closes) in (1..).zip(["", "Connection: close\r\n"]) {
        let mut reader = BufReader::new(cluster.connect());
        write!(reader.get_mut(), "GET /{SIZE} HTTP/1.1\r\nHost: back0.test\r\n{closes}\r\n")
            .unwrap();
        reader.fill_buf().unwrap();
        if closes.is_empty() {
            reader.get_mut().shutdown(Shutdown::Write).unwrap();
        }
        assert!(response(&mut reader).1 == content(SIZE));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the back-end closes in order");
        // The client's end comes a while after the back-end's.
        thread::sleep(Duration::from_millis(500));
        drop(reader);
        cluster.wait_until_ended(ended + turn);
    }
    assert_eq!(cluster.resets(), resets);
}

#[test]
fn upload_waits_while_its_server_takes_nothing() {
    const SIZE: usize = 20_000_000;
    let Some(cluster) = Cluster::new("stay") else { return };
    let mut writer = cluster.connect();
    let mut reader = BufReader::new(writer.try_clone().unwrap());
    writer.write_all(b"GET /10 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    response(&mut reader);
    let closed = Cluster::counted(&cluster.backs[0], "TcpExt", "TCPToZeroWindowAdv");
    write!(
        writer,
        "POST /late/echo HTTP/1.1\r\nHost: back0.test\r\nContent-Length: {SIZE}\r\n\r\n"
    )
    .unwrap();
    let sender = thread::spawn(move || writer.write_all(&content(SIZE)).unwrap());
    assert!(response(&mut reader).1 == content(SIZE));
    sender.join().unwrap();
    assert!(Cluster::counted(&cluster.backs[0], "TcpExt", "TCPToZeroWindowAdv") > closed);
}

/// `LEVADA_TEST_IDLE=3600` is the long form of it.
#[test]
fn idle_connection_stays_open_while_others_come_and_go() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_caching_back_with(0, "[limits]\nidle_timeout = '2h'\n");
    cluster.start_front("stay");
    cluster.wait_until_handed_to(0);
    let idles: u64 =
        std::env::var("LEVADA_TEST_IDLE").map_or(4, |seconds| seconds.parse().unwrap());
    // The kernel of the client asks whether the other side is still there, and gives up soon.
    let alive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(1))
        .with_interval(Duration::from_secs(1))
        .with_retries(2);
    let mut idle = [true, false].map(|asks| {
        let mut reader = BufReader::new(cluster.connect());
        if asks {
            socket2::SockRef::from(reader.get_ref()).set_tcp_keepalive(&alive).unwrap();
        }
        reader.get_mut().write_all(b"GET /10 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
        assert_eq!(response(&mut reader).1, content(10));
        reader
    });
    let asked = Cluster::counted(&cluster.client, "TcpExt", "TCPKeepAlive");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(idles) {
        assert_eq!(answered(&cluster, &[("back0.test", 1000)]), ["back0"]);
        thread::sleep(Duration::from_millis(idles / 2));
    }
    assert!(Cluster::counted(&cluster.client, "TcpExt", "TCPKeepAlive") > asked);
    for reader in &mut idle {
        reader.get_mut().write_all(b"GET /300000 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
        assert!(response(reader).1 == content(300_000));
    }
}

#[test]
fn connection_that_was_idle_for_too_long_is_closed_in_order() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_caching_back_with(0, "[limits]\nidle_timeout = '1s'\n");
    cluster.start_front("stay");
    cluster.wait_until_handed_to(0);
    let (ended, resets) = (cluster.ended(), cluster.resets());
    let mut reader = BufReader::new(cluster.connect());
    reader.get_mut().write_all(b"GET /10 HTTP/1.1\r\nHost: back0.test\r\n\r\n").unwrap();
    assert_eq!(response(&mut reader).1, content(10));
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    drop(reader);
    cluster.wait_until_ended(ended + 1);
    assert_eq!(cluster.resets(), resets);
}

#[test]
fn old_client_that_names_no_host_is_handed_to_the_site_of_all_hosts() {
    let Some(mut cluster) = Cluster::bare() else { return };
    cluster.start_back(0, 8080);
    let text = front_text("stay", "secret").replace("'back0.test'", "'*'");
    let mut command = levada();
    command.arg("run").arg("-c").arg(cluster.front_file(&text));
    cluster.start_front_by(command);
    cluster.wait_until_handed_to(0);
    let ended = cluster.ended();
    let mut stream = cluster.connect();
    stream.write_all(b"GET /300000 HTTP/1.0\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
    assert!(head.starts_with("HTTP/1.0 200 ") && bytes.ends_with(&content(300_000)), "{head}");
    cluster.wait_until_ended(ended + 1);
}
