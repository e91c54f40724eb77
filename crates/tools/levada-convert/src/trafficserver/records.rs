//! `records.yaml` and `records.config`: the few keys that every installation sets.

use std::sync::Arc;

use super::{Converter, Line};
use crate::{
    ledger::{Outcome, Place, TAKEN, differs, left, needless},
    table::Table,
    units,
    vocabulary::{self, Edit},
};

impl Converter {
    /// `CONFIG proxy.config.http.server_ports STRING 80 443:ssl`
    pub(super) fn record(&mut self, line: &Line<'_>) -> Outcome {
        let mut words = line.text.split_whitespace();
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let value = words.skip(1).collect::<Vec<_>>().join(" ");
        let name = name.strip_prefix("proxy.config.").or_else(|| name.strip_prefix("proxy."));
        match (kind, name) {
            ("CONFIG" | "LOCAL", Some(name)) => self.setting(name, &value),
            _ => left("is no line of this file"),
        }
    }

    /// Keys below each other by their indentation; the first two words of a name are left out in this form.
    pub(super) fn records_yaml(&mut self, name: &Arc<str>, text: &str) {
        let mut above: Vec<(usize, String)> = Vec::new();
        let mut sections = Vec::new();
        for (index, whole) in text.lines().enumerate() {
            let text = whole.split(" #").next().unwrap_or_default().trim_end();
            let trimmed = text.trim_start();
            if trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "---" {
                continue;
            }
            let depth = text.len() - trimmed.len();
            let place = Place { file: name.clone(), line: index + 1 };
            let line = Line { place, text: trimmed };
            self.enter_empty(&mut sections, depth);
            let Some((key, value)) = trimmed.split_once(':') else {
                self.enter(&line, left("lists are not read"));
                continue;
            };
            above.retain(|(own, _)| *own < depth);
            let path: Vec<_> = above.iter().map(|(_, key)| key.as_str()).chain([key]).collect();
            let full = path.join(".");
            let value = value.trim().trim_matches(['"', '\'']).to_owned();
            if value.is_empty() {
                above.push((depth, key.to_owned()));
                sections.push((depth, line));
                continue;
            }
            let setting = full.trim_start_matches("records.").trim_start_matches("ts.");
            let fate = self.setting(setting, &value);
            self.enter(&line, fate);
        }
        self.enter_empty(&mut sections, 0);
    }

