//! Cross-origin resource sharing (the Fetch standard): preflights are answered here, and responses get the
//! fields that let a browser show them to a page of another origin.

use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS as CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS as HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS as METHODS, ACCESS_CONTROL_ALLOW_ORIGIN as ORIGIN_ALLOWED,
        ACCESS_CONTROL_EXPOSE_HEADERS as EXPOSED, ACCESS_CONTROL_MAX_AGE as MAX_AGE,
        ACCESS_CONTROL_REQUEST_HEADERS as REQUESTED,
        ACCESS_CONTROL_REQUEST_METHOD as REQUEST_METHOD, ORIGIN, VARY,
    },
};

/// The origins that may use a site, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The origins, such as `https://app.example.com`; `https://*.example.com` for all below a host, `*` for all.
    pub origins: Vec<String>,
    /// The methods in addition to GET, HEAD and POST.
    pub methods: Vec<Method>,
    /// The request fields that a page may set; `None` allows those that it asks for.
    pub headers: Option<Vec<HeaderName>>,
    /// The response fields that a page may read.
    pub expose: Vec<HeaderName>,
    /// Whether requests with cookies and passwords are allowed.
    pub credentials: bool,
    /// The time for which a browser remembers the answer to a preflight.
    pub max_age: Duration,
}

/// The part that a request's origin plays in the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsAnswer {
    allowed: Option<HeaderValue>,
    credentials: bool,
    exposed: Option<HeaderValue>,
    varies: bool,
}

impl Cors {
    /// Whether every origin may use the site, in the same way.
    fn is_public(&self) -> bool {
        !self.credentials && self.origins.iter().any(|origin| origin == "*")
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|pattern| match pattern.split_once('*') {
            None => pattern.eq_ignore_ascii_case(origin),
            Some(("", "")) => true,
            Some((scheme, suffix)) => {
                let length = scheme.len() + suffix.len();
                let host = origin.len() > length
                    && origin.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme));
                let end = origin.get(origin.len().saturating_sub(suffix.len())..);
                host && end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
            }
        })
    }

    /// The fields for the response to a request.
    pub fn answer(&self, headers: &HeaderMap) -> CorsAnswer {
        let origin = headers.get(ORIGIN);
        let shown = origin.and_then(|origin| origin.to_str().ok());
        let allowed = match origin {
            _ if self.is_public() => Some(HeaderValue::from_static("*")),
            Some(origin) if shown.is_some_and(|shown| self.allows(shown)) => Some(origin.clone()),
            _ => None,
        };
        let exposed = allowed.as_ref().and_then(|_| list(&self.expose, HeaderName::as_str));
        let credentials = self.credentials && allowed.is_some();
        CorsAnswer { allowed, credentials, exposed, varies: !self.is_public() }
    }

    /// The fields of the answer to a preflight; `None` if the request is none.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<HeaderMap> {
        if *method != Method::OPTIONS || !headers.contains_key(ORIGIN) {
            return None;
        }
        headers.get(REQUEST_METHOD)?;
        let mut fields = HeaderMap::new();
        let answer = self.answer(headers);
        let is_allowed = answer.allowed.is_some();
        answer.add_to(&mut fields);
        fields.remove(EXPOSED);
        for field in ["access-control-request-method", "access-control-request-headers"] {
            fields.append(VARY, HeaderValue::from_static(field));
        }
        if is_allowed {
            let simple = [Method::GET, Method::HEAD, Method::POST];
            let methods: Vec<_> = simple.into_iter().chain(self.methods.iter().cloned()).collect();
            fields.extend(list(&methods, Method::as_str).map(|value| (METHODS, value)));
            let named = match &self.headers {
                Some(named) => list(named, HeaderName::as_str),
                None => headers.get(REQUESTED).cloned(),
            };
            fields.extend(named.map(|value| (HEADERS, value)));
            fields.insert(MAX_AGE, HeaderValue::from(self.max_age.as_secs()));
        }
        Some(fields)
    }
}

