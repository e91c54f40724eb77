//! The list of a directory without an index, as HTML or as JSON in the form of nginx's `autoindex_format json`.
//!
//! It has what a request for the entry would find: no hidden names, no devices, no links that lead out.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::ACCEPT};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat},
    io::Errno,
};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::files::{
    open::{Opened, Root},
    path::{FilePath, escaped},
};

/// The most entries of a list.
const MOST: usize = 10_000;

/// The form of a list, as a request asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListingForm {
    json: bool,
    order: Order,
    descending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Name,
    Size,
    Time,
}

/// An entry of a directory.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip)]
    modified: i64,
}

/// A list, and its media type.
pub(crate) struct Listing {
    pub(crate) bytes: Bytes,
    pub(crate) content_type: HeaderValue,
}

impl ListingForm {
    /// JSON for those who accept it, and the order by the arguments `sort` and `order`.
    pub(crate) fn of(target: &str, request: &HeaderMap) -> Self {
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let has = |argument: &str| query.split('&').any(|own| own == argument);
        let accepts = |value: &HeaderValue| {
            let types = value.to_str().unwrap_or_default().split(',');
            let mut types = types.map(|one| one.split(';').next().unwrap_or_default().trim());
            types.any(|one| one.eq_ignore_ascii_case("application/json"))
        };
        let order = match (has("sort=size"), has("sort=time")) {
            (true, _) => Order::Size,
            (_, true) => Order::Time,
            _ => Order::Name,
        };
        let json = request.get_all(ACCEPT).iter().any(accepts);
        Self { json, order, descending: has("order=desc") }
    }

    /// The list of a directory. It waits for the disk.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn list(self, root: &Root, path: &FilePath) -> Result<Listing, Errno> {
        let (mut entries, is_cut) = entries(root, path)?;
        // Directories first, as in nginx.
        entries.sort_by(|one, other| {
            let by_name = || one.name.cmp(&other.name);
            let in_order = match self.order {
                Order::Name => by_name(),
                Order::Size => one.size.cmp(&other.size).then_with(by_name),
                Order::Time => one.modified.cmp(&other.modified).then_with(by_name),
            };
            let in_order = if self.descending { in_order.reverse() } else { in_order };
            one.kind.cmp(other.kind).then(in_order)
        });
        let (text, content_type) = match self.json {
            true => (serde_json::to_vec(&entries).unwrap_or_default(), "application/json"),
            false => (html(path, &entries, is_cut).into_bytes(), "text/html; charset=utf-8"),
        };
        Ok(Listing { bytes: text.into(), content_type: HeaderValue::from_static(content_type) })
    }
}

/// The entries of a directory that requests can find, and whether there are more.
fn entries(root: &Root, path: &FilePath) -> Result<(Vec<Entry>, bool), Errno> {
    let directory = root.directory(path.relative())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = openat(&directory, ".", flags, Mode::empty())?;
    let mut entries = Vec::new();
    for found in Dir::new(readable)? {
        let found = found?;
        let Ok(name) = found.file_name().to_str() else { continue };
        let is_named = FilePath::of(&format!("/{}", escaped(name)));
        if name.starts_with('.') || is_named.is_err() {
            continue;
        }
        if entries.len() == MOST {
            return Ok((entries, true));
        }
        let Ok(seen) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let (kind, size, modified) = match FileType::from_raw_mode(seen.st_mode) {
            FileType::Directory => ("directory", None, seen.st_mtime),
            FileType::RegularFile => ("file", u64::try_from(seen.st_size).ok(), seen.st_mtime),
            FileType::Symlink => match root.look(&path.child(name)) {
                Ok(Opened::File(file)) => ("file", Some(file.state.size), file.state.modified.0),
                Ok(Opened::Directory) => ("directory", None, seen.st_mtime),
                Ok(Opened::Other) | Err(_) => continue,
            },
            _ => continue,
        };
        let mtime = httpdate::fmt_http_date(time(modified));
        entries.push(Entry { name: name.to_owned(), kind, mtime, size, modified });
    }
    Ok((entries, false))
}

fn time(seconds: i64) -> SystemTime {
    // Dates beyond the year 9999 have no form.
    let seconds = u64::try_from(seconds).unwrap_or_default().min(253_402_300_799);
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn html(path: &FilePath, entries: &[Entry], is_cut: bool) -> String {
    let title = text(&format!("/{path}"));
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n\
         <table>\n<tr><th><a href=\"?sort=name\">Name</a><th><a href=\"?sort=size&amp;order=desc\">\
         Size</a><th><a href=\"?sort=time&amp;order=desc\">Modified</a>\n"
    );
    if !path.relative().is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
    }
    for Entry { name, kind, mtime, size, .. } in entries {
        let slash = if *kind == "directory" { "/" } else { "" };
        let size = size.map(|size| size.to_string()).unwrap_or_default();
        let (link, name) = (escaped(name), text(name));
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{link}{slash}\">{name}{slash}</a><td>{size}<td>{mtime}"
        );
    }
    page.push_str("</table>\n");
    if is_cut {
        let _ = writeln!(page, "<p>The first {MOST} entries.");
    }
    page
}

/// A text in HTML.
fn text(plain: &str) -> String {
    let mut text = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            c => text.push(c),
        }
    }
    text
}
