//! Whether certificates can be ordered by ACME: the storage, the server of the authority, the ports by which it proves
//! names, and the names themselves.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    thread,
    time::Instant,
};

use levada_config::Settings;
use levada_net::listening;
use levada_tls::acme::{AcmeSettings, DirectoryAnswer, Proof, ask_directory};
use levada_types::format_duration;

use crate::{Finding, name_servers, origins::ANSWER_TIMEOUT, ports};

/// The most names that are looked up, all at the same time.
const NAMES: usize = 64;

/// The needs of a node that orders certificates.
#[derive(Clone, Debug)]
pub struct AcmeNeeds {
    settings: AcmeSettings,
    /// The addresses without TLS, and those that show ordered certificates.
    plain: Vec<SocketAddr>,
    secure: Vec<SocketAddr>,
}

impl AcmeNeeds {
    /// The needs of a node with these settings; `None`: it orders nothing.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let acme = settings.acme.clone()?;
        let addresses = |is_acme: bool| {
            let listeners = settings.listeners.iter();
            let wanted = listeners.filter(move |one| match is_acme {
                true => one.acme,
                false => one.tls.is_empty() && !one.acme,
            });
            wanted.map(|listener| listener.address).collect()
        };
        Some(Self { settings: acme, plain: addresses(false), secure: addresses(true) })
    }
}

pub(crate) fn check(needs: &AcmeNeeds) -> Vec<Finding> {
    let asking = {
        let settings = needs.settings.clone();
        thread::spawn(move || ask_directory(&settings, ANSWER_TIMEOUT))
    };
    let mut findings = vec![storage(&needs.settings.storage)];
    findings.extend(of_ports(needs));
    findings.extend(names(&needs.settings));
    if let Ok(answer) = asking.join() {
        findings.insert(1, directory(&needs.settings, answer));
    }
    findings
}

/// Accounts and certificates with their keys are written there. A node makes the directory if it is missing.
fn storage(path: &Path) -> Finding {
    let check = format!("acme storage {}", path.display());
    let Some(directory) = path.ancestors().find(|path| path.is_dir()) else {
        return Finding::fail(check, "there is no such directory, nor any above it");
    };
    let remedy = format!("install -d -m 0700 -o levada {}", path.display());
    let written = match path.exists() && directory != path {
        true => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        false => tempfile::tempfile_in(directory).map(drop),
    };
    if let Err(error) = written {
        return Finding::fail(check, format!("cannot be written: {error}"))
            .meaning("nothing is ordered that could not be stored")
            .remedy(remedy);
    }
    let mode = fs::metadata(directory).map(|about| about.permissions().mode());
    if directory == path && mode.is_ok_and(|mode| mode & 0o007 != 0) {
        return Finding::warn(check, "can be opened by every user of this machine")
            .meaning("private keys are there; the files themselves are for the node's user only")
            .remedy(format!("chmod 0700 {}", path.display()));
    }
    Finding::ok(check, "can be written")
}

fn directory(settings: &AcmeSettings, answer: Result<DirectoryAnswer, String>) -> Finding {
    let check = format!("acme directory {}", settings.directory);
    match answer {
        Err(reason) => Finding::fail(check, reason)
            .meaning("no certificate is ordered or renewed until it answers")
            .remedy(format!("curl -v {}, from this machine", settings.directory)),
        Ok(answer) if answer.wants_external_account && settings.external_account.is_none() => {
            Finding::fail(check, "it wants an account that exists already")
                .meaning("it makes no account for this node, and issues nothing")
                .remedy("[acme.external_account], with the id and key that the authority gives")
        }
        Ok(DirectoryAnswer { skew: Some(skew), .. }) => Finding::fail(check, skew)
            .meaning("certificates are for the right time: they are not valid yet, or no more")
            .remedy("timedatectl set-ntp true, or install chrony"),
        Ok(_) => Finding::ok(check, "answers, and its clock agrees with this one"),
    }
}

/// The authority connects to one of two ports, of any node of a cluster.
fn of_ports(needs: &AcmeNeeds) -> Vec<Finding> {
    let ways = [(Proof::Http01, 80, &needs.plain), (Proof::TlsAlpn01, 443, &needs.secure)];
    let is_there = |proof: &Proof| {
        let has = |(way, port, at): &(Proof, u16, &Vec<SocketAddr>)| {
            way == proof && at.iter().any(|address| address.port() == *port)
        };
        *proof == Proof::Dns01 || ways.iter().any(has)
    };
    let certificates = &needs.settings.certificates;
    let mut findings = Vec::new();
    for (proof, port, at) in ways {
        let mut users = certificates.iter().filter(|one| one.proofs.contains(&proof)).peekable();
        if users.peek().is_none() {
            continue;
        }
        let check = format!("acme port {port}");
        if is_there(&proof) {
            findings.push(Finding::ok(check, format!("[[listen]] has it, for {}", proof.as_str())));
            continue;
        }
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let holder = match &ports::owners(address)[..] {
            [] => "and no program here".to_owned(),
            [owner, ..] => format!("but {} (pid {})", owner.name, owner.pid),
        };
        let seen = format!("no [[listen]] of this node has it, {holder}");
        if users.any(|one| !one.proofs.iter().any(is_there)) {
            findings.push(forwarded(Finding::warn(check, seen), proof, at));
        } else {
            findings.push(Finding::skip(check, format!("{seen}; another way proves all names")));
        }
    }
    findings
}

fn forwarded(finding: Finding, proof: Proof, at: &[SocketAddr]) -> Finding {
    let to = at.first().map_or_else(|| "a listener".to_owned(), ToString::to_string);
    let remedy = match proof {
        Proof::Http01 => {
            format!("listen at port 80, or pass /.well-known/acme-challenge/ on to {to}")
        }
        _ => format!("listen at port 443, or pass its TCP connections on to {to}, TLS and all"),
    };
    finding
        .meaning("the authority connects to this port: something in front must lead to the node")
        .remedy(remedy)
}