impl CorsAnswer {
    /// Puts the fields in the place of those of the origin server, which would contradict them.
    pub fn add_to(self, headers: &mut HeaderMap) {
        for name in [ORIGIN_ALLOWED, CREDENTIALS, EXPOSED] {
            headers.remove(name);
        }
        if self.varies && !varies_by_origin(headers) {
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        headers.extend(self.allowed.map(|value| (ORIGIN_ALLOWED, value)));
        headers.extend(self.exposed.map(|value| (EXPOSED, value)));
        if self.credentials {
            headers.insert(CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

fn varies_by_origin(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(VARY).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|name| name.trim().eq_ignore_ascii_case("origin"))
}

fn list<T>(items: &[T], text: impl Fn(&T) -> &str) -> Option<HeaderValue> {
    let names: Vec<&str> = items.iter().map(text).collect();
    (!names.is_empty()).then(|| names.join(", ").parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str], credentials: bool) -> Cors {
        Cors {
            origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
            methods: vec![Method::PUT],
            headers: None,
            expose: vec![HeaderName::from_static("etag")],
            credentials,
            max_age: Duration::from_secs(600),
        }
    }

    fn from(origin: &str) -> HeaderMap {
        HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())])
    }

    fn answered(cors: &Cors, origin: &str) -> HeaderMap {
        let mut headers =
            HeaderMap::from_iter([(ORIGIN_ALLOWED, "https://old.test".parse().unwrap())]);
        cors.answer(&from(origin)).add_to(&mut headers);
        headers
    }

    #[test]
    fn response_names_the_origin_that_may_read_it_and_varies_by_it() {
        let cors = cors(&["https://app.example.com", "https://*.example.org"], true);
        for origin in ["https://app.example.com", "https://a.b.example.org"] {
            let headers = answered(&cors, origin);
            assert_eq!(headers[ORIGIN_ALLOWED], origin);
            assert_eq!(
                (&headers[CREDENTIALS], &headers[EXPOSED]),
                (&"true".parse().unwrap(), &"etag".parse().unwrap())
            );
            assert_eq!(headers[VARY], "origin");
        }
        for origin in [
            "http://app.example.com",
            "http://a.example.org",
            "https://example.org",
            "https://.example.org",
            "https://evilexample.org",
            "null",
            "https://a.example.org.evil.test",
        ] {
            let headers = answered(&cors, origin);
            assert!(
                !headers.contains_key(ORIGIN_ALLOWED) && !headers.contains_key(CREDENTIALS),
                "{origin}"
            );
            assert_eq!(headers[VARY], "origin");
        }
    }

    #[test]
    fn public_site_answers_all_alike() {
        let headers = answered(&cors(&["*"], false), "https://any.test");
        assert_eq!(headers[ORIGIN_ALLOWED], "*");
        assert!(!headers.contains_key(VARY));
        assert_eq!(
            answered(&cors(&["*"], true), "https://any.test")[ORIGIN_ALLOWED],
            "https://any.test"
        );
    }

    #[test]
    fn preflight_is_answered_with_what_is_allowed() {
        let cors = cors(&["https://app.example.com"], false);
        let ask = |origin: &str| {
            let mut headers = from(origin);
            headers.insert(REQUEST_METHOD, "PUT".parse().unwrap());
            headers.insert(REQUESTED, "x-a, x-b".parse().unwrap());
            cors.preflight(&Method::OPTIONS, &headers).unwrap()
        };
        let fields = ask("https://app.example.com");
        assert_eq!(fields[METHODS], "GET, HEAD, POST, PUT");
        assert_eq!(fields[HEADERS], "x-a, x-b");
        assert_eq!(fields[MAX_AGE], "600");
        let fields = ask("https://evil.test");
        assert!(!fields.contains_key(METHODS) && !fields.contains_key(ORIGIN_ALLOWED));
        assert_eq!(cors.preflight(&Method::OPTIONS, &from("https://app.example.com")), None);
        assert_eq!(cors.preflight(&Method::GET, &from("https://app.example.com")), None);
    }
}
