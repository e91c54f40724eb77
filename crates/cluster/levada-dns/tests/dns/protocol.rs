//! Static zones over UDP and TCP, EDNS, cookies, limits, bad messages.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use levada_dns::{rate::RateLimit, route::Tables};

use crate::support::{Running, ZONE, identity, query, world, zone};

/// Asserts that the answers of kdig to each line have these texts.
fn check(running: &Running, lines: &[(&str, &[&str])]) {
    for (line, texts) in lines {
        let Some(answer) = running.kdig(line) else { return };
        for text in *texts {
            let (wanted, text) = text.strip_prefix('!').map_or((true, *text), |text| (false, text));
            assert_eq!(answer.contains(text), wanted, "{line}: {text:?} in {answer}");
        }
    }
}

#[test]
fn records_of_a_zone_are_answered() {
    check(
        &Running::with_zone(),
        &[
            ("static.a.test A", &["status: NOERROR", "aa", "192.0.2.80", "300"]),
            ("a.test SOA", &["ns1.a.test. hostmaster.a.test. 1 7200 3600 1209600 60"]),
            ("a.test NS", &["ns1.a.test.", "ns2.a.test."]),
            ("a.test CAA", &["0 issue \"ca.test\""]),
            ("a.test MX", &["10 mail.a.test."]),
            ("alias.a.test A", &["CNAME\tstatic.a.test.", "192.0.2.80"]),
            ("alias.a.test CNAME", &["CNAME\tstatic.a.test.", "!192.0.2.80"]),
            ("outside.a.test A", &["CNAME\twww.elsewhere.test.", "status: NOERROR"]),
            ("x.y.wild.a.test TXT", &["x.y.wild.a.test.", "\"any\""]),
            ("wild.a.test TXT", &["status: NOERROR", "ANSWER: 0", "SOA"]),
            ("empty.tree.a.test A", &["status: NOERROR", "ANSWER: 0", "SOA"]),
            ("none.a.test A", &["status: NXDOMAIN", "AUTHORITY: 1", "\t60\tIN\tSOA", "aa"]),
            (
                "www.sub.a.test A",
                &["status: NOERROR", "!aa ", "sub.a.test.", "ns.sub.a.test.", "192.0.2.99"],
            ),
            ("a.test ANY", &["HINFO\t\"RFC8482\" \"\"", "ANSWER: 1"]),
            ("a.test AXFR", &["!192.0.2.80"]),
            ("other.test A", &["status: REFUSED", "!aa "]),
            ("a.test TXT CH", &["status: REFUSED"]),
        ],
    );
}

#[test]
fn case_of_a_question_is_kept_in_the_answer() {
    let running = Running::with_zone();
    let mut message = query("static.a.test", 1);
    message[13..19].make_ascii_uppercase();
    let answer = running.ask(&message).unwrap();
    let question = message.len();
    assert_eq!(answer[12..question], message[12..]);
    // The owner is a pointer to it.
    assert_eq!((answer[7], &answer[question..question + 4]), (1, &[0xc0, 12, 0, 1][..]));
}

#[test]
fn edns_has_a_version_a_name_a_cookie_and_a_scope() {
    check(
        &Running::with_zone(),
        &[
            ("static.a.test A +edns", &["EDNS PSEUDOSECTION", "Version: 0", "1232 B"]),
            ("static.a.test A +noedns", &["!EDNS"]),
            ("static.a.test A +edns=1", &["BADVERS", "!192.0.2.80"]),
            ("static.a.test A +nsid", &["NSID", "eu-1"]),
            ("static.a.test A +cookie=0102030405060708", &["COOKIE", "010203040506070801"]),
            ("static.a.test A +subnet=192.0.2.0/24", &["CLIENT-SUBNET: 192.0.2.0/24/0"]),
            ("static.a.test A +dnssec", &["flags: do", "!RRSIG"]),
        ],
    );
}

#[test]
fn long_answers_are_truncated_over_udp_and_whole_over_tcp() {
    let text: String =
        (0..20).map(|at| format!("long TXT \"{at} {}\"\n", "x".repeat(90))).collect();
    let zone = zone("a.test", &format!("{ZONE}{text}"), &[], None);
    let running = Running::start(world(vec![zone], Tables::default()), identity(), 10);
    check(
        &running,
        &[
            ("long.a.test TXT +noedns +ignore", &[" tc", "ANSWER: 0"]),
            ("long.a.test TXT +bufsize=4096 +ignore", &[" tc"]),
            ("long.a.test TXT +tcp", &["! tc", "ANSWER: 21"]),
            ("long.a.test TXT", &["! tc", "ANSWER: 21"]),
        ],
    );
}

