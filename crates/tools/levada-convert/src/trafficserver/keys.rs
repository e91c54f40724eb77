//! The keys of `records`: those that every installation sets become keys of the new file, and a node has no use for
//! most others of the file that Traffic Server brings.

use super::Converter;
use crate::{
    gate::{self, Concern},
    ledger::{Outcome, TAKEN, differs, left},
    rows::{Row, find},
    table::{Table, Value},
    units::{self, Read},
    vocabulary::{Edit, edit_response},
};

/// How the value of a key is read.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    /// As that of the key that its row names.
    Value(Read),
    Does(fn(&mut Converter, &str) -> Outcome),
}

const fn value(names: &'static str, key: &'static str, read: Read) -> Row<Key> {
    Row::writes(names, key, Key::Value(read))
}

const fn does(
    names: &'static str,
    keys: &'static str,
    read: fn(&mut Converter, &str) -> Outcome,
) -> Row<Key> {
    Row::writes(names, keys, Key::Does(read))
}

const NO_CERTIFICATES: &str = "write `client_certificates` of a site";
const ORIGIN_TLS: &str = "`origin_tls` of a site has the certificates for servers";
const NO_MASK: &str = "write routes by `method`";
const NO_MINIMUM: &str = "a heuristic lifetime has no minimum: `default_ttl`";
const SLOW: &str = "slow clients are judged by a least rate: docs/operate/limits.md";
const IDLE: &str = "idle connections end by [limits], or when the server closes them";
const NO_CACHE: &str = "a client's `no-cache` is obeyed (RFC 9111, 5.2.1.4)";

