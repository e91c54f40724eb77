//! A web switch: the server chosen for a request, the limit on requests in flight, and failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use levada_config::{
    AccessLog, AdmissionLimits, ClassRule, ClassRules, ClassSettings, HealthCheck, KeyFrom,
    LogFormat, PolicyChoice, Settings, SwitchServer, SwitchSettings,
};
use levada_node::Running;
use levada_types::ServiceClass;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{nodes::*, *};

pub(crate) fn server(name: &str, address: SocketAddr) -> SwitchServer {
    SwitchServer {
        name: name.to_owned(),
        origin: at(&address),
        weight: 1.0,
        max_conns: 1000,
        handoff: None,
        found: None,
    }
}

/// A node that distributes with policy `name` over these servers, called `s0`, `s1`, ..., without
/// storing.
pub(crate) fn switching(name: &str, servers: &[&Origin]) -> Settings {
    let named = |(at, origin): (usize, &&Origin)| server(&format!("s{at}"), origin.address);
    switching_to(name, servers.iter().enumerate().map(named).collect())
}

pub(crate) fn switching_to(name: &str, servers: Vec<SwitchServer>) -> Settings {
    let mut settings = single(&[]);
    let site = &mut settings.sites[0];
    site.handling.cache = false;
    site.servers.policy = policy(name);
    site.servers.switch = Some(SwitchSettings {
        servers,
        key: KeyFrom::Url,
        slow_start: Duration::ZERO,
        admission: AdmissionLimits::default(),
    });
    settings
}

pub(crate) fn switch(settings: &mut Settings) -> &mut SwitchSettings {
    settings.sites[0].servers.switch.as_mut().unwrap()
}

async fn origins(count: usize) -> Vec<Origin> {
    let mut origins = Vec::new();
    for _ in 0..count {
        origins.push(Origin::start().await);
    }
    origins
}

async fn world(
    name: &str,
    tweak: impl FnOnce(&mut Settings),
) -> (Vec<Origin>, Running, SocketAddr) {
    let origins = origins(3).await;
    let mut settings = switching(name, &origins.iter().collect::<Vec<_>>());
    tweak(&mut settings);
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    (origins, node, at)
}

