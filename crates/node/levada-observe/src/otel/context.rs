//! The trace that a request belongs to, as the field `traceparent` of "W3C Trace Context" says it.
//!
//! ```text
//!   00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//!   version    trace                      span           flags, bit 0: sampled
//! ```

use http::{HeaderMap, HeaderName, HeaderValue};

/// The field.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The field next to it, which means nothing without it.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of the field of version 00.
const LENGTH: usize = 55;

/// The span that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: u128,
    /// The span.
    pub span: u64,
    /// Whether the caller records it.
    pub sampled: bool,
}

impl TraceContext {
    /// The context of a request. `None` if the field is missing, invalid, or there are several.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut fields = headers.get_all(TRACEPARENT).iter();
        let field = fields.next()?;
        if fields.next().is_some() {
            return None;
        }
        Self::parse(field.as_bytes())
    }

    /// Reads the field. A version of the future may have more parts at its end.
    pub fn parse(field: &[u8]) -> Option<Self> {
        let (known, more) = field.split_at_checked(LENGTH)?;
        let dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        let version = hex(&known[..2])?;
        let ends = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.first().is_none_or(|next| *next == b'-'),
        };
        let (trace, span) = (hex(&known[3..35])?, hex(&known[36..52])? as u64);
        let sampled = hex(&known[53..])? & 1 == 1;
        (dashes && ends && trace != 0 && span != 0).then_some(Self { trace, span, sampled })
    }

    /// The field.
    pub fn field(self) -> HeaderValue {
        let Self { trace, span, sampled } = self;
        let text = format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(sampled));
        // Digits and dashes.
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

/// Lower-case digits only, as that recommendation wants.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(text: &str) -> Option<TraceContext> {
        TraceContext::parse(text.as_bytes())
    }

    #[test]
    fn field_is_read_and_written_alike() {
        let context = parse(EXAMPLE).unwrap();
        assert_eq!(context.span, 0xb7ad_6b71_6920_3331);
        assert!(context.sampled);
        assert_eq!(context.field(), EXAMPLE);
        assert!(!parse(&EXAMPLE.replace("-01", "-00")).unwrap().sampled);
    }

    #[test]
    fn versions_of_the_future_may_say_more() {
        let other = EXAMPLE.replacen("00", "cc", 1);
        assert_eq!(parse(&other), parse(EXAMPLE));
        assert_eq!(parse(&format!("{other}-more")), parse(EXAMPLE));
        assert_eq!(parse(&format!("{other}more")), None);
        assert_eq!(parse(&EXAMPLE.replacen("00", "ff", 1)), None);
        assert_eq!(parse(&format!("{EXAMPLE}-more")), None);
    }

    #[test]
    fn nothing_else_is_taken_for_a_context() {
        let zero_trace = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let zero_span = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        for wrong in ["", "00", zero_trace, zero_span, &EXAMPLE.to_uppercase(), &EXAMPLE[..54]] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        for at in 0..EXAMPLE.len() {
            let mut bytes = EXAMPLE.as_bytes().to_vec();
            bytes[at] = b'~';
            assert_eq!(TraceContext::parse(&bytes), None);
        }
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(EXAMPLE));
        assert_eq!(TraceContext::of(&headers), parse(EXAMPLE));
        headers.append(TRACEPARENT, HeaderValue::from_static(EXAMPLE));
        assert_eq!(TraceContext::of(&headers), None);
    }
}
