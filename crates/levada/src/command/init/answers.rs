//! The answers, checked as the configuration checks them.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use levada_config::{Severity, Source, Surroundings};

use super::template;
use crate::command::configuration;

/// All answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) content: Content,
    pub(super) hosts: Vec<String>,
    pub(super) door: Door,
}

/// The content of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// That of a web server.
    Origin(String),
    /// That of a directory.
    Files(PathBuf),
}

/// The address for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    /// The certificate and its key; plain HTTP without them.
    pub(super) tls: Option<(PathBuf, PathBuf)>,
}

/// The web server or the directory that the text names.
pub(super) fn content(text: &str) -> Result<Content, String> {
    let is_path = text.starts_with(['/', '.', '~']) || Path::new(text).is_dir();
    match text {
        "" => Err("There is no default: write a URL or a directory.".to_owned()),
        _ if is_path => files(text),
        _ => origin(text),
    }
}

/// A web server; `localhost:3000` is one that speaks HTTP.
pub(super) fn origin(text: &str) -> Result<Content, String> {
    let has_scheme = text.contains("://") || text.starts_with("unix:");
    let url = if has_scheme { text.to_owned() } else { format!("http://{text}") };
    let url = url.strip_suffix('/').unwrap_or(&url).to_owned();
    checked(Answers { content: Content::Origin(url), ..Answers::sample() }, |good| good.content)
}

/// A directory, by its absolute path: a relative one would begin at the configuration file.
pub(super) fn files(text: &str) -> Result<Content, String> {
    let directory = absolute(Path::new(text)).filter(|path| path.is_dir());
    let directory = directory.ok_or_else(|| format!("There is no directory {text}."))?;
    checked(Answers { content: Content::Files(directory), ..Answers::sample() }, |good| {
        good.content
    })
}

/// Host names with spaces or commas between them; none is every name.
pub(super) fn hosts(text: &str) -> Result<Vec<String>, String> {
    let names = text.split([' ', ',', '\t']).filter(|name| !name.is_empty());
    let mut hosts: Vec<String> = names.map(str::to_owned).collect();
    if hosts.is_empty() {
        hosts.push("*".to_owned());
    }
    checked(Answers { hosts, ..Answers::sample() }, |good| good.hosts)
}

/// The name of an option that is given once per name.
pub(super) fn one_host(text: &str) -> Result<&str, String> {
    match text.contains([' ', ',', '\t']) || text.is_empty() {
        true => Err(format!("{text:?} is not one host name: repeat the option for each name.")),
        false => Ok(text),
    }
}

/// A port or an address, alone or with the files of a certificate and its key.
pub(super) fn door(text: &str) -> Result<Door, String> {
    let words: Vec<_> = text.split_whitespace().collect();
    match words[..] {
        [] => door_with("8080", None),
        [address] => door_with(address, None),
        [address, certificate, key] => door_with(address, Some((certificate.into(), key.into()))),
        _ => Err("Write a port, or a port, a certificate's file and its key's file.".to_owned()),
    }
}

/// The address with these files.
pub(super) fn door_with(address: &str, tls: Option<(PathBuf, PathBuf)>) -> Result<Door, String> {
    let any = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let address = address.parse().map(any).or_else(|_| address.parse());
    let address = address.map_err(|_| {
        "Write a port from 1 to 65535, or an IP address with a port, such as 127.0.0.1:8080."
            .to_owned()
    })?;
    let tls = match tls {
        None => None,
        Some((certificate, key)) => Some((present(&certificate)?, present(&key)?)),
    };
    checked(Answers { door: Door { address, tls }, ..Answers::sample() }, |good| good.door)
}

fn present(file: &Path) -> Result<PathBuf, String> {
    let found = absolute(file).filter(|path| path.is_file());
    found.ok_or_else(|| format!("There is no file {}.", file.display()))
}

fn absolute(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

impl Answers {
    /// Right answers, to check one at a time.
    fn sample() -> Self {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
        Self {
            content: Content::Origin("http://127.0.0.1:9000".to_owned()),
            hosts: vec!["*".to_owned()],
            door: Door { address, tls: None },
        }
    }
}

fn checked<T>(answers: Answers, take: impl Fn(Answers) -> T) -> Result<T, String> {
    let admin = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180).into();
    match problem(&template::text(&answers, &admin, Path::new("levada.toml"))) {
        Some(problem) => Err(problem),
        None => Ok(take(answers)),
    }
}

/// The first error of a configuration, with its remedy.
pub(super) fn problem(text: &str) -> Option<String> {
    let source = Source { name: String::new(), text: text.to_owned() };
    let directory = std::env::current_dir().unwrap_or_default();
    let surroundings = Surroundings {
        directory: &directory,
        variable: &|_| None,
        start_error: &configuration::start_error,
    };
    let report = levada_config::check(&source, &surroundings).report;
    let error = report.problems.into_iter().find(|problem| problem.severity == Severity::Error)?;
    let help = error.help.map(|help| format!(" ({help})")).unwrap_or_default();
    let key = error.key.trim_start_matches("site[0].").trim_start_matches("listen[0].").to_owned();
    Some(format!("{key}: {}{help}", error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_directories_are_told_apart() {
        let origin = |url: &str| Ok(Content::Origin(url.to_owned()));
        assert_eq!(content("http://127.0.0.1:9000/"), origin("http://127.0.0.1:9000"));
        assert_eq!(content("localhost:3000"), origin("http://localhost:3000"));
        assert_eq!(content("unix:/run/app.sock"), origin("unix:/run/app.sock"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert_eq!(content(path.to_str().unwrap()), Ok(Content::Files(path)));
        for (wrong, reason) in [
            ("", "no default"),
            ("/no/such/directory", "There is no directory /no/such/directory."),
            ("http://a.example/path", "without a path"),
            ("ftp://a.example", "must be a URL"),
            ("two words", "must be a URL"),
        ] {
            let said = content(wrong).unwrap_err();
            assert!(said.contains(reason), "{wrong}: {said}");
        }
    }

    #[test]
    fn hosts_are_a_list_or_every_name() {
        assert_eq!(hosts(""), Ok(vec!["*".to_owned()]));
        let both = vec!["a.example".to_owned(), "*.b.example".to_owned()];
        assert_eq!(hosts("a.example, *.b.example"), Ok(both));
        assert!(hosts("http://a.example").is_err());
        assert!(hosts("a.example a.example").is_err());
        assert_eq!(one_host("a.example"), Ok("a.example"));
        for wrong in ["a b", "a,b", ""] {
            assert!(one_host(wrong).unwrap_err().contains("repeat the option"), "{wrong}");
        }
    }

    #[test]
    fn doors_are_ports_addresses_and_certificates() {
        assert_eq!(door("80").unwrap().address, "0.0.0.0:80".parse().unwrap());
        assert_eq!(door("[::1]:8080").unwrap().address, "[::1]:8080".parse().unwrap());
        for (wrong, reason) in [
            ("99999", "from 1 to 65535"),
            ("localhost:80", "IP address"),
            ("443 cdn.pem", "a certificate's file and its key's file"),
            ("443 no.pem no.key", "There is no file no.pem."),
        ] {
            let said = door(wrong).unwrap_err();
            assert!(said.contains(reason), "{wrong}: {said}");
        }
    }

    #[test]
    fn variables_and_quotes_in_paths_stay_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join("a ${HOME} \"b\"\n[site]");
        std::fs::create_dir(&odd).unwrap();
        let odd = odd.canonicalize().unwrap();
        assert_eq!(files(odd.to_str().unwrap()), Ok(Content::Files(odd)));
    }
}
