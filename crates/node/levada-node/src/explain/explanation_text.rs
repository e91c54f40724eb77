//! An explanation as text.

use std::io::{self, Write};

use serde_json::Value as Json;

/// Prints an explanation, as a node answers it.
///
/// # Errors
/// If it cannot be written.
pub fn print(out: &mut impl Write, explanation: &Json) -> io::Result<()> {
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
    servers(out, list(&explanation["servers"]))?;
    expressions(out, &explanation["expressions"])?;
    for rule in list(&explanation["access"]) {
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
    let set: Vec<_> = list(&explanation["set"]).iter().map(word).collect();
    writeln!(out, "set      {}", if set.is_empty() { "-".to_owned() } else { set.join(", ") })?;
    if let Some(share) = explanation["share"].as_f64() {
        writeln!(out, "share    {:.3} % of the requests here", 100.0 * share)?;
    }
    if let Some(bound) = explanation["bound"].as_f64() {
        writeln!(out, "bound    {bound:.1} outstanding requests per unit of weight")?;
    }
    shield(out, &explanation["shield"], &text("redirector"))?;
    candidates(out, list(&explanation["candidates"]), &set)?;
    pieces(out, &explanation["pieces"])
}

/// The route that the request takes, and why not one before it.
fn route(out: &mut impl Write, route: &Json) -> io::Result<()> {
    if route.is_null() {
        return Ok(());
    }
    writeln!(out, "route    {}", route["name"].as_str().unwrap_or("none; as the site says"))?;
    for step in list(&route["way"]) {
        writeln!(out, "         by {}", word(step))?;
    }
    for words in list(&route["handling"]) {
        writeln!(out, "         {}", word(words))?;
    }
    for before in list(&route["before"]) {
        let (name, because) = (word(&before["name"]), word(&before["because"]));
        writeln!(out, "         not {name}: its `{because}` does not match")?;
    }
    Ok(())
}

/// The node that asks the origin for all others.
fn shield(out: &mut impl Write, shield: &Json, me: &str) -> io::Result<()> {
    if shield.is_null() {
        return Ok(());
    }
    let text = |key: &str| word(&shield[key]);
    let (region, node, by) = (text("region"), text("node"), text("policy"));
    if shield["node"].is_null() {
        return writeln!(out, "shield   {region}, of which no node can be asked now ({by})");
    }
    let others: Vec<_> = list(&shield["candidates"]).iter().map(word).collect();
    let others: Vec<_> = others.into_iter().filter(|other| *other != node && node != me).collect();
    let then =
        if others.is_empty() { String::new() } else { format!(", then {}", others.join(", ")) };
    let node = if node == me { "this node".to_owned() } else { node };
    writeln!(out, "shield   {region}, by {node} ({by}: {}){then}", text("reason"))
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
    for one in list(expressions) {
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
    let first = list(&pieces["first"]);
    writeln!(out, "\n{count} pieces of {size} bytes; the first {}:", first.len())?;
    let width = first.iter().map(|piece| word(&piece["piece"]).len()).max().unwrap_or(0);
    writeln!(out, "{:width$}  NODE  SET", "PIECE")?;
    for piece in first {
        let set: Vec<_> = list(&piece["set"]).iter().map(word).collect();
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

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

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
    fn choice_of_the_shields_node_is_one_line() {
        let choice = json!({
            "region": "us", "policy": "fdr", "node": "b", "reason": "hash", "candidates": ["b", "c"],
        });
        let none = json!({"region": "us", "policy": "fdr", "node": null, "candidates": []});
        let mut out = Vec::new();
        for (choice, me) in [(&choice, "a"), (&choice, "b"), (&none, "a")] {
            super::shield(&mut out, choice, me).unwrap();
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "shield   us, by b (fdr: hash), then c
shield   us, by this node (fdr: hash)
shield   us, of which no node can be asked now (fdr)
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
