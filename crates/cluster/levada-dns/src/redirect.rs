//! HTTP requests that are sent on to nodes, as Apache Traffic Router does it: a pure function of the request, the tables
//! and the nodes of this moment.
//!
//! ```text
//!   request ─> name ─┬─ of nodes: the node of the client's region, by the path
//!                    └─ steering: one target, or all, each with a node
//! ```

use std::{collections::HashMap, net::IpAddr};

use levada_policy::{Node as PolicyNode, NodeIndex, rendezvous};
use levada_types::Key;
use regex::Regex;

use crate::{
    route::{Family, MOST_NODES, Nodes, Picked, Reason, Tables, Wanted, Way, label},
    zone::Route,
};

/// Names that are routed over HTTP, by their texts in lower case.
#[derive(Default)]
pub struct Redirects(HashMap<Box<str>, Service>);

/// A name whose clients are sent on to other names.
#[derive(Clone, Debug, PartialEq)]
pub struct Steering {
    /// The name.
    pub name: String,
    /// Whether the client gets all targets, and chooses.
    pub client: bool,
    /// The other names.
    pub targets: Vec<Target>,
    /// An expression for the whole path, and the target of the requests that it fits.
    pub filters: Vec<(String, String)>,
}

/// A target of steering.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its share of the paths. Without one it stands before the others or after them.
    pub weight: Option<f64>,
    /// Its place among those without a weight: negative ones are before the others.
    pub order: i32,
}

enum Service {
    Nodes,
    Steering(Targets),
}

struct Targets {
    client: bool,
    /// Before those with weights, with weights, and after them.
    first: Vec<Box<str>>,
    weighed: Vec<PolicyNode>,
    last: Vec<Box<str>>,
    filters: Vec<(Regex, Box<str>)>,
}

/// An HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// The scheme that the client used.
    pub scheme: &'a str,
    /// The host, with a port if the client has stated one.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The target that the client wants, by a field.
    pub wanted: Option<&'a str>,
    /// The address of the client.
    pub client: IpAddr,
}

/// An answer to an HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status; 0 stands for the status of redirects.
    pub status: u16,
    /// The URL that the client goes to.
    pub location: Option<String>,
    /// A body in JSON.
    pub json: Option<String>,
    /// The table that has decided.
    pub reason: Option<Reason>,
}

/// The argument with which Traffic Router answers by one location in JSON, and the one for all locations.
const JSON: &str = "format=json";
const NO_REDIRECT: &str = "trred=false";

impl Redirects {
    /// Names that nodes answer for.
    pub fn new(names: impl Iterator<Item = String>) -> Self {
        Self(names.map(|name| (name.into(), Service::Nodes)).collect())
    }