/// The server that answered.
pub(crate) fn by(answer: &Answer) -> String {
    let status = answer.field("proxy-status");
    status.split("next-hop=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("-").into()
}

pub(crate) async fn server_of(at: SocketAddr, target: &str) -> String {
    let answer = get(at, target).await;
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    by(&answer)
}

async fn post(at: SocketAddr, target: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    let length = body.len().to_string();
    let fields = [&[("Content-Length", length.as_str())], fields].concat();
    Wire::saying(at, head_of("POST", target, &fields) + body).await.answer().await
}

#[tokio::test]
async fn lard_remembers_who_served_a_url() {
    for name in ["lard", "lard/r"] {
        let (origins, node, at) = world(name, |_| {}).await;
        let mut first = Vec::new();
        for key in 0..30 {
            first.push(server_of(at, &format!("/{key}")).await);
        }
        for (key, before) in first.iter().enumerate() {
            assert_eq!(server_of(at, &format!("/{key}")).await, *before, "{name} /{key}");
        }
        assert!(origins.iter().all(|origin| origin.total() > 0), "{name} uses them all");
        settled(&node).await;
    }
}

#[tokio::test]
async fn every_policy_of_the_list_switches() {
    for entry in levada_policy::POLICIES.iter().flat_map(|file| file.iter()) {
        if !entry.runs_on_an_edge() {
            continue;
        }
        let (origins, node, at) = world(entry.name, |_| {}).await;
        for key in 0..12 {
            server_of(at, &format!("/{key}")).await;
        }
        let asked: usize = origins.iter().map(Origin::total).sum();
        assert_eq!(asked, 12, "{}", entry.name);
        settled(&node).await;
    }
}

#[tokio::test]
async fn key_is_taken_from_where_the_site_says_or_else_is_the_url() {
    let cases = [
        (KeyFrom::Header("x-user".into()), "/a", ("X-User", "7")),
        (KeyFrom::Cookie("sid".into()), "/b", ("Cookie", "other=1; sid=7")),
        (KeyFrom::Query("user".into()), "/c?x=1&user=7", ("X-None", "1")),
    ];
    for (key, target, field) in cases {
        let (_origins, node, at) = world("hrw", |s| switch(s).key = key.clone()).await;
        let mut with = Vec::new();
        let mut without = Vec::new();
        for n in 0..12 {
            let separator = if target.contains('?') { '&' } else { '?' };
            let url = format!("{target}{separator}n={n}");
            with.push(by(&get_with(at, &url, &[field]).await));
            without.push(by(&get(at, &format!("/plain?n={n}")).await));
        }
        assert!(with.iter().all(|server| *server == with[0]), "{key}: {with:?}");
        assert!(without.iter().any(|server| *server != without[0]), "{key}: {without:?}");
        assert_eq!(metric(&node, "levada_policy_key_fallbacks_total").await, 12.0, "{key}");
        settled(&node).await;
    }
}

#[tokio::test]
async fn host_can_be_the_key() {
    let (_origins, node, at) = world("hrw", |s| {
        s.sites[0].hosts = vec!["*".to_owned()];
        switch(s).key = KeyFrom::Host;
    })
    .await;
    for host in ["a.test", "b.test", "c.test"] {
        let of = async |n| by(&get_with(at, &format!("/{n}"), &[("Host", host)]).await);
        let first = of(0).await;
        for n in 1..6 {
            assert_eq!(of(n).await, first);
        }
    }
    settled(&node).await;
}

#[tokio::test]
async fn beginning_of_the_body_is_the_key_and_the_whole_body_arrives() {
    let key = KeyFrom::Body { bytes: 64, wait: Duration::from_secs(10) };
    let (origins, node, at) = world("hrw", |s| switch(s).key = key).await;
    let long = "x".repeat(300_000);
    let mut servers = BTreeMap::new();
    for prompt in 0..8 {
        for turn in 0..3 {
            let prefix = format!("{prompt:064}");
            let body = format!("{prefix} question {turn} {long}");
            let answer = post(at, "/v1/chat", &[], &body).await;
            assert_eq!(answer.status, 200);
            let before = servers.entry(prompt).or_insert_with(|| by(&answer)).clone();
            assert_eq!(by(&answer), before, "prompt {prompt}");
            let all = origins.iter().flat_map(|origin| origin.asked("/v1/chat"));
            assert!(all.into_iter().any(|asked| asked.body == body.as_bytes()));
        }
    }
    assert!(servers.values().any(|server| *server != servers[&0]), "{servers:?}");
    // Chunked, and shorter than the part that makes the key.
    let head = head_of("POST", "/v1/chat", &[("Transfer-Encoding", "chunked")]);
    let answer = Wire::saying(at, head + "5\r\nhello\r\n0\r\n\r\n").await.answer().await;
    assert_eq!(answer.status, 200);
    let all: Vec<_> = origins.iter().flat_map(|origin| origin.asked("/v1/chat")).collect();
    assert!(all.iter().any(|asked| asked.body == b"hello"));
    settled(&node).await;
}

#[tokio::test]
async fn slow_body_falls_back_to_the_url_and_a_broken_one_reaches_nobody() {
    let key = KeyFrom::Body { bytes: 1000, wait: Duration::from_millis(50) };
    let (origins, node, at) = world("hrw", |s| switch(s).key = key).await;
    // A shorter one would be waited for.
    let head = head_of("POST", "/slow", &[("Content-Length", "20000")]);
    let mut slow = Wire::saying(at, head.clone() + "hello").await;
    eventually("it goes on without the rest", || {
        origins.iter().map(Origin::heads).sum::<usize>() == 1
    })
    .await;
    slow.send("x".repeat(19_995)).await;
    assert_eq!(slow.answer().await.status, 200);
    let body = &origins.iter().flat_map(|o| o.asked("/slow")).next().unwrap().body;
    assert!(body.starts_with(b"hellox") && body.len() == 20_000);
    settled(&node).await;
    drop(Wire::saying(at, head + "hel").await);
    settled(&node).await;
    assert!(metric(&node, "levada_policy_key_fallbacks_total").await >= 1.0);
}

#[tokio::test]
async fn lard_admits_no_more_than_its_s_and_the_rest_waits_in_order() {
    let origins = origins(2).await;
    let gate = Gate::new();
    let mut settings = switching("lard", &origins.iter().collect::<Vec<_>>());
    let set = |name: &str, value| (name.to_owned(), levada_policy::ParameterValue::Integer(value));
    settings.sites[0].servers.policy.parameters =
        BTreeMap::from([set("t_low", 2), set("t_high", 3)]);
    switch(&mut settings).admission = AdmissionLimits { queue: 2, ..AdmissionLimits::default() };
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    for origin in &origins {
        origin.on("/held", Reply::ok("held").after(&gate));
    }
    // S = (2 - 1) x 3 + 2 - 1.
    let ask = |n: usize| tokio::spawn(async move { get(at, &format!("/held?{n}")).await });
    let held: Vec<_> = (0..4).map(ask).collect();
    eventually("S are at the servers", || node.counts().switched == 4).await;
    let mut waiting = vec![ask(4)];
    eventually("one waits", || node.counts().switch_waiting == 1).await;
    waiting.push(ask(5));
    eventually("two wait", || node.counts().switch_waiting == 2).await;
    assert_eq!(origins.iter().map(Origin::heads).sum::<usize>(), 4);
    let refused = get(at, "/held?6").await;
    assert_eq!((refused.status, refused.field("retry-after")), (503, "1".to_owned()));
    gate.open();
    for one in held.into_iter().chain(waiting) {
        assert_eq!(within(one).await.unwrap().status, 200);
    }
    settled(&node).await;
}

#[tokio::test]
async fn waiting_ends_in_time_and_when_the_client_leaves() {
    let (origins, node, at) = world("round_robin", |s| {
        switch(s).admission =
            AdmissionLimits { at_once: Some(1), queue: 5, wait: Duration::from_millis(100) };
    })
    .await;
    let gate = Gate::new();
    for origin in &origins {
        origin.on("/held", Reply::ok("held").after(&gate));
    }
    let mut held = Wire::saying(at, head_of("GET", "/held", &[])).await;
    eventually("it is there", || node.counts().switched == 1).await;
    let late = get(at, "/late").await;
    assert_eq!((late.status, late.field("retry-after")), (503, "1".to_owned()));
    let leaves = Wire::saying(at, head_of("GET", "/left", &[])).await;
    drop(leaves);
    gate.open();
    assert_eq!(held.answer().await.text(), "held");
    settled(&node).await;
}

#[tokio::test]
async fn short_body_is_waited_for_before_admission() {
    let (_origins, node, at) = world("round_robin", |s| {
        switch(s).admission.at_once = Some(1);
    })
    .await;
    let slow = head_of("POST", "/slow", &[("Content-Length", "2")]) + "x";
    let mut slow = Wire::saying(at, slow).await;
    eventually("it is here", || node.counts().in_service == 1).await;
    assert_eq!(get(at, "/a").await.status, 200);
    slow.send("y").await;
    assert_eq!(slow.answer().await.status, 200);
    settled(&node).await;
}

#[tokio::test]
async fn uploads_under_way_leave_half_of_the_places_to_others() {
    let (_origins, node, at) = world("round_robin", |s| {
        switch(s).admission.at_once = Some(2);
    })
    .await;
    let head = head_of("POST", "/slow", &[("Transfer-Encoding", "chunked")]);
    let mut uploads = Vec::new();
    for _ in 0..5 {
        uploads.push(Wire::saying(at, head.clone()).await);
    }
    eventually("the others wait", || node.counts().switch_waiting == 4).await;
    assert_eq!(get(at, "/a").await.status, 200);
    for mut upload in uploads {
        upload.send("0\r\n\r\n").await;
        assert_eq!(upload.answer().await.status, 200);
    }
    settled(&node).await;
}

#[tokio::test]
async fn full_server_is_passed_over() {
    let (origins, node, at) = world("hrw", |s| {
        switch(s).servers.iter_mut().for_each(|server| server.max_conns = 2);
    })
    .await;
    let gate = Gate::new();
    for origin in &origins {
        origin.on("/hot", Reply::ok("hot").after(&gate));
    }
    let hot: Vec<_> = (0..6).map(|_| tokio::spawn(async move { get(at, "/hot").await })).collect();
    eventually("each has two", || origins.iter().all(|origin| origin.heads() == 2)).await;
    let next = tokio::spawn(async move { get(at, "/hot").await });
    eventually("the seventh waits", || node.counts().switch_waiting == 1).await;
    gate.open();
    for one in hot.into_iter().chain([next]) {
        assert_eq!(within(one).await.unwrap().status, 200);
    }
    settled(&node).await;
}

#[tokio::test]
async fn dead_server_costs_no_request_that_was_not_begun() {
    let (mut origins, node, at) = world("round_robin", |_| {}).await;
    origins.remove(1);
    for n in 0..9 {
        assert_eq!(get(at, &format!("/{n}")).await.status, 200);
        // No byte of it was sent: even a POST may be retried at another server.
        assert_eq!(post(at, "/post", &[], "hello").await.status, 200);
    }
    assert_eq!(origins.iter().map(|origin| origin.hits("/post")).sum::<usize>(), 9);
    settled(&node).await;
}

#[tokio::test]
async fn server_that_dies_after_the_pick_is_a_retry_for_get_and_a_502_for_post() {
    let (origins, node, at) = world("round_robin", |_| {}).await;
    origins[0].on("/a", Reply::hang_up());
    for _ in 0..6 {
        assert_eq!(get(at, "/a").await.status, 200);
    }
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(post(at, "/a", &[], "hello").await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 502, 502]);
    settled(&node).await;
}