pub(crate) const KEYS: &[Row<Key>] = &[
    Row::needless("ssl.client.certification_level = 0", "certificates are not asked for"),
    Row::needless("http.auth_server_session_private", "connections to servers are shared"),
    Row::needless("url_remap.acl_behavior_policy = 0", "it is the default"),
    Row::left("ssl.client.certification_level", NO_CERTIFICATES).about(Concern::Access),
    Row::left("http.quick_filter.mask", NO_MASK).about(Concern::Access),
    Row::left("ssl.client.verify.server* ssl.client.cert.* ssl.client.CA*", ORIGIN_TLS),
    does("http.server_ports", "[[listen]]", Converter::ports),
    value("http.connect_attempts_timeout", "limits.connect_timeout", seconds),
    value("http.transaction_no_activity_timeout_out", "limits.response_timeout", seconds),
    value("http.transaction_no_activity_timeout_in", "limits.body_timeout", seconds),
    value("http.keep_alive_no_activity_timeout_in", "limits.idle_timeout", seconds),
    Row::needless("http.keep_alive_no_activity_timeout_out http.accept_no_activity_timeout", IDLE),
    Row::left("net.default_inactivity_timeout http.transaction_active_timeout_in", SLOW),
    does("http.connect_attempts_max_retries", "limits.tries", retries),
    does("net.connections_throttle", "limits.connections", connections),
    value("http.server_max_connections != 0", "limits.server_connections", units::number),
    value("cache.ram_cache.size", "cache.memory", memory),
    value("cache.max_doc_size != 0", "cache.max_object", units::size_value),
    value("http.cache.http", "cache", |value| Ok((value != "0").into())),
    value("http.cache.heuristic_lm_factor", "heuristic_percent", percent),
    value("http.cache.heuristic_max_lifetime", "heuristic_max", seconds),
    Row::left("http.cache.heuristic_min_lifetime", NO_MINIMUM),
    value("http.cache.max_stale_age", "stale_if_unreachable", stale_age),
    does("http.negative_caching_enabled != 0", "negative_ttl", negative_caching),
    does("http.negative_caching_lifetime", "negative_ttl", negative_lifetime),
    does("http.cache.ignore_server_no_cache != 0", "ignore_headers", ignore_no_cache),
    Row::needless("http.cache.ignore_client_no_cache = 0", NO_CACHE),
    Row::left("http.cache.ignore_client_no_cache", NO_CACHE),
    Row::needless(
        "http.cache.cache_responses_to_cookies = 1",
        "responses to requests with cookies are stored",
    ),
    Row::left(
        "http.cache.cache_responses_to_cookies",
        "cookies are no reason not to store: `bypass`, `no_store`",
    ),
    Row::needless("http.cache.required_headers = 0", "it is what a node does"),
    does("http.cache.required_headers", "heuristic_percent", required_headers),
    does("url_remap.pristine_host_hdr", "origin_host", pristine_host),
    does("http.response_server_str", "response_headers", server_field),
    Row::needless("http.response_server_enabled != 0", "the field is set by response_server_str"),
    Row::needless(
        "exec_thread.* accept_threads task_threads cache.threads_per_disk ssl.number.threads \
         system.mmap_max core_limit allocator.* dump_mem_info_frequency stack_dump_enabled \
         thread.*",
        "a node sizes its threads and memory itself: [runtime], [limits]",
    ),
    Row::needless(
        "net.sock_* net.defer_accept net.listen_backlog net.tcp_congestion_control_* \
         net.poll_timeout",
        "a node sets the options of its sockets itself",
    ),
    Row::needless(
        "config_dir proxy_name proxy_binary_opts env_prep snapshot_dir alarm* syslog_facility \
         output.logfile bin_path local_state_dir process_manager.* admin.* cop.* plugin.* \
         lm.*",
        "the service manager, the command line or [admin] decides this",
    ),
    Row::needless(
        "diags.* log.* http.enable_http_stats http.slow.log.threshold http_ui_enabled",
        "[log], --log-level and the metrics at the admin address stand for this",
    ),
    Row::needless(
        "cluster.* local.cluster.* local.log.collation_mode",
        "nodes of a cluster are [[peer]] tables",
    ),
    Row::needless(
        "icp.* update.* spdy.* http.congestion_control.enabled prefetch.* socks.* = 0",
        "it is off, and a node has nothing of it",
    ),
    Row::needless(
        "icp.* update.* spdy.* socks.*",
        "settings of what newer versions of Traffic Server do not have, or what is off",
    ),
    Row::needless("dns.* hostdb.*", "names are resolved by the system"),
    Row::needless("body_factory.*", "error pages are keys of a site"),
    Row::needless(
        "cache.min_average_object_size cache.mutex_retry_delay cache.target_fragment_size \
         cache.read_while_writer_* cache.enable_read_while_writer cache.ram_cache.algorithm \
         cache.ram_cache.compress cache.ram_cache.use_seen_filter cache.ram_cache_cutoff \
         cache.limits.http.max_alts cache.select_alternate cache.enable_checksum \
         cache.interim.* cache.max_disk_errors cache.dir.* cache.hit_evacuate_* cache.agg_* \
         http.cache.max_open_* http.cache.open_* http.cache.fuzz.* http.background_fill_*",
        "the cache is another one: blocks, one fetch per object that its readers share, checked when it is read",
    ),
    Row::needless(
        "http.cache.range.lookup http.cache.range.write http.cache.ignore_accept_*",
        "ranges and variants follow RFC 9110 and 9111",
    ),
    Row::needless(
        "http.insert_age_in_response http.keep_alive_enabled_in http.keep_alive_enabled_out \
         http.keep_alive_post_out http.chunking_enabled http.send_http11_requests \
         http.share_server_sessions http.server_session_sharing.* http.origin_server_pipeline \
         http.user_agent_pipeline http.post.check.content_length.enabled \
         http.send_100_continue_response http.normalize_ae* http2.* \
         http.insert_request_via_str http.insert_response_via_str http.response_via_str \
         http.request_via_str",
        "a node does this as RFC 9110 to 9113 say",
    ),
    Row::needless(
        "http.anonymize_* http.global_user_agent_header http.forward.* \
         http.push_method_enabled http.redirection_enabled http.redirect_host_no_port \
         http.enable_url_expandomatic http.no_dns_just_forward_to_parent \
         http.parent_proxy_routing_enable http.negative_caching_enabled \
         http.negative_revalidating_enabled http.cache.vary_default_* \
         http.cache.enable_default_vary_headers http.cache.ignore_server_no_cache \
         http.cache.ignore_client_cc_max_age http.cache.when_to_add_no_cache_to_msie_requests \
         http.cache.when_to_revalidate http.cache.allow_empty_doc http.origin_max_connections \
         http.server_max_connections http.origin_min_keep_alive_connections \
         http.send_408_post_timeout_response http.parse.allow_non_http \
         http.transaction_active_timeout_out http.response_server_enabled cache.max_doc_size \
         cache.permit.pinning header.parse.no_host_url_redirect \
         url_remap.default_to_server_pac* = 0 NULL '' -1",
        "it is off, as with a node",
    ),
    Row::needless(
        "http.anonymize_insert_client_ip http.insert_squid_x_forwarded_for = 1 2 3",
        "a node always sends X-Forwarded-For",
    ),
    Row::needless("url_remap.remap_required = 1 2 3", "only hosts of sites are served"),
    Row::needless("reverse_proxy.enabled = 1 2 3", "a node is a reverse proxy"),
    Row::needless(
        "http.cache.ims_on_client_no_cache http.cache.ignore_authentication",
        "requests with Cache-Control and Authorization are answered as RFC 9111 says",
    ),
    Row::needless(
        "http.cache.cache_urls_that_look_dynamic http.uncacheable_requests_bypass_parent = 1 2 3",
        "it is what a node does",
    ),
    Row::needless(
        "http.parent_proxy.* http.down_server.* http.connect_attempts_max_retries_dead_server \
         http.connect_attempts_rr_retries http.post_connect_attempts_timeout",
        "servers that fail are left and tried again by `health_check` and [limits]",
    ),
    Row::needless("http.connect_ports", "a node is no forward proxy: CONNECT is refused"),
    Row::needless("http.number_of_redirections", "redirects of the origin go to the client"),
];

