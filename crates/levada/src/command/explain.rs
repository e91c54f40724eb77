//! `levada explain URL`: the node that would serve it, and the reason.

use std::{
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use serde_json::Value as Json;

use levada_client::command::{CommandStatus, admin_client, block_on, output};
use levada_control::status::ExplainedRequest;
use levada_types::AdminAddress;

use super::{
    admin::{ANSWER_TIMEOUT, USUAL_ADMIN},
    configuration, default_config,
};

/// Shows which node would serve a URL, and why.
///
/// With a configuration, it shows the choice of a node that has just started, with every node up and
/// idle. With a running node, it shows the node's choice now. Neither changes anything. Without --config and
/// --admin it asks the node of levada.toml or /etc/levada/levada.toml, or the one at 127.0.0.1:9180.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The URL, with scheme and host, as clients request it.
    url: String,
    /// The configuration file of a node.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin address of a running node: an IP address and a port, or unix: and a path.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    admin: Option<AdminAddress>,
    /// The source of the site's key, if it is not the URL: the value of the header or the cookie,
    /// or the body.
    #[arg(long, value_name = "VALUE")]
    key: Option<String>,
    /// A header field of the request, by which the site's routes may be matched.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The client's address, by which the site's routes may be matched.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    client: IpAddr,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Explains.
///
/// # Errors
/// If the configuration cannot be used, the node does not answer, or no site has the URL's host.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<CommandStatus> {
    let explanation = match (&args.admin, &args.config) {
        (Some(admin), _) => of_node(admin, args).context("--admin")?,
        (None, Some(file)) => of_configuration(file, args)?,
        (None, None) => of_some_node(args)?,
    };
    output::print(args.json, &explanation, |out| print(out, &explanation))?;
    Ok(CommandStatus::of(!explanation["node"].is_null()))
}

/// The explanation of the node that runs here: where its configuration usually is, or at the usual address.
fn of_some_node(args: &ExplainArgs) -> anyhow::Result<Json> {
    let mut tried = Vec::new();
    for file in default_config::PLACES {
        match configuration::load(Path::new(file)).map(|checked| checked.admin) {
            Ok(Some(admin)) => match of_node(&admin, args) {
                Ok(explanation) => {
                    eprintln!("levada: the node at {admin}, by {file}");
                    return Ok(explanation);
                }
                Err(error) => tried.push(format!("{file}: {error:#}")),
            },
            Ok(None) => tried.push(format!("{file} has no admin address: set `listen` in [admin]")),
            Err(error) => tried.push(format!("{file}: {}", error.root_cause())),
        }
    }
    match of_node(&USUAL_ADMIN.into(), args) {
        Ok(explanation) => {
            eprintln!("levada: the node at {USUAL_ADMIN}");
            Ok(explanation)
        }
        Err(error) => {
            tried.push(format!("{error:#}"));
            anyhow::bail!(
                "no running node explains it; tried:\n  {}\nname one with --admin ADDRESS, or explain \
                 a configuration with -c FILE",
                tried.join("\n  ")
            )
        }
    }
}

fn of_node(admin: &AdminAddress, args: &ExplainArgs) -> anyhow::Result<Json> {
    let mut target = admin_client::explain_target(&args.url);
    if let Some(key) = &args.key {
        target += "&key=";
        target += &admin_client::escaped(key);
    }
    for header in &args.header {
        target += "&header=";
        target += &admin_client::escaped(header);
    }
    target += &format!("&client={}", admin_client::escaped(&args.client.to_string()));
    let body = block_on(admin_client::get(admin, &target, ANSWER_TIMEOUT))??;
    serde_json::from_slice(&body).with_context(|| format!("{admin} is no node's admin address"))
}

fn of_configuration(file: &Path, args: &ExplainArgs) -> anyhow::Result<Json> {
    let settings = configuration::usable(file)?;
    let mut asked = ExplainedRequest::new(&args.url);
    (asked.key, asked.client) = (args.key.clone(), args.client);
    if let Some(wrong) = args.header.iter().find(|line| !asked.add_header(line)) {
        anyhow::bail!("--header {wrong:?}: write it as in `Accept-Language: en`");
    }
    Ok(serde_json::to_value(levada_node::explain(&settings, &asked)?)?)
}