#[tokio::test]
async fn server_that_never_answers_is_a_504() {
    let (origins, node, at) = world("round_robin", |s| {
        s.limits.response_timeout = Duration::from_millis(100);
        s.limits.tries = 3;
    })
    .await;
    let never = Gate::new();
    for origin in &origins {
        origin.on("/never", Reply::ok("").after(&never));
    }
    let answer = get(at, "/never").await;
    assert_eq!((answer.status, answer.field("retry-after")), (504, "5".to_owned()));
    assert!(answer.field("proxy-status").contains("error=http_response_timeout"), "{answer:?}");
    assert_eq!(origins.iter().map(Origin::heads).sum::<usize>(), 3);
    settled(&node).await;
}

#[tokio::test]
async fn targets_of_a_failed_server_move_and_do_not_come_back_by_themselves() {
    let origins = origins(2).await;
    let mut settings = switching("lard", &origins.iter().collect::<Vec<_>>());
    settings.sites[0].servers.health = HealthCheck { eject_after: 1, ..watched() };
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let mut before = Vec::new();
    for key in 0..10 {
        before.push(server_of(at, &format!("/{key}")).await);
    }
    assert!(before.contains(&"s0".to_owned()) && before.contains(&"s1".to_owned()));
    let mut origins = origins.into_iter();
    let (dead, alive) = (origins.next().unwrap(), origins.next().unwrap());
    let address = dead.address;
    drop(dead);
    let states = async |state: &str| {
        let servers = admin_json(&node, "/servers").await;
        servers[0]["servers"][0]["state"].as_str() == Some(state)
    };
    while !states("down").await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let total = admin_json(&node, "/explain?url=http://a.test/0").await;
    assert_eq!(total["candidates"][0]["node"], "s1", "{total}");
    let revived = Origin::at(address).await;
    while !states("up").await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // There was no request meanwhile, and yet the keys are unassigned.
    for (key, before) in before.iter().enumerate() {
        let known = admin_json(&node, &format!("/explain?url=http://a.test/{key}")).await;
        let expected = usize::from(before == "s1");
        assert_eq!(known["set"].as_array().unwrap().len(), expected, "/{key}: {known}");
    }
    drop((revived, alive));
    settled(&node).await;
}