impl Converter {
    /// The subject of a key. Most keys of the cache are about its work, and not about what is stored.
    pub(crate) fn concern(name: &str, value: &str) -> Concern {
        let by_words = || match gate::smell(name) {
            Concern::Storing if !name.starts_with("http.cache.") => Concern::Other,
            concern => concern,
        };
        find(KEYS, name, value).map_or_else(by_words, Row::concern)
    }

    /// The fate of a key.
    pub(crate) fn key(&mut self, name: &str, value: &str) -> Outcome {
        let row = find(KEYS, name, value).ok_or("there is no counterpart for this key")?;
        row.outcome(|key| match key {
            Key::Does(read) => read(self, value),
            Key::Value(read) => {
                let value = read(value)?;
                row.key_names().for_each(|key| self.set(key, value.clone()));
                TAKEN
            }
        })
    }

    /// Sets a key of `[limits]`, `[cache]` or `[defaults]`.
    fn set(&mut self, key: &str, value: Value) {
        match key.split_once('.') {
            Some(("limits", key)) => self.plan.limits.set(key, value),
            Some(("cache", key)) => self.plan.cache.set(key, value),
            _ => self.defaults.set(key, value),
        }
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
            let Some(number) = number.filter(|_| parts.iter().all(known)) else {
                others.push(port);
                continue;
            };
            let host = if parts.contains(&"ipv6") { "[::]" } else { "0.0.0.0" };
            let mut listen = Table::from_iter([("address", format!("{host}:{number}").into())]);
            if parts.contains(&"ssl") {
                listen.set("tls", true);
            }
            self.plan.listen.push(listen);
        }
        match others.is_empty() {
            true => TAKEN,
            false => left(format!("the ports are there, but for {}", others.join(" "))),
        }
    }
}

/// Seconds, an hour at most.
fn seconds(value: &str) -> Result<Value, String> {
    let seconds = value.parse::<u64>().ok().filter(|seconds| *seconds > 0).ok_or("is no time")?;
    Ok(units::bounded(seconds.saturating_mul(1_000)))
}

fn stale_age(value: &str) -> Result<Value, String> {
    let milliseconds = value.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000));
    Ok(units::duration(milliseconds.ok_or("is no time")?).into())
}

fn memory(value: &str) -> Result<Value, String> {
    let bytes = units::byte_size(value).filter(|bytes| *bytes >= 1 << 20).ok_or("is no size")?;
    Ok(units::size(bytes).into())
}

fn percent(value: &str) -> Result<Value, String> {
    let percent = |factor: f64| (factor * 100.0).round().clamp(0.0, 100.0) as u64;
    Ok(value.parse().map_or(10, percent).into())
}

fn retries(converter: &mut Converter, value: &str) -> Outcome {
    let retries = value.parse::<u64>().map_err(|_| "is no number")?;
    converter.plan.limits.set("tries", retries.saturating_add(1).clamp(1, 10));
    match retries {
        0..=9 => TAKEN,
        _ => differs("10 tries are the most"),
    }
}

fn connections(converter: &mut Converter, value: &str) -> Outcome {
    let most = value.parse::<u64>().ok().filter(|most| *most > 0).ok_or("is no number")?;
    converter.plan.limits.set("connections", most.min(1_000_000));
    differs("connections to servers have a limit of their own")
}

fn negative_caching(converter: &mut Converter, _: &str) -> Outcome {
    converter.has_negative_caching = true;
    TAKEN
}

/// The lifetime may stand before the key that switches it on.
fn negative_lifetime(converter: &mut Converter, value: &str) -> Outcome {
    converter.negative_ttl = Some(seconds(value)?);
    TAKEN
}

fn ignore_no_cache(converter: &mut Converter, _: &str) -> Outcome {
    converter.defaults.push("ignore_headers", "cache-control");
    differs("`Cache-Control` is not obeyed at all")
}

fn required_headers(converter: &mut Converter, value: &str) -> Outcome {
    match value {
        "2" => {
            converter.defaults.set("heuristic_percent", 0);
            TAKEN
        }
        _ => differs("responses without Last-Modified have no lifetime anyway"),
    }
}

fn pristine_host(converter: &mut Converter, value: &str) -> Outcome {
    converter.pristine_host = value != "0";
    TAKEN
}

fn server_field(converter: &mut Converter, value: &str) -> Outcome {
    if value.contains(['{', '}']) {
        return left("the field has braces");
    }
    edit_response(&mut converter.defaults, "Server", Edit::Set(value.to_owned()))
}
