//! Why a handshake failed, in words that an operator can act on.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, pki_types::UnixTime};
use x509_parser::time::ASN1Time;

/// A fault of a certificate or a handshake: the kinds that metrics and error responses tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsFault {
    /// There is no certificate.
    Missing,
    /// It is not valid any more.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// It is for other names.
    OtherName,
    /// No trusted authority has issued it, or an intermediate certificate is missing.
    UnknownIssuer,
    /// It has been revoked.
    Revoked,
    /// No revocation list says whether it has been revoked.
    RevocationUnknown,
    /// The revocation list is too old.
    OldRevocationList,
    /// It is not for this purpose.
    OtherPurpose,
    /// Its public key is none of the pinned ones.
    OtherKey,
    /// It is too long for a header field.
    TooLong,
    /// It is no certificate, or has a wrong signature.
    Invalid,
    /// The other end requires a certificate.
    Required,
    /// The other end refused the certificate that it was shown.
    Refused,
    /// The two ends have no version, cipher suite or curve in common.
    NothingInCommon,
    /// The other end does not speak TLS.
    NoTls,
    /// Anything else.
    Other,
}

impl TlsFault {
    /// The label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Expired => "expired",
            Self::NotYetValid => "not yet valid",
            Self::OtherName => "other name",
            Self::UnknownIssuer => "unknown issuer",
            Self::Revoked => "revoked",
            Self::RevocationUnknown => "revocation unknown",
            Self::OldRevocationList => "old revocation list",
            Self::OtherPurpose => "other purpose",
            Self::OtherKey => "other key",
            Self::TooLong => "too long",
            Self::Invalid => "invalid",
            Self::Required => "certificate required",
            Self::Refused => "refused",
            Self::NothingInCommon => "nothing in common",
            Self::NoTls => "no TLS",
            Self::Other => "other",
        }
    }

    /// Whether a certificate of the other end is at fault.
    pub const fn is_about_certificates(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Refused | Self::NothingInCommon | Self::NoTls | Self::Other
        )
    }

    /// The fault of a server, in one sentence for clients and logs.
    pub const fn of_server(self) -> &'static str {
        match self {
            Self::Expired => "the server's certificate has expired",
            Self::NotYetValid => "the server's certificate is not valid yet",
            Self::OtherName => "the server's certificate is for another name",
            Self::UnknownIssuer => "the authority of the server's certificate is not trusted",
            Self::Revoked => "the server's certificate has been revoked",
            Self::OtherKey => "the server's key is none of the pinned ones",
            Self::OtherPurpose => "the server's certificate is not for servers",
            Self::Required => "the server requires a client certificate",
            Self::Refused => "the server refused this node's client certificate",
            Self::NothingInCommon => {
                "the server shares no TLS version or cipher suite with this node"
            }
            Self::NoTls => "the server does not speak TLS",
            _ => "the server's TLS failed",
        }
    }

    /// The error type of `Proxy-Status` (RFC 9209 Sec. 2.3).
    pub const fn proxy_error(self) -> &'static str {
        match self {
            Self::Required | Self::Refused => "tls_alert_received",
            Self::NothingInCommon | Self::NoTls | Self::Other => "tls_protocol_error",
            _ => "tls_certificate_error",
        }
    }

    /// The kind of an error.
    pub fn of(error: &Error) -> Self {
        use CertificateError as C;
        match error {
            Error::NoCertificatesPresented => Self::Missing,
            Error::InvalidCertificate(why) => match why {
                C::Expired | C::ExpiredContext { .. } => Self::Expired,
                C::NotValidYet | C::NotValidYetContext { .. } => Self::NotYetValid,
                C::NotValidForName | C::NotValidForNameContext { .. } => Self::OtherName,
                C::UnknownIssuer => Self::UnknownIssuer,
                C::Revoked => Self::Revoked,
                C::UnknownRevocationStatus => Self::RevocationUnknown,
                C::ExpiredRevocationList | C::ExpiredRevocationListContext { .. } => {
                    Self::OldRevocationList
                }
                C::InvalidPurpose | C::InvalidPurposeContext { .. } => Self::OtherPurpose,
                C::ApplicationVerificationFailure => Self::OtherKey,
                _ => Self::Invalid,
            },
            Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateRequired => Self::Required,
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied => Self::Refused,
                AlertDescription::HandshakeFailure
                | AlertDescription::ProtocolVersion
                | AlertDescription::InsufficientSecurity => Self::NothingInCommon,
                _ => Self::Other,
            },
            Error::PeerIncompatible(_) => Self::NothingInCommon,
            Error::InvalidMessage(_) => Self::NoTls,
            _ => Self::Other,
        }
    }

    /// The kind of an error of a stream.
    pub fn of_io(error: &io::Error) -> Self {
        inner(error).map_or(Self::Other, Self::of)
    }
}

