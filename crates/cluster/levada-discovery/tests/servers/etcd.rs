//! Members from keys of etcd.

use std::time::Duration;

use levada_discovery::{EtcdSource, EtcdUser, Leave, Member, Registration, Source, register};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    TEST_TIMEOUT, certificates::Certificates, etcd_servers::EtcdServers, failure_becomes, follow,
    members, members_become, success_returns,
};

#[tokio::test]
async fn members_come_and_go_with_their_keys_and_leases() {
    let Some(etcd) = EtcdServers::start(3, &[]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    etcd.put("/web2/x", "10.0.0.9:80").await;
    let (_discovery, followed) = follow(Source::Etcd(etcd.source("/web/")));
    members_become(&followed, &["a 10.0.0.1:80"]).await;

    etcd.put("/web/b", r#"{"address": "10.0.0.2:80", "weight": 2}"#).await;
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80 2"]).await;
    etcd.put("/web/a", "10.0.0.3:80").await;
    members_become(&followed, &["a 10.0.0.3:80", "b 10.0.0.2:80 2"]).await;

    // A value that names no member leaves the member as it was.
    etcd.put("/web/a", "web-1:80").await;
    etcd.put_leased("/web/c", "10.0.0.4:80", 2).await;
    members_become(&followed, &["a 10.0.0.3:80", "b 10.0.0.2:80 2", "c 10.0.0.4:80"]).await;
    // The lease is not renewed.
    members_become(&followed, &["a 10.0.0.3:80", "b 10.0.0.2:80 2"]).await;

    etcd.delete("/web/b").await;
    members_become(&followed, &["a 10.0.0.3:80"]).await;
    // The last member stays.
    etcd.delete("/web/a").await;
    failure_becomes(&followed, "no members").await;
    assert_eq!(members(&followed), ["a 10.0.0.3:80"]);
}

#[tokio::test]
async fn list_stays_and_changes_are_followed_when_the_leader_is_killed() {
    let Some(mut etcd) = EtcdServers::start(3, &[]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    let mut source = etcd.source("/web/");
    let leader = etcd.leader().await;
    // The source asks the leader first.
    source.endpoints.swap(0, leader);
    let (_discovery, followed) = follow(Source::Etcd(source));
    members_become(&followed, &["a 10.0.0.1:80"]).await;

    etcd.kill(leader);
    etcd.put("/web/b", "10.0.0.2:80").await;
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;

    // Without a majority the list stays.
    etcd.kill((leader + 1) % 3);
    failure_becomes(&followed, "http://").await;
    assert_eq!(members(&followed), ["a 10.0.0.1:80", "b 10.0.0.2:80"]);
    etcd.spawn(leader);
    etcd.delete("/web/a").await;
    members_become(&followed, &["b 10.0.0.2:80"]).await;
    success_returns(&followed).await;
}

#[tokio::test]
async fn list_stays_while_all_servers_are_down() {
    let Some(mut etcd) = EtcdServers::start(3, &[]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    etcd.put("/web/b", "10.0.0.2:80").await;
    let (_discovery, followed) = follow(Source::Etcd(etcd.source("/web/")));
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;

    (0..3).for_each(|index| etcd.kill(index));
    failure_becomes(&followed, "Connection refused").await;
    assert_eq!(members(&followed), ["a 10.0.0.1:80", "b 10.0.0.2:80"]);
    etcd.start_all().await;
    success_returns(&followed).await;
    etcd.delete("/web/a").await;
    members_become(&followed, &["b 10.0.0.2:80"]).await;
}

#[tokio::test]
async fn node_that_starts_while_etcd_has_no_majority_gets_the_members_that_a_server_knows() {
    let Some(mut etcd) = EtcdServers::start(3, &[]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    // Server 2 has the key once its own answer says so.
    let mut last = etcd.source("/web/");
    last.endpoints.drain(..2);
    let (_discovery, followed) = follow(Source::Etcd(last));
    members_become(&followed, &["a 10.0.0.1:80"]).await;
    drop(followed);
    (0..2).for_each(|index| etcd.kill(index));

    let (_discovery, followed) = follow(Source::Etcd(etcd.source("/web/")));
    members_become(&followed, &["a 10.0.0.1:80"]).await;
    failure_becomes(&followed, "http://").await;
    etcd.start_all().await;
    etcd.put("/web/b", "10.0.0.2:80").await;
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;
}

#[tokio::test]
async fn another_server_is_asked_when_one_hangs() {
    let Some(etcd) = EtcdServers::start(3, &[]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    let (_discovery, followed) = follow(Source::Etcd(etcd.source("/web/")));
    members_become(&followed, &["a 10.0.0.1:80"]).await;
    etcd.freeze(0);
    etcd.put("/web/b", "10.0.0.2:80").await;
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;
}

#[tokio::test]
async fn compaction_loses_no_change() {
    let Some(mut etcd) = EtcdServers::start(1, &[]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    let (_discovery, followed) = follow(Source::Etcd(etcd.source("/web/")));
    members_become(&followed, &["a 10.0.0.1:80"]).await;
    etcd.compact().await;
    etcd.put("/web/b", "10.0.0.2:80").await;
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;

    // Changes that nobody could watch, in revisions that are gone when the source comes back.
    etcd.freeze(0);
    failure_becomes(&followed, "no answer").await;
    etcd.kill(0);
    etcd.start_all().await;
    etcd.delete("/web/a").await;
    etcd.put("/web/c", "10.0.0.3:80").await;
    etcd.compact().await;
    members_become(&followed, &["b 10.0.0.2:80", "c 10.0.0.3:80"]).await;
}

#[tokio::test]
async fn etcd_with_a_full_disk_is_still_read() {
    let quota = "--quota-backend-bytes=8388608";
    let Some(etcd) = EtcdServers::start(1, &[quota]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    etcd.put("/web/b", "10.0.0.2:80").await;
    let (_discovery, followed) = follow(Source::Etcd(etcd.source("/web/")));
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;
    etcd.fill().await;

    let (_discovery, another) = follow(Source::Etcd(etcd.source("/web/")));
    members_become(&another, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;
    // etcd takes deletions still, and both follow them.
    etcd.delete("/web/a").await;
    members_become(&followed, &["b 10.0.0.2:80"]).await;
    members_become(&another, &["b 10.0.0.2:80"]).await;
    assert_eq!(followed.failure(), None);
}

#[tokio::test]
async fn etcd_is_reached_by_tls_with_a_certificate_of_the_client() {
    let Some(etcd) = EtcdServers::start_with_certificates().await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    let source = etcd.source("/web/");
    let (_discovery, followed) = follow(Source::Etcd(source.clone()));
    members_become(&followed, &["a 10.0.0.1:80"]).await;

    let mut without_certificate = source.clone();
    without_certificate.tls.identity = None;
    let (_discovery, followed) = follow(Source::Etcd(without_certificate));
    failure_becomes(&followed, "received fatal alert").await;

    let others = Certificates::new("127.0.0.1".parse().unwrap(), "other");
    let mut wrong_authority = source.clone();
    wrong_authority.tls.authority = Some(others.path("ca.pem"));
    let (_discovery, followed) = follow(Source::Etcd(wrong_authority));
    failure_becomes(&followed, "invalid peer certificate").await;

    let mut absent = source;
    absent.tls.authority = Some(others.path("absent.pem"));
    let (_discovery, followed) = follow(Source::Etcd(absent));
    failure_becomes(&followed, "absent.pem: No such file").await;
}

#[tokio::test]
async fn etcd_with_passwords_is_read_by_a_user() {
    let Some(mut etcd) = EtcdServers::start(1, &[]).await else { return };
    etcd.put("/web/a", "10.0.0.1:80").await;
    let user = etcd.add_user("levada", "secret", "/web/").await;
    etcd.ask_for_passwords().await;

    let source = |user: Option<EtcdUser>| {
        let source = EtcdSource { user, ..etcd.source("/web/") };
        follow(Source::Etcd(source))
    };
    let (_discovery, anyone) = source(None);
    failure_becomes(&anyone, "user name is empty").await;
    let wrong = EtcdUser { password: "wrong".into(), ..user.clone() };
    let (_discovery, wrong) = source(Some(wrong));
    failure_becomes(&wrong, "authentication failed").await;
    let (_discovery, followed) = source(Some(user.clone()));
    members_become(&followed, &["a 10.0.0.1:80"]).await;
    etcd.put("/web/b", "10.0.0.2:80").await;
    members_become(&followed, &["a 10.0.0.1:80", "b 10.0.0.2:80"]).await;

    let elsewhere = EtcdSource { user: Some(user), ..etcd.source("/other/") };
    let (_discovery, elsewhere) = follow(Source::Etcd(elsewhere));
    failure_becomes(&elsewhere, "permission denied").await;
}

/// A node that registers in a task; the sender lets it leave.
fn node(source: &EtcdSource, name: &str, address: &str) -> (LeaveSender, JoinHandle<()>) {
    let (leave, leaving) = oneshot::channel();
    let me = Member::new(name, address.parse().unwrap());
    let registration = Registration { source: source.clone(), me };
    let task = tokio::spawn(async move {
        let leaving = async { leaving.await.unwrap_or(Leave::TakeBack) };
        register(&registration, |_| {}, leaving).await;
    });
    (leave, task)
}

type LeaveSender = oneshot::Sender<Leave>;

#[tokio::test]
async fn node_is_registered_as_long_as_it_runs() {
    let Some(mut etcd) = EtcdServers::start(3, &[]).await else { return };
    let source = etcd.source("/nodes/");
    let (_discovery, followed) = follow(Source::Etcd(source.clone()));
    let (_leave_a, _a) = node(&source, "a", "10.0.0.1:7070");
    let (leave_b, b) = node(&source, "b", "10.0.0.2:7070");
    members_become(&followed, &["a 10.0.0.1:7070", "b 10.0.0.2:7070"]).await;

    // The lease outlives the server that granted it.
    let (_, lease) = etcd.get("/nodes/a").await.unwrap();
    etcd.kill(0);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(etcd.get("/nodes/a").await.unwrap().1, lease);

    // A node that leaves takes its key along, before its lease expires.
    leave_b.send(Leave::TakeBack).unwrap();
    b.await.unwrap();
    assert_eq!(etcd.get("/nodes/b").await, None);
    members_become(&followed, &["a 10.0.0.1:7070"]).await;
}

#[tokio::test]
async fn node_whose_lease_has_expired_registers_again() {
    let Some(etcd) = EtcdServers::start(1, &[]).await else { return };
    let source = etcd.source("/nodes/");
    let (_leave, _a) = node(&source, "a", "10.0.0.1:7070");
    let (_, first) = registered(&etcd, "/nodes/a").await;
    etcd.revoke(&first).await;
    let (value, second) = registered(&etcd, "/nodes/a").await;
    assert_ne!(first, second);
    assert!(value.contains("10.0.0.1:7070"), "{value}");
}

#[tokio::test]
async fn second_node_of_a_name_does_not_take_the_place_of_the_first() {
    let Some(etcd) = EtcdServers::start(1, &[]).await else { return };
    let source = etcd.source("/nodes/");
    let (leave_first, first) = node(&source, "a", "10.0.0.1:7070");
    registered(&etcd, "/nodes/a").await;
    let (_leave, _second) = node(&source, "a", "10.0.0.2:7070");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(registered(&etcd, "/nodes/a").await.0.contains("10.0.0.1:7070"));
    // It does when the first has left: a node that moved to another address.
    leave_first.send(Leave::TakeBack).unwrap();
    first.await.unwrap();
    assert!(registered(&etcd, "/nodes/a").await.0.contains("10.0.0.2:7070"));
}

#[tokio::test]
async fn key_passes_to_the_process_that_takes_over() {
    let Some(etcd) = EtcdServers::start(1, &[]).await else { return };
    let source = etcd.source("/nodes/");
    let (leave_old, old) = node(&source, "a", "10.0.0.1:7070");
    let (_, of_old) = registered(&etcd, "/nodes/a").await;
    let (leave_new, new) = node(&source, "a", "10.0.0.1:7070");
    let of_new = another_lease(&etcd, "/nodes/a", &of_old).await;
    leave_old.send(Leave::PassOn).unwrap();
    old.await.unwrap();
    assert_eq!(registered(&etcd, "/nodes/a").await.1, of_new);
    leave_new.send(Leave::TakeBack).unwrap();
    new.await.unwrap();
    assert_eq!(etcd.get("/nodes/a").await, None);
}

#[tokio::test]
async fn key_is_written_again_when_the_process_that_took_over_has_failed() {
    let Some(etcd) = EtcdServers::start(1, &[]).await else { return };
    let source = etcd.source("/nodes/");
    let (_leave_old, _old) = node(&source, "a", "10.0.0.1:7070");
    let (_, of_old) = registered(&etcd, "/nodes/a").await;
    let (_leave_new, new) = node(&source, "a", "10.0.0.1:7070");
    let of_new = another_lease(&etcd, "/nodes/a", &of_old).await;
    new.abort();
    assert!(new.await.is_err());
    // It is not renewed any more.
    etcd.revoke(&of_new).await;
    assert_eq!(registered(&etcd, "/nodes/a").await.1, of_old);
}

#[tokio::test]
async fn registered_node_stays_a_member_while_the_disk_of_etcd_is_full() {
    let Some(etcd) = EtcdServers::start(1, &["--quota-backend-bytes=8388608"]).await else {
        return;
    };
    let source = etcd.source("/nodes/");
    let (_leave, _a) = node(&source, "a", "10.0.0.1:7070");
    let before = registered(&etcd, "/nodes/a").await;
    etcd.fill().await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(registered(&etcd, "/nodes/a").await, before);
}

/// Waits until a key has another lease than this one.
async fn another_lease(etcd: &EtcdServers, key: &str, lease: &str) -> String {
    let found = async {
        loop {
            let (_, now) = registered(etcd, key).await;
            if now != lease {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, found).await.expect("the key has another lease")
}

/// Waits for a key; its value and lease.
async fn registered(etcd: &EtcdServers, key: &str) -> (String, String) {
    let found = async {
        loop {
            if let Some(found) = etcd.get(key).await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, found).await.expect("the key is written")
}
