//! The requests of a comparison: a list, or an access log.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use http::{HeaderName, HeaderValue, Method, Uri};

/// The most requests of a comparison.
const MOST: usize = 100_000;

/// A request that both servers get.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its line in the file.
    pub(super) line: usize,
    /// The method.
    pub(super) method: Method,
    /// The URL, with scheme and host.
    pub(super) url: Uri,
    /// Fields in addition to `Host`.
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub(super) body: Vec<u8>,
}

impl Asked {
    /// The host that it names.
    pub(super) fn host(&self) -> &str {
        let field = self.fields.iter().find(|(name, _)| *name == http::header::HOST);
        let field = field.and_then(|(_, host)| host.to_str().ok());
        field.unwrap_or_else(|| self.url.authority().map_or("", |authority| authority.as_str()))
    }
}

/// Reads a list of requests, or the requests of an access log. Targets without a host are those of `site`.
///
/// # Errors
/// When the file cannot be read, has no request, or one that cannot be sent.
pub(crate) fn read(path: &Path, site: Option<&Uri>) -> anyhow::Result<Vec<Asked>> {
    let shown = path.display();
    // A log that is packed is no text.
    let text = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let list = String::from_utf8(text).ok().filter(|text| is_list(text));
    let asked = match &list {
        Some(text) => of_list(text, site).with_context(|| shown.to_string())?,
        None => of_log(path, site)?,
    };
    if asked.is_empty() {
        bail!("{shown} has no requests");
    }
    Ok(asked)
}

/// Whether the first line that says something is a request of a list.
fn is_list(text: &str) -> bool {
    let first = text.lines().find(|line| says_something(line)).unwrap_or_default();
    let is_target = |word: &str| word.starts_with('/') || word.contains("://");
    let mut words = first.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(target), None, None) => is_target(target),
        (Some(method), Some(target), None) => Method::try_from(method).is_ok() && is_target(target),
        _ => first.is_empty(),
    }
}

fn says_something(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with('#')
}

/// `[METHOD] URL`, then lines that begin with white space: `NAME: VALUE`, and `> TEXT` of the body.
fn of_list(text: &str, site: Option<&Uri>) -> anyhow::Result<Vec<Asked>> {
    let mut found: Vec<Asked> = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| says_something(line)) {
        let number = at + 1;
        let wrong = |what: &str| anyhow::anyhow!("line {number}: {what}");
        if found.len() > MOST {
            bail!("more than {MOST} requests: divide the list");
        }
        let Some(last) = found.last_mut().filter(|_| line.starts_with([' ', '\t'])) else {
            let mut words = line.split_whitespace().rev();
            let target = words.next().unwrap_or_default();
            let method = Method::try_from(words.next().unwrap_or("GET"));
            let method = method.map_err(|_| wrong("the first word is no method"))?;
            if words.next().is_some() {
                return Err(wrong("a request is a method and a URL, or a URL"));
            }
            let url = absolute(target, site).map_err(|why| wrong(&why))?;
            found.push(Asked { line: number, method, url, fields: Vec::new(), body: Vec::new() });
            continue;
        };
        match line.trim().split_once(':') {
            _ if line.trim().starts_with('>') => {
                let text = line.trim().trim_start_matches('>').trim_start();
                last.body.extend(text.bytes());
            }
            Some((name, value)) => {
                let name = HeaderName::try_from(name).map_err(|_| wrong("no name of a field"))?;
                let value = HeaderValue::try_from(value.trim());
                last.fields.push((name, value.map_err(|_| wrong("no value of a field"))?));
            }
            None => return Err(wrong("write `NAME: VALUE` for a field, `> TEXT` for a body")),
        }
    }
    Ok(found)
}

