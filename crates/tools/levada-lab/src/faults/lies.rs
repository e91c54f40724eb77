//! Requests for objects of an origin that lies. They may fail; their bytes may not be wrong.

use std::time::Duration;

use http::{Response, StatusCode};
use hyper::body::Incoming;
use levada_client::command::content::Verifier;
use levada_testbed::cluster::{
    client::BodyEnd,
    problems::{Problem, Verdict},
};
use tokio::task::JoinSet;

use super::{
    client,
    cluster::Cluster,
    liar::{self, LIAR_NAME, LIES, Lie},
    stage::Stage,
};

/// Requests every lie in turn, of all nodes.
pub(super) async fn request_all(
    cluster: &mut Cluster<'_>,
    stage: &Stage<'_>,
) -> anyhow::Result<()> {
    let fields = client::fields(LIAR_NAME, "192.0.2.99");
    let mut tasks = JoinSet::new();
    for number in 0.. {
        if !stage.next(LIE_INTERVAL).await {
            break;
        }
        while let Some(ended) = tasks.try_join_next() {
            stage.tally.borrow_mut().problems.note(ended?);
        }
        let (lie, name) = LIES[number % LIES.len()];
        // Some objects are requested again, some at the same time as at another node.
        let target = format!("/{name}/{}", number / LIES.len() / 2);
        let (doors, fields) = (cluster.doors.clone(), fields.clone());
        tasks.spawn_local(async move {
            let door = &doors[number % (doors.len() - 1)];
            match client::send(door, &target, &fields).await {
                Ok((_connection, response)) => judge(lie, &target, response).await,
                Err(_) => Ok(()),
            }
        });
    }
    Ok(())
}

/// Whether a response is one that such an origin allows.
async fn judge(lie: Lie, target: &str, response: Response<Incoming>) -> Verdict {
    if response.status() != StatusCode::OK {
        return Ok(());
    }
    let mut verifier = Verifier::new(liar::key(target));
    let end = client::reader().receive(response, |piece| verifier.take(piece)).await;
    let whole = verifier.bytes() == liar::SIZE as u64 && lie == Lie::Longer;
    match end {
        _ if !verifier.is_right() => Err((Problem::Wrong, format!("other bytes in {target}"))),
        BodyEnd::Whole if !whole => {
            let reason = format!("{} bytes of {target} as a whole body", verifier.bytes());
            Err((Problem::Wrong, reason))
        }
        _ => Ok(()),
    }
}

/// The time between two lies: hundreds in a row of the table.
const LIE_INTERVAL: Duration = Duration::from_millis(50);
