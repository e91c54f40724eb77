//! One order, from the names to the chain (RFC 8555 Sec. 7.4).

use std::{sync::Arc, time::Duration};

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::acme::{
    AcmeSettings, Certificates, DnsCommand, Proof, WantedCertificate,
    challenges::HeldProof,
    client::ServerSays,
    cluster::{Cluster, Message},
    dns_command::DnsRecord,
    failure::{self, OrderFailure, kind},
    held::Held,
};

/// How long the server may take to look at the proofs, and to issue. Authorities ask from several places and issue
/// within a minute.
const STEP_TIMEOUT: Duration = Duration::from_secs(180);
/// The wait before the server is asked again, which grows by [`BACKOFF_FACTOR`] each time: a test server is done at
/// once, a busy authority is asked some fifteen times in the first minute.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_FACTOR: f32 = 1.5;

/// The parts of an order.
pub(crate) struct OrderParts<'a> {
    pub(crate) certificates: &'a Certificates,
    pub(crate) settings: &'a AcmeSettings,
    pub(crate) says: &'a ServerSays,
    pub(crate) account: &'a Account,
    pub(crate) cluster: &'a Cluster,
    pub(crate) wanted: &'a WantedCertificate,
    pub(crate) proof: Proof,
    pub(crate) former: Option<Arc<Held>>,
}

/// Proofs that are taken back when the order is over.
#[derive(Default)]
struct Prepared {
    held: Vec<HeldProof>,
    records: Vec<DnsRecord>,
}

impl OrderParts<'_> {
    /// Orders the certificate.
    pub(crate) async fn order(&self) -> Result<Held, OrderFailure> {
        let mut order = self.begin().await?;
        let mut prepared = Prepared::default();
        let proved = self.prove(&mut order, &mut prepared).await;
        self.take_back(prepared).await;
        proved?;
        let pem = self.finish(&mut order).await?;
        let held =
            Held::of(pem).map_err(|why| refused(format!("what the server issued: {why}")))?;
        check(&self.wanted.names, &held, || self.says.skew())?;
        Ok(held)
    }

    async fn begin(&self) -> Result<Order, OrderFailure> {
        let names = &self.wanted.names;
        let identifiers: Vec<_> = names.iter().cloned().map(Identifier::Dns).collect();
        let new = || {
            let order = NewOrder::new(&identifiers);
            match &self.settings.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        let replaced = self.former.as_ref().and_then(|former| former.leaf.identifier.clone());
        let begun = match replaced {
            None => self.account.new_order(&new()).await,
            Some(former) => match self.account.new_order(&new().replaces(former)).await {
                Err(error) if failure::is_replaced(&error) => self.account.new_order(&new()).await,
                begun => begun,
            },
        };
        begun.map_err(|error| match failure::is_unknown_account(&error) {
            // The caller makes another account.
            true => OrderFailure::Unreachable(UNKNOWN_ACCOUNT.to_owned()),
            false => self.failed("new order", &error),
        })
    }

    /// Shows the proofs, and waits until the server has looked at them.
    async fn prove(&self, order: &mut Order, prepared: &mut Prepared) -> Result<(), OrderFailure> {
        self.prepare(order, prepared).await?;
        if prepared.held.is_empty() && prepared.records.is_empty() {
            return Ok(());
        }
        if let (Some(dns), false) = (&self.settings.dns, prepared.records.is_empty()) {
            tokio::time::sleep(dns.wait).await;
        }
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization =
                authorization.map_err(|error| self.failed("authorization", &error))?;
            if authorization.status == AuthorizationStatus::Pending
                && let Some(mut challenge) = authorization.challenge(challenge_type(self.proof))
            {
                let told = challenge.set_ready().await;
                told.map_err(|error| self.failed(self.proof.as_str(), &error))?;
            }
        }
        match order.poll_ready(&polling()).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) => Err(self.not_proved(order, None).await),
            Err(error @ Error::Api(_)) => Err(self.not_proved(order, Some(error)).await),
            Err(error) => Err(self.failed("proof", &error)),
        }
    }

    async fn prepare(
        &self,
        order: &mut Order,
        prepared: &mut Prepared,
    ) -> Result<(), OrderFailure> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization =
                authorization.map_err(|error| self.failed("authorization", &error))?;
            let name = match authorization.identifier().identifier {
                Identifier::Dns(name) => name.clone(),
                other => return Err(refused(format!("the server asks about {other:?}"))),
            };
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                status => {
                    return Err(refused(format!(
                        "the server's question about {name} is {status:?}"
                    )));
                }
            }
            let Some(challenge) = authorization.challenge(challenge_type(self.proof)) else {
                let proof = self.proof.as_str();
                return Err(refused(format!("the server takes no {proof} for {name}")));
            };
            let (token, content) = (challenge.token.clone(), challenge.key_authorization());
            let held = match self.proof {
                Proof::Http01 => HeldProof::File { token, content: content.as_str().to_owned() },
                Proof::TlsAlpn01 => {
                    HeldProof::Certificate { name, content: content.as_str().to_owned() }
                }
                Proof::Dns01 => {
                    let record = DnsRecord { domain: name, value: content.dns_value() };
                    prepared.records.push(record.clone());
                    self.dns()?.present(&record).await.map_err(refused)?;
                    continue;
                }
            };
            self.certificates.challenges.hold(&held).map_err(refused)?;
            prepared.held.push(held.clone());
            self.cluster.tell_all(&Message::Hold(held)).await;
        }
        Ok(())
    }

    fn dns(&self) -> Result<&DnsCommand, OrderFailure> {
        let missing = "dns-01 needs a command: `acme.dns_command`";
        self.settings.dns.as_ref().ok_or_else(|| refused(missing.to_owned()))
    }

    async fn take_back(&self, prepared: Prepared) {
        for held in prepared.held {
            self.certificates.challenges.forget(&held);
            self.cluster.tell_all(&Message::Forget(held)).await;
        }
        if let Some(dns) = &self.settings.dns {
            for record in &prepared.records {
                dns.clean_up(record).await;
            }
        }
    }

    /// The failure, with the findings of the server at the places of the proofs.
    async fn not_proved(&self, order: &mut Order, error: Option<Error>) -> OrderFailure {
        let mut found = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let Ok(state) = authorization.refresh().await else { continue };
            let name = state.identifier().to_string();
            let problems = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            found.extend(problems.map(|problem| {
                let detail = problem.detail.as_deref().unwrap_or("no detail");
                format!("{name}: {} ({})", detail, kind(problem.r#type.as_deref()))
            }));
        }
        let proof = self.proof.as_str();
        match (found.is_empty(), error) {
            (false, _) => refused(format!("the server refuses {proof}: {}", found.join("; "))),
            (true, Some(error)) => self.failed(proof, &error),
            (true, None) => refused(format!("the server refuses {proof}")),
        }
    }

    async fn finish(&self, order: &mut Order) -> Result<String, OrderFailure> {
        let (key, request) = signing_request(&self.wanted.names)
            .map_err(|error| refused(format!("no request can be made: {error}")))?;
        let asked = order.finalize_csr(&request).await;
        asked.map_err(|error| self.failed("request", &error))?;
        let chain = order.poll_certificate(&polling()).await;
        let chain = chain.map_err(|error| self.failed("certificate", &error))?;
        Ok(format!("{key}{chain}"))
    }

    fn failed(&self, step: &str, error: &Error) -> OrderFailure {
        OrderFailure::of(step, error, self.says.retry_at())
    }
}

