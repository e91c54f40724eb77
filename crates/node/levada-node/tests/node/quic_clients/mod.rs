//! Public clients of HTTP/3 at a node: curl, and aioquic with the cases of QUIC's interop suites.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
};

use tokio::net::UdpSocket;

use crate::{
    http3::{World, pattern, world},
    quic::lost,
    support::{
        nodes::metric,
        quic::{PacketPath, Way},
        *,
    },
};

/// The bytes of `/body`, as the client expects them.
const LENGTH: usize = 3_000_000;

async fn run(mut command: Command) -> String {
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } = run.await.unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

async fn served() -> World {
    let world = world(|_| {}).await;
    world.origin.on("/small", Reply::cached("small"));
    world.origin.on("/body", Reply::cached(pattern(LENGTH)));
    world
}

/// Whether Python has aioquic. A test without it says so.
fn has_aioquic() -> bool {
    !levada_skip::lacks_module("aioquic", "python3-aioquic")
}

async fn aioquic(world: &World, at: SocketAddr, case: &str) {
    let mut command = Command::new(levada_skip::python("aioquic").unwrap());
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/quic_clients/client.py"))
        .arg(at.port().to_string())
        .arg(world.authority.path())
        .arg(case);
    run(command).await;
}

macro_rules! aioquic_tests {
    ($($name:ident => $case:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if has_aioquic() {
                let world = served().await;
                aioquic(&world, world.at, $case).await;
                settled(&world.node).await;
            }
        }
    )*};
}

aioquic_tests! {
    aioquic_transfers_bodies_both_ways => "transfer";
    aioquic_negotiates_the_version => "version_negotiation";
    aioquic_resumes_a_session_with_early_data_once => "resumption";
    aioquic_updates_keys => "key_update";
    aioquic_moves_in_the_middle_of_a_body => "migration";
    aioquic_that_floods_connection_ids_loses_its_connection => "connection_id_flood";
    aioquic_that_retires_a_thousand_connection_ids_is_served => "retirements";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aioquic_gets_bodies_whole_though_three_packets_of_ten_are_lost() {
    if has_aioquic() {
        let world = served().await;
        let path = PacketPath::to(world.at, Box::new(|_, number| !lost(number))).await;
        aioquic(&world, path.address, "transfer").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aioquic_proves_its_address_when_many_handshakes_are_under_way() {
    if !has_aioquic() {
        return;
    }
    let world = served().await;
    let spoofed = PacketPath::to(world.at, Box::new(|way, _| way == Way::ToNode)).await;
    let mut begun = Vec::new();
    while metric(&world.node, "levada_quic_retries_total").await == 0.0 {
        begun.extend((0..10).map(|_| world.trusting.begin(spoofed.address)));
    }
    aioquic(&world, world.at, "retry").await;
    drop(begun);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_comes_by_http3_at_once_and_from_the_offer_on() {
    let version = Command::new("curl").arg("--version").output();
    if !version.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("HTTP3")) {
        levada_skip::skipped("curl has no HTTP/3 (it has from Debian 13 on)");
        return;
    }
    let world = served().await;
    let files = tempfile::tempdir().unwrap();
    let up = files.path().join("up");
    std::fs::write(&up, pattern(300_000)).unwrap();
    let port = world.at.port();
    let url = |path: &str| format!("https://{HOST}:{port}{path}");
    let curl = || {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--max-time", "60", "--write-out"])
            .arg("%{http_version} %{http_code} %{size_download}")
            .arg("--output")
            .arg(files.path().join("got"))
            .arg("--cacert")
            .arg(world.authority.path())
            .args(["--resolve", &format!("{HOST}:{port}:127.0.0.1")]);
        command
    };
    let mut asked = curl();
    asked.args(["--http3-only", &url("/body")]);
    assert_eq!(run(asked).await, format!("3 200 {LENGTH}"));
    assert!(std::fs::read(files.path().join("got")).unwrap() == pattern(LENGTH));
    let mut sent = curl();
    sent.args(["--http3-only", &url("/up"), "--upload-file"]).arg(&up);
    assert!(run(sent).await.starts_with("3 200 "));
    assert!(world.origin.asked("/up")[0].body == pattern(300_000));
    for protocol in ["2", "3"] {
        let mut asked = curl();
        asked.arg("--alt-svc").arg(files.path().join("offers")).arg(url("/small"));
        assert_eq!(run(asked).await, format!("{protocol} 200 5"));
    }
}

/// A datagram of noise for each flood, so that the socket is that of an unknown client.
#[tokio::test]
async fn packets_of_unknown_connections_get_no_more_than_they_bring() {
    let world = world(|_| {}).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut sent = 0;
    for number in 0..2000_u32 {
        // Short headers with connection ids that nobody has.
        let mut packet = vec![0x40; 60];
        packet[1..5].copy_from_slice(&number.to_be_bytes());
        sent += client.send_to(&packet, world.at).await.unwrap();
    }
    let mut asked = world.trusting.connect(world.at).await;
    assert_eq!(asked.get("/a").await.status, 200);
    let (mut came, mut bytes) = (0, [0; 2048]);
    while let Ok(length) = client.try_recv(&mut bytes) {
        came += length;
    }
    assert!(came < sent, "{came} bytes for {sent}");
}