    /// Adds a name with targets.
    ///
    /// # Errors
    /// When a target is not among the names, or an expression is none.
    pub fn steer(&mut self, steering: &Steering) -> Result<(), String> {
        let name = steering.name.to_ascii_lowercase();
        if self.0.contains_key(&*name) {
            return Err(format!("{name} is there already, in `redirects` or in `steering`"));
        }
        for Target { name, .. } in &steering.targets {
            if !matches!(self.0.get(&*name.to_ascii_lowercase()), Some(Service::Nodes)) {
                return Err(format!("the target {name} is not in `redirects` of a zone"));
            }
        }
        self.0.insert(name.into(), Service::Steering(Targets::new(steering)?));
        Ok(())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The answer to a request.
    pub fn answer(
        &self,
        request: &HttpRequest<'_>,
        (tables, nodes): (&Tables, &Nodes),
    ) -> HttpAnswer {
        let (host, port) = split_port(request.host);
        let host = host.to_ascii_lowercase();
        let (path, query) =
            request.target.split_once('?').map_or((request.target, None), |(p, q)| (p, Some(q)));
        let (names, is_list): (Vec<&str>, bool) = match self.0.get(&*host) {
            None => return HttpAnswer { status: 404, ..HttpAnswer::default() },
            Some(Service::Nodes) => (vec![&*host], false),
            Some(Service::Steering(targets)) if targets.client => (targets.all(path), true),
            Some(Service::Steering(targets)) => {
                (targets.one(path, request.wanted).into_iter().collect(), false)
            }
        };
        let (rest, wish) = wish(query);
        let url = |(name, node): (&str, String)| {
            let parent = name.split_once('.').map_or("", |(_, parent)| parent);
            format!("{}://{node}.{parent}{port}{path}{rest}", request.scheme)
        };
        let (mut used, mut by) = (Vec::new(), None);
        let found = names.iter().filter_map(|name| {
            let (picked, reason) = pick(tables, nodes, (name, path), request.client);
            let node = picked.iter().find(|node| !used.contains(*node)).or(picked.first())?;
            used.push(*node);
            by = Some(reason);
            Some((*name, label(&nodes.state(*node).name)))
        });
        let locations: Vec<String> = found.map(url).collect();
        let Some(first) = locations.first().cloned() else {
            return HttpAnswer { status: 503, ..HttpAnswer::default() };
        };
        let all = || Some(serde_json::json!({ "locations": locations }).to_string());
        let (status, location, json) = match wish {
            Wish::Locations => (200, None, all()),
            Wish::Location if !is_list => {
                (200, None, Some(serde_json::json!({ "location": first }).to_string()))
            }
            _ if is_list => (0, Some(first), all()),
            _ => (0, Some(first), None),
        };
        HttpAnswer { status, location, json, reason: by }
    }
}

impl HttpAnswer {
    /// Whether its status is that of redirects.
    pub fn is_redirect(&self) -> bool {
        self.status == 0
    }
}

impl Targets {
    fn new(steering: &Steering) -> Result<Self, String> {
        let mut filters = Vec::new();
        for (pattern, target) in &steering.filters {
            // An expression that ends within its own group would count for more than it says.
            let regex = Regex::new(pattern).and_then(|_| Regex::new(&format!("^(?:{pattern})$")));
            let regex = regex.map_err(|error| error.to_string())?;
            if !steering.targets.iter().any(|own| own.name.eq_ignore_ascii_case(target)) {
                return Err(format!(
                    "the filter {pattern:?} leads to {target}, which is no target"
                ));
            }
            filters.push((regex, lower(target)));
        }
        let mut ordered: Vec<&Target> =
            steering.targets.iter().filter(|target| target.weight.is_none()).collect();
        ordered.sort_by_key(|target| target.order);
        let (first, last): (Vec<&Target>, Vec<&Target>) =
            ordered.into_iter().partition(|target| target.order < 0);
        let names = |targets: Vec<&Target>| targets.iter().map(|own| lower(&own.name)).collect();
        let weighed = steering.targets.iter().filter_map(|target| {
            let weight = target.weight?;
            Some(PolicyNode { weight, ..PolicyNode::new(&target.name.to_ascii_lowercase()) })
        });
        Ok(Self {
            client: steering.client,
            first: names(first),
            weighed: weighed.collect(),
            last: names(last),
            filters,
        })
    }

    /// All targets for a path, the best one first.
    fn all(&self, path: &str) -> Vec<&str> {
        let key = Key::of(path.as_bytes());
        let weighed = rendezvous(key, (0..).map(NodeIndex).zip(&self.weighed));
        let weighed = weighed.into_iter().map(|at| &*self.weighed[at.get()].name);
        let (first, last) = (self.first.iter(), self.last.iter());
        first.map(|name| &**name).chain(weighed).chain(last.map(|name| &**name)).collect()
    }

    /// The target that the client wants, or that of a filter, or the best one.
    fn one(&self, path: &str, wanted: Option<&str>) -> Option<&str> {
        let all = self.all(path);
        if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) {
            let service = |name: &str| name.split('.').nth(1).map(str::to_owned);
            let is_wanted = |name: &&&str| {
                name.eq_ignore_ascii_case(wanted)
                    || service(name).is_some_and(|label| label.eq_ignore_ascii_case(wanted))
            };
            return all.iter().find(is_wanted).copied();
        }
        let filtered = self.filters.iter().find(|(pattern, _)| pattern.is_match(path));
        filtered.map(|(_, target)| &**target).or_else(|| all.first().copied())
    }
}

fn lower(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

/// The nodes for a path of a name, the best one first.
fn pick(
    tables: &Tables,
    nodes: &Nodes,
    (name, path): (&str, &str),
    client: IpAddr,
) -> (Picked, Reason) {
    let client = client.to_canonical();
    let family = if client.is_ipv4() { Family::V4 } else { Family::V6 };
    let route = Route { federation: None, of_node: false };
    let key = Key::of(format!("{name}{path}").as_bytes());
    // Paths spread a name already.
    let wanted = Wanted { route, key, family, most: MOST_NODES, heat: None };
    let choice = tables.choose(nodes, wanted, client);
    match choice.way {
        Way::Nodes(picked) => (picked, choice.reason),
        // Only routes with federations have them.
        Way::Federation(_) => (Picked::default(), choice.reason),
    }
}

/// The form of the answer that the client wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Redirect,
    Location,
    Locations,
}

