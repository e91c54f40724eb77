//! The variables of nginx, whose names the parts of a request have in this crate, and their names in Levada.

/// Names; the name in texts, `{NAME}`; the name in expressions, if they have one.
const VARIABLES: &[(&[&str], &str, Option<&str>)] = &[
    (&["host"], "host", Some("request.host")),
    (&["http_host"], "host", None),
    (&["scheme"], "scheme", Some("request.scheme")),
    (&["request_uri"], "uri", None),
    (&["uri", "document_uri"], "path", Some("request.path")),
    (&["args", "query_string"], "query", Some("request.query")),
    (&["remote_addr"], "client", Some("source.address")),
    (&["realip_remote_addr"], "client", None),
    (&["request_method"], "method", Some("request.method")),
    (&["request_id"], "request_id", None),
    (&["upstream_cache_status"], "cache", None),
    (&["geoip2_data_country_iso_code", "geoip_country_code"], "country", None),
];

/// The name of a variable in texts.
pub fn in_text(variable: &str) -> Option<&'static str> {
    find(variable).map(|(text, _)| text)
}

/// The name of a variable in expressions.
pub fn in_expression(variable: &str) -> Option<&'static str> {
    find(variable)?.1
}

fn find(variable: &str) -> Option<(&'static str, Option<&'static str>)> {
    let found = VARIABLES.iter().find(|(names, ..)| names.contains(&variable))?;
    Some((found.1, found.2))
}
