//! The header fields by which an origin gets to know the certificate of a client.
//!
//! ```text
//! client_cert              Client-Cert (RFC 9440)
//! client_cert_chain        Client-Cert-Chain (RFC 9440): the certificates that the client sent after its own
//! x_forwarded_client_cert  X-Forwarded-Client-Cert, as Envoy writes it
//! x_ssl_client             X-SSL-Client-Verify, -S-DN, -I-DN, -Serial, -Fingerprint, -SAN, as before nginx and HAProxy
//! ```
//!
//! From clients themselves these fields are removed, whatever the site.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    objects::{oid_registry, oid2abbrev},
    prelude::{FromDer as _, X509Certificate},
    x509::X509Name,
};

/// A set of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientFields {
    /// `Client-Cert` of RFC 9440: the certificate.
    ClientCert,
    /// `Client-Cert-Chain` of RFC 9440: the certificates that the client sent after its own.
    ClientCertChain,
    /// `X-Forwarded-Client-Cert`, as Envoy writes it: hash, subject and names.
    XForwardedClientCert,
    /// `X-SSL-Client-Verify`, `-S-DN`, `-I-DN`, `-Serial`, `-Fingerprint` (SHA-256) and `-SAN`, the names that people
    /// give the variables of nginx and HAProxy.
    XSslClient,
}

/// The longest certificate that goes into fields.
pub const LONGEST: usize = 8 << 10;
/// The longest chain.
const LONGEST_CHAIN: usize = 16 << 10;

const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
const X_FORWARDED_CLIENT_CERT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");
const VERIFY: HeaderName = HeaderName::from_static("x-ssl-client-verify");

/// Whether a field says something about a client's certificate.
pub fn is_about_certificates(name: &str) -> bool {
    matches!(name, "client-cert" | "client-cert-chain" | "x-forwarded-client-cert")
        || name.starts_with("x-ssl-client-")
        || name.starts_with("ssl-client-")
}

/// Removes what a request says about a certificate.
pub fn remove(headers: &mut HeaderMap) {
    while let Some(name) = headers.keys().find(|name| is_about_certificates(name.as_str())).cloned()
    {
        headers.remove(name);
    }
}

/// The fields of a client without a certificate.
pub fn of_nobody(sets: &[ClientFields]) -> Vec<(HeaderName, HeaderValue)> {
    let tells = sets.contains(&ClientFields::XSslClient);
    tells.then(|| (VERIFY, HeaderValue::from_static("NONE"))).into_iter().collect()
}

/// The fields of a certificate that was verified; `None` if it cannot be written in fields.
pub fn of(
    sets: &[ClientFields],
    chain: &[CertificateDer<'_>],
) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let (leaf, others) = chain.split_first()?;
    let length: usize = others.iter().map(|one| one.len()).sum();
    if leaf.len() > LONGEST || length > LONGEST_CHAIN {
        return None;
    }
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let mut fields = Vec::new();
    for set in sets {
        match set {
            ClientFields::ClientCert => fields.push((CLIENT_CERT, value(&binary(leaf))?)),
            ClientFields::ClientCertChain if others.is_empty() => {}
            ClientFields::ClientCertChain => {
                let list: Vec<_> = others.iter().map(|one| binary(one)).collect();
                fields.push((CLIENT_CERT_CHAIN, value(&list.join(", "))?));
            }
            ClientFields::XForwardedClientCert => {
                fields.push((X_FORWARDED_CLIENT_CERT, value(&forwarded(leaf, &certificate))?));
            }
            ClientFields::XSslClient => fields.extend(one_by_one(leaf, &certificate)?),
        }
    }
    Some(fields)
}

/// A byte sequence of a structured field (RFC 8941 Sec. 3.3.5).
fn binary(certificate: &[u8]) -> String {
    format!(":{}:", STANDARD.encode(certificate))
}

fn value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

/// Envoy's field: hash, subject and names of the certificate.
fn forwarded(leaf: &[u8], certificate: &X509Certificate<'_>) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text =
        format!("Hash={};Subject={}", fingerprint(leaf), quoted(&name(certificate.subject())));
    for (kind, name) in alternative_names(certificate) {
        if ["URI", "DNS"].contains(&kind) {
            let special = |c| matches!(c, ',' | ';' | '=' | '"');
            let name = if name.contains(special) { quoted(&name) } else { name };
            let _ = write!(text, ";{kind}={name}");
        }
    }
    text
}

