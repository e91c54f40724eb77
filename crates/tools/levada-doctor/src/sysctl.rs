//! Settings of the kernel's network (sysctl), compared with the values that a node asks for.
//!
//! `net.core.rmem_max` and `wmem_max` bound sizes that programs set: those of the UDP sockets of HTTP/3. A node
//! leaves the sizes of TCP's buffers to the kernel.

use std::{fs, path::Path};

use levada_types::ByteSize;

use crate::{Finding, Needs};

/// Connections that wait to be accepted, which `levada_net::listening` asks for.
const BACKLOG: u64 = 4096;
/// Fewer ports than this are used up by one busy server whose connections close after each response.
const LEAST_PORTS: u64 = 16_384;
/// The largest buffer of a connection that a distance of 100 ms leaves 320 Mbit/s.
const LEAST_BUFFER: u64 = 4 << 20;
const DISTANCE_MS: u64 = 100;

pub(crate) fn check(needs: &Needs) -> Vec<Finding> {
    let mut findings = vec![queue(), handshakes(), ports(needs)];
    findings.extend(["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(buffer));
    findings.extend(tracked(needs.connections));
    if needs.http3 {
        findings.extend(["net.core.rmem_max", "net.core.wmem_max"].map(datagrams));
    }
    findings
}

/// The value of a setting; `None` if this kernel or container does not show it.
pub(crate) fn value(name: &str) -> Option<String> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The value of a setting that is one number.
pub(crate) fn number(name: &str) -> Option<u64> {
    value(name)?.parse().ok()
}

fn hidden(name: &str) -> Finding {
    Finding::skip(name, "not visible here: the value of the host holds")
}

fn set(name: &str, value: impl std::fmt::Display) -> String {
    format!("sysctl -w {name}={value}, and a line in /etc/sysctl.d to keep it")
}

fn queue() -> Finding {
    let name = "net.core.somaxconn";
    number(name).map_or_else(|| hidden(name), |now| judge_queue(name, now))
}

fn judge_queue(name: &str, now: u64) -> Finding {
    if now >= BACKLOG {
        return Finding::ok(name, now.to_string());
    }
    Finding::warn(name, now.to_string())
        .meaning(format!(
            "the node asks for a queue of {BACKLOG} connections that wait to be accepted; a burst beyond {now} is lost and tried again after a second"
        ))
        .remedy(set(name, BACKLOG))
}

fn handshakes() -> Finding {
    let name = "net.ipv4.tcp_max_syn_backlog";
    let Some(now) = number(name) else { return hidden(name) };
    let has_cookies = number("net.ipv4.tcp_syncookies").is_some_and(|value| value > 0);
    judge_handshakes(name, now, has_cookies)
}

fn judge_handshakes(name: &str, now: u64, has_cookies: bool) -> Finding {
    let seen = format!("{now}, SYN cookies {}", if has_cookies { "on" } else { "off" });
    if now >= 1024 || has_cookies {
        return Finding::ok(name, seen);
    }
    Finding::warn(name, seen)
        .meaning(format!("beyond {now} handshakes at once, connections of clients are lost"))
        .remedy(set("net.ipv4.tcp_syncookies", 1))
}

fn datagrams(name: &str) -> Finding {
    number(name).map_or_else(|| hidden(name), |now| judge_datagrams(name, now))
}

fn judge_datagrams(name: &str, now: u64) -> Finding {
    let wanted = levada_net::udp::BUFFER as u64;
    if now >= wanted {
        return Finding::ok(name, ByteSize(now).to_string());
    }
    Finding::warn(name, ByteSize(now).to_string())
        .meaning(format!(
            "HTTP/3 asks for {} at its UDP socket; packets of a fast client that do not fit are lost and sent again",
            ByteSize(wanted)
        ))
        .remedy(set(name, wanted))
}

fn ports(needs: &Needs) -> Finding {
    let name = "net.ipv4.ip_local_port_range";
    let Some(range) = value(name).as_deref().and_then(range) else { return hidden(name) };
    let reserved = value("net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    let listening: Vec<_> = needs.addresses.iter().map(|one| one.address.port()).collect();
    judge_ports(name, range, &reserved, needs.server_connections, &listening)
}

fn judge_ports(
    name: &str,
    (first, last): (u16, u16),
    reserved: &str,
    server_connections: u64,
    listening: &[u16],
) -> Finding {
    let count = u64::from(last.saturating_sub(first)) + 1;
    let seen = format!("{first} to {last}: {count} ports");
    if count < LEAST_PORTS.max(server_connections) {
        return Finding::warn(name, seen)
            .meaning(format!(
                "each connection to one server needs a port, also for a minute after its end; `limits.server_connections` is {server_connections}"
            ))
            .remedy(set(name, "\"10240 65535\""));
    }
    let within = |port: &&u16| (first..=last).contains(*port) && !is_listed(reserved, **port);
    let taken: Vec<_> = listening.iter().filter(within).map(u16::to_string).collect();
    if taken.is_empty() {
        return Finding::ok(name, seen);
    }
    let taken = taken.join(",");
    Finding::warn(name, seen)
        .meaning(format!(
            "an outgoing connection of any program may have port {taken} of the configuration when the node starts"
        ))
        .remedy(match reserved.is_empty() {
            true => set("net.ipv4.ip_local_reserved_ports", taken),
            false => set("net.ipv4.ip_local_reserved_ports", format!("{reserved},{taken}")),
        })
}

/// Whether a list such as `8080,9100-9200` has the port.
fn is_listed(list: &str, port: u16) -> bool {
    list.split(',').any(|part| match part.split_once('-') {
        Some((first, last)) => {
            let ends = (first.parse::<u16>(), last.parse::<u16>());
            matches!(ends, (Ok(first), Ok(last)) if (first..=last).contains(&port))
        }
        None => part.parse() == Ok(port),
    })
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(char::is_whitespace)?;
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

fn buffer(name: &'static str) -> Finding {
    let largest = value(name).and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
    largest.map_or_else(|| hidden(name), |largest| judge_buffer(name, largest))
}

fn judge_buffer(name: &str, largest: u64) -> Finding {
    let rate = largest * 8 / DISTANCE_MS / 1000;
    let seen = format!(
        "at most {}: about {rate} Mbit/s for one connection over {DISTANCE_MS} ms",
        ByteSize(largest)
    );
    if largest >= LEAST_BUFFER {
        return Finding::ok(name, seen);
    }
    Finding::warn(name, seen)
        .meaning("a distant client or server gets no more, however fast its link is")
        .remedy(set(name, format!("\"4096 131072 {}\"", 16 << 20)))
}

/// `None` if no firewall tracks connections.
fn tracked(connections: u64) -> Option<Finding> {
    let name = "net.netfilter.nf_conntrack_max";
    let now = number(name)?;
    let needed = connections.saturating_mul(2);
    if now >= needed {
        return Some(Finding::ok(name, now.to_string()));
    }
    let finding = Finding::warn(name, now.to_string())
        .meaning(format!(
            "the firewall tracks connections and drops new ones beyond {now}; `limits.connections` is {connections}, with as many to servers"
        ))
        .remedy(set(name, needed));
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn small_buffers_of_datagrams_are_told() {
        let small = judge_datagrams("net.core.rmem_max", 212_992);
        assert_eq!(small.level, Level::Warn);
        assert!(small.remedy.unwrap().starts_with("sysctl -w net.core.rmem_max=4194304"));
        assert_eq!(judge_datagrams("net.core.rmem_max", 8 << 20).level, Level::Ok);
    }

    #[test]
    fn short_queues_and_small_buffers_are_told_with_a_command() {
        assert_eq!(judge_queue("q", 4096).level, Level::Ok);
        let short = judge_queue("q", 128);
        assert_eq!(short.level, Level::Warn);
        assert!(short.remedy.unwrap().starts_with("sysctl -w q=4096"));
        assert_eq!(judge_buffer("b", 4 << 20).level, Level::Ok);
        let small = judge_buffer("b", 212_992);
        assert_eq!(
            (small.level, &*small.seen),
            (Level::Warn, "at most 208KiB: about 17 Mbit/s for one connection over 100 ms")
        );
        assert_eq!(judge_handshakes("h", 128, true).level, Level::Ok);
        assert_eq!(judge_handshakes("h", 128, false).level, Level::Warn);
    }

    #[test]
    fn port_that_an_outgoing_connection_may_take_is_told() {
        let judged = |reserved, port| judge_ports("r", (32_768, 60_999), reserved, 1000, &[port]);
        assert_eq!(judged("", 8080).level, Level::Ok);
        let within = judged("", 40_000);
        assert_eq!(within.level, Level::Warn);
        assert!(within.remedy.unwrap().contains("reserved_ports=40000"));
        assert_eq!(judged("9000,39000-41000", 40_000).level, Level::Ok);
        assert!(judged("9000", 40_000).remedy.unwrap().contains("=9000,40000"));
        let few = judge_ports("r", (50_000, 60_000), "", 1000, &[]);
        assert_eq!(few.level, Level::Warn);
    }
}
