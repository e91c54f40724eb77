//! `Max-Forwards`: how many more proxies an OPTIONS request may pass (RFC 9110 Sec. 7.6.2).
//!
//! TRACE, the other method with this field, is refused before.

use http::{HeaderMap, HeaderValue, Method, header::MAX_FORWARDS};

/// Whether the request is to be answered here. Otherwise the field is decremented, if there is one.
pub fn ends_here(method: &Method, headers: &mut HeaderMap) -> bool {
    if *method != Method::OPTIONS {
        return false;
    }
    match headers.get(MAX_FORWARDS).and_then(number) {
        Some(0) => true,
        Some(hops) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(hops - 1));
            false
        }
        None => false,
    }
}

/// Digits only. A number that is too large becomes the largest one.
fn number(value: &HeaderValue) -> Option<u32> {
    let digits = value.to_str().ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(method: Method, value: &'static str) -> (bool, String) {
        let mut headers = HeaderMap::new();
        headers.insert(MAX_FORWARDS, HeaderValue::from_static(value));
        let ends = ends_here(&method, &mut headers);
        (ends, headers[MAX_FORWARDS].to_str().unwrap().to_owned())
    }

    #[test]
    fn hops_are_counted_down_for_options_only() {
        assert_eq!(after(Method::OPTIONS, "0"), (true, "0".into()));
        assert_eq!(after(Method::OPTIONS, "10"), (false, "9".into()));
        assert_eq!(after(Method::OPTIONS, "99999999999"), (false, "4294967294".into()));
        assert_eq!(after(Method::OPTIONS, "+1"), (false, "+1".into()));
        assert_eq!(after(Method::GET, "0"), (false, "0".into()));
    }
}
