//! Certificates of clients, per site, and the fields by which the origin gets to know them.

use std::{net::SocketAddr, sync::Arc};

use levada_config::{
    Certificate, ClientCertificateMode, ClientCertificateSettings, ClientFields, Settings, SiteTls,
};
use rcgen::DnType;

use crate::support::{
    nodes::{world as world_of, *},
    *,
};

/// A node with three sites: `open.test`, `api.test` that requires certificates, and `door.test` with optional ones.
struct World {
    origin: Origin,
    _node: levada_node::Running,
    at: SocketAddr,
    servers: secure::Authority,
    clients: secure::Authority,
}

fn rules(mode: ClientCertificateMode, clients: &secure::Authority) -> SiteTls {
    let rules = ClientCertificateSettings {
        mode,
        authorities: vec![clients.path()],
        revocation_lists: Vec::new(),
        fields: vec![ClientFields::ClientCert, ClientFields::XSslClient],
    };
    SiteTls { clients: Some(Arc::new(rules)), ..SiteTls::default() }
}

async fn world(tweak: impl FnOnce(&mut Settings, &secure::Authority)) -> World {
    let (servers, clients) = (secure::Authority::new(), secure::Authority::new());
    let identity =
        servers.issue(&["open.test", "api.test", "door.test", "other.test", "127.0.0.1"]);
    let (origin, node, at) = alone(|settings| {
        settings.listeners[0].tls = vec![identity];
        let at = settings.sites[0].servers.clone();
        let of = |host: &str, tls: SiteTls| {
            let servers = at.clone();
            levada_config::SiteSettings { servers, tls, ..site(host, &[]) }
        };
        settings.sites = vec![
            of("open.test", SiteTls::default()),
            of("api.test", rules(ClientCertificateMode::Required, &clients)),
            of("door.test", rules(ClientCertificateMode::Optional, &clients)),
            of("other.test", rules(ClientCertificateMode::Required, &clients)),
        ];
        tweak(settings, &clients);
    })
    .await;
    World { origin, _node: node, at, servers, clients }
}

impl World {
    async fn wire(&self, name: &str, identity: Option<&Certificate>) -> std::io::Result<Wire> {
        let authority = self.servers.path();
        let stream = secure::connect(self.at, name, &authority, &["http/1.1"], identity).await?;
        Ok(Wire::over(stream))
    }

    /// Asks a site on a connection that is made for another one.
    async fn ask(&self, name: &str, host: &str, identity: Option<&Certificate>) -> Answer {
        let Ok(mut wire) = self.wire(name, identity).await else { return Answer::default() };
        let fields =
            [("Host", host), ("Client-Cert", ":AAAA:"), ("X-SSL-Client-Verify", "SUCCESS")];
        wire.send(head_of("GET", "/x", &fields)).await;
        wire.answer().await
    }
}

#[tokio::test]
async fn origin_gets_to_know_the_certificate_and_not_what_the_client_says() {
    let world = world(|_, _| ()).await;
    let mine = world.clients.issue_with(&["me.test"], |params| {
        params.distinguished_name.push(DnType::CommonName, "me");
    });
    assert_eq!(world.ask("api.test", "api.test", Some(&mine)).await.status, 200);
    let asked = world.origin.asked("/x").pop().unwrap();
    assert_eq!(asked.header("x-ssl-client-verify").as_deref(), Some("SUCCESS"));
    assert!(asked.header("x-ssl-client-s-dn").unwrap().contains("CN=me"));
    assert_eq!(asked.header("x-ssl-client-san").as_deref(), Some("DNS:me.test"));
    let certificate = asked.header("client-cert").unwrap();
    assert!(certificate.len() > 100 && asked.lines("client-cert") == 1, "{certificate}");
    // Another site, and a client without a certificate.
    assert_eq!(world.ask("open.test", "open.test", None).await.status, 200);
    let asked = world.origin.asked("/x").pop().unwrap();
    assert_eq!((asked.lines("client-cert"), asked.lines("x-ssl-client-verify")), (0, 0));
    assert_eq!(world.ask("door.test", "door.test", None).await.status, 200);
    let asked = world.origin.asked("/x").pop().unwrap();
    assert_eq!(asked.header("x-ssl-client-verify").as_deref(), Some("NONE"));
    assert_eq!(asked.lines("client-cert"), 0);
}

