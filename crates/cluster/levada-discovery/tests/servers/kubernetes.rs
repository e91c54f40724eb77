//! Members from the EndpointSlices of an API server.

use levada_discovery::{KubernetesSource, ServicePort, Source};

use crate::{
    api_server::ApiServer, failure_becomes, follow, members, members_become, success_returns,
};

#[tokio::test]
async fn ready_endpoints_of_a_service_come_and_go_with_its_slices() {
    let Some(server) = ApiServer::start().await else { return };
    server.put_slice("web", "web-1", &[("10.1.0.1", true), ("10.1.0.2", false)]).await;
    server.put_slice("other", "other-1", &[("10.9.0.1", true)]).await;
    let (_discovery, followed) = follow(Source::Kubernetes(server.source("web")));
    members_become(&followed, &["pod-1 10.1.0.1:8080"]).await;

    server.put_slice("web", "web-1", &[("10.1.0.1", true), ("10.1.0.2", true)]).await;
    server.put_slice("web", "web-2", &[("10.1.0.3", true)]).await;
    let all = ["pod-1 10.1.0.1:8080", "pod-2 10.1.0.2:8080", "pod-3 10.1.0.3:8080"];
    members_become(&followed, &all).await;
    server.put_slice("web", "web-1", &[("10.1.0.1", false), ("10.1.0.2", true)]).await;
    members_become(&followed, &all[1..]).await;
    server.delete_slice("web-1").await;
    members_become(&followed, &all[2..]).await;
    // The last ready endpoint stays.
    server.put_slice("web", "web-2", &[("10.1.0.3", false)]).await;
    failure_becomes(&followed, "service web has no ready endpoint").await;
    assert_eq!(members(&followed), all[2..]);
    server.put_slice("web", "web-2", &[("10.1.0.4", true)]).await;
    members_become(&followed, &["pod-4 10.1.0.4:8080"]).await;
    success_returns(&followed).await;
}

#[tokio::test]
async fn reset_watch_is_taken_up_again() {
    let Some(server) = ApiServer::start().await else { return };
    server.put_slice("web", "web-1", &[("10.1.0.1", true)]).await;
    let relay = server.relay().await;
    let source = server.source_by("web", "    token: all\n", relay.address);
    let (_discovery, followed) = follow(Source::Kubernetes(source));
    members_become(&followed, &["pod-1 10.1.0.1:8080"]).await;
    let mut expected = vec!["pod-1 10.1.0.1:8080".to_owned()];
    for number in 2..6 {
        relay.reset();
        let (name, ip) = (format!("web-{number}"), format!("10.1.0.{number}"));
        server.put_slice("web", &name, &[(&ip, true)]).await;
        expected.push(format!("pod-{number} {ip}:8080"));
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        members_become(&followed, &expected).await;
    }
}

#[tokio::test]
async fn list_stays_while_the_api_server_is_down() {
    let Some(mut server) = ApiServer::start().await else { return };
    server.put_slice("web", "web-1", &[("10.1.0.1", true), ("10.1.0.2", true)]).await;
    let (_discovery, followed) = follow(Source::Kubernetes(server.source("web")));
    let both = ["pod-1 10.1.0.1:8080", "pod-2 10.1.0.2:8080"];
    members_become(&followed, &both).await;

    server.kill();
    failure_becomes(&followed, "Connection refused").await;
    assert_eq!(members(&followed), both);
    // The versions that the source knows are gone when the server comes back.
    server.etcd.compact().await;
    server.start_again().await;
    success_returns(&followed).await;
    server.put_slice("web", "web-1", &[("10.1.0.2", true)]).await;
    members_become(&followed, &both[1..]).await;
}

#[tokio::test]
async fn api_server_is_asked_as_the_kubeconfig_says() {
    let Some(server) = ApiServer::start().await else { return };
    server.put_slice("web", "web-1", &[("10.1.0.1", true)]).await;
    let token = server.source("web");
    let relay = server.relay().await;
    let by = |user: &str| Source::Kubernetes(server.source_by("web", user, relay.address));

    let (_discovery, by_certificate) = follow(by(&server.user_with_certificate()));
    members_become(&by_certificate, &["pod-1 10.1.0.1:8080"]).await;
    let (_discovery, forbidden) = follow(by("    token: nothing\n"));
    failure_becomes(&forbidden, "the verbs list and watch of endpointslices in namespace default")
        .await;
    let (_discovery, unknown) = follow(by("    token: unknown\n"));
    failure_becomes(&unknown, "401 Unauthorized").await;
    let (_discovery, program) = follow(by("    exec: { command: aws }\n"));
    failure_becomes(&program, "from a program").await;

    let port = |port| Source::Kubernetes(KubernetesSource { port: Some(port), ..token.clone() });
    let (_discovery, named) = follow(port(ServicePort::Name("http".into())));
    members_become(&named, &["pod-1 10.1.0.1:8080"]).await;
    let (_discovery, absent) = follow(port(ServicePort::Number(80)));
    failure_becomes(&absent, "service web: it has no port 80; it has http (8080)").await;
    let elsewhere = KubernetesSource { namespace: Some("kube-system".into()), ..token.clone() };
    let (_discovery, elsewhere) = follow(Source::Kubernetes(elsewhere));
    failure_becomes(&elsewhere, "no ready endpoint").await;
}
