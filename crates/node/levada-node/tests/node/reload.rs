//! New settings while requests run: all of them, or none.

use std::{
    sync::{Mutex, mpsc},
    time::Duration,
};

use levada_config::{Settings, SettingsReader};
use levada_node::Running;

use crate::{
    support::{nodes::*, *},
    switch::{by, server, server_of, switch, switching},
};

#[tokio::test]
async fn learned_targets_survive_and_a_server_that_joins_is_used() {
    let origins = [Origin::start().await, Origin::start().await, Origin::start().await];
    let before = switching("lard", &[&origins[0], &origins[1]]);
    let (node, file) = world(before.clone()).await;
    let at = node.addresses.clients[0];
    let mut known = Vec::new();
    for key in 0..20 {
        known.push(server_of(at, &format!("/{key}")).await);
    }
    let mut after = before;
    // At another position of the list, with another parameter.
    switch(&mut after).servers.insert(0, server("s9", origins[2].address));
    let parameter = ("t_high".to_owned(), levada_policy::ParameterValue::Integer(80));
    after.sites[0].servers.policy.parameters.extend([parameter]);
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    for (key, before) in known.iter().enumerate() {
        assert_eq!(server_of(at, &format!("/{key}")).await, *before, "/{key}");
    }
    for key in 100..130 {
        server_of(at, &format!("/{key}")).await;
    }
    assert!(origins[2].total() > 0);
    assert_eq!(metric(&node, "levada_config_reloads_total").await, 1.0);
    assert_eq!(metric(&node, "levada_config_last_reload_success").await, 1.0);
    settled(&node).await;
}

