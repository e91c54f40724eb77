//! The kernel's features that a node uses: splice, a bound on unsent bytes, and the parts of TCP handoff.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    time::Duration,
};

use levada_net::{
    bpf::{BpfError, InputBlocker, Steering},
    handoff,
    pipe::Pipe,
    tcp,
};

use crate::{Finding, Needs, sysctl};

pub(crate) fn check(needs: &Needs) -> Vec<Finding> {
    let mut findings = vec![unsent(), splice()];
    findings.push(hand_off(needs.handoff.as_deref()));
    if needs.is_handoff_backend {
        findings.push(time_wait());
    }
    findings
}

fn unsent() -> Finding {
    let limited = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| tcp::limit_unsent(&listener, 128 << 10));
    match limited {
        Ok(()) => Finding::ok("tcp_notsent_lowat", "available"),
        Err(error) => Finding::warn("tcp_notsent_lowat", error.to_string())
            .meaning("the kernel holds megabytes for each client that reads slowly")
            .remedy("a kernel of 3.12 or later"),
    }
}

fn splice() -> Finding {
    match spliced() {
        Ok(()) => Finding::ok("splice", "moves bytes between sockets"),
        Err(error) => Finding::warn("splice", error.to_string())
            .meaning("long bodies from servers do not pass within the kernel, and cost more CPU")
            .remedy("`splice = false` in [runtime] if bodies fail; see the sandbox of the process (seccomp)"),
    }
}

/// Moves bytes from one socket to another through a pipe.
fn spliced() -> io::Result<()> {
    const BYTES: &[u8] = b"levada";
    let ((mut sender, from), (to, mut receiver)) = (pair()?, pair()?);
    sender.write_all(BYTES)?;
    let mut look = [0; BYTES.len()];
    // Waits for the bytes, which `fill` does not.
    from.peek(&mut look)?;
    let pipe = Pipe::new()?;
    let moved = pipe.fill(&from, BYTES.len())?;
    pipe.drain(&to, moved)?;
    receiver.read_exact(&mut look[..moved])?;
    match look[..moved] == BYTES[..moved] {
        true => Ok(()),
        false => Err(io::Error::other("other bytes arrive than were sent")),
    }
}

/// The timeout for bytes on loopback, where a kernel without splice may lose them.
const LOOPBACK_TIMEOUT: Duration = Duration::from_secs(2);

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(LOOPBACK_TIMEOUT))?;
    }
    Ok((near, far))
}

/// `interfaces`: those of `[handoff]`, if the configuration has it.
fn hand_off(interfaces: Option<&[String]>) -> Finding {
    const CHECK: &str = "handoff";
    let parts = movable();
    let Some(interfaces) = interfaces else {
        return match parts {
            Ok(()) => Finding::ok(CHECK, "possible; the configuration does not use it"),
            Err(error) => Finding::skip(CHECK, format!("not used by the configuration ({error})")),
        };
    };
    if let Err(error) = parts {
        return Finding::fail(CHECK, error.to_string())
            .meaning("a back-end does not start; a front-end proxies every connection")
            .remedy("AmbientCapabilities=CAP_NET_ADMIN CAP_BPF in the unit, or start it as root with `user` in [runtime]");
    }
    let is_missing = |name: &&String| !Path::new("/sys/class/net").join(name).exists();
    match interfaces.iter().find(is_missing) {
        Some(name) => Finding::fail(CHECK, format!("there is no network interface {name}"))
            .meaning("`interfaces` in [handoff]: no connection can be handed off")
            .remedy("ip link, then the interface on which clients' packets arrive"),
        None => Finding::ok(CHECK, format!("TCP_REPAIR and BPF, at {}", interfaces.join(", "))),
    }
}

/// Loads what handoff loads, without attaching it to an interface.
fn movable() -> Result<(), BpfError> {
    handoff::is_possible().map_err(BpfError::Repair)?;
    InputBlocker::new()?;
    Steering::start(&[], 1).map(drop)
}

fn time_wait() -> Finding {
    let name = "net.ipv4.tcp_max_tw_buckets";
    match sysctl::number(name) {
        None => Finding::skip(name, "not visible here: the value of the host holds"),
        Some(0) => Finding::ok(name, "0"),
        Some(now) => Finding::warn(name, now.to_string())
            .meaning("a client that uses a port again within a minute is proxied by the front-end")
            .remedy(format!("sysctl -w {name}=0, on this back-end only")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn bytes_pass_between_sockets_here() {
        spliced().unwrap();
    }

    #[test]
    fn handoff_matters_only_where_it_is_configured() {
        assert!(hand_off(None).level <= Level::Skip);
        let finding = hand_off(Some(&["no-such-device".to_owned()]));
        assert_eq!(finding.level, Level::Fail, "{finding:?}");
    }
}
