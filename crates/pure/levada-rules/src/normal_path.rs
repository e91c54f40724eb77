//! The form of a path that rules compare.
//!
//! A rule that protects `/admin/**` must also hold for `/%61dmin`, `//admin` and `/x/../admin`, because
//! servers take them for the same. So escapes are decoded, runs of `/` count as one, and dot segments are
//! resolved (RFC 3986 Sec. 5.2.4), as nginx does for its locations.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The normal form of a path. Most paths have it already and are not copied.
///
/// Escapes that are no UTF-8 become U+FFFD: no rule can name them, and a rule for all paths below another one
/// still holds.
pub fn normal_path(path: &str) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    let pairs = || bytes.windows(2).any(|pair| pair[0] == b'/' && matches!(pair[1], b'/' | b'.'));
    if bytes.first() == Some(&b'/') && !bytes.contains(&b'%') && !pairs() {
        return Cow::Borrowed(path);
    }
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let ends_as_directory = ["/", "/.", "/.."].iter().any(|end| decoded.ends_with(end));
    let mut normal = String::with_capacity(decoded.len() + 1);
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if segments.is_empty() || ends_as_directory {
        normal.push('/');
    }
    Cow::Owned(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_servers_take_for_the_same_are_the_same() {
        for (path, normal) in [
            ("/a/b", "/a/b"),
            ("/", "/"),
            ("", "/"),
            ("/%61dmin", "/admin"),
            ("//admin///x", "/admin/x"),
            ("/x/../admin", "/admin"),
            ("/x/%2e%2e/admin/.", "/admin/"),
            ("/../../etc", "/etc"),
            ("/a%2Fb", "/a/b"),
            ("/a/..", "/"),
            ("/caf%C3%A9", "/café"),
            ("/%ff", "/\u{fffd}"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/..b", "/a/..b"),
        ] {
            assert_eq!(normal_path(path), normal, "{path}");
        }
        assert!(matches!(normal_path("/a/b.c"), Cow::Borrowed(_)));
    }
}
