//! The configuration of a node, as an operator would write it.

use std::{fmt::Write as _, net::SocketAddr};

use levada_client::command::node::{Addresses, configuration_head};
use levada_config::PolicyChoice;
use levada_policy::ParameterValue;

use super::setup::{Setup, node_name};

/// Clients request objects of this site. The name is reserved for tests (RFC 6761).
pub(super) const HOST_NAME: &str = "levada.test";

/// Requests that a node holds at once. It is small, so that load reaches the policies' busy
/// thresholds, which are derived from it, before a queue has grown long.
pub(super) const CAPACITY: u32 = 64;

/// The configuration of node `index`.
pub(super) fn text(
    (setup, policy): (&Setup, &PolicyChoice),
    origin: SocketAddr,
    secret: &str,
    index: usize,
    all: &[Addresses],
) -> String {
    let own = all[index];
    let mut text = format!(
        r#"# A node of `levada demo`.
seed = {seed}
{head}
[peering]
listen = "{peers}"
secret = "{secret}"
slow_start = "{slow_start}ms"

[peering.health_check]
interval = "250ms"
timeout = "1s"
rise = 2
fall = 2
eject_after = 3
eject_for = "1s"

[cache]
memory = "{cache}"

# The load comes from one address and states whose request each is: nodes share their capacity among clients.
[[trusted]]
addresses = "127.0.0.1"

[limits]
capacity = {CAPACITY}
# The link that the demo emulates.
serve_rate = "{link}B/s"

[policy]
name = "{policy}"
{parameters}
[[site]]
hosts = "*"
origin = "http://{origin}"
# Responses say why their node was chosen.
debug = true
"#,
        // Every redirector has its own seed, as with seeds from the system.
        seed = u64::from(setup.seed) * 1_000 + index as u64,
        head = configuration_head(&node_name(index), own.clients, own.admin),
        peers = own.peers,
        slow_start = setup.slow_start().as_millis(),
        cache = setup.cache,
        link = setup.link,
        policy = policy.name,
        parameters = parameters(policy),
    );
    for (index, node) in all.iter().enumerate() {
        let (name, address) = (node_name(index), node.peers);
        let _ = write!(text, "\n[[peer]]\nname = \"{name}\"\naddress = \"{address}\"\n");
    }
    text
}

fn parameters(policy: &PolicyChoice) -> String {
    let line = |(key, value): (&String, &ParameterValue)| match value {
        ParameterValue::Number(number) => format!("{key} = {number:?}\n"),
        ParameterValue::Text(text) => {
            format!("{key} = {}\n", toml::Value::String(text.clone()))
        }
        other => format!("{key} = {other}\n"),
    };
    policy.parameters.iter().map(line).collect()
}