fn one_by_one(
    leaf: &[u8],
    certificate: &X509Certificate<'_>,
) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let names: Vec<_> = alternative_names(certificate)
        .into_iter()
        .map(|(kind, name)| format!("{kind}:{}", name.replace(',', "\\,")))
        .collect();
    let serial: String = certificate.raw_serial().iter().map(|b| format!("{b:02X}")).collect();
    let all = [
        (VERIFY, "SUCCESS".to_owned()),
        (HeaderName::from_static("x-ssl-client-s-dn"), name(certificate.subject())),
        (HeaderName::from_static("x-ssl-client-i-dn"), name(certificate.issuer())),
        (HeaderName::from_static("x-ssl-client-serial"), serial),
        (HeaderName::from_static("x-ssl-client-fingerprint"), fingerprint(leaf)),
        (HeaderName::from_static("x-ssl-client-san"), names.join(",")),
    ];
    all.into_iter().map(|(name, text)| Some((name, value(&text)?))).collect()
}

/// SHA-256 in hexadecimal digits.
fn fingerprint(leaf: &[u8]) -> String {
    digest(&SHA256, leaf).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name as RFC 4514 writes it: the last part first. Nothing of it is outside of printable ASCII.
pub fn name(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for relative in name.iter() {
        let one = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            let kind = attribute.attr_type();
            let kind = oid2abbrev(kind, oid_registry())
                .map_or_else(|_| kind.to_id_string(), str::to_owned);
            let text = attribute.as_str().map(escaped);
            let hex = || attribute.as_slice().iter().map(|b| format!("\\{b:02X}")).collect();
            format!("{kind}={}", text.unwrap_or_else(|_| hex()))
        };
        parts.push(relative.iter().map(one).collect::<Vec<_>>().join("+"));
    }
    parts.reverse();
    parts.join(",")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        let is_edge = at == 0 || at + 1 == text.len();
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' | b'=' => {
                escaped.push('\\');
                escaped.push(char::from(byte));
            }
            b'#' if at == 0 => escaped.push_str("\\#"),
            b' ' if is_edge => escaped.push_str("\\ "),
            b' '..=b'~' => escaped.push(char::from(byte)),
            other => {
                let _ = write!(escaped, "\\{other:02X}");
            }
        }
    }
    escaped
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<(&'static str, String)> {
    let mut names = Vec::new();
    for extension in certificate.extensions() {
        let ParsedExtension::SubjectAlternativeName(list) = extension.parsed_extension() else {
            continue;
        };
        names.extend(list.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(("DNS", printable(name))),
            GeneralName::URI(name) => Some(("URI", printable(name))),
            GeneralName::RFC822Name(name) => Some(("email", printable(name))),
            GeneralName::IPAddress(bytes) => Some(("IP", address(bytes)?)),
            _ => None,
        }));
    }
    names
}

/// The name with percent signs for what is not printable ASCII.
fn printable(name: &str) -> String {
    let mut printable = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'!'..=b'~' => printable.push(char::from(byte)),
            other => {
                let _ = write!(printable, "%{other:02X}");
            }
        }
    }
    printable
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(std::net::IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(std::net::IpAddr::from);
    v4.or(v6).ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn fields(of_certificate: impl FnOnce(&mut CertificateParams)) -> Vec<(String, String)> {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        of_certificate(&mut params);
        let own = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let sets = [ClientFields::XForwardedClientCert, ClientFields::XSslClient];
        let shown = |(name, value): (HeaderName, HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        of(&sets, &[own.der().clone()]).unwrap().into_iter().map(shown).collect()
    }

    #[test]
    fn names_of_a_certificate_cannot_leave_their_place_in_a_field() {
        let fields = fields(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "A, B\" \r\nX: y");
            params.distinguished_name.push(DnType::CommonName, "Zoë; admin");
            let uri = "spiffe://x/a;b,\"c".try_into().unwrap();
            params.subject_alt_names.push(SanType::URI(uri));
        });
        let of = |name: &str| &fields.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!(of("x-ssl-client-s-dn"), "O=A\\, B\\\" \\0D\\0AX: y,CN=Zo\\C3\\AB\\; admin");
        assert_eq!(of("x-ssl-client-san"), "DNS:a.test,URI:spiffe://x/a;b\\,\"c");
        let forwarded = of("x-forwarded-client-cert");
        let end = r#";Subject="O=A\\, B\\\" \\0D\\0AX: y,CN=Zo\\C3\\AB\\; admin";DNS=a.test;URI="spiffe://x/a;b,\"c""#;
        assert!(forwarded.ends_with(end), "{forwarded}");
    }

    #[test]
    fn certificate_that_is_too_long_for_a_field_has_none() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a".repeat(LONGEST));
        let own = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert!(of(&[ClientFields::ClientCert], &[own.der().clone()]).is_none());
    }

    #[test]
    fn what_a_client_says_of_its_certificate_is_removed() {
        let mut headers = HeaderMap::new();
        for name in ["client-cert", "x-ssl-client-verify", "ssl-client-verify", "x-other"] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        remove(&mut headers);
        assert_eq!(headers.len(), 1);
        assert!(headers.contains_key("x-other"));
    }
}
