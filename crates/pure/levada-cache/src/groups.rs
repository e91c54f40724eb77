//! Lists of strings (RFC 9651, Sec. 3.1, 3.3.3): the syntax of `Cache-Groups` and
//! `Cache-Group-Invalidation` (RFC 9875).

use http::{HeaderMap, HeaderName};

use crate::targeted::{Scan, Value};

/// The members of a field that is a list of strings. Empty if the field has another syntax: a field
/// that does not parse is ignored as a whole (RFC 9651, Sec. 4.2).
pub fn strings(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
    parse(&lines.join(&b", "[..])).unwrap_or_default()
}

fn parse(field: &[u8]) -> Option<Vec<String>> {
    let mut scan = Scan { rest: field.trim_ascii() };
    let mut members = Vec::new();
    while !scan.rest.is_empty() {
        let Value::String(escaped) = scan.value()? else { return None };
        scan.parameters()?;
        members.push(unescaped(escaped));
        scan.blanks();
        if scan.rest.is_empty() {
            break;
        }
        scan.eat(b',').then_some(())?;
        scan.blanks();
        // A comma must be followed by a member.
        if scan.rest.is_empty() {
            return None;
        }
    }
    Some(members)
}

fn unescaped(text: &[u8]) -> String {
    let mut bytes = text.iter();
    let next = || match bytes.next()? {
        b'\\' => bytes.next().map(|byte| char::from(*byte)),
        byte => Some(char::from(*byte)),
    };
    std::iter::from_fn(next).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&str]) -> Vec<String> {
        let name = HeaderName::from_static("cache-groups");
        let fields = lines.iter().map(|line| (name.clone(), line.parse().unwrap()));
        strings(&fields.collect(), &name)
    }

    #[test]
    fn members_are_strings() {
        assert_eq!(read(&[r#""a""#]), ["a"]);
        assert_eq!(read(&[r#" "a" ,	"b c";p=1;q , "" "#]), ["a", "b c", ""]);
        assert_eq!(read(&[r#""a", "b""#, r#""c""#]), ["a", "b", "c"]);
        assert_eq!(read(&[r#""q\"\\""#]), ["q\"\\"]);
        assert!(read(&[]).is_empty() && read(&[""]).is_empty());
    }

    #[test]
    fn field_that_is_no_list_of_strings_is_ignored() {
        for line in ["a", "1", "\"a\" \"b\"", "\"a\",", "\"a", "(\"a\")", "\"a\", b", "\"a\\b\""] {
            assert!(read(&[line]).is_empty(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_is_escaped_is_read_back(members in prop::collection::vec("[ -~]{0,8}", 0..5)) {
            let escape = |text: &String| text.replace('\\', "\\\\").replace('"', "\\\"");
            let line: Vec<String> = members.iter().map(|m| format!("\"{}\"", escape(m))).collect();
            prop_assert_eq!(parse(line.join(", ").as_bytes()), Some(members));
        }
    }
}