#[tokio::test]
async fn drained_server_gets_nothing_new_and_ends_what_it_has() {
    let (origins, node, at) = world("round_robin", |_| {}).await;
    let gate = Gate::new();
    for origin in &origins {
        origin.on("/held", Reply::ok("held").after(&gate));
    }
    let held: Vec<_> =
        (0..3).map(|_| tokio::spawn(async move { get(at, "/held").await })).collect();
    eventually("each has one", || origins.iter().all(|origin| origin.heads() == 1)).await;
    let told = async |target: &str, kind: &str| {
        let fields = [("Content-Type", kind), ("Content-Length", "0")];
        let to = node.addresses.admin.unwrap();
        Wire::saying(to, head_of("POST", target, &fields)).await.answer().await
    };
    assert_eq!(told("/servers/drain?server=s1", "text/plain").await.status, 415);
    let unknown = told("/servers/drain?server=s9", "application/json").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("s0, s1, s2"), "{}", unknown.text());
    assert_eq!(told("/servers/drain?server=s1", "application/json").await.status, 200);
    for n in 0..6 {
        assert_ne!(server_of(at, &format!("/{n}")).await, "s1");
    }
    let listed = admin_json(&node, "/servers").await;
    assert_eq!(listed[0]["servers"][1]["state"], "drained");
    assert_eq!(listed[0]["servers"][1]["outstanding"], 1);
    gate.open();
    for one in held {
        assert_eq!(within(one).await.unwrap().text(), "held");
    }
    assert_eq!(told("/servers/resume?server=s1", "application/json").await.status, 200);
    let mut servers = Vec::new();
    for n in 0..3 {
        servers.push(server_of(at, &format!("/{n}")).await);
    }
    assert!(servers.contains(&"s1".to_owned()), "{servers:?}");
    for name in ["s0", "s1", "s2"] {
        told(&format!("/servers/drain?server={name}"), "application/json").await;
    }
    assert_eq!(get(at, "/x").await.status, 503, "all are drained");
    settled(&node).await;
}

