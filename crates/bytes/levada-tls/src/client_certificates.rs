//! Certificates of clients: which sites want one, whether it is good, and what a request may do with it.
//!
//! The rules of a site hold for the connection whose server name (SNI) is one of the site's hosts. A request for
//! the site on any other connection is misdirected: its client was never asked for a certificate.

use std::{path::PathBuf, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use x509_parser::{prelude::FromDer as _, revocation_list::CertificateRevocationList};

use crate::{
    client_fields::{self, ClientFields},
    fault::{TlsFault, in_words, seconds_as_date},
    pem::{self, TlsError, shared_provider, shown},
};

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificateMode {
    /// Without a good one there is no connection.
    #[default]
    Required,
    /// A client without one is served, and one with a bad one gets 403 with the reason.
    Optional,
}

/// The rules of a site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientCertificateSettings {
    /// Whether a client must show one.
    pub mode: ClientCertificateMode,
    /// PEM files with the authorities.
    pub authorities: Vec<PathBuf>,
    /// PEM files with revocation lists.
    pub revocation_lists: Vec<PathBuf>,
    /// The fields for the origin.
    pub fields: Vec<ClientFields>,
}

/// The rules of a site with its authorities, for handshakes.
#[derive(Debug)]
pub struct ClientCertificates {
    settings: ClientCertificateSettings,
    verifier: Arc<dyn ClientCertVerifier>,
    /// The content of the files: tickets are of no use when it has changed.
    content: Vec<u8>,
}

/// A client, as far as its certificate is known.
#[derive(Debug)]
pub struct CertifiedClient {
    rules: Arc<ClientCertificates>,
    /// The fields of the origin, or the reason why the certificate is not good.
    verdict: Result<Vec<(HeaderName, HeaderValue)>, TlsFault>,
}

/// Why a request may not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientRefusal {
    /// The connection was not made for this site.
    Misdirected,
    /// The connection is without TLS.
    Plain,
    /// The certificate.
    Fault(TlsFault),
}

impl ClientRefusal {
    /// One sentence for the client and the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Misdirected => {
                "this site wants client certificates, and the connection was made for another one"
            }
            Self::Plain => "this site is served to clients with certificates, over TLS only",
            Self::Fault(fault) => match fault {
                TlsFault::Expired => "the client certificate has expired",
                TlsFault::NotYetValid => "the client certificate is not valid yet",
                TlsFault::UnknownIssuer => {
                    "the client certificate is not of an authority that this site trusts, or an \
                     intermediate certificate is missing"
                }
                TlsFault::Revoked => "the client certificate has been revoked",
                TlsFault::RevocationUnknown | TlsFault::OldRevocationList => {
                    "it cannot be known whether the client certificate has been revoked"
                }
                TlsFault::OtherPurpose => "the client certificate is not for clients",
                TlsFault::TooLong => "the client certificate is too long",
                _ => "the client certificate is not valid",
            },
        }
    }
}

