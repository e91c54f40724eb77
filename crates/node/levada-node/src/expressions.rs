//! Tells operators of expressions that fail: a counter, and now and then a line in the log with the place.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use levada_edge::node::Node;

/// How often failures are counted, and so many times later logged.
const TICK: Duration = Duration::from_secs(1);
const LOGGED: u32 = 10;

/// Counts failures until the node stops.
pub(crate) async fn watch(node: Arc<Node>) {
    let mut ticks = node.clock.ticks(TICK);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for tick in 0_u32.. {
        node.memory.tick(&mut ticks).await;
        let sites = node.sites.load_full();
        let all = sites.iter().filter(|site| site.route.is_none());
        for expression in all.flat_map(|site| site.settings.expressions()) {
            let failures = expression.take_failures();
            if failures > 0 {
                node.metrics.expression_failures.inc_by(failures);
                *found.entry(expression.place().to_owned()).or_default() += failures;
            }
        }
        if tick % LOGGED == 0 {
            for (place, failures) in std::mem::take(&mut found) {
                tracing::warn!(%place, failures, "expression failed: `levada explain URL` says why");
            }
        }
    }
}
