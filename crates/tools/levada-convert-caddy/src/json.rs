//! The JSON that `caddy adapt` writes: `apps.http`, as the directives of a Caddyfile.

use std::sync::Arc;

use levada_conversion::{conversion::Unreadable, files::InputFile, ledger::Place};
use serde_json::Value;

use crate::parse::Node;

/// Whether the file is JSON. A Caddyfile with options begins with a brace as well.
pub(crate) fn is_json(text: &str) -> bool {
    let rest = text.trim_start().strip_prefix('{').map(str::trim_start);
    rest.is_some_and(|rest| rest.starts_with('"') || rest.starts_with('}'))
        && !text.trim_start().starts_with("{\n\t\"order")
}

/// The directives that stand for the JSON.
///
/// # Errors
/// If it is no JSON.
pub(crate) fn nodes(file: &InputFile) -> Result<Vec<Node>, Unreadable> {
    let name: Arc<str> = file.name.as_str().into();
    let value: Value = serde_json::from_str(&file.text).map_err(|error| {
        Unreadable::at(&name, error.line().max(1), &format!("is no JSON: {error}"))
    })?;
    let mut writer = Writer { name, number: 0 };
    let mut nodes = Vec::new();
    let servers = value.pointer("/apps/http/servers").and_then(Value::as_object);
    for (key, server) in servers.into_iter().flatten() {
        nodes.extend(writer.server(key, server));
    }
    // Everything else of the file is named, part by part.
    let mut others = Vec::new();
    for (key, part) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "apps" => {
                for (app, _) in
                    part.as_object().into_iter().flatten().filter(|(app, _)| *app != "http")
                {
                    others.push(writer.node(&[&format!("apps.{app}")], None));
                }
            }
            "admin" | "logging" | "storage" => {
                others.push(writer.node(&[if key == "logging" { "log" } else { key }], None))
            }
            other => others.push(writer.node(&[other], None)),
        }
    }
    if !others.is_empty() {
        nodes.push(writer.node(&[], Some(others)));
    }
    Ok(nodes)
}

/// Makes directives. JSON has no lines: the number of a directive takes their place.
struct Writer {
    name: Arc<str>,
    number: usize,
}

impl Writer {
    fn node(&mut self, words: &[&str], block: Option<Vec<Node>>) -> Node {
        self.number += 1;
        Node {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            block,
            place: Place { file: self.name.clone(), line: self.number },
        }
    }

    /// A server: a site for each route with hosts, and one for the others.
    fn server(&mut self, key: &str, server: &Value) -> Vec<Node> {
        let mut ports = Vec::new();
        for listen in server["listen"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            ports.push(listen.rsplit_once(':').map_or("", |(_, port)| port).to_owned());
        }
        let known = ["listen", "routes", "automatic_https", "tls_connection_policies", "logs"];
        let unknown: Vec<_> = server
            .as_object()
            .into_iter()
            .flat_map(|server| server.keys())
            .filter(|key| !known.contains(&key.as_str()))
            .cloned()
            .collect();
        // `tls_connection_policies` may demand certificates of clients.
        let policies = server["tls_connection_policies"].to_string();
        let mut common = Vec::new();
        for key in unknown {
            common.push(self.node(&[&format!("server_{key}")], None));
        }
        if policies.contains("client_authentication") {
            common.push(self.node(&["client_authentication"], None));
        }
        let mut sites = Vec::new();
        let mut others = common.clone();
        for route in server["routes"].as_array().into_iter().flatten() {
            let hosts = only_hosts(route);
            match hosts.filter(|hosts| !hosts.is_empty()) {
                Some(hosts) => {
                    let mut block = common.clone();
                    block.extend(self.handlers(route));
                    let inner = self.node(&["route"], Some(block));
                    let words: Vec<_> = hosts
                        .iter()
                        .flat_map(|host| ports.iter().map(move |port| format!("{host}:{port}")))
                        .collect();
                    let words: Vec<_> = words.iter().map(String::as_str).collect();
                    sites.push(self.node(&words, Some(vec![inner])));
                }
                None => others.push(self.route(route)),
            }
        }
        if !others.is_empty() || sites.is_empty() {
            let words: Vec<_> = ports.iter().map(|port| format!(":{port}")).collect();
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            let inner = self.node(&["route"], Some(others));
            sites.push(self.node(&words, Some(vec![inner])));
        }
        let _ = key;
        sites
    }

