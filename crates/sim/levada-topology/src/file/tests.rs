use super::*;

const SMALL: &str = r#"{
  "places": [{ "name": "hub", "role": "redirector" }, { "name": "s0", "role": "server" },
             { "name": "c0", "role": "client" }],
  "links": [{ "a": "s0", "b": "hub", "latency": "2ms", "mbps": 100 },
            { "a": "c0", "b": "hub", "latency": "20.5ms", "mbps": 10, "queue": 64 }]
}"#;

const SMALL_AS_GRAPHML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="r" for="node" attr.name="role" attr.type="string"><default>router</default></key>
  <key id="l" for="edge" attr.name="latency" attr.type="string"/>
  <key id="m" for="edge" attr.name="mbps"><default>100</default></key>
  <key id="q" for="edge" attr.name="queue"/>
  <key id="x" for="node" attr.name="colour"/>
  <graph edgedefault="undirected">
    <node id="hub"><data key="r">redirector</data><data key="x">red &amp; blue</data></node>
    <node id="s0"><data key="r"> server </data></node>
    <node id="c0"><data key="r"><![CDATA[client]]></data></node>
    <edge source="s0" target="hub"><data key="l">2ms</data></edge>
    <edge source="c0" target="hub">
      <data key="l">20.5ms</data><data key="m">10</data><data key="q">64</data>
    </edge>
  </graph>
</graphml>"#;

fn said(result: Result<(Topology, Routes), Vec<FileError>>) -> Vec<String> {
    result.map(|_| ()).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn both_formats_say_the_same() {
    let (json, routes) = from_json(SMALL).unwrap();
    assert_eq!(json, from_graphml(SMALL_AS_GRAPHML).unwrap().0);
    let fast = Link {
        a: 1,
        b: 0,
        latency_ns: 2_000_000,
        bits_per_second: 100_000_000,
        queue_packets: QUEUE,
    };
    let slow =
        Link { a: 2, b: 0, latency_ns: 20_500_000, bits_per_second: 10_000_000, queue_packets: 64 };
    assert_eq!(json.links, [fast, slow]);
    assert_eq!(routes.latency_ns(2, 1), 22_500_000);
}

#[test]
fn what_is_written_reads_the_same() {
    let (topology, _) = from_json(SMALL).unwrap();
    assert_eq!(from_json(&to_json(&topology)).unwrap().0, topology);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let text = r#"{
      "places": [{ "name": "hub", "role": "redirector" }, { "name": "hub" }, { "name": "" },
                 { "name": "s0", "role": "sever" }],
      "links": [{ "a": "s0", "b": "hub", "latency": "2 parsecs", "mbps": -1, "queue": 0 },
                { "a": "hub", "b": "c9", "latency": "2ms", "mbps": 1 },
                { "a": "hub", "b": "hub", "latency": "1m", "mbps": 1e9 },
                { "a": "hub", "b": "hub", "latency": "1ms", "mbps": 1 }]
    }"#;
    assert_eq!(
        said(from_json(text)),
        [
            "places[1]: the name `hub` is taken: give each place one of its own",
            "places[2]: a place needs a name",
            "places[3]: `sever` is no role: use router, redirector, server or client",
            "links[0]: latency must be a duration from 0s to 10s such as \"5ms\", not `2 parsecs`",
            "links[0]: mbps must be a number above 0 and at most 1000000, not `-1`",
            "links[0]: queue must be a whole number from 1 to 1048576, not `0`",
            "links[1]: there is no place `c9`: name one of the places",
            "links[2]: latency must be a duration from 0s to 10s such as \"5ms\", not `1m`",
            "links[2]: mbps must be a number above 0 and at most 1000000, not `1000000000.0`",
            "links[3]: both ends are `hub`: a link is between two places",
        ]
    );
}

#[test]
fn what_breaks_the_format_is_told_with_its_line() {
    assert_eq!(
        said(from_json("{\n \"places\": [],\n \"lonks\": []\n}")),
        ["line 3, column 8: unknown field `lonks`, expected `places` or `links`"]
    );
    let directed = SMALL_AS_GRAPHML.replace("undirected", "directed");
    assert_eq!(
        said(from_graphml(&directed)),
        [
            "line 8: the graph is directed, and links carry both directions: set edgedefault=\"undirected\""
        ]
    );
    let unknown = SMALL_AS_GRAPHML.replace("<data key=\"q\">", "<data key=\"z\">");
    assert_eq!(
        said(from_graphml(&unknown)),
        ["line 14: there is no key `z`: declare it before the graph"]
    );
    let missing = SMALL_AS_GRAPHML.replace("<data key=\"l\">2ms</data>", "");
    assert_eq!(said(from_graphml(&missing)), ["edge 0 (`s0` to `hub`): `latency` is missing"]);
    let entity = SMALL_AS_GRAPHML.replace("&amp;", "&lol9;");
    assert_eq!(
        said(from_graphml(&entity)),
        ["line 9: the entity `&lol9;` is not known: write what it stands for"]
    );
    assert!(said(from_graphml("<graphml><node id='a'></edge>"))[0].starts_with("line 1: "));
}

#[test]
fn what_does_not_hang_together_is_refused() {
    let cut = SMALL.replace("\"a\": \"s0\", \"b\": \"hub\"", "\"a\": \"hub\", \"b\": \"c0\"");
    assert_eq!(
        said(from_json(&cut)),
        [
            "file: `c0` cannot reach `s0`: add links (only routers and redirectors let others' packets pass)"
        ]
    );
    let nobody = SMALL.replace("\"client\"", "\"router\"");
    assert_eq!(
        said(from_json(&nobody)),
        ["file: no place has the role `client`: give it to at least one"]
    );
}

#[test]
fn only_a_bounded_number_of_mistakes_is_told() {
    let places = vec!["{ \"name\": \"\" }"; 500].join(",");
    let errors = said(from_json(&format!("{{ \"places\": [{places}], \"links\": [] }}")));
    assert_eq!(errors.len(), MAX_ERRORS);
    let spaces = " ".repeat(MAX_FILE_BYTES + 1);
    assert_eq!(said(from_json(&spaces)), said(from_graphml(&spaces)));
}
