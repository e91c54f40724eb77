//! Sessions that resume at another node, and after rotations.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_tls::{
    client_certificates::ClientCertificateMode, client_fields::ClientFields, tickets::TicketKeys,
};

use crate::support::{Authority, Opening, rules, s_client, text};

const HOUR: u64 = 3600;

fn keys(secret: &str, clock: &Arc<AtomicU64>) -> Arc<TicketKeys> {
    let clock = clock.clone();
    let secrets = [secret.as_bytes().to_vec()];
    let clock = Arc::new(move || clock.load(Relaxed));
    TicketKeys::by_clock(&secrets, Duration::from_secs(HOUR), None, clock)
}

#[test]
fn session_of_one_node_resumes_at_another_after_a_rotation_but_not_after_two() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let authority = Authority::new();
    let identity = authority.issue("a.test");
    let clock = Arc::new(AtomicU64::new(1000 * HOUR));
    let at = |secret| Opening { tickets: keys(secret, &clock), ..Opening::new(&identity) }.serve();
    let (one, other, stranger) = (at("secret"), at("secret"), at("another"));
    let file = authority.file("session");
    let store = ["-tls1_3", "-sess_out", text(&file)];
    let resume = ["-tls1_3", "-sess_in", text(&file)];
    assert!(s_client(one.at, &store).contains("kind=Full"));
    assert!(s_client(other.at, &resume).contains("kind=Resumed"));
    assert!(s_client(other.at, &resume).contains("Reused, TLSv1.3"));
    // A key that does not fit leads to a full handshake.
    assert!(s_client(stranger.at, &resume).contains("kind=Full"));
    clock.fetch_add(HOUR, Relaxed);
    assert!(s_client(other.at, &resume).contains("kind=Resumed"));
    clock.fetch_add(HOUR, Relaxed);
    assert!(s_client(other.at, &resume).contains("kind=Full"));
    assert!(s_client(one.at, &resume).contains("kind=Full"));
}

#[test]
fn session_of_tls12_resumes_only_where_it_began() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let authority = Authority::new();
    let identity = authority.issue("a.test");
    let clock = Arc::new(AtomicU64::new(1000 * HOUR));
    let at = || Opening { tickets: keys("secret", &clock), ..Opening::new(&identity) }.serve();
    let (one, other) = (at(), at());
    let file = authority.file("session");
    assert!(s_client(one.at, &["-tls1_2", "-sess_out", text(&file)]).contains("kind=Full"));
    let resume = ["-tls1_2", "-sess_in", text(&file)];
    assert!(s_client(one.at, &resume).contains("kind=Resumed"));
    assert!(s_client(other.at, &resume).contains("kind=Full"));
}

#[test]
fn resumed_session_keeps_its_client_until_a_list_revokes_it() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue("a.test");
    let mine = clients.issue_with("me.test", |params| params.serial_number = Some(7.into()));
    let mut with = rules(ClientCertificateMode::Required, &clients);
    with.revocation_lists = vec![clients.revoke(&[], 2090)];
    let clock = Arc::new(AtomicU64::new(1000 * HOUR));
    let tickets = keys("secret", &clock);
    let open = || Opening {
        tickets: tickets.clone(),
        clients: Some(with.clone()),
        ..Opening::new(&identity)
    };
    let file = authority.file("session");
    let of_client = ["-cert", text(&mine.certificate), "-key", text(&mine.key)];
    let before = open().serve();
    let first = s_client(before.at, &[&of_client[..], &["-sess_out", text(&file)]].concat());
    assert!(first.contains("kind=Full") && first.contains("CN=me.test"), "{first}");
    // Without the certificate at hand: the ticket has it.
    let resumed = s_client(before.at, &["-sess_in", text(&file)]);
    assert!(resumed.contains("kind=Resumed") && resumed.contains("CN=me.test"), "{resumed}");
    clients.revoke(&[7], 2090);
    let after = open().serve();
    let refused = s_client(after.at, &["-sess_in", text(&file)]);
    assert!(!refused.contains("HTTP/1.1 200"), "{refused}");
}

/// The fields for the origin that an answer tells.
fn fields(answer: &str) -> &str {
    answer.lines().find(|line| line.starts_with("fields=")).unwrap_or_default()
}

#[test]
fn resumed_session_has_the_fields_of_the_session_that_it_resumes() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue("a.test");
    let middle = clients.below();
    let mine = middle.issue("me.test");
    let chain = middle.file("chain.pem");
    fs::write(&chain, &middle.pem).unwrap();
    let of_client = ["-cert", text(&mine.certificate), "-key", text(&mine.key)];
    let file = authority.file("session");
    let clock = Arc::new(AtomicU64::new(1000 * HOUR));
    for mode in [ClientCertificateMode::Required, ClientCertificateMode::Optional] {
        let mut with = rules(mode, &clients);
        with.fields = vec![
            ClientFields::ClientCert,
            ClientFields::ClientCertChain,
            ClientFields::XForwardedClientCert,
            ClientFields::XSslClient,
        ];
        let opening = || Opening {
            tickets: keys("secret", &clock),
            clients: Some(with.clone()),
            ..Opening::new(&identity)
        };
        let (one, other) = (opening().serve(), opening().serve());
        for (version, nodes) in [("-tls1_3", [&one, &other]), ("-tls1_2", [&one, &one])] {
            let store = [version, "-cert_chain", text(&chain), "-sess_out", text(&file)];
            let first = s_client(nodes[0].at, &[&of_client[..], &store].concat());
            assert!(first.contains("kind=Full"), "{first}");
            let known = fields(&first);
            assert!(known.contains("client-cert-chain") && known.contains("CN=me.test"), "{known}");
            let resumed = s_client(nodes[1].at, &[version, "-sess_in", text(&file)]);
            assert!(resumed.contains("kind=Resumed"), "{resumed}");
            assert_eq!(fields(&resumed), known, "{version}");
        }
    }
}

/// Of the same node, but of a server name whose site asks for no certificate.
#[test]
fn session_of_one_site_is_none_of_another_site() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue("a.test");
    let mine = clients.issue("me.test");
    let of_client = ["-cert", text(&mine.certificate), "-key", text(&mine.key)];
    let with = rules(ClientCertificateMode::Required, &clients);
    let served = Opening { clients: Some(with), ..Opening::new(&identity) }.serve();
    let file = authority.file("session");
    for version in ["-tls1_3", "-tls1_2"] {
        let store = [version, "-sess_out", text(&file)];
        let open = ["-servername", "b.test"];
        assert!(s_client(served.at, &[&open[..], &store].concat()).contains("kind=Full"));
        let resume = [version, "-sess_in", text(&file)];
        assert!(s_client(served.at, &[&open[..], &resume].concat()).contains("kind=Resumed"));
        let refused = s_client(served.at, &resume);
        assert!(!refused.contains("HTTP/1.1 200"), "{refused}");
        // The other way round the certificate is not taken along.
        assert!(s_client(served.at, &[&of_client[..], &store].concat()).contains("kind=Full"));
        let other = s_client(served.at, &[&open[..], &resume].concat());
        assert!(other.contains("kind=Full") && !other.contains("me.test"), "{other}");
    }
}