    /// A route: its matchers, and its handlers.
    fn route(&mut self, route: &Value) -> Node {
        let handlers = self.handlers(route);
        let sets: Vec<_> = route["match"].as_array().into_iter().flatten().cloned().collect();
        let name = if route["group"].is_string() || route["terminal"] == Value::Bool(true) {
            "handle"
        } else {
            "route"
        };
        let mut block = handlers;
        // The handlers of a route keep their order.
        if name == "handle" {
            block = vec![self.node(&["route"], Some(block))];
        }
        match sets.len() {
            0 => self.node(&[name], Some(block)),
            1 => {
                let matcher = self.number + 1;
                let label = format!("@m{matcher}");
                let conditions = self.conditions(&sets[0]);
                let defined = self.node(&[&label], Some(conditions));
                let inner = self.node(&[name, &label], Some(block));
                self.node(&["route"], Some(vec![defined, inner]))
            }
            _ => {
                // Several sets are alternatives: one block for each.
                let mut all = Vec::new();
                for set in &sets {
                    let label = format!("@m{}", self.number + 1);
                    let conditions = self.conditions(set);
                    all.push(self.node(&[&label], Some(conditions)));
                    all.push(self.node(&[name, &label], Some(block.clone())));
                }
                self.node(&["route"], Some(all))
            }
        }
    }

    fn conditions(&mut self, set: &Value) -> Vec<Node> {
        let mut nodes = Vec::new();
        for (kind, value) in set.as_object().into_iter().flatten() {
            match (kind.as_str(), value) {
                ("path" | "host" | "method", Value::Array(list)) => {
                    let words: Vec<_> = [kind.as_str()]
                        .into_iter()
                        .chain(list.iter().filter_map(Value::as_str))
                        .collect();
                    nodes.push(self.node(&words, None));
                }
                ("path_regexp", Value::Object(own)) => {
                    let pattern = own.get("pattern").and_then(Value::as_str).unwrap_or_default();
                    nodes.push(self.node(&["path_regexp", pattern], None));
                }
                ("remote_ip" | "client_ip", Value::Object(own)) => {
                    let ranges = own.get("ranges").and_then(Value::as_array);
                    let ranges = ranges.into_iter().flatten().filter_map(Value::as_str);
                    let words: Vec<_> = [kind.as_str()].into_iter().chain(ranges).collect();
                    nodes.push(self.node(&words, None));
                }
                ("header", Value::Object(own)) => {
                    for (field, values) in own {
                        let values =
                            values.as_array().into_iter().flatten().filter_map(Value::as_str);
                        let words: Vec<_> =
                            ["header", field.as_str()].into_iter().chain(values).collect();
                        nodes.push(self.node(&words, None));
                    }
                }
                ("query", Value::Object(own)) => {
                    for (name, values) in own {
                        for value in
                            values.as_array().into_iter().flatten().filter_map(Value::as_str)
                        {
                            nodes.push(self.node(&["query", &format!("{name}={value}")], None));
                        }
                    }
                }
                ("protocol", Value::String(protocol)) => {
                    nodes.push(self.node(&["protocol", protocol], None))
                }
                ("not", Value::Array(sets)) => {
                    for set in sets {
                        let inner = self.conditions(set);
                        nodes.push(self.node(&["not"], Some(inner)));
                    }
                }
                (other, value) => {
                    nodes.push(self.node(&[&format!("json_{other}"), &value.to_string()], None))
                }
            }
        }
        nodes
    }