#[tokio::test]
async fn without_a_good_certificate_a_client_gets_nothing_or_the_reason() {
    let world = world(|_, _| ()).await;
    let strange = secure::Authority::new();
    let stranger = strange.issue(&["me.test"]);
    let expired = world.clients.issue_with(&["old.test"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    for identity in [None, Some(&stranger), Some(&expired)] {
        assert_eq!(world.ask("api.test", "api.test", identity).await.status, 0);
    }
    assert_eq!(world.ask("door.test", "door.test", None).await.status, 200);
    for (identity, reason) in [(&stranger, "not of an authority"), (&expired, "has expired")] {
        let answer = world.ask("door.test", "door.test", Some(identity)).await;
        assert_eq!(answer.status, 403);
        assert!(answer.text().contains(reason), "{}", answer.text());
    }
}

#[tokio::test]
async fn request_on_a_connection_for_another_site_is_misdirected() {
    let world = world(|_, _| ()).await;
    let mine = world.clients.issue(&["me.test"]);
    for (name, host, identity, status) in [
        ("open.test", "api.test", None, 421),
        ("open.test", "door.test", None, 421),
        ("door.test", "api.test", None, 421),
        ("door.test", "api.test", Some(&mine), 421),
        ("nobody.test", "api.test", Some(&mine), 421),
        ("api.test", "open.test", Some(&mine), 200),
        // The rules of both are alike.
        ("api.test", "other.test", Some(&mine), 200),
        ("api.test", "api.test", Some(&mine), 200),
    ] {
        let answer = match name {
            "nobody.test" => ask_without_a_name(&world, host).await,
            name => world.ask(name, host, identity).await,
        };
        assert_eq!(answer.status, status, "{name} {host}");
    }
}

/// Asks over a connection without a server name.
async fn ask_without_a_name(world: &World, host: &str) -> Answer {
    let authority = world.servers.path();
    let connected = secure::connect(world.at, "127.0.0.1", &authority, &["http/1.1"], None).await;
    let mut wire = Wire::over(connected.unwrap());
    wire.send(head_of("GET", "/x", &[("Host", host)])).await;
    wire.answer().await
}

#[tokio::test]
async fn request_of_a_coalesced_http2_connection_is_misdirected() {
    let world = world(|_, _| ()).await;
    let authority = world.servers.path();
    let stream = secure::connect(world.at, "open.test", &authority, &["h2"], None).await.unwrap();
    let mut sender = crate::http2::speak(stream).await;
    for (host, status) in [("open.test", 200), ("api.test", 421), ("open.test", 200)] {
        let request = crate::http2::ask_at(host);
        assert_eq!(crate::http2::fetch(&mut sender, request).await.0, status, "{host}");
    }
}

#[tokio::test]
async fn without_tls_a_site_that_requires_certificates_is_closed() {
    let world = world(|settings, _| {
        settings.listeners[0].tls.clear();
    })
    .await;
    for (host, status) in [("api.test", 403), ("door.test", 200), ("open.test", 200)] {
        let mut wire = Wire::to(world.at).await;
        wire.send(head_of("GET", "/x", &[("Host", host), ("Client-Cert", ":AAAA:")])).await;
        assert_eq!(wire.answer().await.status, status, "{host}");
    }
    assert!(world.origin.asked("/x").iter().all(|asked| asked.lines("client-cert") == 0));
}

#[tokio::test]
async fn revoked_certificate_is_refused_after_a_reload() {
    let (servers, clients) = (secure::Authority::new(), secure::Authority::new());
    let origin = Origin::start().await;
    let mut settings = single(&[origin.address]);
    settings.listeners[0].tls = vec![servers.issue(&[HOST])];
    let mut rules = ClientCertificateSettings {
        mode: ClientCertificateMode::Required,
        authorities: vec![clients.path()],
        revocation_lists: vec![clients.revoke(&[])],
        fields: Vec::new(),
    };
    settings.sites[0].tls.clients = Some(Arc::new(rules.clone()));
    let (node, file) = world_of(settings.clone()).await;
    let at = node.addresses.clients[0];
    let identity = |serial: u64| {
        clients.issue_with(&[&format!("c{serial}.test")], |params| {
            params.serial_number = Some(serial.into());
        })
    };
    let status = async |identity: &Certificate| {
        let protocols = ["http/1.1"];
        let stream = secure::connect(at, HOST, &servers.path(), &protocols, Some(identity)).await;
        let mut wire = Wire::over(stream.unwrap());
        wire.send(head_of("GET", "/x", &[("Host", HOST)])).await;
        wire.answer().await.status
    };
    let (one, other) = (identity(11), identity(12));
    assert_eq!((status(&one).await, status(&other).await), (200, 200));
    clients.revoke(&[11]);
    // The settings are the same, and the file is another.
    crate::reload_all::change(&node, &file, &settings).await;
    assert_eq!((status(&one).await, status(&other).await), (0, 200));
    rules.mode = ClientCertificateMode::Optional;
    settings.sites[0].tls.clients = Some(Arc::new(rules));
    assert_eq!(crate::reload_all::change(&node, &file, &settings).await, ["site a.test"]);
    assert_eq!((status(&one).await, status(&other).await), (403, 200));
}
