//! Requests that fill access logs which are never read.

use std::time::Duration;

use http::{HeaderValue, header::USER_AGENT};
use tokio::task::JoinSet;

use super::{client, cluster::Cluster, load::HOST_NAME, stage::Stage};

/// Requests small objects of all nodes, and states a long name of its program.
pub(super) async fn fill(cluster: &mut Cluster<'_>, stage: &Stage<'_>) -> anyhow::Result<()> {
    let name = HeaderValue::try_from("x".repeat(NAME))?;
    let mut tasks = JoinSet::new();
    for number in 0.. {
        if !stage.next(WRITE_INTERVAL).await {
            break;
        }
        while tasks.try_join_next().is_some() {}
        let target = stage.objects.get(number % SMALL).map(|object| object.target());
        let mut fields = client::fields(HOST_NAME, "192.0.2.99");
        fields.insert(USER_AGENT, name.clone());
        let doors = cluster.doors.clone();
        tasks.spawn_local(async move {
            let (door, target) = (&doors[number % doors.len()], target.unwrap_or_default());
            // The load judges whether requests are answered.
            let Ok((connection, response)) = client::send(door, &target, &fields).await else {
                return;
            };
            client::reader().receive(response, |_| {}).await;
            door.idle.keep(connection).await;
        });
    }
    Ok(())
}

/// The time between two requests with a long line: they overrun what is written.
const WRITE_INTERVAL: Duration = Duration::from_millis(5);
const NAME: usize = 4_000;
/// Objects that are requested.
const SMALL: usize = 20;
