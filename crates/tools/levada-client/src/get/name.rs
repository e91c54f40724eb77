//! File names that a URL or a server provides.

use std::ffi::OsStr;

use percent_encoding::percent_decode_str;

/// The last segment of a URL's path, percent-decoded; `index.html` if it is empty.
///
/// The name never refers to another directory.
///
/// # Errors
/// When the segment is not usable as a file name.
pub fn name_from_url(url: &http::Uri) -> Result<String, String> {
    let segment = url.path().rsplit('/').next().unwrap_or_default();
    if segment.is_empty() {
        return Ok("index.html".to_owned());
    }
    let name = String::from_utf8(percent_decode_str(segment).collect());
    let name = name.unwrap_or_else(|_| segment.to_owned());
    safe(&name).ok_or_else(|| format!("{url} has no usable file name: use -o"))
}

/// The name in a `Content-Disposition` (RFC 6266); `None` if there is no usable one.
pub fn content_disposition(value: &str) -> Option<String> {
    let mut plain = None;
    for parameter in parameters(value) {
        let Some((key, value)) = parameter.split_once('=') else { continue };
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            // The extended form has precedence (RFC 6266, Sec. 4.3).
            "filename*" => {
                if let Some(encoded) = value.get(..7).filter(|c| c.eq_ignore_ascii_case("utf-8''"))
                    && let Ok(name) =
                        String::from_utf8(percent_decode_str(&value[encoded.len()..]).collect())
                {
                    return visible(&name);
                }
            }
            "filename" => plain = Some(unquoted(value)),
            _ => {}
        }
    }
    visible(&plain?)
}

/// Splits at semicolons outside of quotes.
fn parameters(value: &str) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let split = |c: char| {
        let was_escaped = escaped;
        escaped = quoted && c == '\\' && !was_escaped;
        if c == '"' && !was_escaped {
            quoted = !quoted;
        }
        c == ';' && !quoted
    };
    value.split(split).collect()
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut text = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

/// A server may not choose the name of a hidden file.
fn visible(name: &str) -> Option<String> {
    let name = safe(name.rsplit(['/', '\\']).next()?)?;
    (!name.starts_with('.')).then_some(name)
}

/// `name` without dangerous characters; `None` if it is not usable as a file name.
fn safe(name: &str) -> Option<String> {
    let is_bad = |c: char| c.is_control() || matches!(c, '/' | '\\' | '\0');
    let name: String = name.chars().map(|c| if is_bad(c) { '_' } else { c }).collect();
    let is_name = !name.is_empty() && name != "." && name != "..";
    // The suffixes of the temporary files must fit as well.
    (is_name && OsStr::new(&name).len() <= 255 - super::target::LONGEST_SUFFIX).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_in_the_directory() {
        let name = |url: &str| name_from_url(&url.parse().unwrap());
        assert_eq!(name("http://h/a/b.tar.gz?x=/y").unwrap(), "b.tar.gz");
        assert_eq!(name("http://h/").unwrap(), "index.html");
        assert_eq!(name("http://h").unwrap(), "index.html");
        assert_eq!(name("http://h/a%20b%2").unwrap(), "a b%2");
        assert_eq!(name("http://h/..%2f..%2fetc%2fpasswd").unwrap(), ".._.._etc_passwd");
        assert!(name("http://h/a/..").is_err());
        assert!(name("http://h/%2e%2E").is_err());
        assert_eq!(name("http://h/a%00%0ab").unwrap(), "a__b");
        assert!(name(&format!("http://h/{}", "a".repeat(300))).is_err());
    }

    #[test]
    fn a_server_names_a_file_in_the_directory() {
        let name = content_disposition;
        assert_eq!(name("attachment; filename=\"a; b.txt\"").unwrap(), "a; b.txt");
        assert_eq!(
            name("attachment; filename=a.txt; filename*=UTF-8''%e2%82%ac.txt").unwrap(),
            "€.txt"
        );
        assert_eq!(name("attachment; filename=\"../../x\"").unwrap(), "x");
        assert_eq!(name("attachment; filename=\"C:\\\\x\\\\y.exe\"").unwrap(), "y.exe");
        assert_eq!(name("attachment; filename=\".bashrc\""), None);
        assert_eq!(name("attachment; filename=\"..\""), None);
        assert_eq!(name("attachment; filename=\"a/\""), None);
        assert_eq!(name("inline"), None);
        assert_eq!(name("attachment; filename=\""), None);
    }
}
