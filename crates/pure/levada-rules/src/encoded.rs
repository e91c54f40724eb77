//! Octets that a path writes as `%XX`.

/// The octets that the path of this target encodes.
pub(crate) fn octets(target: &str) -> impl Iterator<Item = u8> {
    let path = target.split('?').next().unwrap_or_default();
    let octet = |rest: &[u8]| {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        Some((digit(rest.first()?)? << 4 | digit(rest.get(1)?)?) as u8)
    };
    path.split('%').skip(1).filter_map(move |rest| octet(rest.as_bytes()))
}

/// Whether the path has an encoded control character. Servers cut paths there, or take it for white space: rules of
/// this node would be about another path than the server's.
pub fn encodes_controls(target: &str) -> bool {
    octets(target).any(|octet| octet.is_ascii_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_found_in_the_path_however_they_are_written() {
        for path in ["/%00", "/a%0d%0Ab", "/%7f", "/%1F.css", "/a%09?b"] {
            assert!(encodes_controls(path), "{path}");
        }
        for path in
            ["/", "/%20%c3%a9", "/a?b=%00", "/%", "/%0", "/%g0", "/%2500", "/%+0", "/%\u{e9}0"]
        {
            assert!(!encodes_controls(path), "{path}");
        }
    }
}