#[tokio::test]
async fn cache_stands_before_the_servers() {
    let (origins, node, at) = world("lard/r", |s| s.sites[0].handling.cache = true).await;
    for _ in 0..3 {
        assert_eq!(get(at, "/a").await.text(), "/a");
        settled(&node).await;
    }
    assert_eq!(origins.iter().map(Origin::total).sum::<usize>(), 1);
    assert!(get(at, "/a").await.is_hit());
    settled(&node).await;
}

#[tokio::test]
async fn client_that_leaves_leaves_no_count() {
    let (origins, node, at) = world("lard", |_| {}).await;
    let gate = Gate::new();
    for origin in &origins {
        origin.on("/held", Reply::ok("held").after(&gate));
        let rest = Piece::Bytes(b"cd".to_vec());
        let pieces = vec![Piece::Bytes(b"ab".to_vec()), Piece::Gate(gate.clone()), rest];
        origin.on("/half", Reply::ok("").with("content-length", "4").pieces(pieces));
    }
    let before = Wire::saying(at, head_of("GET", "/held", &[])).await;
    let mut during = Wire::saying(at, head_of("GET", "/half", &[])).await;
    assert_eq!(during.take(2).await.len(), 2);
    eventually("both are counted", || node.counts().switched == 2).await;
    drop((before, during));
    gate.open();
    settled(&node).await;
}

