//! Clients of very many addresses: at the site of all nodes, and at a node's addresses for operators.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use levada_testbed::cluster::problems::{Problem, Verdict};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    client,
    cluster::{Cluster, metrics_at},
    hostile::{BYTE_INTERVAL, apart, connect_from, handshake, silent, upload},
    load::{CLIENTS, HOST_NAME, address_of},
    stage::Stage,
};

/// Asks for what the origin never answers, then sends bodies of a byte per second, then asks for WebSocket: a third of
/// the row each. A client that is refused asks again. Meanwhile other clients, which the nodes know, miss.
pub(super) async fn addresses(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let doors: Vec<_> = cluster.doors.iter().map(|door| door.clients).collect();
    for round in 0..KNOWN_BY {
        let numbers = (0..CLIENTS).map(|client| round * CLIENTS + client);
        join_all(numbers.map(|number| miss(cluster, number))).await;
    }
    let (begin, end, count) = (Instant::now(), stage.end, addresses_of(stage));
    let length = end.saturating_duration_since(begin);
    let attack = apart(end, move || async move {
        let attacks: [fn(usize) -> String; 3] = [silent, upload, handshake];
        for (words, part) in attacks.into_iter().zip(1..) {
            let crowd = (0..count)
                .map(|number| persist(doors[number % doors.len()], number, words(number)));
            let _ = timeout_at(begin + length * part / 3, join_all(crowd)).await;
        }
    });
    let cluster = &*cluster;
    let misses = async {
        for number in CLIENTS * KNOWN_BY.. {
            sleep(MISS_INTERVAL).await;
            if stage.is_over() {
                break;
            }
            let asked = Instant::now();
            let verdict = miss(cluster, number).await;
            stage.tally.borrow_mut().count(verdict, asked.elapsed(), false);
        }
    };
    let (attacked, ()) = tokio::join!(attack, misses);
    attacked?;
    recovers(cluster, stage).await;
    Ok(())
}

/// Opens connections to both addresses for operators that say nothing, and checks the health of the node meanwhile.
pub(super) async fn admin(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let admin = cluster.doors[0].admin;
    let (both, count) = ([admin, metrics_at(admin)], addresses_of(stage));
    let attack = apart(stage.end, move || {
        join_all((0..count).map(move |number| persist(both[number % 2], number, String::new())))
    });
    let probes = async {
        while !stage.is_over() {
            for at in both {
                let asked = Instant::now();
                let verdict = match timeout(PROBE_TIMEOUT, is_healthy(at)).await {
                    Ok(Ok(true)) => Ok(()),
                    Ok(answer) => Err((Problem::Failed, format!("a probe: {answer:?}"))),
                    Err(_) => Err((Problem::Failed, "a probe is late".to_owned())),
                };
                stage.tally.borrow_mut().count(verdict, asked.elapsed(), false);
            }
            sleep(MISS_INTERVAL).await;
        }
    };
    let (attacked, ()) = tokio::join!(attack, probes);
    attacked
}

/// Changes the secret of the cluster again and again, as docs/operate/change.md says.
pub(super) async fn secret(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let secret = |number: usize| format!("a secret of the lab with number {number}");
    let mut old = cluster.secret();
    for number in 0.. {
        let new = secret(number);
        for round in [&[&*old, &*new][..], &[&new, &old], &[&new]] {
            if !stage.next(ROUND_INTERVAL).await {
                return Ok(());
            }
            cluster.set_secrets(round).await?;
        }
        old = new;
    }
    Ok(())
}

/// Waits until a client that no node knows gets what is not stored, and notes how long that is.
pub(super) async fn recovers(cluster: &Cluster<'_>, stage: &Stage<'_>) {
    let begin = Instant::now();
    while begin.elapsed() < LONGEST_RECOVERY {
        let all = (0..cluster.doors.len()).map(|at| {
            let target = format!("/absent/after/{:?}", begin.elapsed());
            absent(cluster, at, target, "198.51.100.1")
        });
        if join_all(all).await.iter().all(Result::is_ok) {
            break;
        }
    }
    stage.recovery.set(Some(begin.elapsed()));
}

/// A request of a client of the load for what no node has stored.
async fn miss(cluster: &Cluster<'_>, number: usize) -> Verdict {
    let at = number / CLIENTS % cluster.doors.len();
    absent(cluster, at, format!("/absent/{number}"), &address_of(number)).await
}

/// A request for what the origin does not have.
async fn absent(cluster: &Cluster<'_>, at: usize, target: String, client: &str) -> Verdict {
    let door = &cluster.doors[at];
    let sent = client::send(door, &target, &client::fields(HOST_NAME, client)).await;
    match sent.map(|(_, response)| response.status().as_u16()) {
        Ok(404) => Ok(()),
        Ok(status) => Err((Problem::Failed, format!("status {status} of a miss"))),
        Err(reason) => Err((Problem::Failed, reason)),
    }
}

/// One client that says this, sends a byte per second if it has a body to send, and begins again some time after it was
/// answered.
async fn persist(at: SocketAddr, number: usize, words: String) {
    let has_body = words.starts_with("POST");
    let once = || async {
        let mut stream = connect_from(number, at).await?;
        stream.write_all(words.as_bytes()).await?;
        let mut answer = [0; 512];
        let pause = if has_body { BYTE_INTERVAL } else { Duration::MAX };
        while timeout(pause, stream.read(&mut answer)).await.is_err() {
            stream.write_all(b"x").await?;
        }
        Ok(())
    };
    loop {
        let _: std::io::Result<()> = once().await;
        sleep(AGAIN).await;
    }
}

async fn is_healthy(at: SocketAddr) -> std::io::Result<bool> {
    let mut stream = tokio::net::TcpStream::connect(at).await?;
    let probe = format!("GET /healthz HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(probe.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}

/// The addresses of a row: all of them only if there is time for them.
fn addresses_of(stage: &Stage<'_>) -> usize {
    if stage.is_long() { MANY } else { SOME }
}

const MANY: usize = 10_000;
const SOME: usize = 400;
/// Requests by which all nodes get to know a client: each goes to any of them.
const KNOWN_BY: usize = 12;
const MISS_INTERVAL: Duration = Duration::from_millis(50);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const ROUND_INTERVAL: Duration = Duration::from_millis(500);
/// The time until a client that was refused asks again.
const AGAIN: Duration = Duration::from_secs(5);
const LONGEST_RECOVERY: Duration = Duration::from_secs(20);