impl ClientCertificates {
    /// Reads the files.
    ///
    /// # Errors
    /// With the file and the reason.
    pub fn new(settings: &ClientCertificateSettings) -> Result<Arc<Self>, TlsError> {
        let mut roots = RootCertStore::empty();
        let mut content = format!("{:?}", settings.mode).into_bytes();
        for file in &settings.authorities {
            pem::add_authorities(&mut roots, file)?;
        }
        for root in &roots.roots {
            content.extend_from_slice(&root.subject);
            content.extend_from_slice(&root.subject_public_key_info);
        }
        let mut lists = Vec::new();
        for file in &settings.revocation_lists {
            lists.extend(pem::revocation_lists(file)?);
        }
        lists.iter().for_each(|list| content.extend_from_slice(list));
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), shared_provider());
        if !lists.is_empty() {
            builder = builder
                .with_crls(lists)
                .only_check_end_entity_revocation()
                .enforce_revocation_expiration();
        }
        let file = settings.revocation_lists.first().or(settings.authorities.first());
        let verifier = builder.build().map_err(|why| TlsError::File {
            path: file.map(|path| shown(path)).unwrap_or_default(),
            why: why.to_string(),
        })?;
        Ok(Arc::new(Self { settings: settings.clone(), verifier, content }))
    }

    /// The revocation lists whose time is over, in words.
    pub fn old_lists(&self) -> Vec<String> {
        let now = UnixTime::now().as_secs();
        let old = |file: &PathBuf| {
            let lists = pem::revocation_lists(file).ok()?;
            let next = |list: &CertificateRevocationListDer<'_>| {
                let (_, list) = CertificateRevocationList::from_der(list).ok()?;
                u64::try_from(list.next_update()?.timestamp()).ok()
            };
            let over = lists.iter().filter_map(next).find(|next| *next < now)?;
            Some(format!("{} has expired, at {}", shown(file), seconds_as_date(over)))
        };
        self.settings.revocation_lists.iter().filter_map(old).collect()
    }

    /// The context of the tickets of this site.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Verifies certificates in handshakes. Where they are optional, a bad one is found out after the handshake, so
    /// that the client gets a response that says so.
    pub(crate) fn in_handshakes(&self) -> Arc<dyn ClientCertVerifier> {
        match self.settings.mode {
            ClientCertificateMode::Required => self.verifier.clone(),
            ClientCertificateMode::Optional => Arc::new(Lenient(self.verifier.clone())),
        }
    }

    /// Whether a certificate must be looked at after the handshake too.
    pub(crate) fn looks_again(&self, is_resumed: bool) -> bool {
        is_resumed || self.settings.mode == ClientCertificateMode::Optional
    }

    /// The client that has shown this chain. `verify`: whether no handshake has verified it.
    ///
    /// # Errors
    /// With the reason in words, where the connection must end.
    pub(crate) fn client(
        self: &Arc<Self>,
        chain: Option<&[CertificateDer<'_>]>,
        verify: bool,
    ) -> Result<(CertifiedClient, Option<String>), (TlsFault, String)> {
        let required = self.settings.mode == ClientCertificateMode::Required;
        let Some((leaf, others)) = chain.and_then(|chain| chain.split_first()) else {
            if required {
                return Err((TlsFault::Missing, in_words(&Error::NoCertificatesPresented)));
            }
            let fields = client_fields::of_nobody(&self.settings.fields);
            return Ok((CertifiedClient { rules: self.clone(), verdict: Ok(fields) }, None));
        };
        let verified = match verify {
            false => Ok(()),
            true => self.verifier.verify_client_cert(leaf, others, UnixTime::now()).map(drop),
        };
        let (fault, words) = match verified {
            Ok(()) => match client_fields::of(&self.settings.fields, chain.unwrap_or_default()) {
                Some(fields) => {
                    return Ok((
                        CertifiedClient { rules: self.clone(), verdict: Ok(fields) },
                        None,
                    ));
                }
                None => (TlsFault::TooLong, "the certificate is too long for a field".to_owned()),
            },
            Err(error) => (TlsFault::of(&error), in_words(&error)),
        };
        if required {
            return Err((fault, words));
        }
        Ok((CertifiedClient { rules: self.clone(), verdict: Err(fault) }, Some(words)))
    }
}

impl CertifiedClient {
    /// The fault of the certificate, if it has one.
    pub(crate) fn fault(&self) -> Option<TlsFault> {
        self.verdict.as_ref().err().copied()
    }

    /// `verified`, `absent`, or what is wrong.
    pub(crate) fn result(&self, showed: bool) -> &'static str {
        match &self.verdict {
            Ok(_) if showed => "verified",
            Ok(_) => "absent",
            Err(fault) => fault.as_str(),
        }
    }
}

/// Admits a request to a site with rules, and gives it the fields for the origin.
///
/// # Errors
/// With the reason.
pub fn admit(
    site: &ClientCertificateSettings,
    client: Option<&CertifiedClient>,
    is_encrypted: bool,
    headers: &mut HeaderMap,
) -> Result<(), ClientRefusal> {
    client_fields::remove(headers);
    let Some(client) = client else {
        return match (is_encrypted, site.mode) {
            (true, _) => Err(ClientRefusal::Misdirected),
            (false, ClientCertificateMode::Required) => Err(ClientRefusal::Plain),
            (false, ClientCertificateMode::Optional) => {
                headers.extend(client_fields::of_nobody(&site.fields));
                Ok(())
            }
        };
    };
    // Another site with the same rules has verified the certificate just as well.
    if client.rules.settings != *site {
        return Err(ClientRefusal::Misdirected);
    }
    match &client.verdict {
        Ok(fields) => {
            headers.extend(fields.iter().cloned());
            Ok(())
        }
        Err(fault) => Err(ClientRefusal::Fault(*fault)),
    }
}

/// Lets any certificate pass whose key the client has.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