    /// Enters the last key without a value if nothing stands below it; otherwise it is the name of a section.
    fn enter_empty(&mut self, sections: &mut Vec<(usize, Line<'_>)>, depth: usize) {
        if let Some((_, line)) = sections.pop().filter(|(own, _)| *own >= depth) {
            self.enter(&line, needless("the key has no value"));
        }
    }

    fn setting(&mut self, name: &str, value: &str) -> Outcome {
        let seconds = |key: &'static str| {
            let seconds = value.parse::<u64>().ok().filter(|seconds| *seconds > 0);
            seconds.map(|seconds| (key, units::duration(seconds.min(3600) * 1_000)))
        };
        let limit = match name {
            "http.server_ports" => return self.ports(value),
            "cache.ram_cache.size" => {
                return match units::byte_size(value) {
                    Some(bytes) if bytes >= 1 << 20 => {
                        self.plan.cache.set("memory", units::size(bytes));
                        TAKEN
                    }
                    _ => left("is no size"),
                };
            }
            "http.cache.http" => {
                self.defaults.set("cache", value != "0");
                return TAKEN;
            }
            "http.cache.heuristic_lm_factor" => {
                let percent = value
                    .parse::<f64>()
                    .map_or(10, |factor| (factor * 100.0).round().clamp(0.0, 100.0) as u64);
                self.defaults.set("heuristic_percent", percent);
                return TAKEN;
            }
            "http.cache.heuristic_max_lifetime" => match seconds("heuristic_max") {
                Some((key, time)) => {
                    self.defaults.set(key, time);
                    return TAKEN;
                }
                None => return left("is no time"),
            },
            "http.cache.max_stale_age" => match value.parse::<u64>() {
                Ok(age) => {
                    self.defaults.set("stale_if_unreachable", units::duration(age * 1_000));
                    return TAKEN;
                }
                Err(_) => return left("is no time"),
            },
            "url_remap.pristine_host_hdr" => {
                self.pristine_host = value != "0";
                return TAKEN;
            }
            "http.connect_attempts_timeout" => seconds("connect_timeout"),
            "http.transaction_no_activity_timeout_out" => seconds("response_timeout"),
            "http.transaction_no_activity_timeout_in" => seconds("body_timeout"),
            "http.keep_alive_no_activity_timeout_in" => seconds("idle_timeout"),
            "http.keep_alive_no_activity_timeout_out" | "http.accept_no_activity_timeout" => {
                return needless(
                    "idle connections end by [limits], or when the server closes them",
                );
            }
            "net.default_inactivity_timeout" | "http.transaction_active_timeout_in" => {
                return left("slow clients are judged by a least rate: docs/operate/limits.md");
            }
            "http.connect_attempts_max_retries" => {
                return match value.parse::<u64>() {
                    Ok(retries) => {
                        self.plan.limits.set("tries", retries.saturating_add(1).clamp(1, 10));
                        match retries {
                            0..=9 => TAKEN,
                            _ => differs("10 tries are the most"),
                        }
                    }
                    Err(_) => left("is no number"),
                };
            }
            "net.connections_throttle" => {
                return match value.parse::<u64>() {
                    Ok(most @ 1..) => {
                        self.plan.limits.set("connections", most.min(1_000_000));
                        differs("connections to servers have a limit of their own")
                    }
                    _ => left("is no number"),
                };
            }
            "http.server_max_connections" if value != "0" => {
                return match value.parse::<u64>() {
                    Ok(most) => {
                        self.plan.limits.set("server_connections", most);
                        TAKEN
                    }
                    Err(_) => left("is no number"),
                };
            }
            "cache.max_doc_size" if value != "0" => {
                return match units::byte_size(value) {
                    Some(bytes) => {
                        self.plan.cache.set("max_object", units::size(bytes));
                        TAKEN
                    }
                    None => left("is no size"),
                };
            }
            "http.negative_caching_enabled" if value != "0" => {
                self.has_negative_caching = true;
                return TAKEN;
            }
            "http.negative_caching_lifetime" => match seconds("negative_ttl") {
                // It may stand before the key that switches it on.
                Some((_, time)) => {
                    self.negative_ttl = Some(time);
                    return TAKEN;
                }
                None => return left("is no time"),
            },
            "http.cache.ignore_server_no_cache" if value != "0" => {
                self.defaults.push("ignore_headers", "cache-control");
                return differs("`Cache-Control` is not obeyed at all");
            }
            "http.cache.ignore_client_no_cache" => {
                let reason = "a client's `no-cache` is obeyed (RFC 9111, 5.2.1.4)";
                return if value == "0" { needless(reason) } else { left(reason) };
            }
            "http.cache.cache_responses_to_cookies" => match value {
                "1" => {
                    return needless("responses to requests with cookies are stored");
                }
                _ => return left("cookies are no reason not to store: `bypass`, `no_store`"),
            },
            "http.cache.required_headers" => match value {
                "0" => return needless("it is what a node does"),
                "2" => {
                    self.defaults.set("heuristic_percent", 0);
                    return TAKEN;
                }
                _ => {
                    return differs("responses without Last-Modified have no lifetime anyway");
                }
            },
            "http.cache.heuristic_min_lifetime" => {
                return left("a heuristic lifetime has no minimum: `default_ttl`");
            }
            "http.response_server_str" => return self.server_field(value),
            "http.response_server_enabled" if value != "0" => {
                return needless("the field is set by response_server_str");
            }
            _ => {
                return super::needless::fate(name, value)
                    .unwrap_or_else(|| left("there is no counterpart for this key"));
            }
        };
        match limit {
            Some((key, time)) => {
                self.plan.limits.set(key, time);
                TAKEN
            }
            None => left("is no time"),
        }
    }

    fn server_field(&mut self, value: &str) -> Outcome {
        if value.contains(['{', '}']) {
            return left("the field has braces");
        }
        vocabulary::edit_response(&mut self.defaults, "Server", Edit::Set(value.to_owned()))
    }

    /// `80 80:ipv6 443:ssl 127.0.0.1:8080`
    fn ports(&mut self, value: &str) -> Outcome {
        let mut others = Vec::new();
        for port in value.split([' ', ',']).filter(|port| !port.is_empty()) {
            let parts: Vec<_> = port.split(':').collect();
            let number = parts.iter().find_map(|part| part.parse::<u16>().ok());
            let known = |part: &&str| {
                part.parse::<u16>().is_ok()
                    || matches!(*part, "ssl" | "ipv4" | "ipv6" | "proto=http" | "proto=http;http2")
            };
            match number {
                Some(number) if parts.iter().all(known) => {
                    let host = if parts.contains(&"ipv6") { "[::]" } else { "0.0.0.0" };
                    let mut listen =
                        Table::from_iter([("address", format!("{host}:{number}").into())]);
                    if parts.contains(&"ssl") {
                        listen.set("tls", true);
                    }
                    self.plan.listen.push(listen);
                }
                _ => others.push(port.to_owned()),
            }
        }
        match others.is_empty() {
            true => TAKEN,
            false => left(format!("the ports are there, but for {}", others.join(" "))),
        }
    }
}
