//! Certificates in files, which the operator renews.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use rcgen::{CertificateParams, KeyPair};

use crate::{addresses, node::Node, pebble::TLS, wait};

const DAY: Duration = Duration::from_secs(86_400);

/// Writes a certificate that ends in so many days.
fn write(node: &Node, days: u32) {
    let mut params = CertificateParams::new(vec!["file.test".to_owned()]).unwrap();
    params.not_before = (SystemTime::now() - 80 * DAY).into();
    params.not_after = (SystemTime::now() + days * DAY).into();
    let key = KeyPair::generate().unwrap();
    fs::write(node.file("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(node.file("key.pem"), key.serialize_pem()).unwrap();
}

#[test]
fn file_that_ends_soon_raises_an_alarm_until_a_newer_one_is_loaded() {
    let [at, other] = addresses();
    let mut node = Node::alone(at, "[acme]\nagree = true\nstorage = \"acme\"", &[]);
    write(&node, 10);
    let listen = format!(
        "[[listen]]\naddress = \"{other}:{TLS}\"\ntls = [{{ certificate = \"cert.pem\", key = \"key.pem\" }}]"
    );
    let site = "hosts = \"file.test\"\nacme = \"off\"";
    node.configure("a", "[acme]\nagree = true\nstorage = \"acme\"", &[site], &listen);
    node.start();
    wait("an alarm is raised", || !node.events("certificate_expiring").is_empty());
    let alarms = node.events("certificate_expiring");
    assert!(alarms[0].contains("file.test") && alarms[0].contains("cert.pem"), "{alarms:?}");
    let state = node.states().remove(0);
    assert_eq!((&state["names"][0], &state["alarm"]), (&"file.test".into(), &true.into()));
    assert!((9.0..10.1).contains(&state["days"].as_f64().unwrap()), "{state}");
    write(&node, 300);
    node.reload();
    wait("the newer one is told", || !node.events("certificate_renewed").is_empty());
    let state = node.states().remove(0);
    assert_eq!(state["alarm"], false, "{state}");
    assert_eq!(node.events("certificate_expiring").len(), 1);
}