#[tokio::test]
async fn answers_of_a_server_are_told_apart_by_name_and_reason() {
    let (_origins, node, at) = world("lard", |_| {}).await;
    let status = get(at, "/a").await.field("proxy-status");
    assert!(status.starts_with("n0; next-hop=\"s"), "{status}");
    assert!(status.contains("details=\"policy=lard reason=least set=1\""), "{status}");
    let explained = admin_json(&node, "/explain?url=http://a.test/a").await;
    assert_eq!(
        (explained["reason"].as_str(), explained["key_from"].as_str()),
        (Some("hash"), Some("url"))
    );
    settled(&node).await;
}

#[tokio::test]
async fn weights_count() {
    let (origins, node, at) = world("weighted_round_robin", |s| {
        switch(s).servers[0].weight = 2.0;
    })
    .await;
    for n in 0..40 {
        server_of(at, &format!("/{n}")).await;
    }
    let asked: Vec<_> = origins.iter().map(Origin::total).collect();
    assert_eq!(asked, [20, 10, 10]);
    settled(&node).await;
}

#[tokio::test]
async fn lard_without_a_parameter_admits_what_its_servers_do() {
    let choice = PolicyChoice { name: "lard".to_owned(), ..PolicyChoice::default() };
    let (_origins, node, _) = world("fdr", |s| s.sites[0].servers.policy = choice).await;
    assert_eq!(metric(&node, "levada_server_requests_limit").await, 3000.0);
}

#[tokio::test]
async fn each_class_goes_round_evenly_under_cap_in_whatever_order_it_comes() {
    let rule = |prefix: &str, class| ClassRule {
        class: Some(class),
        prefix: Some(prefix.to_owned()),
        ..ClassRule::default()
    };
    let (origins, node, at) = world("cap", |s| {
        s.sites[0].classes = ClassSettings {
            rules: ClassRules(vec![
                rule("/cpu/", ServiceClass::CpuBound),
                rule("/db/", ServiceClass::DiskBound),
                rule("/both/", ServiceClass::DiskAndCpuBound),
            ]),
            learn: false,
        };
    })
    .await;
    let classes = ["cpu", "db", "both", "pages"];
    let asked = |origin: &Origin, class: &str, count: usize| {
        (0..count).map(|n| origin.hits(&format!("/{class}/{n}"))).sum::<usize>()
    };
    // Runs of one class, then another: plain round robin over all would distribute them badly.
    let mut sent = [0; 4];
    for (step, class) in
        [0, 1, 1, 2, 0, 3, 3, 3, 2, 1, 0, 0].into_iter().cycle().take(72).enumerate()
    {
        let class = if step % 7 == 0 { 3 } else { class };
        assert_eq!(get(at, &format!("/{}/{}", classes[class], sent[class])).await.status, 200);
        sent[class] += 1;
        for (name, count) in classes.iter().zip(sent) {
            let each: Vec<_> = origins.iter().map(|origin| asked(origin, name, count)).collect();
            let (most, least) = (each.iter().max().unwrap(), each.iter().min().unwrap());
            assert!(most - least <= 1, "{name} after {step}: {each:?}");
        }
    }
    settled(&node).await;
}

