//! The files that a token which is bound to sites may change: those that have no other sites.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::directory::Directory;

/// The sites of a file, as far as it matters whose they are.
#[derive(Deserialize)]
struct SitesFile {
    #[serde(default)]
    site: Vec<SiteHosts>,
}

#[derive(Deserialize)]
struct SiteHosts {
    hosts: Hosts,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Hosts {
    One(String),
    Many(Vec<String>),
}

/// A file that a token may not change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct NotOwned {
    file: String,
    why: String,
}

/// The directory `head` with the files of `sites` replaced by `sent`, which has nothing else.
///
/// # Errors
/// With the first file that has another site, or replaces one that does.
pub fn replaced(
    head: &Directory,
    sent: BTreeMap<String, Vec<u8>>,
    sites: &[String],
) -> Result<Directory, NotOwned> {
    let not_owned = |file: &str, why: String| NotOwned { file: file.to_owned(), why };
    let listed = sites.join(", ");
    for (file, content) in &sent {
        if !is_owned(file, content, sites) {
            let why = format!("the token is for files with no other sites than {listed}");
            return Err(not_owned(file, why));
        }
        let present = head.files().get(file);
        if present.is_some_and(|present| !is_owned(file, present, sites)) {
            let why = "the fleet has a file of this name with other sites: use another name";
            return Err(not_owned(file, why.to_owned()));
        }
    }
    let others = head.files().iter().filter(|(file, content)| !is_owned(file, content, sites));
    let others = others.map(|(file, content)| (file.clone(), content.clone()));
    Ok(Directory::of(others.chain(sent).collect()))
}

/// Whether a file has only these sites: `sites/*.toml` by its hosts, and `files/HOST/...` by its name.
fn is_owned(file: &str, content: &[u8], sites: &[String]) -> bool {
    let is_own = |host: &str| sites.iter().any(|site| site.eq_ignore_ascii_case(host));
    match file.split_once('/') {
        Some(("sites", _)) => {
            let hosts = hosts(content);
            !hosts.is_empty() && hosts.iter().all(|host| is_own(host))
        }
        Some(("files", rest)) => rest.split_once('/').is_some_and(|(host, _)| is_own(host)),
        _ => false,
    }
}

/// The hosts of a file; none if it cannot be read, so that nobody owns it.
fn hosts(content: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(content).unwrap_or_default();
    let Ok(file) = toml::from_str::<SitesFile>(text) else { return Vec::new() };
    let hosts = file.site.into_iter().flat_map(|site| match site.hosts {
        Hosts::One(host) => vec![host],
        // A site without a host is nobody's.
        Hosts::Many(hosts) if hosts.is_empty() => vec![String::new()],
        Hosts::Many(hosts) => hosts,
    });
    hosts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let file = |(path, text): &(&str, &str)| (path.to_string(), text.as_bytes().to_vec());
        files.iter().map(file).collect()
    }

    #[test]
    fn bound_token_replaces_the_files_of_its_sites_and_no_others() {
        let head = Directory::of(files(&[
            ("fleet.toml", "x"),
            ("sites/shop.toml", "[[site]]\nhosts = \"shop.test\"\n"),
            ("sites/old.toml", "[[site]]\nhosts = [\"SHOP.test\"]\n"),
            ("sites/both.toml", "[[site]]\nhosts = [\"shop.test\", \"www.test\"]\n"),
            ("files/shop.test/404.html", "gone"),
            ("files/404.html", "gone"),
        ]));
        let sites = ["shop.test".to_owned()];
        let sent = [("sites/shop.toml", "[[site]]\nhosts = \"shop.test\"\n# new\n")];
        let next = replaced(&head, files(&sent), &sites).unwrap();
        let paths: Vec<_> = next.files().keys().map(String::as_str).collect();
        assert_eq!(paths, ["files/404.html", "fleet.toml", "sites/both.toml", "sites/shop.toml"]);
        for (path, text) in [
            ("node.toml", ""),
            ("sites/x.toml", "[[site]]\nhosts = \"*\"\n"),
            ("sites/x.toml", "[[site]]\nhosts = [\"shop.test\", \"www.test\"]\n"),
            ("sites/x.toml", ""),
            ("sites/both.toml", "[[site]]\nhosts = \"shop.test\"\n"),
            ("files/404.html", ""),
            ("files/shop.test", ""),
        ] {
            assert!(replaced(&head, files(&[(path, text)]), &sites).is_err(), "{path} {text}");
        }
    }
}
