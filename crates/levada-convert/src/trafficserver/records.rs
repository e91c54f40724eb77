//! `records.yaml` and `records.config`: the few keys that every installation sets.

use std::sync::Arc;

use super::{Converter, Line};
use crate::{ledger::Fate, ledger::Place, table::Table, units};

impl Converter {
    /// `CONFIG proxy.config.http.server_ports STRING 80 443:ssl`
    pub(super) fn record(&mut self, line: &Line<'_>) -> Fate {
        let mut words = line.text.split_whitespace();
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let value = words.skip(1).collect::<Vec<_>>().join(" ");
        match (kind, name.strip_prefix("proxy.config.")) {
            ("CONFIG" | "LOCAL", Some(name)) => self.setting(name, &value),
            _ => Fate::left("is no line of this file"),
        }
    }

    /// Keys below each other by their indentation; the first two words of a name are left out in this form.
    pub(super) fn records_yaml(&mut self, name: &Arc<str>, text: &str) {
        let mut above: Vec<(usize, String)> = Vec::new();
        for (index, whole) in text.lines().enumerate() {
            let text = whole.split(" #").next().unwrap_or_default().trim_end();
            let trimmed = text.trim_start();
            if trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "---" {
                continue;
            }
            let depth = text.len() - trimmed.len();
            let place = Place { file: name.clone(), line: index + 1 };
            let line = Line { place, text: trimmed };
            let Some((key, value)) = trimmed.split_once(':') else {
                self.enter(&line, Fate::left("lists are not read"));
                continue;
            };
            above.retain(|(own, _)| *own < depth);
            let path: Vec<_> = above.iter().map(|(_, key)| key.as_str()).chain([key]).collect();
            let full = path.join(".");
            let value = value.trim().trim_matches(['"', '\'']).to_owned();
            if value.is_empty() {
                above.push((depth, key.to_owned()));
                continue;
            }
            let setting = full.trim_start_matches("records.").trim_start_matches("ts.");
            let fate = self.setting(setting, &value);
            self.enter(&line, fate);
        }
    }

    fn setting(&mut self, name: &str, value: &str) -> Fate {
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
                        Fate::Taken
                    }
                    _ => Fate::left("is no size"),
                };
            }
            "http.cache.http" => {
                self.defaults.set("cache", value != "0");
                return Fate::Taken;
            }
            "http.cache.heuristic_lm_factor" => {
                let percent = value
                    .parse::<f64>()
                    .map_or(10, |factor| (factor * 100.0).round().clamp(0.0, 100.0) as u64);
                self.defaults.set("heuristic_percent", percent);
                return Fate::Taken;
            }
            "http.cache.heuristic_max_lifetime" => match seconds("heuristic_max") {
                Some((key, time)) => {
                    self.defaults.set(key, time);
                    return Fate::Taken;
                }
                None => return Fate::left("is no time"),
            },
            "http.cache.max_stale_age" => match value.parse::<u64>() {
                Ok(age) => {
                    self.defaults.set("stale_if_unreachable", units::duration(age * 1_000));
                    return Fate::Taken;
                }
                Err(_) => return Fate::left("is no time"),
            },
            "url_remap.pristine_host_hdr" => {
                self.pristine_host = value != "0";
                return Fate::Taken;
            }
            "url_remap.remap_required" if value != "0" => {
                return Fate::needless("only hosts of sites are served");
            }
            "reverse_proxy.enabled" if value != "0" => {
                return Fate::needless("a node is a reverse proxy");
            }
            "http.insert_request_via_str" | "http.insert_response_via_str" => {
                return Fate::needless("a node always sends `Via`");
            }
            "http.insert_squid_x_forwarded_for" if value != "0" => {
                return Fate::needless("a node always sends X-Forwarded-For");
            }
            "http.connect_attempts_timeout" => seconds("connect_timeout"),
            "http.transaction_no_activity_timeout_out" => seconds("response_timeout"),
            "http.transaction_no_activity_timeout_in" => seconds("body_timeout"),
            "http.keep_alive_no_activity_timeout_in" => seconds("idle_timeout"),
            name if [
                "exec_thread.",
                "diags.",
                "log.",
                "proxy_name",
                "accept_threads",
                "task_threads",
                "cop.",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix)) =>
            {
                return Fate::needless("a node decides this itself, or at its command line");
            }
            _ => return Fate::left("there is no counterpart for this key"),
        };
        match limit {
            Some((key, time)) => {
                self.plan.limits.set(key, time);
                Fate::Taken
            }
            None => Fate::left("is no time"),
        }
    }

    /// `80 80:ipv6 443:ssl 127.0.0.1:8080`
    fn ports(&mut self, value: &str) -> Fate {
        let mut left = Vec::new();
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
                _ => left.push(port.to_owned()),
            }
        }
        match left.is_empty() {
            true => Fate::Taken,
            false => Fate::left(format!("the ports are there, but for {}", left.join(" "))),
        }
    }
}
