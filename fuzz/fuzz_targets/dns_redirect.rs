//! HTTP requests at a name server: whatever host and path a client states, the answer is a URL below the name, and its JSON
//! can be read.
#![no_main]

use std::sync::LazyLock;

use levada_dns::{
    redirect::{HttpRequest, Redirects, Steering, Target},
    route::{NodeState, Nodes, Regions, Tables},
};
use libfuzzer_sys::fuzz_target;

static WORLD: LazyLock<(Redirects, Tables, Nodes)> = LazyLock::new(|| {
    let mut redirects = Redirects::new(["go.a".to_owned(), "go.b".to_owned()].into_iter());
    let target = |name: &str, weight| Target { name: name.to_owned(), weight, order: 1 };
    let steering = Steering {
        name: "go.c".to_owned(),
        client: false,
        targets: vec![target("go.a", Some(2.0)), target("go.b", None)],
        filters: vec![("/img/.*".to_owned(), "go.b".to_owned())],
    };
    redirects.steer(&steering).expect("targets");
    let steering =
        Steering { name: "go.d".to_owned(), client: true, filters: Vec::new(), ..steering };
    redirects.steer(&steering).expect("targets");
    let regions = Regions::new(["eu"]);
    let node = |at: u8| NodeState {
        name: format!("n{at}").into(),
        region: "eu".into(),
        v4: vec![[192, 0, 2, at].into()],
        v6: vec![],
        weight: 1.0,
        ready: true,
        draining: false,
        load: 0.0,
    };
    let nodes = Nodes::new((0..3).map(node).collect(), &regions);
    (redirects, Tables { regions, fallbacks: vec![vec![0]], ..Tables::default() }, nodes)
});

fuzz_target!(|input: (&str, &str, Option<&str>)| {
    let (redirects, tables, nodes) = &*WORLD;
    let (host, target, wanted) = input;
    for host in [host, "go.a", "go.c", "go.d"] {
        let client = [198, 51, 100, 1].into();
        let request = HttpRequest { scheme: "http", host, target, wanted, client };
        let answer = redirects.answer(&request, (tables, nodes));
        assert!([0, 200, 404, 503].contains(&answer.status));
        if let Some(url) = answer.location {
            assert!(url.starts_with("http://n"), "{url}");
        }
        if let Some(json) = answer.json {
            serde_json::from_str::<serde_json::Value>(&json).expect("JSON");
        }
    }
});