/// The query that is left, with its `?`, and the form of the answer.
fn wish(query: Option<&str>) -> (String, Wish) {
    let Some(query) = query else { return (String::new(), Wish::Redirect) };
    let is = |own: &str, argument: &str| argument.eq_ignore_ascii_case(own);
    let has = |own| query.split('&').any(|argument| is(own, argument));
    let wish = match (has(NO_REDIRECT), has(JSON)) {
        (true, _) => Wish::Locations,
        (false, true) => Wish::Location,
        (false, false) => return (format!("?{query}"), Wish::Redirect),
    };
    let is_own = |argument: &&str| is(NO_REDIRECT, argument) || is(JSON, argument);
    let rest: Vec<&str> = query.split('&').filter(|argument| !is_own(argument)).collect();
    let rest = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    (rest, wish)
}

/// The host, and the port with its colon. Names have no colons.
fn split_port(host: &str) -> (&str, &str) {
    host.find(':').map_or((host, ""), |at| host.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{NodeState, Regions, coverage_zones};

    fn node(name: &str, region: &str) -> NodeState {
        NodeState {
            name: name.into(),
            region: region.into(),
            v4: vec![[192, 0, 2, 1].into()],
            v6: Vec::new(),
            weight: 1.0,
            ready: true,
            draining: false,
            load: 0.0,
        }
    }

    fn tables() -> (Tables, Nodes) {
        let mut regions = Regions::new(["eu", "us"]);
        let text = br#"{"coverageZones": {"us": {"network": ["203.0.113.0/24"]}}}"#;
        let coverage = coverage_zones(text, &mut regions).unwrap();
        let states = vec![node("EU-1", "eu"), node("eu-2", "eu"), node("us-1", "us")];
        let nodes = Nodes::new(states, &regions);
        let fallbacks = vec![vec![0, 1], vec![1, 0]];
        (Tables { regions, coverage, fallbacks, ..Tables::default() }, nodes)
    }

    fn redirects(client: bool, targets: Vec<Target>, filters: &[(&str, &str)]) -> Redirects {
        let names = ["go.a.test", "go.b.test", "go.c.test"].map(str::to_owned);
        let mut redirects = Redirects::new(names.into_iter());
        let filters =
            filters.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect();
        let name = "Go.Choice.test".to_owned();
        redirects.steer(&Steering { name, client, targets, filters }).unwrap();
        redirects
    }

    fn target(name: &str, weight: Option<f64>, order: i32) -> Target {
        Target { name: format!("go.{name}.test"), weight, order }
    }

    fn ask(redirects: &Redirects, host: &str, target: &str, wanted: Option<&str>) -> HttpAnswer {
        let (tables, nodes) = tables();
        let client = "203.0.113.9".parse().unwrap();
        let request = HttpRequest { scheme: "http", host, target, wanted, client };
        redirects.answer(&request, (&tables, &nodes))
    }

    #[test]
    fn client_is_sent_to_the_node_of_its_region_with_port_path_and_query() {
        let redirects = redirects(false, vec![target("a", Some(1.0), 0)], &[]);
        let answer = ask(&redirects, "GO.a.test:8080", "/x/1.ts?a=1&b=2", None);
        let location = "http://us-1.a.test:8080/x/1.ts?a=1&b=2";
        assert_eq!((answer.status, answer.location.as_deref()), (0, Some(location)));
        assert_eq!((answer.json, answer.reason), (None, Some(Reason::Coverage)));
        let answer = ask(&redirects, "go.a.test", "/x?format=json&a=1", None);
        let json = r#"{"location":"http://us-1.a.test/x?a=1"}"#;
        assert_eq!(
            (answer.status, answer.location, answer.json.as_deref()),
            (200, None, Some(json))
        );
        let answer = ask(&redirects, "go.a.test", "/x?trred=FALSE", None);
        assert_eq!(answer.json.as_deref(), Some(r#"{"locations":["http://us-1.a.test/x"]}"#));
        assert_eq!(ask(&redirects, "us-1.a.test", "/x", None).status, 404);
    }

    #[test]
    fn paths_are_spread_over_the_nodes_of_a_region_and_each_stays_on_its_node() {
        let (tables, nodes) = tables();
        let redirects = redirects(false, vec![target("a", None, 0)], &[]);
        let of = |path: &str| {
            let client = "198.51.100.1".parse().unwrap();
            let request = HttpRequest {
                scheme: "https",
                host: "go.a.test",
                target: path,
                wanted: None,
                client,
            };
            redirects.answer(&request, (&tables, &nodes)).location.unwrap()
        };
        let all: Vec<String> = (0..100).map(|at| of(&format!("/{at}"))).collect();
        let first = all.iter().filter(|url| url.starts_with("https://eu-1.a.test/")).count();
        let other = all.iter().filter(|url| url.starts_with("https://eu-2.a.test/")).count();
        assert!(first + other == 100 && (30..70).contains(&first), "{first} and {other}");
        assert_eq!(of("/7"), all[7]);
    }

    #[test]
    fn steering_goes_by_wish_filter_order_and_weight() {
        let weighed =
            || vec![target("a", Some(30.0), 0), target("b", Some(70.0), 0), target("c", None, 5)];
        let steered = redirects(false, weighed(), &[("/img/.*", "go.c.test")]);
        let of = |path: &str, wanted| {
            let answer = ask(&steered, "go.choice.test", path, wanted);
            answer.location.unwrap_or_else(|| answer.status.to_string())
        };
        assert_eq!(of("/img/x", None), "http://us-1.c.test/img/x");
        assert!(!of("/not/img/x", None).contains(".c."), "the expression is the whole path");
        for wanted in ["a", "go.A.test"] {
            assert_eq!(of("/img/x", Some(wanted)), "http://us-1.a.test/img/x");
        }
        assert_eq!(of("/x", Some("d")), "503");
        let count = (0..1000).filter(|at| of(&format!("/{at}"), None).contains(".b.test")).count();
        assert!((650..750).contains(&count), "{count}");
        let first = [weighed(), vec![target("c", None, -1)]].concat();
        let first: Vec<_> = first.into_iter().filter(|own| own.order != 5).collect();
        let ordered = redirects(false, first, &[]);
        let answer = ask(&ordered, "go.choice.test", "/x", None);
        assert_eq!(answer.location.as_deref(), Some("http://us-1.c.test/x"));
    }

    #[test]
    fn client_that_chooses_gets_all_targets_with_nodes_of_their_own() {
        let (tables, nodes) = tables();
        let targets = vec![target("b", None, 2), target("a", None, 1), target("c", None, -1)];
        let steered = redirects(true, targets, &[]);
        let ask = |target| {
            let client = "198.51.100.1".parse().unwrap();
            let host = "go.choice.test";
            let request = HttpRequest { scheme: "http", host, target, wanted: None, client };
            steered.answer(&request, (&tables, &nodes))
        };
        let answer = ask("/x?a=1");
        let json = answer.json.unwrap();
        let locations: serde_json::Value = serde_json::from_str(&json).unwrap();
        let locations: Vec<&str> = locations["locations"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|url| url.as_str())
            .collect();
        let services = locations.iter().map(|url| url.split('.').nth(1).unwrap());
        assert_eq!(services.collect::<Vec<_>>(), ["c", "a", "b"]);
        assert_eq!((answer.status, answer.location.as_deref()), (0, Some(locations[0])));
        // The region has two nodes.
        let node = |at: usize| locations[at].split('.').next().unwrap();
        assert_ne!(node(0), node(1), "{json}");
        let answer = ask("/x?trred=false");
        assert_eq!((answer.status, answer.location), (200, None));
    }

    #[test]
    fn wrong_steering_is_said() {
        let mut redirects = Redirects::new(["go.a.test".to_owned()].into_iter());
        let mut steer = |name: &str, targets: Vec<Target>, filters: Vec<(&str, &str)>| {
            let filters = filters
                .into_iter()
                .map(|(one, other)| (one.to_owned(), other.to_owned()))
                .collect();
            let name = name.to_owned();
            redirects.steer(&Steering { name, client: false, targets, filters }).unwrap_err()
        };
        let one = || vec![target("a", None, 0)];
        for (error, text) in [
            (steer("go.a.test", one(), Vec::new()), "there already"),
            (steer("x", vec![target("b", None, 0)], Vec::new()), "go.b.test is not in `redirects`"),
            (steer("x", one(), vec![("/(", "go.a.test")]), "unclosed group"),
            (steer("x", one(), vec![("/a)|(b", "go.a.test")]), "unopened group"),
            (steer("x", one(), vec![("/a", "go.b.test")]), "no target"),
        ] {
            assert!(error.contains(text), "{error}");
        }
    }
}