fn print(out: &mut impl Write, explanation: &Json) -> io::Result<()> {
    let text = |key: &str| word(&explanation[key]);
    writeln!(out, "url      {}", text("url"))?;
    match explanation["key_from"].as_str() {
        None | Some("url") => writeln!(out, "key      {}", text("key"))?,
        Some(from) => writeln!(out, "key      {} (from {from})", text("key"))?,
    }
    route(out, &explanation["route"])?;
    if let Some(file) = explanation["file"].as_str() {
        writeln!(out, "file     {file}")?;
    }
    servers(out, explanation["servers"].as_array().map_or(&[][..], Vec::as_slice))?;
    expressions(out, &explanation["expressions"])?;
    for rule in explanation["access"].as_array().into_iter().flatten() {
        writeln!(out, "access   {}", word(rule))?;
    }
    if let Some(class) = explanation["class"].as_str() {
        writeln!(out, "class    {class}")?;
    }
    if let Some(size) = explanation["size"].as_u64() {
        writeln!(out, "size     {size} bytes")?;
    }
    writeln!(out, "policy   {}, decided by {}", text("policy"), text("redirector"))?;
    match explanation["node"].as_str() {
        Some(node) => writeln!(out, "node     {node} (by {})", text("reason"))?,
        None => writeln!(out, "node     none is up")?,
    }
    let set: Vec<_> = explanation["set"].as_array().into_iter().flatten().map(word).collect();
    writeln!(out, "set      {}", if set.is_empty() { "-".to_owned() } else { set.join(", ") })?;
    if let Some(share) = explanation["share"].as_f64() {
        writeln!(out, "share    {:.3} % of the requests here", 100.0 * share)?;
    }
    if let Some(bound) = explanation["bound"].as_f64() {
        writeln!(out, "bound    {bound:.1} outstanding requests per unit of weight")?;
    }
    candidates(out, explanation["candidates"].as_array().map_or(&[][..], Vec::as_slice), &set)?;
    pieces(out, &explanation["pieces"])
}

/// The route that the request takes, and why not one before it.
fn route(out: &mut impl Write, route: &Json) -> io::Result<()> {
    if route.is_null() {
        return Ok(());
    }
    writeln!(out, "route    {}", route["name"].as_str().unwrap_or("none; as the site says"))?;
    for words in route["handling"].as_array().into_iter().flatten() {
        writeln!(out, "         {}", word(words))?;
    }
    for before in route["before"].as_array().into_iter().flatten() {
        let (name, because) = (word(&before["name"]), word(&before["because"]));
        writeln!(out, "         not {name}: its `{because}` does not match")?;
    }
    Ok(())
}

/// The origins or servers, with the protocol of each.
fn servers(out: &mut impl Write, servers: &[Json]) -> io::Result<()> {
    const MOST: usize = 8;
    for server in servers.iter().take(MOST) {
        writeln!(out, "server   {}", word(server))?;
    }
    match servers.len().saturating_sub(MOST) {
        0 => Ok(()),
        more => writeln!(out, "         and {more} more"),
    }
}

/// The expressions that the request meets.
fn expressions(out: &mut impl Write, expressions: &Json) -> io::Result<()> {
    for one in expressions.as_array().into_iter().flatten() {
        let (place, source) = (word(&one["place"]), word(&one["expression"]));
        match (one["value"].as_str(), one["failure"].as_str()) {
            (Some(value), _) => writeln!(out, "{place} = {value:?}, by {source}")?,
            (None, failure) => {
                writeln!(out, "{place} fails: {}, in {source}", failure.unwrap_or_default())?;
            }
        }
    }
    Ok(())
}

/// The pieces of a large file, in file order.
fn pieces(out: &mut impl Write, pieces: &Json) -> io::Result<()> {
    let (Some(count), Some(size)) = (pieces["count"].as_u64(), pieces["size"].as_u64()) else {
        return Ok(());
    };
    let first = pieces["first"].as_array().map_or(&[][..], Vec::as_slice);
    writeln!(out, "\n{count} pieces of {size} bytes; the first {}:", first.len())?;
    let width = first.iter().map(|piece| word(&piece["piece"]).len()).max().unwrap_or(0);
    writeln!(out, "{:width$}  NODE  SET", "PIECE")?;
    for piece in first {
        let set: Vec<_> = piece["set"].as_array().into_iter().flatten().map(word).collect();
        let (name, node) = (word(&piece["piece"]), word(&piece["node"]));
        writeln!(out, "{name:width$}  {node:4}  {}", set.join(", "))?;
    }
    Ok(())
}