/// Names that are proved by a connection must lead to the cluster.
fn names(settings: &AcmeSettings) -> Vec<Finding> {
    let connected = settings.certificates.iter().filter(|one| one.proofs != [Proof::Dns01]);
    let mut names: Vec<&String> =
        connected.flat_map(|one| &one.names).filter(|name| !name.starts_with('*')).collect();
    let left = names.len().saturating_sub(NAMES);
    names.truncate(NAMES);
    let looked_up: Vec<_> =
        names.iter().map(|name| name_servers::look_up((*name).clone())).collect();
    let until = Instant::now() + name_servers::NAME_TIMEOUT;
    let mut findings: Vec<_> = looked_up
        .into_iter()
        .zip(names)
        .map(|(found, name)| {
            let left = until.saturating_duration_since(Instant::now());
            name_finding(name, found.recv_timeout(left).ok())
        })
        .collect();
    if left > 0 {
        findings.push(Finding::skip("acme names", format!("{left} more were not looked up")));
    }
    findings
}

fn name_finding(name: &str, found: Option<io::Result<Vec<IpAddr>>>) -> Finding {
    let check = format!("acme name {name}");
    let seen = match found {
        Some(Ok(mut addresses)) => {
            addresses.sort();
            addresses.dedup();
            let words = addresses.iter().map(|address| match is_here(*address) {
                true => format!("{address}, of this machine"),
                false => format!("{address}, which must lead to the cluster"),
            });
            return Finding::ok(check, words.collect::<Vec<_>>().join("; "));
        }
        Some(Err(error)) => error.to_string(),
        None => format!("no answer within {}", format_duration(name_servers::NAME_TIMEOUT)),
    };
    Finding::warn(check, seen)
        .meaning("the authority connects to this name; if it has no address there either, it issues nothing")
        .remedy(format!("dig {name}, then make a record, or `acme = \"off\"` at the site"))
}

/// Whether this machine has the address.
fn is_here(address: IpAddr) -> bool {
    listening::bind(SocketAddr::new(address, 0), false).is_ok()
}

#[cfg(test)]
mod tests {
    use levada_tls::acme::WantedCertificate;

    use super::*;
    use crate::Level;

    fn needs(proofs: &[Proof], plain: &str, secure: &str) -> AcmeNeeds {
        let wanted =
            WantedCertificate { names: vec!["a.test".to_owned()], proofs: proofs.to_vec() };
        AcmeNeeds {
            settings: AcmeSettings {
                directory: "https://127.0.0.1:1/dir".to_owned(),
                authority: None,
                email: None,
                external_account: None,
                profile: None,
                storage: "/nowhere".into(),
                dns: None,
                certificates: vec![wanted],
            },
            plain: plain.parse().into_iter().collect(),
            secure: secure.parse().into_iter().collect(),
        }
    }

    #[test]
    fn port_that_no_listener_has_must_be_forwarded() {
        const BOTH: [Proof; 2] = [Proof::Http01, Proof::TlsAlpn01];
        let levels = |proofs: &[Proof], plain, secure| {
            let findings = of_ports(&needs(proofs, plain, secure)).into_iter();
            findings.map(|finding| finding.level).collect::<Vec<_>>()
        };
        let [http, https] = ["127.71.0.9:80", "127.71.0.9:443"];
        assert_eq!(levels(&BOTH, http, https), [Level::Ok, Level::Ok]);
        assert_eq!(levels(&BOTH, "127.71.0.9:8080", https), [Level::Skip, Level::Ok]);
        assert_eq!(levels(&BOTH, "", "127.71.0.9:8443"), [Level::Warn, Level::Warn]);
        assert_eq!(levels(&[Proof::Dns01], "", ""), []);
        let findings = of_ports(&needs(&[Proof::Http01], "127.71.0.9:8080", ""));
        let remedy = findings[0].remedy.as_deref().unwrap();
        assert!(remedy.ends_with("acme-challenge/ on to 127.71.0.9:8080"), "{remedy}");
    }

    #[test]
    fn storage_that_cannot_be_written_fails() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acme");
        assert_eq!(storage(&path).level, Level::Ok);
        assert!(!path.exists(), "nothing is made");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(storage(&path).level, Level::Warn);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(storage(&path).level, Level::Ok);
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "a file in its place").unwrap();
        assert_eq!(storage(&path).level, Level::Fail);
    }

    #[test]
    fn directory_says_what_is_missing() {
        let settings = needs(&[], "", "").settings;
        let answer = |wants_external_account, skew: Option<&str>| {
            let skew = skew.map(str::to_owned);
            directory(&settings, Ok(DirectoryAnswer { wants_external_account, skew }))
        };
        assert_eq!(answer(false, None).level, Level::Ok);
        assert_eq!(answer(true, None).level, Level::Fail);
        assert_eq!(answer(false, Some("the clock is wrong")).seen, "the clock is wrong");
        assert_eq!(directory(&settings, Err("gone".to_owned())).level, Level::Fail);
        assert!(ask_directory(&settings, ANSWER_TIMEOUT).is_err());
    }

    #[test]
    fn name_leads_to_this_machine_or_elsewhere() {
        let of = |address: &str| name_finding("a.test", Some(Ok(vec![address.parse().unwrap()])));
        assert_eq!(of("127.0.0.1").seen, "127.0.0.1, of this machine");
        assert_eq!(of("192.0.2.7").seen, "192.0.2.7, which must lead to the cluster");
        assert_eq!(name_finding("a.test", None).level, Level::Warn);
    }
}
