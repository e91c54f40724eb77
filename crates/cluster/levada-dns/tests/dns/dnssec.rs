//! Signed answers, checked by delv.

use std::{fs, path::Path, process::Command, sync::Arc};

use levada_dns::{
    World,
    route::{Regions, Tables},
};

use crate::support::{Running, ZONE, identity, node, query, world, zone};

/// A signed zone with a routed name; `None` without the tools.
fn signed(directory: &Path) -> Option<Running> {
    let key = directory.join("a.test.pem");
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"])
        .arg(&key)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        levada_skip::skipped("openssl is not installed: apt install openssl");
        return None;
    }
    let running = Running::start(signed_world(&key), identity(), 10);
    running.server.set_nodes(vec![node("eu-1", "eu", "192.0.2.1", "")]);
    Some(running)
}

/// A world with one zone, which this key signs.
fn signed_world(key: &Path) -> Arc<World> {
    let zone = zone("a.test", ZONE, &[("www", None)], Some(key));
    let tables =
        Tables { regions: Regions::new(["eu"]), fallbacks: vec![vec![0]], ..Tables::default() };
    world(vec![zone], tables)
}

/// The output of delv, which trusts the zone's key.
fn delv(running: &Running, directory: &Path, name: &str, kind: &str) -> Option<String> {
    let key = running.kdig("a.test DNSKEY +short +tcp")?;
    let key = key.trim().splitn(4, ' ').collect::<Vec<_>>();
    let [flags, protocol, algorithm, text] = key[..] else { panic!("{key:?}") };
    let anchor = format!(
        "trust-anchors {{ a.test. static-key {flags} {protocol} {algorithm} \"{text}\"; }};\n"
    );
    let file = directory.join("anchor");
    fs::write(&file, anchor).unwrap();
    let port = running.address.port().to_string();
    let output = Command::new("delv")
        .args(["@127.0.0.1", "-p", &port, "-a"])
        .arg(&file)
        .args(["+root=a.test", name, kind])
        .output();
    let Ok(output) = output else {
        levada_skip::skipped("delv is not installed: apt install bind9-dnsutils");
        return None;
    };
    Some(format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

#[test]
fn answers_and_denials_of_a_signed_zone_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let Some(running) = signed(directory.path()) else { return };
    for (name, kind, text) in [
        ("a.test", "SOA", "; fully validated"),
        ("a.test", "DNSKEY", "; fully validated"),
        ("a.test", "MX", "; fully validated"),
        ("a.test", "CDS", "; fully validated"),
        ("static.a.test", "A", "; fully validated"),
        ("www.a.test", "A", "; fully validated"),
        ("www.a.test", "HTTPS", "; fully validated"),
        ("alias.a.test", "A", "; fully validated"),
        ("x.wild.a.test", "TXT", "; fully validated"),
        ("www.a.test", "AAAA", "; negative response, fully validated"),
        ("static.a.test", "TXT", "; negative response, fully validated"),
        ("tree.a.test", "A", "; negative response, fully validated"),
        ("none.a.test", "A", "; negative response, fully validated"),
        ("sub.a.test", "DS", "; negative response, fully validated"),
        ("signed.a.test", "DS", "; fully validated"),
    ] {
        let Some(answer) = delv(&running, directory.path(), name, kind) else { return };
        assert!(answer.contains(text), "{name} {kind}: {answer}");
    }
}

#[test]
fn denial_is_compact_and_signatures_are_for_who_takes_them() {
    let directory = tempfile::tempdir().unwrap();
    let Some(running) = signed(directory.path()) else { return };
    let Some(plain) = running.kdig("none.a.test A") else { return };
    assert!(plain.contains("NXDOMAIN") && !plain.contains("RRSIG"), "{plain}");
    let compact = running.kdig("none.a.test A +dnssec").unwrap();
    assert!(compact.contains("NOERROR") && compact.contains("\\000.none.a.test."), "{compact}");
    assert!(compact.contains("TYPE128") || compact.contains("NXNAME"), "{compact}");
    let referral = running.kdig("www.sub.a.test A +dnssec").unwrap();
    assert!(referral.contains("NSEC\t\\000.sub.a.test. NS RRSIG NSEC"), "{referral}");
    let with_keys = running.kdig("www.signed.a.test A +dnssec").unwrap();
    assert!(with_keys.contains("DS\t12345") && with_keys.contains("RRSIG\tDS"), "{with_keys}");
}

#[test]
fn flood_of_names_gets_its_signatures_and_no_more_while_known_names_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let Some(running) = signed(directory.path()) else { return };
    let mut limited = identity();
    limited.limit.signatures = 5;
    let ask = |name: &str| {
        // A client that takes signatures.
        let opt = [0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0];
        let mut message = [query(name, 1), opt.to_vec()].concat();
        message[11] = 1;
        let answer = running.ask(&message).expect("an answer");
        let (is_truncated, records) = (answer[2] & 2 != 0, answer[7]);
        (is_truncated, records)
    };
    assert_eq!(ask("www.a.test"), (false, 2), "an address and its signature");
    running.server.set_world(signed_world(&directory.path().join("a.test.pem")), limited);
    assert_eq!(ask("www.a.test"), (false, 2));
    let truncated = (0..200).filter(|at| ask(&format!("n{at}.a.test")).0).count();
    assert!(truncated > 0, "some get no signature");
    assert_eq!(ask("www.a.test"), (false, 2), "what is signed already is answered");
    let Some(over_tcp) = running.kdig("n199.a.test A +dnssec +tcp") else { return };
    assert!(over_tcp.contains("NSEC") && over_tcp.contains("RRSIG"), "{over_tcp}");
}
