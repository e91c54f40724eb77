//! Lays the keys of each level over those of the level around it: `[defaults]`, `[[site]]`,
//! `[[site.route]]`.
//!
//! This happens to the file as it was read, where only stated keys are present. So every key of
//! [`Handling`] is inherited without a line of its own, and a default cannot be mistaken for a stated
//! value.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json};

use crate::{
    file::{Handling, SiteServers},
    schema,
};

/// Tables that are replaced as a whole, because they have a key that must be stated: the parameters of one policy
/// mean nothing to another one, nor the keys of one form of signature.
const WHOLE: [&str; 5] = ["policy", "basic_auth", "forward_auth", "signed_urls", "cors"];

/// Tables of edits, in which a level that names a header field has the say over this field.
const EDITS: [&str; 2] = ["request_headers", "response_headers"];

/// Keys of a site with an origin, of one with servers, and of one with files. A route that states one of a group
/// does not inherit the other groups.
const ORIGIN: [&str; 3] = ["origin", "misses", "shield"];
const FILES: [&str; 1] = ["files"];
const SERVERS: [&str; 5] = ["servers", "server", "key", "slow_start", "admission"];

/// Ways to rewrite a path. A level that states one does not inherit the others.
const REWRITES: [&str; 3] = ["strip_prefix", "add_prefix", "rewrite"];

/// Completes all sites and routes of a file.
pub(crate) fn complete(file: &mut Json) {
    let (handling, servers) = (&*HANDLING_KEYS, &*SERVERS_KEYS);
    let defaults = file["defaults"].as_object().cloned().unwrap_or_default();
    let log = file["log"].as_object().cloned().unwrap_or_default();
    let sites = file.get_mut("site").and_then(Json::as_array_mut);
    for site in sites.into_iter().flatten().filter_map(Json::as_object_mut) {
        let routes = site.remove("route");
        if let Some(own) = site.get_mut("log").and_then(Json::as_object_mut) {
            *own = laid_over(&log, std::mem::take(own));
        }
        *site = laid_over(&defaults, std::mem::take(site));
        let Some(Json::Array(mut routes)) = routes else { continue };
        for route in routes.iter_mut().filter_map(Json::as_object_mut) {
            let mut around = site.clone();
            around.retain(|key, _| handling.contains(key) || servers.contains(key));
            let states = |keys: &[&str]| keys.iter().any(|key| route.contains_key(*key));
            let replaced = if states(&ORIGIN[..1]) {
                [&SERVERS[..], &FILES].concat()
            } else if states(&SERVERS[..2]) {
                [&ORIGIN[..], &SERVERS[..2], &FILES].concat()
            } else if states(&FILES) {
                [&ORIGIN[..], &SERVERS].concat()
            } else {
                Vec::new()
            };
            around.retain(|key, _| !replaced.contains(&key.as_str()));
            *route = laid_over(&around, std::mem::take(route));
        }
        site.insert("route".to_owned(), Json::Array(routes));
    }
}

/// The keys that say how requests are handled. A schema takes its time, and a file may have thousands of sites.
pub(crate) static HANDLING_KEYS: LazyLock<Vec<String>> =
    LazyLock::new(|| keys(&schema::of::<Handling>()));

/// The keys of servers.
pub(crate) static SERVERS_KEYS: LazyLock<Vec<String>> =
    LazyLock::new(|| keys(&schema::of::<SiteServers>()));

