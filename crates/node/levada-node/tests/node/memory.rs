//! Memory stays within the configured limits for any requests.

use tokio::task::JoinSet;

use crate::support::{nodes::*, *};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_distinct_urls_stays_within_bounds() {
    /// More objects than the memory has room for.
    const URLS: usize = 10_000;
    const MEMORY: u64 = 2 << 20;
    const CONNECTIONS: usize = 8;
    const DEPTH: usize = 50;
    let origin = Origin::start().await;
    origin.forget();
    let mut settings = single(&[origin.address]);
    settings.cache.memory = MEMORY;
    let node = start(settings).await;
    let at = node.addresses.clients[0];
    let mut load = JoinSet::new();
    for connection in 0..CONNECTIONS {
        load.spawn(async move {
            let mut wire = Wire::to(at).await;
            let mut urls = (connection..URLS).step_by(CONNECTIONS).peekable();
            while urls.peek().is_some() {
                let some: Vec<usize> = urls.by_ref().take(DEPTH).collect();
                let ask = |n: &usize| head_of("GET", &format!("/{n}"), &[]);
                wire.send(some.iter().map(ask).collect::<String>()).await;
                for n in some {
                    assert_eq!(wire.answer().await.text(), format!("/{n}"));
                }
            }
        });
    }
    let mut most = 0.0f64;
    let mut seen = 0;
    while let Some(done) = load.join_next().await {
        done.unwrap();
        seen += 1;
        most = most.max(metric(&node, "levada_cache_bytes").await);
    }
    assert_eq!(seen, CONNECTIONS);
    assert!(most > 0.0 && most <= MEMORY as f64, "{most} bytes");
    let objects = metric(&node, "levada_cache_objects").await;
    assert!(objects < 6_000.0, "{objects}");
    settled(&node).await;
    // The page of metrics is not longer after the flood than before.
    assert!(admin(&node, "/metrics").await.body.len() < 64 << 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_does_not_grow_the_tables_of_a_policy() {
    let origin = Origin::start().await;
    origin.forget();
    let cluster = Cluster::start(2, origin.address, |settings| {
        settings.cache.memory = 1 << 20;
        settings.sites[0].servers.policy = policy("lard");
        let limit = levada_policy::ParameterValue::Integer(1000);
        settings.sites[0].servers.policy.parameters.insert("targets".to_owned(), limit);
    })
    .await;
    let mut wire = Wire::to(cluster.client(0)).await;
    for batch in 0..100 {
        let ask = |n| head_of("GET", &format!("/{batch}/{n}"), &[]);
        wire.send((0..50).map(ask).collect::<String>()).await;
        for _ in 0..50 {
            assert_eq!(wire.answer().await.status, 200);
        }
    }
    let tracked = metric(cluster.node(0), "levada_policy_tracked_objects").await;
    assert!((1.0..=1100.0).contains(&tracked), "{tracked}");
    for node in 0..2 {
        assert!(metric(cluster.node(node), "levada_cache_bytes").await <= f64::from(1 << 20));
    }
    cluster.settled().await;
}
