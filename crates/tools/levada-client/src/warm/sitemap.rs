//! Sitemaps and sitemap indexes (sitemaps.org), with bounds for hostile ones.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use http::Uri;
use quick_xml::{Reader, events::Event};

use super::WarmRequest;
use crate::{connect::Client, parse_url, redirect};

/// The most bytes of a sitemap, unpacked, as the protocol has it.
const MOST_BYTES: usize = 50 << 20;
/// The most URLs of a sitemap, as the protocol has it.
const MOST_URLS: usize = 50_000;
/// The most sitemaps of an index.
const MOST_SITEMAPS: usize = 1000;
/// The longest URL.
const LONGEST: usize = 2048;

/// Why a sitemap is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SitemapError {
    /// It could not be fetched.
    #[error("{0}")]
    Fetch(String),
    /// It is longer than allowed.
    #[error("the sitemap has more than 50 MiB: divide it")]
    TooLong,
    /// It is not what its first bytes say.
    #[error("the sitemap cannot be unpacked: {0}")]
    Gzip(String),
    /// It is not XML, or not that of a sitemap.
    #[error("not a sitemap: {0}")]
    Format(String),
    /// It has a document type, which sitemaps do not have.
    #[error("not a sitemap: it has a document type")]
    DocumentType,
    /// It has too many entries.
    #[error("the sitemap has more than {0} entries: divide it")]
    TooMany(usize),
    /// A sitemap index in an index.
    #[error("a sitemap index leads to another index, {0}")]
    Nested(String),
    /// An entry is not of this host.
    #[error("the entry {0} is of another host")]
    Foreign(String),
    /// An entry is no URL.
    #[error("{0}")]
    Url(String),
}

/// The entries of a sitemap.
#[derive(Debug, PartialEq, Eq)]
enum Sitemap {
    Urls(Vec<String>),
    Index(Vec<String>),
}

/// The URLs of a sitemap, or of all sitemaps of an index.
pub(super) async fn read(
    client: &Client,
    request: &WarmRequest,
    url: &Uri,
) -> Result<Vec<Uri>, SitemapError> {
    let sitemaps = match fetch(client, request, url).await? {
        Sitemap::Urls(urls) => return of_host(url, urls),
        Sitemap::Index(sitemaps) => of_host(url, sitemaps)?,
    };
    let mut all = Vec::new();
    for sitemap in sitemaps {
        match fetch(client, request, &sitemap).await? {
            Sitemap::Urls(urls) => all.extend(of_host(&sitemap, urls)?),
            Sitemap::Index(_) => return Err(SitemapError::Nested(sitemap.to_string())),
        }
        if all.len() > request.max_urls {
            break;
        }
    }
    Ok(all)
}

fn of_host(sitemap: &Uri, entries: Vec<String>) -> Result<Vec<Uri>, SitemapError> {
    let of_host = |entry: String| {
        let url = parse_url(&entry).map_err(SitemapError::Url)?;
        match redirect::origin(&url) == redirect::origin(sitemap) {
            true => Ok(url),
            false => Err(SitemapError::Foreign(entry)),
        }
    };
    entries.into_iter().map(of_host).collect()
}

async fn fetch(client: &Client, request: &WarmRequest, url: &Uri) -> Result<Sitemap, SitemapError> {
    let (connection, response) = request.ask(client, url).await.map_err(SitemapError::Fetch)?;
    if response.status() != http::StatusCode::OK {
        return Err(SitemapError::Fetch(response.status().to_string()));
    }
    let mut bytes = Vec::new();
    let take = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        bytes.len() <= MOST_BYTES
    };
    let whole = request.read(client, response, take).await.map_err(SitemapError::Fetch)?;
    if !whole {
        return Err(SitemapError::TooLong);
    }
    client.keep(connection);
    parse(&unpacked(bytes)?)
}

/// Whether these are the bytes of a sitemap.
pub(crate) fn is_sitemap(bytes: &[u8]) -> bool {
    unpacked(bytes.to_vec()).and_then(|text| parse(&text)).is_ok()
}

/// The text of a sitemap, which may be packed.
fn unpacked(bytes: Vec<u8>) -> Result<Vec<u8>, SitemapError> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    let mut reader = MultiGzDecoder::new(&bytes[..]).take(MOST_BYTES as u64 + 1);
    reader.read_to_end(&mut text).map_err(|error| SitemapError::Gzip(error.to_string()))?;
    if text.len() > MOST_BYTES { Err(SitemapError::TooLong) } else { Ok(text) }
}

