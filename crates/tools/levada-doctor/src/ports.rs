//! Whether an address of the configuration is free, or which program has it.

use std::{
    collections::HashSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::net::UnixStream,
    path::Path,
};

use levada_net::listening;

use crate::{Finding, NamedAddress};

pub(crate) fn check(named: &NamedAddress) -> Finding {
    let NamedAddress { table, address } = named;
    let check = format!("port {address}");
    let error = match listening::bind(*address, false) {
        Ok(_) => return Finding::ok(check, format!("{table}: free")),
        Err(error) => error,
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => taken(check, table, *address),
        io::ErrorKind::AddrNotAvailable => {
            Finding::fail(check, format!("{table}: this machine has no address {}", address.ip()))
                .meaning("the node cannot start")
                .remedy("ip address, then an address of this machine; 0.0.0.0 or [::] is every one")
        }
        io::ErrorKind::PermissionDenied => Finding::fail(check, format!("{table}: {error}"))
            .meaning("the node cannot start")
            .remedy("see capabilities above"),
        _ => Finding::fail(check, format!("{table}: {error}")).meaning("the node cannot start"),
    }
}

fn taken(check: String, table: &str, address: SocketAddr) -> Finding {
    let owners = owners(address);
    let by = match &owners[..] {
        [] => "another program; root sees which one".to_owned(),
        owners => {
            let words = owners.iter().map(|owner| format!("{} (pid {})", owner.name, owner.pid));
            words.collect::<Vec<_>>().join(", ")
        }
    };
    let seen = format!("{table}: taken by {by}");
    if !owners.is_empty() && owners.iter().all(|owner| owner.name == "levada") {
        return Finding::warn(check, seen)
            .meaning("a node runs there: this one, if it has this configuration");
    }
    Finding::fail(check, seen).meaning("the node cannot start").remedy(format!(
        "ss -ltnp 'sport = :{}', then stop that program or choose another port",
        address.port()
    ))
}

/// Whether a node can make its Unix socket for operators.
pub(crate) fn check_socket(path: &Path) -> Finding {
    let check = format!("socket {}", path.display());
    if UnixStream::connect(path).is_ok() {
        return Finding::warn(check, "[admin]: a program listens there")
            .meaning("a node runs there: this one, if it has this configuration");
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    match directory.is_dir() {
        true => Finding::ok(check, "[admin]: free"),
        false => {
            Finding::fail(check, format!("[admin]: there is no directory {}", directory.display()))
                .meaning("the node cannot start")
                .remedy(format!(
                    "install -d -o levada {}, or RuntimeDirectory= in the unit",
                    directory.display()
                ))
        }
    }
}

/// A program that listens.
pub(crate) struct Owner {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

/// The programs that listen on an address, as far as this user may see them.
pub(crate) fn owners(address: SocketAddr) -> Vec<Owner> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(fs::read_to_string);
    let inodes: HashSet<_> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(listener)
        .filter(|(listening, _)| stands_in_the_way(*listening, address))
        .map(|(_, inode)| format!("socket:[{inode}]"))
        .collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has_one_of(*pid, &inodes))
        .map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Owner { pid, name: name.trim().to_owned() }
        })
        .collect()
}

fn has_one_of(pid: u32, inodes: &HashSet<String>) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    targets.into_iter().any(|target| target.to_str().is_some_and(|name| inodes.contains(name)))
}

/// The address and the inode of a line of `/proc/net/tcp` if it is a listening socket.
fn listener(line: &str) -> Option<(SocketAddr, u64)> {
    const LISTENS: &str = "0A";
    let mut words = line.split_whitespace().skip(1);
    let (ip, port) = words.next()?.split_once(':')?;
    let state = words.nth(1)?;
    let inode = words.nth(5)?.parse().ok()?;
    let address = SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?);
    (state == LISTENS).then_some((address, inode))
}

/// An address in hexadecimal digits: words of 32 bits in the byte order of the machine.
fn address(digits: &str) -> Option<IpAddr> {
    let words: Vec<[u8; 4]> = (0..digits.len() / 8)
        .map(|at| u32::from_str_radix(&digits[8 * at..8 * at + 8], 16).map(u32::to_ne_bytes))
        .collect::<Result<_, _>>()
        .ok()?;
    match &words[..] {
        [word] => Some(IpAddr::V4(Ipv4Addr::from(*word))),
        [_, _, _, _] => {
            let octets: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(octets)))
        }
        _ => None,
    }
}

/// Whether nobody can listen on `wanted` while another one listens on `listening`.
fn stands_in_the_way(listening: SocketAddr, wanted: SocketAddr) -> bool {
    let (there, here) = (listening.ip().to_canonical(), wanted.ip().to_canonical());
    let is_same = there == here || there.is_unspecified() || here.is_unspecified();
    listening.port() == wanted.port() && is_same
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::Level;

    fn named(address: &str) -> NamedAddress {
        NamedAddress { table: "[[listen]]", address: address.parse().unwrap() }
    }

    #[test]
    fn program_that_has_the_address_is_named() {
        for (taken, wanted) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "0.0.0.0"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::1]:0", "[::1]"),
        ] {
            let listener = TcpListener::bind(taken).unwrap();
            let port = listener.local_addr().unwrap().port();
            let finding = check(&named(&format!("{wanted}:{port}")));
            assert_eq!(finding.level, Level::Fail, "{finding:?}");
            let pid = format!("(pid {})", std::process::id());
            assert!(finding.seen.contains(&pid), "{finding:?}");
            drop(listener);
        }
    }

    #[test]
    fn address_of_another_machine_is_told() {
        let finding = check(&named("192.0.2.1:8080"));
        assert_eq!(finding.level, Level::Fail);
        assert!(finding.seen.contains("this machine has no address 192.0.2.1"), "{finding:?}");
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21539 1 0";
        assert_eq!(listener(line), Some(("127.0.0.1:8080".parse().unwrap(), 21539)));
        let established = line.replace(" 0A ", " 01 ");
        assert_eq!(listener(&established), None);
        let six = line.replace("0100007F:", "00000000000000000000000001000000:");
        assert_eq!(listener(&six), Some(("[::1]:8080".parse().unwrap(), 21539)));
        assert_eq!(listener("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn socket_needs_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let finding = check_socket(&directory.path().join("admin.sock"));
        assert_eq!(finding.level, Level::Ok);
        let finding = check_socket(&directory.path().join("missing/admin.sock"));
        assert_eq!(finding.level, Level::Fail);
    }
}