/// The keys of a table.
fn keys(schema: &Json) -> Vec<String> {
    schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

/// `own` with the keys of `around` that it does not state; tables within tables by the same rule. Names of
/// header fields are keys as well, so that the case of letters does not count.
fn laid_over(around: &Map<String, Json>, mut own: Map<String, Json>) -> Map<String, Json> {
    let rewrites = REWRITES.iter().any(|key| own.contains_key(*key));
    for (key, value) in around {
        if rewrites && REWRITES.contains(&key.as_str()) {
            continue;
        }
        match own.iter_mut().find(|(stated, _)| stated.eq_ignore_ascii_case(key)) {
            None => drop(own.insert(key.clone(), value.clone())),
            Some((_, Json::Object(inner))) if EDITS.contains(&key.as_str()) => {
                if let Json::Object(value) = value {
                    *inner = edits_laid_over(value, std::mem::take(inner));
                }
            }
            // The page of one status is a whole, and so is a variable.
            Some((_, Json::Object(inner))) if key == "error_pages" || key == "variables" => {
                for (status, page) in value.as_object().into_iter().flatten() {
                    inner.entry(status.as_str()).or_insert_with(|| page.clone());
                }
            }
            Some((_, Json::Object(inner))) if !WHOLE.contains(&key.as_str()) => {
                if let Json::Object(value) = value {
                    *inner = laid_over(value, std::mem::take(inner));
                }
            }
            Some(_) => {}
        }
    }
    own
}

/// The edits of `own`, and those of `around` whose fields `own` does not name.
fn edits_laid_over(around: &Map<String, Json>, mut own: Map<String, Json>) -> Map<String, Json> {
    let named: Vec<String> = own.values().flat_map(names).map(str::to_ascii_lowercase).collect();
    let is_free = |name: &str| !named.contains(&name.to_ascii_lowercase());
    for (key, value) in around {
        match (value, own.get_mut(key)) {
            (Json::Object(fields), mine) => {
                let fields = fields.iter().filter(|(name, _)| is_free(name));
                let fields = fields.map(|(name, value)| (name.clone(), value.clone()));
                match mine {
                    Some(Json::Object(mine)) => mine.extend(fields),
                    None => drop(own.insert(key.clone(), Json::Object(fields.collect()))),
                    // It has the wrong type, which is reported.
                    Some(_) => {}
                }
            }
            (Json::Array(list), mine) => {
                let list = list.iter().filter(|name| name.as_str().is_none_or(is_free)).cloned();
                match mine {
                    Some(Json::Array(mine)) => mine.extend(list),
                    None => drop(own.insert(key.clone(), list.collect())),
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }
    own
}

/// The header fields that a table or a list of edits names.
fn names(edits: &Json) -> Vec<&str> {
    match edits {
        Json::Object(fields) => fields.keys().map(String::as_str).collect(),
        Json::Array(list) => list.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nearest_level_counts_for_each_key() {
        let mut file = json!({
            "defaults": { "default_ttl": "1m", "stale_if_error": "1h" },
            "site": [{
                "hosts": "a", "origin": "http://a", "default_ttl": "2m",
                "route": [{ "path": "/b" }, { "path": "/c", "default_ttl": "3m" }],
            }],
        });
        complete(&mut file);
        let routes = &file["site"][0]["route"];
        assert_eq!(file["site"][0]["stale_if_error"], "1h");
        assert_eq!(routes[0]["default_ttl"], "2m");
        assert_eq!(routes[0]["origin"], "http://a");
        assert_eq!(routes[1]["default_ttl"], "3m");
        assert_eq!(routes[1]["stale_if_error"], "1h");
        assert!(routes[1]["hosts"].is_null());
    }

    #[test]
    fn routes_own_servers_replace_the_sites_origin() {
        let mut file = json!({ "site": [{
            "origin": "http://a", "misses": { "queue": 1 }, "policy": { "name": "fdr", "busy": 3 },
            "route": [{ "servers": ["http://b"], "policy": { "name": "lard" } }],
        }] });
        complete(&mut file);
        let route = &file["site"][0]["route"][0];
        assert!(route["origin"].is_null() && route["misses"].is_null());
        assert_eq!(route["policy"], json!({ "name": "lard" }));
    }

    #[test]
    fn shields_policy_is_inherited_as_a_whole_and_its_short_form_has_none() {
        let mut file = json!({ "site": [{
            "origin": "http://a",
            "shield": { "region": "us", "policy": { "name": "fdr", "busy": 3 } },
            "route": [
                { "path": "/a" },
                { "path": "/b", "shield": { "policy": { "name": "lard" } } },
                { "path": "/c", "shield": "eu" },
            ],
        }] });
        complete(&mut file);
        let routes = &file["site"][0]["route"];
        assert_eq!(routes[0]["shield"], file["site"][0]["shield"]);
        let own = json!({ "region": "us", "policy": { "name": "lard" } });
        assert_eq!(routes[1]["shield"], own);
        assert_eq!(routes[2]["shield"], "eu");
    }

    #[test]
    fn nearest_level_that_names_a_header_field_counts_for_this_field() {
        let around = json!({ "request_headers": {
            "set": { "X-A": "1", "X-B": "1", "X-C": "1" }, "remove": ["X-D", "X-E"],
        } });
        let own = json!({ "request_headers": {
            "set": { "x-d": "2" }, "remove": ["x-a"], "keep": ["X-B"],
        } });
        let laid = laid_over(around.as_object().unwrap(), own.as_object().unwrap().clone());
        let expected = json!({ "request_headers": {
            "set": { "x-d": "2", "X-C": "1" }, "remove": ["x-a", "X-E"], "keep": ["X-B"],
        } });
        assert_eq!(Json::Object(laid), expected);
    }

    #[test]
    fn tables_are_laid_over_key_by_key() {
        let around = json!({ "t": { "X-A": 1, "b": [1] }, "u": 1 });
        let own = json!({ "t": { "x-a": 2, "b": [2] } });
        let laid = laid_over(around.as_object().unwrap(), own.as_object().unwrap().clone());
        assert_eq!(Json::Object(laid), json!({ "t": { "x-a": 2, "b": [2] }, "u": 1 }));
    }
}