#[tokio::test]
async fn conversation_stays_with_its_worker_until_that_one_is_busy() {
    let (origins, node, at) = world("lard/r", |s| {
        let set =
            |name: &str, value| (name.to_owned(), levada_policy::ParameterValue::Integer(value));
        s.sites[0].servers.policy.parameters = BTreeMap::from([set("t_low", 1), set("t_high", 2)]);
        switch(s).key = KeyFrom::Body { bytes: 64, wait: Duration::from_secs(10) };
        switch(s).admission.at_once = Some(100);
    })
    .await;
    let gate = Gate::new();
    for origin in &origins {
        origin.on("/held", Reply::ok("held").after(&gate));
    }
    let ask = async |target: &str, prompt: usize, turn: usize| {
        let answer = post(at, target, &[], &format!("{prompt:064} and then {turn}")).await;
        assert_eq!(answer.status, 200);
        by(&answer)
    };
    let mut workers = Vec::new();
    for prompt in 0..12 {
        let worker = ask("/v1/chat", prompt, 0).await;
        for turn in 1..4 {
            assert_eq!(ask("/v1/chat", prompt, turn).await, worker, "prompt {prompt}");
        }
        workers.push(worker);
    }
    assert!(BTreeSet::from_iter(&workers).len() > 1, "{workers:?}");
    // Three is T_high + 1: the fourth request goes to a server that has fewer than T_low.
    let ask = &ask;
    let hold = async |turn: usize| ask("/held", 0, turn).await;
    let busy = async {
        eventually("four are there", || node.counts().switched == 4).await;
        let second = ask("/v1/chat", 0, 9).await;
        assert_ne!(second, workers[0], "the prompt has two workers, and one of them is busy");
        gate.open();
        second
    };
    let then = async |count: usize, turn: usize| {
        eventually("those before are there", || node.counts().switched == count).await;
        hold(turn).await
    };
    let (first, second, third, fourth, other) =
        tokio::join!(hold(0), then(1, 1), then(2, 2), then(3, 3), busy);
    assert_eq!([first, second, third], [0; 3].map(|_| workers[0].clone()));
    assert_eq!(fourth, other);
    settled(&node).await;
}

#[tokio::test]
async fn server_is_named_for_what_is_stored_and_none_for_what_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let (origins, node, at) = world("round_robin", |s| {
        s.sites[0].handling.cache = true;
        s.access_log = Some(AccessLog::to_file(path.clone(), LogFormat::json()));
    })
    .await;
    for origin in &origins {
        origin.on("/a", Reply::cached("a"));
    }
    let fetched = server_of(at, "/a").await;
    assert!(["s0", "s1", "s2"].contains(&&*fetched), "{fetched}");
    assert_eq!(server_of(at, "/a").await, "-", "nobody was asked");
    settled(&node).await;
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("two lines", || lines().lines().count() == 2).await;
    let said: Vec<serde_json::Value> =
        lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said[0]["upstream_addr"], fetched, "{}", said[0]);
    assert_eq!(said[0]["upstream_cache_status"], "miss");
    assert_eq!(said[1]["upstream_addr"], serde_json::Value::Null, "{}", said[1]);
    assert_eq!(said[1]["upstream_cache_status"], "hit");
}

/// A server that is a round trip of 60 ms away.
async fn far(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                let mut asked = [0; 4096];
                while let Ok(length @ 1..) = caller.read(&mut asked).await {
                    tokio::time::sleep(Duration::from_millis(60)).await;
                    server.write_all(&asked[..length]).await.unwrap();
                    let mut answer = [0; 4096];
                    let length = server.read(&mut answer).await.unwrap();
                    caller.write_all(&answer[..length]).await.unwrap();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn near_server_is_preferred_by_measured_distances() {
    let origins = origins(2).await;
    let far = far(origins[1].address).await;
    let servers = vec![server("near", origins[0].address), server("far", far)];
    let mut settings = switching_to("nplr-chash", servers);
    let health = HealthCheck { path: Some("/healthz".to_owned()), ..watched() };
    settings.sites[0].servers.health = health;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let (mut all, mut asked) = (BTreeSet::new(), 0);
        for n in 0..40 {
            let answer = get(at, &format!("/{}", n % 20)).await;
            // An object that both servers are responsible for.
            if answer.field("proxy-status").contains("set=2") {
                all.insert(by(&answer));
                asked += 1;
            }
        }
        assert!(asked >= 8, "{asked} of 40");
        if all == BTreeSet::from(["near".to_owned()]) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{all:?}");
    }
}