    fn handlers(&mut self, route: &Value) -> Vec<Node> {
        let mut nodes = Vec::new();
        for handler in route["handle"].as_array().into_iter().flatten() {
            nodes.extend(self.handler(handler));
        }
        nodes
    }

    fn handler(&mut self, handler: &Value) -> Vec<Node> {
        let text = |key: &str| handler[key].as_str();
        // A key that is not read here makes the whole handler one that is not known.
        let only = |keys: &[&str]| {
            handler.as_object().is_some_and(|own| {
                own.keys().all(|key| key == "handler" || keys.contains(&key.as_str()))
            })
        };
        let kind = text("handler").unwrap_or_default();
        let known = match kind {
            "subroute" if only(&["routes"]) => {
                let routes = handler["routes"].as_array().into_iter().flatten();
                Some(routes.map(|route| self.route(route)).collect())
            }
            "static_response" if only(&["status_code", "body", "headers", "close"]) => {
                self.response(handler)
            }
            "vars" if only(&["root"]) => {
                text("root").map(|root| vec![self.node(&["root", "*", root], None)])
            }
            "file_server" if only(&["root", "hide", "index_names"]) => {
                let mut block = Vec::new();
                if let Some(root) = text("root") {
                    block.push(self.node(&["root", root], None));
                }
                for (key, word) in [("hide", "hide"), ("index_names", "index")] {
                    let values: Vec<_> = handler[key]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        // The adapter hides the Caddyfile.
                        .filter(|value| key != "hide" || !value.ends_with("Caddyfile"))
                        .collect();
                    if !values.is_empty() {
                        let words: Vec<_> = [word].into_iter().chain(values).collect();
                        block.push(self.node(&words, None));
                    }
                }
                Some(vec![self.node(&["file_server"], Some(block))])
            }
            "encode" if only(&["encodings", "prefer"]) => {
                let preferred =
                    handler["prefer"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let codings: Vec<_> = match handler["prefer"].is_array() {
                    true => preferred.map(str::to_owned).collect(),
                    false => handler["encodings"]
                        .as_object()
                        .into_iter()
                        .flat_map(|own| own.keys())
                        .cloned()
                        .collect(),
                };
                let words: Vec<_> =
                    ["encode"].into_iter().chain(codings.iter().map(String::as_str)).collect();
                Some(vec![self.node(&words, None)])
            }
            "rewrite" if only(&["uri"]) => {
                text("uri").map(|uri| vec![self.node(&["rewrite", "*", uri], None)])
            }
            "rewrite" if only(&["strip_path_prefix"]) => text("strip_path_prefix")
                .map(|prefix| vec![self.node(&["uri", "*", "strip_prefix", prefix], None)]),
            "headers" if only(&["request", "response"]) => {
                let mut all = self.fields("request_header", &handler["request"]);
                all.extend(self.fields("header", &handler["response"]));
                Some(all)
            }
            "reverse_proxy"
                if only(&["upstreams", "load_balancing", "health_checks", "headers"]) =>
            {
                self.proxy(handler)
            }
            "authentication" => {
                let accounts =
                    handler.pointer("/providers/http_basic/accounts").and_then(Value::as_array);
                accounts.map(|accounts| {
                    let users: Vec<_> = accounts
                        .iter()
                        .map(|account| {
                            self.node(&[account["username"].as_str().unwrap_or_default()], None)
                        })
                        .collect();
                    vec![self.node(&["basic_auth"], Some(users))]
                })
            }
            _ => None,
        };
        // An unknown handler may keep clients out.
        known.unwrap_or_else(|| vec![self.node(&["invoke", kind], None)])
    }

    fn response(&mut self, handler: &Value) -> Option<Vec<Node>> {
        let status = match &handler["status_code"] {
            Value::Null => "200".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            _ => return None,
        };
        let headers = handler["headers"].as_object();
        if let Some(location) =
            headers.and_then(|own| own.get("Location")).and_then(|list| list[0].as_str())
        {
            return Some(vec![self.node(&["redir", "*", location, &status], None)]);
        }
        if handler["close"] == Value::Bool(true) && handler["status_code"].is_null() {
            return Some(vec![self.node(&["abort"], None)]);
        }
        let mut nodes = Vec::new();
        for (name, values) in headers.into_iter().flatten() {
            let value = values[0].as_str()?;
            nodes.push(self.node(&["header", name, value], None));
        }
        nodes.push(match handler["body"].as_str() {
            Some(body) => self.node(&["respond", "*", body, &status], None),
            None => self.node(&["respond", "*", &status], None),
        });
        Some(nodes)
    }

    fn fields(&mut self, directive: &str, changes: &Value) -> Vec<Node> {
        let mut nodes = Vec::new();
        for (action, fields) in changes.as_object().into_iter().flatten() {
            match (action.as_str(), fields) {
                ("set" | "add", Value::Object(own)) => {
                    let sign = if action == "add" { "+" } else { "" };
                    for (name, values) in own {
                        for value in
                            values.as_array().into_iter().flatten().filter_map(Value::as_str)
                        {
                            nodes.push(
                                self.node(&[directive, &format!("{sign}{name}"), value], None),
                            );
                        }
                    }
                }
                ("delete", Value::Array(names)) => {
                    for name in names.iter().filter_map(Value::as_str) {
                        nodes.push(self.node(&[directive, &format!("-{name}")], None));
                    }
                }
                ("deferred", _) => {}
                _ => nodes.push(self.node(&["method", action], None)),
            }
        }
        nodes
    }

    fn proxy(&mut self, handler: &Value) -> Option<Vec<Node>> {
        let mut words = vec!["reverse_proxy".to_owned(), "*".to_owned()];
        for upstream in handler["upstreams"].as_array()? {
            words.push(upstream["dial"].as_str()?.to_owned());
        }
        let mut block = Vec::new();
        if let Some(policy) =
            handler.pointer("/load_balancing/selection_policy/policy").and_then(Value::as_str)
        {
            let name = handler
                .pointer("/load_balancing/selection_policy/name")
                .or(handler.pointer("/load_balancing/selection_policy/field"));
            let words: Vec<_> =
                ["lb_policy", policy].into_iter().chain(name.and_then(Value::as_str)).collect();
            block.push(self.node(&words, None));
        }
        for (pointer, word) in [
            ("/health_checks/active/uri", "health_uri"),
            ("/health_checks/active/path", "health_uri"),
            ("/health_checks/passive/max_fails", "max_fails"),
        ] {
            match handler.pointer(pointer) {
                Some(Value::String(text)) => block.push(self.node(&[word, text], None)),
                Some(Value::Number(number)) => {
                    block.push(self.node(&[word, &number.to_string()], None))
                }
                _ => {}
            }
        }
        for (pointer, word) in [
            ("/health_checks/active/interval", "health_interval"),
            ("/health_checks/active/timeout", "health_timeout"),
            ("/health_checks/passive/fail_duration", "fail_duration"),
        ] {
            if let Some(nanoseconds) = handler.pointer(pointer).and_then(Value::as_u64) {
                block.push(self.node(&[word, &format!("{}ms", nanoseconds / 1_000_000)], None));
            }
        }
        for (side, word) in [("request", "header_up"), ("response", "header_down")] {
            for node in self.fields(word, &handler["headers"][side]) {
                block.push(node);
            }
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        Some(vec![self.node(&words, Some(block))])
    }
}

/// The hosts of a route that is for hosts alone, and that no route follows.
fn only_hosts(route: &Value) -> Option<Vec<String>> {
    let [set] = &route["match"].as_array()?[..] else { return None };
    let set = set.as_object()?;
    if set.len() != 1 || route["terminal"] != Value::Bool(true) {
        return None;
    }
    let hosts = set.get("host")?.as_array()?.iter();
    hosts.map(|host| host.as_str().map(str::to_owned)).collect()
}
