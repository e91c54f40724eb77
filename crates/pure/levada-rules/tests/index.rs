//! The index over routes and the walk over all of them agree.

use http::{HeaderMap, HeaderValue, Method};
use levada_rules::{
    Conditions, FieldPattern, PathPattern, PathRegex, RequestFacts, RouteTable, Scheme, TextPattern,
};
use proptest::prelude::*;

fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "ab", "b", "c.jpg", "*", "**", "a*", "**.jpg"])
}

fn path_pattern() -> impl Strategy<Value = PathPattern> {
    let segments = prop::collection::vec(segment(), 0..4);
    (segments, any::<bool>()).prop_map(|(segments, below)| {
        let mut text = format!("/{}", segments.join("/"));
        if below && !text.ends_with('*') {
            text.push_str("/**");
        }
        PathPattern::parse(&text).expect("a pattern")
    })
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let paths = prop::collection::vec(path_pattern(), 0..3);
    let regexes = ["^/a", "^/a/b*", "jpg$", "^/(a|b)/", "^/ab/(.*)$"];
    let regex = prop::option::weighted(0.2, prop::sample::select(regexes.to_vec()));
    let methods = prop::option::weighted(0.2, prop::sample::select(vec!["GET", "POST"]));
    let header = prop::option::weighted(0.2, prop::sample::select(vec!["1", "x*"]));
    (paths, regex, methods, header).prop_map(|(paths, regex, method, header)| Conditions {
        paths,
        path_regex: regex.map(|text| PathRegex::parse(text).expect("an expression")),
        methods: method.into_iter().map(|method| method.parse().expect("a method")).collect(),
        headers: header
            .into_iter()
            .map(|value| {
                let value = TextPattern::parse(value, false).expect("a pattern");
                (http::header::USER_AGENT, FieldPattern::Value(value))
            })
            .collect(),
        ..Conditions::default()
    })
}

fn target() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec!["a", "ab", "b", "c.jpg", "", "..", "%61", "x"]);
    prop::collection::vec(parts, 0..5).prop_map(|parts| format!("/{}", parts.join("/")))
}

proptest! {
    #[test]
    fn index_finds_the_route_that_a_walk_in_order_finds(
        routes in prop::collection::vec(conditions(), 0..40),
        targets in prop::collection::vec(target(), 1..20),
        agent in prop::option::of(prop::sample::select(vec!["1", "xyz"])),
        post in any::<bool>(),
    ) {
        let table = RouteTable::new(routes).unwrap();
        let mut headers = HeaderMap::new();
        if let Some(agent) = agent {
            headers.insert(http::header::USER_AGENT, HeaderValue::from_static(agent));
        }
        let method = if post { Method::POST } else { Method::GET };
        for target in &targets {
            let client = "192.0.2.1".parse().unwrap();
            let place = (Scheme::Http, "www.example.com");
            let facts = RequestFacts::new(client, place, (&method, target), &headers);
            prop_assert_eq!(table.find(&facts), table.find_by_walk(&facts), "{}", target);
        }
    }
}
