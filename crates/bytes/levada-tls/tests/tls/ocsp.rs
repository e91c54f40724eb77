//! OCSP answers that OpenSSL makes, and asks for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use levada_tls::{
    ocsp::{StapledKey, check},
    pem::{Certificate, certified},
};

use crate::support::{Authority, Opening, run, s_client, text};

/// The answer of the authority about a certificate, whose serial number is 7, for some minutes. `status`: V or R.
fn answer(authority: &Authority, about: &Certificate, status: &str, minutes: &str) -> PathBuf {
    let file = |name: &str| authority.file(name);
    let revoked = if status == "R" { "200101000000Z" } else { "" };
    let line = format!("{status}\t491231235959Z\t{revoked}\t07\tunknown\t/CN=a.test\n");
    fs::write(file("index"), line).unwrap();
    let (ca, key) = (file("ca.pem"), file("ca.key"));
    let openssl = |arguments: &[&str]| run(Command::new("openssl").arg("ocsp").args(arguments), "");
    let request = file("request.der");
    openssl(&[
        "-issuer",
        text(&ca),
        "-cert",
        text(&about.certificate),
        "-reqout",
        text(&request),
        "-no_nonce",
    ]);
    let answer = file(&format!("{status}{minutes}.der"));
    let said = openssl(&[
        "-index",
        text(&file("index")),
        "-CA",
        text(&ca),
        "-rsigner",
        text(&ca),
        "-rkey",
        text(&key),
        "-reqin",
        text(&request),
        "-respout",
        text(&answer),
        "-nmin",
        minutes,
    ]);
    assert!(answer.exists(), "{said}");
    answer
}

fn world() -> (Authority, Certificate) {
    let authority = Authority::new();
    let identity = authority.issue_with("a.test", |params| params.serial_number = Some(7.into()));
    // The chain: its second certificate is the issuer.
    let leaf = fs::read_to_string(&identity.certificate).unwrap();
    fs::write(&identity.certificate, leaf + &authority.pem).unwrap();
    (authority, identity)
}

fn refusal(identity: &Certificate, answer: &Path) -> String {
    let refused = StapledKey::new(certified(identity).unwrap(), answer);
    refused.unwrap_err().1
}

#[test]
fn fresh_answer_is_stapled() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, mut identity) = world();
    let plain = Opening::new(&identity).serve();
    assert!(s_client(plain.at, &["-status"]).contains("OCSP response: no response sent"));
    identity.ocsp = Some(answer(&authority, &identity, "V", "60"));
    let served = Opening::new(&identity).serve();
    for version in ["-tls1_2", "-tls1_3"] {
        let ca = authority.file("ca.pem");
        let said = s_client(served.at, &["-status", version, "-CAfile", text(&ca)]);
        assert!(said.contains("OCSP Response Status: successful"), "{said}");
        assert!(said.contains("Cert Status: good"), "{said}");
    }
}

#[test]
fn answer_that_is_old_or_bad_or_about_another_certificate_is_not_stapled() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, identity) = world();
    let good = answer(&authority, &identity, "V", "60");
    let bytes = fs::read(&good).unwrap();
    let chain = certified(&identity).unwrap().cert;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let until = check(&bytes, &chain, now).unwrap();
    assert!((now + 3000..now + 3700).contains(&until));
    assert!(check(&bytes, &chain, until).unwrap_err().contains("has expired"));
    assert!(check(&bytes, &chain, now - 3600).unwrap_err().contains("begins at"));
    let revoked = answer(&authority, &identity, "R", "60");
    assert!(refusal(&identity, &revoked).contains("has been revoked"));
    let other = authority.issue_with("b.test", |params| params.serial_number = Some(8.into()));
    assert!(refusal(&other, &good).contains("about another certificate"));
    let (_other, strange) = world();
    assert!(refusal(&strange, &good).contains("about another certificate"), "same number");
    assert!(refusal(&identity, &identity.key).contains("no OCSP answer"));
    assert!(refusal(&identity, &authority.file("missing")).contains("No such file"));
    for end in 0..bytes.len() {
        assert!(check(&bytes[..end], &chain, now).is_err());
    }
}
