//! Directories that the node serves: whether they are there, and which keys exclude them.

use std::collections::BTreeMap;

use http::HeaderValue;
use levada_body::files::{FilePath, FilesSettings};
use levada_types::document::Path;

use super::{Check, levels::KeyLevels, parts::maybe};
use crate::file::{self, FilesOrRoot};

/// Keys of servers, which a directory does not have.
const OF_SERVERS: [&str; 3] = ["origin", "servers", "server"];
const WITHOUT_EFFECT: [&str; 10] = [
    "misses",
    "health_check",
    "origin_host",
    "protocol",
    "proxy_protocol",
    "key",
    "slow_start",
    "admission",
    "shield",
    "large",
];

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a site with servers.
    pub(super) fn site_files(
        &mut self,
        (site, of): (&file::Site, &file::SiteServers),
        levels: &KeyLevels,
    ) -> Option<Option<FilesSettings>> {
        let Some(given) = &of.files else { return Some(None) };
        let path = levels.key(self.findings, "files");
        let mut good = true;
        let beside = OF_SERVERS.into_iter().find(|key| levels.have(self.findings, key));
        if let Some(key) = beside {
            self.error(&path, format!("stands beside `{key}`: a site has servers or files"))
                .help("give one of them a `[[site.route]]` of its own");
            good = false;
        }
        for key in WITHOUT_EFFECT {
            if levels.nearest().have(self.findings, key) {
                let message = "has no effect beside `files`, which the node serves by itself";
                self.warning(&levels.key(self.findings, key), message);
            }
        }
        if site.delivery == file::Delivery::Redirect
            && levels.nearest().have(self.findings, "delivery")
        {
            let message = "has no effect beside `files`: each node serves its own";
            self.warning(&levels.key(self.findings, "delivery"), message);
        }
        let (table, place) = (given.table(), |key: &str| match given {
            FilesOrRoot::Root(_) => path.clone(),
            FilesOrRoot::Table(_) => path.key(key.to_owned()),
        });
        let root = self.root_of_files(table.root.as_deref()?, &place("root"));
        let index = self.index_names(table.index.as_slice(), &place("index"));
        let fallback =
            maybe(table.fallback.as_ref(), |path| self.fallback(path, &place("fallback")));
        let codings = &table.precompressed;
        for (at, coding) in codings.iter().enumerate() {
            if codings[..at].contains(coding) {
                self.error(&place("precompressed").index(at), "names a coding for the second time");
                good = false;
            }
        }
        let types = self.media_types(&table.types, &place("types"));
        let cache_control = maybe(table.cache_control.as_ref(), |value| {
            self.field_value(value, &place("cache_control"))
        });
        let settings = FilesSettings {
            root: root?,
            index: index?,
            listing: table.listing,
            fallback: fallback?,
            precompressed: codings.clone(),
            types: types?,
            cache_control: cache_control?,
            outside_links: table.outside_links,
            recheck: table.recheck.0,
        };
        good.then_some(Some(settings))
    }

    fn root_of_files(&mut self, given: &str, path: &Path) -> Option<std::path::PathBuf> {
        let root = self.directory.join(given);
        let (message, help) = match std::fs::metadata(&root) {
            Ok(found) if found.is_dir() => return Some(root),
            Ok(_) => (format!("{} is no directory", root.display()), None),
            Err(error) => (
                format!("cannot look at {}: {error}", root.display()),
                Some(
                    "it must exist when the node starts; a relative path begins at the \
                      configuration file's directory",
                ),
            ),
        };
        self.error(path, message).maybe_help(help.map(str::to_owned)).none()
    }

    fn index_names(&mut self, names: &[String], path: &Path) -> Option<Vec<String>> {
        let is_name = |name: &&String| {
            FilePath::of(name).is_ok_and(|path| path.relative() == **name)
                && !name.is_empty()
                && !name.contains('/')
        };
        if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
            self.error(path, format!("{wrong:?} is no name of a file in a directory"))
                .help("for example \"index.html\"");
            return None;
        }
        Some(names.to_vec())
    }

    fn fallback(&mut self, given: &str, path: &Path) -> Option<String> {
        match FilePath::of(given) {
            Ok(file) if !file.is_directory() => Some(file.relative().to_owned()),
            _ => {
                self.error(path, format!("{given:?} is no path of a file below `root`"))
                    .help("for example \"/index.html\"");
                None
            }
        }
    }

    fn media_types(
        &mut self,
        types: &BTreeMap<String, String>,
        path: &Path,
    ) -> Option<BTreeMap<String, HeaderValue>> {
        let mut read = Vec::new();
        for (extension, text) in types {
            let at = path.key(extension.clone());
            if extension.is_empty() || extension.contains(['.', '/']) {
                let message = "is the extension of no file: write it without the dot";
                let place = self.findings.key_place(&at);
                self.findings.error_at(place, &at, message);
                read.push(None);
                continue;
            }
            let value = self.field_value(text, &at);
            read.push(value.map(|value| (extension.to_ascii_lowercase(), value)));
        }
        read.into_iter().collect()
    }

    fn field_value(&mut self, text: &str, path: &Path) -> Option<HeaderValue> {
        let value = HeaderValue::try_from(text).ok();
        if value.is_none() {
            self.error(path, "cannot be the value of a header field");
        }
        value
    }
}