/// Reads the `loc` of every entry. Anything else is skipped: extensions have elements of their own.
fn parse(bytes: &[u8]) -> Result<Sitemap, SitemapError> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| SitemapError::Format("it is not UTF-8".to_owned()))?;
    let format = |error: &dyn std::fmt::Display| SitemapError::Format(error.to_string());
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    // The element that each level is in: the root, the entry, and `loc`.
    let (mut path, mut kind): (Vec<String>, _) = (Vec::new(), None);
    let (mut entry, mut entries) = (String::new(), Vec::new());
    loop {
        let is_entry = path.len() == 3
            && path[2] == "loc"
            && matches!((&*path[0], &*path[1]), ("urlset", "url") | ("sitemapindex", "sitemap"));
        match reader.read_event().map_err(|error| format(&error))? {
            Event::Eof => break,
            Event::DocType(_) => return Err(SitemapError::DocumentType),
            Event::Start(element) => {
                let name = element.local_name().as_ref().to_owned();
                if path.is_empty() {
                    kind = Some(name.clone());
                }
                if path.len() >= DEEPEST {
                    return Err(SitemapError::Format("its elements are nested too deeply".into()));
                }
                path.push(name);
                entry.clear();
            }
            Event::End(_) => {
                path.pop();
                if is_entry {
                    entries.push(entry.trim().to_owned());
                }
                let most =
                    if kind.as_deref() == Some("urlset") { MOST_URLS } else { MOST_SITEMAPS };
                if entries.len() > most {
                    return Err(SitemapError::TooMany(most));
                }
            }
            Event::Text(text) if is_entry => entry.push_str(&text.xml10_content()),
            Event::CData(text) if is_entry => entry.push_str(&text.xml10_content()),
            Event::GeneralRef(entity) if is_entry => {
                let name = entity.xml10_content();
                let known = quick_xml::escape::resolve_xml_entity(&name).map(str::to_owned);
                let numbered = entity.resolve_char_ref().ok().flatten().map(String::from);
                let value = known.or(numbered);
                entry.push_str(&value.ok_or_else(|| {
                    SitemapError::Format(format!("the entity `&{name};` is not known"))
                })?);
            }
            _ => {}
        }
        if entry.len() > LONGEST {
            return Err(SitemapError::Url(format!("an entry is longer than {LONGEST} bytes")));
        }
    }
    if !path.is_empty() {
        return Err(SitemapError::Format("it breaks off".to_owned()));
    }
    match kind.as_deref() {
        Some("urlset") => Ok(Sitemap::Urls(entries)),
        Some("sitemapindex") => Ok(Sitemap::Index(entries)),
        Some(other) => Err(SitemapError::Format(format!("its root is `{other}`"))),
        None => Err(SitemapError::Format("it has no elements".to_owned())),
    }
}

/// The deepest element of a sitemap with extensions.
const DEEPEST: usize = 16;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn urlset(entries: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:image=\"http://www.google.com/schemas/sitemap-image/1.1\">{entries}</urlset>"
        )
    }

    fn read(text: &str) -> Result<Sitemap, SitemapError> {
        parse(&unpacked(text.as_bytes().to_vec())?)
    }

    #[test]
    fn entries_are_read_with_their_entities_and_without_extensions() {
        let text = urlset(
            "<url><loc>\n http://a.test/?a=1&amp;b=&#50; </loc><lastmod>2026-01-01</lastmod>\
             <image:image><image:loc>http://a.test/i.png</image:loc></image:image></url>\
             <url><loc><![CDATA[http://a.test/c]]></loc></url>",
        );
        let urls = ["http://a.test/?a=1&b=2", "http://a.test/c"].map(str::to_owned).to_vec();
        assert_eq!(read(&text), Ok(Sitemap::Urls(urls)));
        let index =
            "<sitemapindex><sitemap><loc>http://a.test/1.xml.gz</loc></sitemap></sitemapindex>";
        assert_eq!(read(index), Ok(Sitemap::Index(vec!["http://a.test/1.xml.gz".to_owned()])));
    }

    #[test]
    fn packed_sitemaps_are_unpacked_and_bombs_are_not() {
        let pack = |text: &[u8]| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            packer.write_all(text).unwrap();
            packer.finish().unwrap()
        };
        let text = urlset("<url><loc>http://a.test/</loc></url>");
        let packed = unpacked(pack(text.as_bytes())).unwrap();
        assert_eq!(parse(&packed), Ok(Sitemap::Urls(vec!["http://a.test/".to_owned()])));
        let bomb = pack(&vec![b' '; MOST_BYTES + 1]);
        assert!(bomb.len() < MOST_BYTES / 100);
        assert_eq!(unpacked(bomb), Err(SitemapError::TooLong));
        assert!(matches!(unpacked(vec![0x1f, 0x8b, 8, 0]), Err(SitemapError::Gzip(_))));
    }

    #[test]
    fn texts_that_are_no_sitemaps_are_refused() {
        let entity = "<!DOCTYPE x [<!ENTITY a \"b\">]><urlset/>";
        assert_eq!(read(entity), Err(SitemapError::DocumentType));
        let deep = "<urlset>".to_owned() + &"<a>".repeat(1000);
        let long = urlset(&format!("<url><loc>http://a/{}</loc></url>", "a".repeat(3000)));
        let unknown = urlset("<url><loc>&b;</loc></url>");
        for text in
            ["", "hello", "<html></html>", "<urlset><url>", "<urlset></url>", &deep, &unknown]
        {
            assert!(matches!(read(text), Err(SitemapError::Format(_))), "{text}: {:?}", read(text));
        }
        assert!(matches!(read(&long), Err(SitemapError::Url(_))));
        let many = urlset(&"<url><loc>http://a/</loc></url>".repeat(MOST_URLS + 1));
        assert_eq!(read(&many), Err(SitemapError::TooMany(MOST_URLS)));
    }

    #[test]
    fn entries_of_other_hosts_are_refused() {
        let sitemap = Uri::from_static("https://a.test/sitemap.xml");
        let of = |url: &str| of_host(&sitemap, vec![url.to_owned()]);
        assert!(of("https://a.test/x").is_ok() && of("https://A.test:443/x").is_ok());
        for url in ["https://b.test/", "http://a.test/", "https://a.test:8443/", "file:///etc"] {
            assert!(of(url).is_err(), "{url}");
        }
    }
}