/// The server has lost the account, or never had it.
pub(crate) const UNKNOWN_ACCOUNT: &str = "the server does not know the account";

/// Whether a certificate is what was ordered. `skew` says how wrong the clock is.
fn check(
    wanted: &[String],
    held: &Held,
    skew: impl FnOnce() -> Option<String>,
) -> Result<(), OrderFailure> {
    let leaf = &held.leaf;
    if !leaf.covers(wanted) {
        let (issued, wanted) = (leaf.names.join(", "), wanted.join(", "));
        return Err(refused(format!(
            "the server issued a certificate for {issued}, not for {wanted}"
        )));
    }
    if leaf.ends <= crate::acme::certificates::unix_now() {
        let skew = skew().unwrap_or_else(|| "is the clock of this machine right?".to_owned());
        return Err(refused(format!("the server issued a certificate that has ended: {skew}")));
    }
    Ok(())
}

fn refused(why: String) -> OrderFailure {
    OrderFailure::Refused(why)
}

fn challenge_type(proof: Proof) -> ChallengeType {
    match proof {
        Proof::Http01 => ChallengeType::Http01,
        Proof::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Proof::Dns01 => ChallengeType::Dns01,
    }
}

/// How the server is asked whether a step is done.
fn polling() -> RetryPolicy {
    RetryPolicy::new().initial_delay(FIRST_BACKOFF).backoff(BACKOFF_FACTOR).timeout(STEP_TIMEOUT)
}

/// A new key in PEM, and the request for a certificate with it in DER.
fn signing_request(names: &[String]) -> Result<(String, Vec<u8>), rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate()?;
    let request = params.serialize_request(&key)?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::held::tests::pem;

    #[test]
    fn certificate_for_other_names_or_of_another_time_is_refused() {
        let wanted = ["a.example", "b.example"].map(str::to_owned);
        let said = |names: &[&str], ends| {
            let held = Held::of(pem(names, 2020, ends)).unwrap();
            check(&wanted, &held, || None).err().map(|error| error.to_string())
        };
        assert_eq!(said(&["b.example", "a.example", "c.example"], 2090), None);
        assert_eq!(
            said(&["a.example", "other.example"], 2090).unwrap(),
            "the server issued a certificate for a.example, other.example, not for a.example, \
             b.example"
        );
        assert!(said(&["a.example", "b.example"], 2021).unwrap().contains("has ended"));
    }
}
