//! Files to start from: a configuration for each node, and a scenario for `levada sim run`.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use levada_sim::Scenario;
use levada_types::ByteSize;

use crate::evaluate::Candidate;

/// The file with the scenario's network, next to that of the scenario.
pub(crate) const NETWORK: &str = "network.json";

/// Writes the files into a directory, which is created.
pub(crate) fn write(
    directory: &Path,
    candidate: &Candidate,
    scenario: &Scenario,
    network: &str,
) -> anyhow::Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let put = |name: String, text: String| {
        let file = directory.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    for node in 1..=candidate.nodes {
        let own = directory.join(format!("node-{node}"));
        fs::create_dir_all(&own).with_context(|| format!("cannot create {}", own.display()))?;
        put(format!("node-{node}/levada.toml"), node_configuration(candidate, node))?;
    }
    put(NETWORK.to_owned(), network.to_owned())?;
    put("scenario.toml".to_owned(), toml::to_string(scenario)?)
}

/// The configuration of one node.
pub fn node_configuration(candidate: &Candidate, node: usize) -> String {
    let mut out = format!(
        "# From `levada plan`. Replace the addresses, the host and the origin.\n\
         name = \"node-{node}\"\n\n[[listen]]\naddress = \"0.0.0.0:8080\"\n\n"
    );
    if candidate.nodes > 1 {
        out.push_str(
            "[peering]\nlisten = \"0.0.0.0:7070\"\n# The secret authenticates peers: the same on all nodes.\n\
             secret = \"${LEVADA_SECRET}\"\n\n",
        );
        for peer in 1..=candidate.nodes {
            // Writing to a string does not fail.
            let _ = write!(
                out,
                "[[peer]]\nname = \"node-{peer}\"\naddress = \"10.0.{}.{}:7070\"\n\n",
                peer / 250,
                peer % 250 + 1
            );
        }
    }
    let disk = match candidate.disk {
        0 => String::new(),
        bytes => format!(
            "\n[cache.disk]\npath = \"/var/cache/levada\"\nsize = \"{}\"\n",
            ByteSize(bytes)
        ),
    };
    let _ = write!(
        out,
        "[cache]\nmemory = \"{}\"\neviction = \"{}\"\n{disk}\n[policy]\nname = \"{}\"\n\n\
         [[site]]\nhosts = [\"www.example.com\"]\norigin = \"http://127.0.0.1:9000\"\n",
        ByteSize(candidate.memory),
        candidate.eviction,
        candidate.policy
    );
    out
}