/// The fault of a server or a client: the part of a sentence after a colon.
pub fn in_words(error: &Error) -> String {
    use CertificateError as C;
    let Error::InvalidCertificate(why) = error else {
        return match (error, TlsFault::of(error)) {
            (_, TlsFault::Missing) => "it showed no certificate".to_owned(),
            (_, TlsFault::Required) => {
                "it requires a client certificate, and this node has none for it".to_owned()
            }
            (Error::AlertReceived(alert), TlsFault::Refused) => {
                format!("it refused this node's client certificate ({alert:?})")
            }
            (Error::AlertReceived(alert), _) => format!("it ended the handshake ({alert:?})"),
            (_, TlsFault::NoTls) => "it does not speak TLS at this port".to_owned(),
            (_, TlsFault::NothingInCommon) => {
                format!("both sides have no version, cipher suite or curve in common ({error})")
            }
            _ => error.to_string(),
        };
    };
    match why {
        C::ExpiredContext { not_after, .. } => {
            format!("the certificate has expired, at {}", date(*not_after))
        }
        C::Expired => "the certificate has expired".to_owned(),
        C::NotValidYetContext { not_before, .. } => {
            format!("the certificate is not valid before {}", date(*not_before))
        }
        C::NotValidForNameContext { expected, presented } => {
            let names: Vec<_> = presented.iter().map(|name| plain(name)).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            format!("the certificate is for {names}, not for {}", expected.to_str())
        }
        C::UnknownIssuer => {
            "the certificate's issuer is unknown: its authority is not trusted, or \
                             an intermediate certificate is missing"
                .to_owned()
        }
        C::Revoked => "the certificate has been revoked".to_owned(),
        C::UnknownRevocationStatus => {
            "no revocation list of the certificate's issuer was given".to_owned()
        }
        C::ExpiredRevocationListContext { next_update, .. } => {
            format!("the revocation list has expired, at {}", date(*next_update))
        }
        C::ExpiredRevocationList => "the revocation list has expired".to_owned(),
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            "the certificate is not for this purpose (extended key usage)".to_owned()
        }
        C::ApplicationVerificationFailure => {
            "the certificate's public key is none of the pinned ones".to_owned()
        }
        C::UnhandledCriticalExtension => {
            "the certificate has a critical extension that is not understood".to_owned()
        }
        C::BadEncoding => "the certificate is malformed".to_owned(),
        C::BadSignature => "the certificate has a wrong signature".to_owned(),
        // An authority that shows its own certificate, or one of X.509 version 1.
        C::Other(other) => format!("the certificate cannot be used: {other:?}"),
        other => other.to_string(),
    }
}

/// The error of a stream in words.
pub fn io_in_words(error: &io::Error) -> String {
    match inner(error) {
        Some(error) => in_words(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection during the handshake".to_owned()
        }
        None => error.to_string(),
    }
}

/// The error of the library in an error of a stream.
fn inner(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// `DnsName("a.test")` as `a.test`.
fn plain(name: &str) -> &str {
    name.split('"').nth(1).unwrap_or(name)
}

fn date(time: UnixTime) -> String {
    seconds_as_date(time.as_secs())
}

/// Seconds since 1970 as a date.
pub(crate) fn seconds_as_date(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|s| ASN1Time::from_timestamp(s).ok());
    date.map_or_else(|| format!("{seconds} s after 1970"), |date| date.to_string())
}