fn of_log(path: &Path, site: Option<&Uri>) -> anyhow::Result<Vec<Asked>> {
    let mut found = Vec::new();
    let mut last = String::new();
    for (at, record) in levada_trace::open(path)?.enumerate() {
        // Lines that cannot be read, and requests that no client could send, are no requests.
        let Ok(record) = record else { continue };
        let Ok(method @ (Method::GET | Method::HEAD)) = Method::try_from(record.method.as_str())
        else {
            continue;
        };
        let target = match &record.host {
            Some(host) => format!("http://{host}{}", record.target),
            None => record.target.clone(),
        };
        let url = match absolute(&target, site) {
            Ok(url) => url,
            Err(why) if record.host.is_none() && site.is_none() => {
                bail!("{}: line {}: {why}", path.display(), at + 1)
            }
            Err(_) => continue,
        };
        let mut fields = Vec::new();
        for (name, value) in [
            (http::header::REFERER, &record.referer),
            (http::header::USER_AGENT, &record.user_agent),
        ] {
            let value = value.as_deref().filter(|value| *value != "-");
            fields.extend(value.and_then(|v| HeaderValue::try_from(v).ok()).map(|v| (name, v)));
        }
        // A page that is asked for again and again in a row says nothing new.
        let same = format!("{method} {url} {fields:?}");
        if same == std::mem::replace(&mut last, same.clone()) {
            continue;
        }
        found.push(Asked { line: at + 1, method, url, fields, body: Vec::new() });
        if found.len() >= MOST {
            break;
        }
    }
    Ok(found)
}

/// A URL with scheme and host.
fn absolute(target: &str, site: Option<&Uri>) -> Result<Uri, String> {
    let text = match (target.contains("://"), site) {
        (true, _) => target.to_owned(),
        (false, None) => {
            return Err(format!("`{target}` has no host: name it with --site http://HOST"));
        }
        (false, Some(site)) => {
            let scheme = site.scheme_str().unwrap_or("http");
            let host = site.authority().map_or("", |authority| authority.as_str());
            format!("{scheme}://{host}{target}")
        }
    };
    levada_client::parse_url(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_methods_fields_and_bodies() {
        let text =
            "# a comment\nhttp://a.example/x?y=z\nPOST /form\n  X-A: b c\n  > one\n  > two\n";
        assert!(is_list(text));
        let site = "https://b.example:8443".parse().unwrap();
        let asked = of_list(text, Some(&site)).unwrap();
        assert_eq!(asked[0].url, "http://a.example/x?y=z");
        assert_eq!((asked[0].method.as_str(), asked[0].line), ("GET", 2));
        assert_eq!(asked[1].url, "https://b.example:8443/form");
        assert_eq!((asked[1].method.as_str(), &asked[1].body[..]), ("POST", &b"onetwo"[..]));
        assert_eq!(asked[1].fields[0].1, "b c");
    }

    #[test]
    fn what_cannot_be_sent_is_named_with_its_line() {
        for (text, part) in [
            ("http://a/x\n/relative\n", "line 2: `/relative` has no host"),
            ("http://a/x\nGET GET http://a/\n", "line 2: a request is a method"),
            ("http://a/x\n  no field\n", "line 2: write `NAME: VALUE`"),
            ("ftp://a/x\n", "line 1: `ftp://a/x`: only http"),
        ] {
            let error = format!("{:#}", of_list(text, None).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_log_gives_its_requests_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let line = |method: &str, target: &str, agent: &str| {
            format!(
                "192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] \"{method} {target} HTTP/1.1\" 200 5 \"-\" \"{agent}\"\n"
            )
        };
        let text = line("GET", "/a", "x") + &line("GET", "/a", "x") + &line("POST", "/a", "x");
        fs::write(&path, text + &line("HEAD", "/b?c=d", "y")).unwrap();
        let error = read(&path, None).unwrap_err().to_string();
        assert!(error.contains("--site http://HOST"), "{error}");
        let asked = read(&path, Some(&"http://www.example.com".parse().unwrap())).unwrap();
        let shown = asked.iter().map(|a| format!("{} {} {}", a.line, a.method, a.url));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            ["1 GET http://www.example.com/a", "4 HEAD http://www.example.com/b?c=d"]
        );
        assert_eq!(asked[1].fields[0].1, "y");
    }
}