/// The candidates in the policy's order, first the best.
fn candidates(out: &mut impl Write, candidates: &[Json], set: &[String]) -> io::Result<()> {
    let nodes = candidates.iter().map(|c| word(&c["node"]).len());
    let width = nodes.max().unwrap_or(0).max("CANDIDATE".len());
    writeln!(
        out,
        "\n{:>5}  {:width$}  IN SET  OUTSTANDING  WEIGHT  DISTANCE  STATE",
        "ORDER", "CANDIDATE"
    )?;
    for (place, candidate) in (1..).zip(candidates) {
        let node = word(&candidate["node"]);
        let in_set = if set.contains(&node) { "yes" } else { "" };
        let number = |key: &str| candidate[key].as_f64().unwrap_or_default();
        let state = match (candidate["up"].as_bool(), number("ramp")) {
            (Some(true), ramp) if ramp < 1.0 => format!("slow start, {:.0} %", ramp * 100.0),
            (Some(true), _) => "up".to_owned(),
            _ => "down".to_owned(),
        };
        let at = candidate["address"].as_str().map(|address| format!(", at {address}"));
        let at = at.unwrap_or_default();
        writeln!(
            out,
            "{place:>5}  {node:width$}  {in_set:6}  {:>11}  {:>6}  {:>8.2}  {state}{at}",
            number("outstanding"),
            number("weight"),
            number("distance"),
        )?;
    }
    Ok(())
}

fn word(value: &Json) -> String {
    value.as_str().map_or_else(|| "-".to_owned(), str::to_owned)
}

const EXAMPLES: &str = "\
Examples:
  levada explain http://www.example.com/logo.png -c levada.toml
  levada explain http://www.example.com/logo.png --admin 127.0.0.1:9180
  levada explain http://www.example.com/logo.png -c levada.toml --json | jq .set

Exit codes:
  0  a node would serve it
  1  no node is up
  2  the configuration cannot be used, the node does not answer, no site has the host";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_explanation_reads_as_a_table() {
        let explanation = json!({
            "url": "http://a.example/x", "key": "00ff", "policy": "fdr", "redirector": "a",
            "node": "b", "reason": "hash", "set_size": 1, "set": ["b"], "size": null,
            "candidates": [
                {"node": "b", "outstanding": 3, "weight": 1.0, "distance": 1.0, "up": true, "ramp": 1.0,
                 "address": "10.0.0.2:80"},
                {"node": "a", "outstanding": 0, "weight": 2.0, "distance": 1.5, "up": true, "ramp": 0.25},
                {"node": "c", "outstanding": 0, "weight": 1.0, "distance": 1.0, "up": false, "ramp": 1.0},
            ],
        });
        let mut out = Vec::new();
        print(&mut out, &explanation).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "url      http://a.example/x
key      00ff
policy   fdr, decided by a
node     b (by hash)
set      b

ORDER  CANDIDATE  IN SET  OUTSTANDING  WEIGHT  DISTANCE  STATE
    1  b          yes               3       1      1.00  up, at 10.0.0.2:80
    2  a                            0       2      1.50  slow start, 25 %
    3  c                            0       1      1.00  down
"
        );
    }

    #[test]
    fn pieces_of_a_large_file_are_listed() {
        let pieces = json!({"size": 60_000, "count": 900, "first": [
            {"piece": "0-59999~00ff", "node": "b", "set": ["b", "c"]},
            {"piece": "60000-119999~00ff", "node": null, "set": []},
        ]});
        let mut out = Vec::new();
        super::pieces(&mut out, &pieces).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\n900 pieces of 60000 bytes; the first 2:
PIECE              NODE  SET
0-59999~00ff       b     b, c
60000-119999~00ff  -     \n"
        );
    }
}