#[tokio::test]
async fn server_that_leaves_a_switch_has_no_series_any_more_and_the_moved_part_is_shown() {
    let origins = [Origin::start().await, Origin::start().await];
    let before = switching("hrw", &[&origins[0], &origins[1]]);
    let (node, file) = world(before.clone()).await;
    let shown = async || {
        let page = admin(&node, "/metrics").await.text();
        let of = |line: &&str| line.starts_with("levada_upstream_healthy{");
        page.lines().filter(of).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(shown().await.len(), 2);
    let mut after = before;
    switch(&mut after).servers.pop();
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    assert_eq!(shown().await, ["levada_upstream_healthy{kind=\"server\",server=\"s0\"} 1"]);
    let moved = metric(&node, "levada_policy_moved_ratio").await;
    assert!((0.45..0.55).contains(&moved), "{moved}");
    settled(&node).await;
}

#[tokio::test]
async fn running_requests_end_where_they_are_and_count_on() {
    let origins = [Origin::start().await, Origin::start().await];
    let gate = Gate::new();
    for origin in &origins {
        origin.on("/held", Reply::ok("held").after(&gate));
    }
    let before = switching("round_robin", &[&origins[0], &origins[1]]);
    let (node, file) = world(before.clone()).await;
    let at = node.addresses.clients[0];
    let ask = || tokio::spawn(async move { get(at, "/held").await });
    let held = [ask(), ask()];
    eventually("each has one", || origins.iter().all(|origin| origin.heads() == 1)).await;
    let mut after = before;
    switch(&mut after).servers.remove(0);
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    let listed = admin_json(&node, "/servers").await;
    assert_eq!(listed[0]["servers"].as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["servers"][0]["outstanding"], 1, "it stays, and what it has");
    assert_eq!(listed[0]["outstanding"], 2);
    gate.open();
    for one in held {
        assert_eq!(within(one).await.unwrap().text(), "held");
    }
    for n in 0..4 {
        assert_eq!(server_of(at, &format!("/{n}")).await, "s1");
    }
    settled(&node).await;
}

#[tokio::test]
async fn settings_that_cannot_be_used_change_nothing() {
    let origins = [Origin::start().await, Origin::start().await];
    let (node, file) = world(switching("lard", &[&origins[0], &origins[1]])).await;
    let at = node.addresses.clients[0];
    let before = server_of(at, "/a").await;
    *file.lock().unwrap() = Err("levada.toml:3:1: error: wrong".to_owned());
    let refused = reload(&node).await;
    assert_eq!(
        (refused.status, refused.text()),
        (422, "levada.toml:3:1: error: wrong\n".to_owned())
    );
    let mut after = switching("lard", &[&origins[1]]);
    after.sites.push(site("b.test", &[origins[0].address]));
    after.sites[1].servers.policy = policy("no such policy");
    *file.lock().unwrap() = Ok(after);
    let refused = reload(&node).await;
    assert!(refused.status == 422 && refused.text().contains("no such policy"), "{refused:?}");
    assert_eq!(server_of(at, "/a").await, before);
    assert_eq!(admin_json(&node, "/servers").await[0]["servers"].as_array().unwrap().len(), 2);
    assert_eq!(metric(&node, "levada_config_last_reload_success").await, 0.0);
    settled(&node).await;
}

#[tokio::test]
async fn drained_servers_stay_drained_and_sites_come_and_go() {
    let origins = [Origin::start().await, Origin::start().await];
    let before = switching("round_robin", &[&origins[0], &origins[1]]);
    let (node, file) = world(before.clone()).await;
    let at = node.addresses.clients[0];
    let fields = [("Content-Type", "application/json"), ("Content-Length", "0")];
    let drain = head_of("POST", "/servers/drain?server=s0", &fields);
    let to = node.addresses.admin.unwrap();
    assert_eq!(Wire::saying(to, drain).await.answer().await.status, 200);
    let mut after = before.clone();
    after.sites.push(site("b.test", &[origins[0].address]));
    *file.lock().unwrap() = Ok(after);
    assert_eq!(reload(&node).await.status, 200);
    for n in 0..4 {
        assert_eq!(server_of(at, &format!("/{n}")).await, "s1");
    }
    assert_eq!(get_with(at, "/x", &[("Host", "b.test")]).await.text(), "/x");
    *file.lock().unwrap() = Ok(before);
    assert_eq!(reload(&node).await.status, 200);
    assert_eq!(get_with(at, "/x", &[("Host", "b.test")]).await.status, 421);
    settled(&node).await;
}

#[tokio::test]
async fn site_may_turn_from_an_origin_to_servers_and_back() {
    let origin = Origin::start().await;
    let plain = single(&[origin.address]);
    let (node, file) = world(plain.clone()).await;
    let at = node.addresses.clients[0];
    assert_eq!(by(&get(at, "/1").await), "-");
    *file.lock().unwrap() = Ok(switching("lard", &[&origin]));
    assert_eq!(reload(&node).await.status, 200);
    assert_eq!(server_of(at, "/2").await, "s0");
    *file.lock().unwrap() = Ok(plain);
    assert_eq!(reload(&node).await.status, 200);
    assert_eq!(by(&get(at, "/3").await), "-");
    settled(&node).await;
}

#[tokio::test]
async fn reload_goes_on_when_its_operator_goes_away() {
    let origin = Origin::start().await;
    let settings = single(&[origin.address]);
    let (finish, file) = mpsc::channel();
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let file = Mutex::new(file);
    let read = move || {
        begun.send(()).unwrap();
        file.lock().unwrap().recv().map_err(|error| error.to_string())
    };
    let reader = SettingsReader(Box::new(read));
    let node = Running::start_with(settings.clone(), Some(reader)).await.unwrap();
    tokio::select! {
        answer = reload(&node) => panic!("{answer:?}"),
        _ = has_begun.recv() => {}
    }
    finish.send(settings).unwrap();
    within(async {
        while metric(&node, "levada_config_reloads_total").await == 0.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    settled(&node).await;
}

#[tokio::test]
async fn node_without_a_file_says_so() {
    let origin = Origin::start().await;
    let node = start(single(&[origin.address])).await;
    assert_eq!(reload(&node).await.status, 422);
}

#[tokio::test]
async fn maintenance_begins_and_ends_with_a_reload() {
    let origin = Origin::start().await;
    origin.otherwise(|_| Reply::cached("x"));
    let settings = |maintenance: bool| {
        let text = format!(
            "[[site]]\nhosts = '{HOST}'\norigin = 'http://{}'\nmaintenance = {maintenance}",
            origin.address
        );
        Settings { sites: sites(&text), ..single(&[origin.address]) }
    };
    let (node, file) = world(settings(false)).await;
    let at = node.addresses.clients[0];
    for maintenance in [false, true, false] {
        *file.lock().unwrap() = Ok(settings(maintenance));
        assert_eq!(reload(&node).await.status, 200);
        let answer = get(at, "/").await;
        let expected = if maintenance { (503, "300") } else { (200, "") };
        assert_eq!((answer.status, &*answer.field("retry-after")), expected);
    }
    assert_eq!(origin.hits("/"), 1, "the cache stays");
    settled(&node).await;
}