#[test]
fn queries_on_one_connection_are_answered_in_order_and_silence_ends_it() {
    let running = Running::with_zone();
    let mut connection = TcpStream::connect(running.address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut all = Vec::new();
    for number in 0..50u8 {
        let mut message = query("static.a.test", 1);
        message[1] = number;
        all.extend((message.len() as u16).to_be_bytes());
        all.extend(message);
    }
    let (first, rest) = all.split_at(17);
    connection.write_all(first).unwrap();
    connection.write_all(rest).unwrap();
    for number in 0..50u8 {
        let mut length = [0; 2];
        connection.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        connection.read_exact(&mut answer).unwrap();
        assert_eq!((answer[1], answer[7]), (number, 1));
    }
    assert_eq!(connection.read(&mut [0; 2]).unwrap(), 0);
}

#[test]
fn messages_that_are_no_queries_do_no_harm() {
    let running = Running::with_zone();
    let good = query("static.a.test", 1);
    let code = |message: &[u8]| running.ask(message).map(|answer| answer[3] & 15);
    assert_eq!(code(&good), Some(0));
    assert_eq!(code(&good[..11]), None);
    assert_eq!(code(&good[..14]), Some(1));
    let mut response = good.clone();
    response[2] |= 0x80;
    assert_eq!(code(&response), None);
    let mut notify = good.clone();
    notify[2] |= 4 << 3;
    assert_eq!(code(&notify), Some(4));
    assert_eq!(code(&query("a.test", 251)), Some(5));
    assert_eq!(code(&query("a.test", 250)), Some(4));
    assert_eq!(code(&good), Some(0));
}

#[test]
fn one_network_takes_no_more_than_its_share_of_connections() {
    let running = Running::with_zone();
    let open = || TcpStream::connect(running.address).unwrap();
    let held: Vec<_> = (0..3).map(|_| open()).collect();
    let mut beyond = open();
    beyond.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(beyond.read(&mut [0; 2]).unwrap(), 0, "a quarter of 10 places, rounded up, is 3");
    check(&running, &[("static.a.test A +tcp -b 127.7.0.1", &["192.0.2.80"])]);
    // Bytes that come one by one give a query no more time.
    let mut slow = &held[0];
    slow.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let ended = (0..40).any(|_| slow.write_all(&[0]).is_err() || slow.read(&mut [0]).is_ok());
    assert!(ended);
}

#[test]
fn flood_gets_the_share_of_its_network_and_a_cookie_or_tcp_passes() {
    let limited = levada_dns::serve::Identity {
        limit: RateLimit { responses: 5, slip: 2, signatures: 0 },
        ..identity()
    };
    let zone = zone("a.test", ZONE, &[], None);
    let running = Running::start(world(vec![zone], Tables::default()), limited, 10);
    let message = query("static.a.test", 1);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    for _ in 0..200 {
        socket.send_to(&message, running.address).unwrap();
    }
    let (mut whole, mut truncated, mut answer) = (0, 0, [0; 512]);
    while socket.recv(&mut answer).is_ok() {
        if answer[2] & 2 == 0 { whole += 1 } else { truncated += 1 }
    }
    // Queries that came after the first moment may have got more.
    assert!((5..=15).contains(&whole) && (90..=98).contains(&truncated), "{whole} {truncated}");
    let Some(over_tcp) = running.kdig("static.a.test A +tcp") else { return };
    assert!(over_tcp.contains("192.0.2.80"));
    let cookie = over_tcp_cookie(&running);
    for _ in 0..20 {
        let answer = running.kdig(&format!("static.a.test A +ignore +cookie={cookie}")).unwrap();
        assert!(answer.contains("192.0.2.80"), "{answer}");
    }
}

/// The cookie of this client, which it gets over TCP.
fn over_tcp_cookie(running: &Running) -> String {
    let answer = running.kdig("static.a.test A +tcp +cookie=0102030405060708").unwrap();
    let line = answer.lines().find(|line| line.contains("COOKIE")).unwrap();
    line.chars()
        .filter(char::is_ascii_hexdigit)
        .collect::<String>()
        .split_once("0102030405060708")
        .map_or_else(String::new, |(_, server)| format!("0102030405060708{server}"))
}
