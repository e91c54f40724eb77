//! A converted file as a node reads it.

use std::{net::IpAddr, path::Path, sync::LazyLock};

use http::{HeaderMap, Method};
use levada_access::{access::AccessRequest, signed::RequestUrl, site_access::SiteAccess};
use levada_config::{Checked, HostTable, Source, Surroundings};
use levada_conversion::{
    conversion::Conversion,
    files::{Includes, InputFile},
};
use levada_rules::{RequestFacts, RouteAnswer, Scheme};

/// Files by their names.
pub(crate) struct Files(pub(crate) &'static [(&'static str, &'static str)]);

impl Includes for Files {
    fn matching(&self, pattern: &str) -> Result<Vec<InputFile>, String> {
        let found = self.0.iter().filter(|(name, _)| *name == pattern);
        Ok(found.map(|(name, text)| file(name, text)).collect())
    }
}

pub(crate) fn file(name: &str, text: &str) -> InputFile {
    InputFile { name: name.to_owned(), text: text.to_owned() }
}

/// Reads the file, with the files that it may name.
pub(crate) fn check(toml: &str) -> Checked {
    static PAIR: LazyLock<[String; 2]> = LazyLock::new(|| {
        let certified = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        [certified.cert.pem(), certified.signing_key.serialize_pem()]
    });
    let directory = tempfile::tempdir().unwrap();
    let both = PAIR.concat();
    for name in ["www.pem", "www.key", "img.pem", "img.key", "ca.pem"] {
        std::fs::write(directory.path().join(name), &both).unwrap();
    }
    for name in ["staff.htpasswd", "users.htpasswd", "htpasswd"] {
        let users = "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n";
        std::fs::write(directory.path().join(name), users).unwrap();
    }
    let root = directory.path().display().to_string();
    for inner in ["www", "app"] {
        std::fs::create_dir_all(Path::new(&root).join("srv").join(inner)).unwrap();
    }
    let text = toml
        .replace("/etc/ssl/", &format!("{root}/"))
        .replace("\"/srv", &format!("\"{root}/srv"))
        .replace("unix:/run", &format!("unix:{root}"));
    let surroundings =
        Surroundings { directory: directory.path(), variable: &|_| None, start_error: &|_| None };
    levada_config::check(&Source { name: "t".to_owned(), text }, &surroundings)
}

/// Fails if a node would not start with the file.
pub(crate) fn is_accepted(toml: &str, place: &str) {
    let checked = check(toml);
    assert!(checked.report.is_usable(), "{place}: {}\n{toml}", checked.report);
}

/// The way of a request through a node.
#[derive(Debug, PartialEq)]
pub(crate) enum Way {
    NoSite,
    Refused,
    Answered(u16),
    Passed { stored: bool },
}

/// A client that no list of the tests lets in.
pub(crate) const CLIENT: &str = "203.0.113.77";

pub(crate) fn ask(conversion: &Conversion, host: &str, method: &str, target: &str) -> Way {
    let checked = check(&conversion.toml);
    assert!(checked.report.is_usable(), "{}\n{}", checked.report, conversion.toml);
    let settings = checked.settings.unwrap();
    let sites = HostTable::new(settings.sites.iter().map(|site| (&site.hosts[..], site)));
    let Some(site) = sites.find(host).copied() else { return Way::NoSite };
    let (client, headers) = (CLIENT.parse::<IpAddr>().unwrap(), HeaderMap::new());
    let method: Method = method.parse().unwrap();
    let facts = RequestFacts::new(client, (Scheme::Http, host), (&method, target), &headers);
    let number = site.routes.table.find(&facts);
    let route = number.map(|number| &site.routes.all[number]);
    let all = site.routes.all.iter().map(|route| &route.handling.access);
    let access = SiteAccess::new(&site.handling.access, all, None, 1);
    let access = match number {
        Some(number) => access.of_route(number),
        None => access.own(),
    };
    if let Some(access) = access {
        let url = RequestUrl { scheme: "http", host, target };
        let request = AccessRequest {
            client,
            host,
            url,
            method: &method,
            headers: &headers,
            now: 0,
            unix: 1_800_000_000,
            nodes: 1,
        };
        if access.admit(&request).is_err() || access.asks_for_password() || access.asks_server() {
            return Way::Refused;
        }
    }
    match route.and_then(|route| route.answer.as_ref()) {
        Some(RouteAnswer::Respond { status, .. } | RouteAnswer::Redirect { status, .. }) => {
            Way::Answered(status.as_u16())
        }
        None => Way::Passed { stored: route.map_or(&site.handling, |route| &route.handling).cache },
    }
}

/// The blocks of a page between two fences, with the languages that the first fences name, and their lines.
pub(crate) fn examples(page: &str) -> Vec<(String, String, usize)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/coming-from").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let mut examples: Vec<(String, String, usize)> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(language) if !inside => {
                examples.push((language.to_owned(), String::new(), index + 1));
                inside = true;
            }
            Some(_) => inside = false,
            None if inside => examples.last_mut().unwrap().1 += &format!("{line}\n"),
            None => {}
        }
    }
    examples
}

/// An example is a part of a file: the parts that every file has are put around it.
pub(crate) fn whole(example: &str) -> String {
    let mut text = "name = \"a\"\n".to_owned() + example;
    if !example.contains("[[listen]]") {
        text += "\n[[listen]]\naddress = \"127.0.0.1:0\"\n";
    }
    if !example.contains("[[site]]") {
        text += "\n[[site]]\nhosts = \"*\"\norigin = \"http://127.0.0.1:9000\"\n";
    }
    text
}
