//! OCSP answers (RFC 6960) that are stapled to a certificate. A node does not fetch them: it reads a file that a
//! command of the operator renews.
//!
//! A wrong answer is worse than none, because clients end the handshake over it: an answer is stapled only while
//! it is fresh, for the certificate that it is about. Its signature is left to the clients.

use std::{path::Path, sync::Arc, time::SystemTime};

use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use rustls::{pki_types::CertificateDer, sign::CertifiedKey};
use x509_parser::{
    der_parser::{
        ber::BerObjectContent,
        der::{DerObject, parse_der},
        oid,
    },
    oid_registry::Oid,
    prelude::{ASN1Time, FromDer as _, X509Certificate},
};

use crate::fault::seconds_as_date;

/// A certificate with its answer, as long as the answer is fresh.
#[derive(Clone, Debug)]
pub struct StapledKey {
    plain: Arc<CertifiedKey>,
    stapled: Option<(Arc<CertifiedKey>, u64)>,
}

impl From<CertifiedKey> for StapledKey {
    fn from(key: CertifiedKey) -> Self {
        Self { plain: Arc::new(key), stapled: None }
    }
}

impl StapledKey {
    /// The certificate with the answer of a file.
    ///
    /// # Errors
    /// With the certificate alone, and the reason why the answer is not stapled.
    pub fn new(key: CertifiedKey, file: &Path) -> Result<Self, (Self, String)> {
        match read(&key, file) {
            Ok((answer, until)) => {
                let mut stapled = key.clone();
                stapled.ocsp = Some(answer);
                Ok(Self { plain: Arc::new(key), stapled: Some((Arc::new(stapled), until)) })
            }
            Err(why) => Err((key.into(), format!("{}: {why}", file.display()))),
        }
    }

    /// The certificate for a handshake now, with the answer while it is fresh.
    pub fn now(&self) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((stapled, until)) if unix_now() < *until => stapled,
            _ => &self.plain,
        }
    }

    /// The end of the answer's time, in seconds since 1970.
    pub fn stapled_until(&self) -> Option<u64> {
        self.stapled.as_ref().map(|(_, until)| *until)
    }
}

fn read(key: &CertifiedKey, file: &Path) -> Result<(Vec<u8>, u64), String> {
    let answer = std::fs::read(file).map_err(|error| error.to_string())?;
    let until = check(&answer, &key.cert, unix_now())?;
    Ok((answer, until))
}

/// Checks that an answer is about the first certificate of a chain, says that it is good, and is fresh. Returns
/// the end of its time.
///
/// # Errors
/// With the reason in words.
pub fn check(answer: &[u8], chain: &[CertificateDer<'_>], now: u64) -> Result<u64, String> {
    let leaf = chain.first().ok_or("there is no certificate")?;
    let malformed = "is no OCSP answer in DER";
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| "the certificate is malformed")?;
    let issuer = chain.get(1).and_then(|issuer| X509Certificate::from_der(issuer).ok());
    let issuer_key =
        issuer.as_ref().map(|(_, issuer)| &*issuer.public_key().subject_public_key.data);
    let (rest, outer) = parse_der(answer).map_err(|_| malformed)?;
    let outer = items(&outer).filter(|_| rest.is_empty()).ok_or(malformed)?;
    match outer.first().map(|status| &status.content) {
        Some(BerObjectContent::Enum(0)) => {}
        Some(BerObjectContent::Enum(status)) => {
            return Err(format!("the OCSP server answered with the error {status}"));
        }
        _ => return Err(malformed.to_owned()),
    }
    let singles = singles(outer.get(1)).ok_or(malformed)?;
    for single in items(&singles).ok_or(malformed)? {
        let single = Single::of(single).ok_or(malformed)?;
        if single.is_about(&leaf, issuer_key) {
            return single.until(now);
        }
    }
    Err("is about another certificate".to_owned())
}

/// The list of answers in the `ResponseBytes` of a response (RFC 6960 Sec. 4.2.1).
fn singles<'a>(bytes: Option<&DerObject<'a>>) -> Option<DerObject<'a>> {
    let (_, bytes) = parse_der(bytes?.as_slice().ok()?).ok()?;
    let (_, basic) = parse_der(items(&bytes)?.get(1)?.as_slice().ok()?).ok()?;
    let data = items(&basic)?.first()?;
    // version [0], responderID [1] or [2], producedAt, responses
    let list =
        items(data)?.iter().find(|item| matches!(item.content, BerObjectContent::Sequence(_)))?;
    Some(list.clone())
}

fn items<'a, 'b>(object: &'b DerObject<'a>) -> Option<&'b Vec<DerObject<'a>>> {
    object.as_sequence().ok()
}

/// The answer about one certificate.
struct Single<'a> {
    algorithm: &'static Algorithm,
    name: &'a [u8],
    key: &'a [u8],
    serial: &'a [u8],
    /// 0 is good, 1 revoked, 2 unknown.
    status: u32,
    from: u64,
    until: Option<u64>,
}

impl<'a> Single<'a> {
    fn of(object: &'a DerObject<'_>) -> Option<Self> {
        let [id, status, from, rest @ ..] = &items(object)?[..] else { return None };
        let [algorithm, name, key, serial] = &items(id)?[..] else { return None };
        let algorithm = match items(algorithm)?.first()?.as_oid().ok()? {
            oid if *oid == SHA1_OID => &SHA1_FOR_LEGACY_USE_ONLY,
            oid if *oid == SHA256_OID => &SHA256,
            _ => return None,
        };
        let until = rest.iter().find(|item| item.header.tag().0 == 0);
        let until = match until {
            Some(tagged) => Some(time(&parse_der(tagged.as_slice().ok()?).ok()?.1)?),
            None => None,
        };
        Some(Self {
            algorithm,
            name: name.as_slice().ok()?,
            key: key.as_slice().ok()?,
            serial: serial.as_slice().ok()?,
            status: status.header.tag().0,
            from: time(from)?,
            until,
        })
    }

    fn is_about(&self, leaf: &X509Certificate<'_>, issuer_key: Option<&[u8]>) -> bool {
        let hash = |bytes: &[u8]| digest(self.algorithm, bytes);
        self.serial == leaf.raw_serial()
            && self.name == hash(leaf.issuer().as_raw()).as_ref()
            && issuer_key.is_none_or(|key| self.key == hash(key).as_ref())
    }

    fn until(&self, now: u64) -> Result<u64, String> {
        match self.status {
            0 => {}
            1 => return Err("says that the certificate has been revoked".to_owned()),
            _ => return Err("says that the certificate is unknown".to_owned()),
        }
        if now < self.from {
            return Err(format!("begins at {}", seconds_as_date(self.from)));
        }
        match self.until {
            Some(until) if until <= now => {
                Err(format!("has expired, at {}", seconds_as_date(until)))
            }
            Some(until) => Ok(until),
            None => Err("says no time until which it is fresh".to_owned()),
        }
    }
}

fn time(object: &DerObject<'_>) -> Option<u64> {
    let BerObjectContent::GeneralizedTime(time) = &object.content else { return None };
    let time = time.to_datetime().ok().map(ASN1Time::from)?;
    u64::try_from(time.timestamp()).ok()
}

const SHA1_OID: Oid<'_> = oid!(1.3.14.3.2.26);
const SHA256_OID: Oid<'_> = oid!(2.16.840.1.101.3.4.2.1);

fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}
