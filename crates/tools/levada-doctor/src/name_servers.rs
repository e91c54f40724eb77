//! Whether the name servers of the system answer, and whether the names of the configuration resolve.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use levada_types::format_duration;

use crate::Finding;

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// How long a name server may take for one question: names in a cache take milliseconds.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the system may take for a name; its own timeout is longer. It asks several servers in turn.
pub(crate) const NAME_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) fn check(names: &BTreeSet<String>) -> Vec<Finding> {
    let servers = servers(&fs::read(RESOLV_CONF).unwrap_or_default());
    let is_needed = !names.is_empty();
    let asked: Vec<_> = servers
        .into_iter()
        .map(|server| thread::spawn(move || server_finding(server, is_needed)))
        .collect();
    let looked_up: Vec<_> = names.iter().map(|name| look_up(name.clone())).collect();
    let of_servers = asked.into_iter().filter_map(|asked| asked.join().ok());
    let until = Instant::now() + NAME_TIMEOUT;
    let of_names = looked_up.into_iter().zip(names).map(|(found, name)| {
        let left = until.saturating_duration_since(Instant::now());
        name_finding(name, found.recv_timeout(left).ok())
    });
    of_servers.chain(of_names).collect()
}

/// The servers that a file names. Without any, the system asks the one of this machine (resolv.conf(5)).
fn servers(resolv_conf: &[u8]) -> Vec<SocketAddr> {
    let (parsed, _) = resolv_conf::Config::parse_with_errors(resolv_conf);
    let mut servers: Vec<SocketAddr> =
        parsed.nameservers.iter().map(|ip| SocketAddr::new(ip.into(), 53)).collect();
    if servers.is_empty() {
        servers.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53));
    }
    servers
}

fn server_finding(server: SocketAddr, is_needed: bool) -> Finding {
    let check = format!("name server {}", server.ip());
    let begun = Instant::now();
    match ask(server, SERVER_TIMEOUT) {
        Ok(()) => {
            let millis = begun.elapsed().as_micros() as f64 / 1e3;
            Finding::ok(check, format!("answers within {millis:.1} ms"))
        }
        Err(error) => {
            let seen = match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    format!("no answer within {}", format_duration(SERVER_TIMEOUT))
                }
                _ => error.to_string(),
            };
            let meaning = match is_needed {
                true => "names of origins and peers resolve late, or not at all",
                false => "the configuration has no names, so that only other programs are affected",
            };
            Finding::warn(check, seen)
                .meaning(meaning)
                .remedy(format!("resolvectl status, or another server in {RESOLV_CONF}"))
        }
    }
}

/// Asks a server for the name servers of the root, which every one of them answers or refuses.
///
/// # Errors
/// When no answer comes in time.
fn ask(server: SocketAddr, timeout: Duration) -> io::Result<()> {
    // RFC 1035, 4.1: an identifier, "recursion desired", one question: the root, type NS, class IN.
    const QUESTION: [u8; 17] = *b"\x1e\xad\x01\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01";
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.send(&QUESTION)?;
    let mut answer = [0; 512];
    let until = Instant::now() + timeout;
    while Instant::now() < until {
        let length = socket.recv(&mut answer)?;
        let is_response = length >= 12 && answer[2] & 0x80 != 0;
        if is_response && answer[..2] == QUESTION[..2] {
            return Ok(());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// The addresses of a name, when the system has found them.
pub(crate) fn look_up(name: String) -> mpsc::Receiver<io::Result<Vec<IpAddr>>> {
    let (tell, found) = mpsc::channel();
    // The system's resolver cannot be interrupted: a thread that is still waiting ends with the process.
    thread::spawn(move || {
        let addresses = (name.as_str(), 0).to_socket_addrs();
        let _ = tell.send(addresses.map(|all| all.map(|one| one.ip()).collect()));
    });
    found
}

fn name_finding(name: &str, found: Option<io::Result<Vec<IpAddr>>>) -> Finding {
    let check = format!("name {name}");
    let seen = match found {
        Some(Ok(mut addresses)) => {
            addresses.dedup();
            let all = addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
            return Finding::ok(check, all.join(", "));
        }
        Some(Err(error)) => error.to_string(),
        None => format!("no answer within {}", format_duration(NAME_TIMEOUT)),
    };
    Finding::fail(check, seen)
        .meaning("the configuration names it, and requests that need it get 502 or 504")
        .remedy(format!("getent hosts {name}, then mend the name, DNS or /etc/hosts"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn servers_come_from_the_file_or_are_this_machine() {
        let two = servers(b"search a.example\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n");
        assert_eq!(two, ["192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()]);
        assert_eq!(servers(b"# nothing\n"), ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn only_a_response_to_the_question_counts() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let answering = thread::spawn(move || {
            let mut question = [0; 512];
            let (length, from) = server.recv_from(&mut question).unwrap();
            // Not a response, a response to another question, and a refusal of this one.
            server.send_to(&question[..length], from).unwrap();
            server.send_to(&[0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0], from).unwrap();
            (question[2], question[3]) = (0x81, 5);
            server.send_to(&question[..length], from).unwrap();
        });
        ask(address, SERVER_TIMEOUT).unwrap();
        answering.join().unwrap();
    }

    #[test]
    fn silence_and_refusal_are_errors() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(ask(silent.local_addr().unwrap(), Duration::from_millis(50)).is_err());
        let gone = silent.local_addr().unwrap();
        drop(silent);
        assert!(ask(gone, SERVER_TIMEOUT).is_err());
    }

    #[test]
    fn names_that_do_not_resolve_fail() {
        let found = look_up("localhost".to_owned()).recv().unwrap();
        assert_eq!(name_finding("localhost", Some(found)).level, Level::Ok);
        let wrong = look_up("no such name".to_owned()).recv().unwrap();
        assert_eq!(name_finding("no such name", Some(wrong)).level, Level::Fail);
    }
}
