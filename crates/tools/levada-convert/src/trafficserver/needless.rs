//! Keys of `records.config` that a node has no use for: most lines of the file that Traffic Server brings.

use crate::ledger::{Outcome, needless};

/// The values of a key that a node has no use for.
enum Values {
    /// All.
    Any,
    /// These: what the key switches on is not there, or is always on.
    Only(&'static [&'static str]),
}

use Values::{Any, Only};

/// `0`, and no text.
const OFF: Values = Only(&["0", "NULL", "", "-1"]);
/// `1` and other numbers that mean on.
const ON: Values = Only(&["1", "2", "3"]);

/// Keys, or their beginning up to a `*`; their values; the reason.
const NEEDLESS: &[(&[&str], Values, &str)] = &[
    (
        &[
            "exec_thread.*",
            "accept_threads",
            "task_threads",
            "cache.threads_per_disk",
            "ssl.number.threads",
            "system.mmap_max",
            "core_limit",
            "allocator.*",
            "dump_mem_info_frequency",
            "stack_dump_enabled",
            "thread.*",
        ],
        Any,
        "a node sizes its threads and memory itself: [runtime], [limits]",
    ),
    (
        &[
            "net.sock_*",
            "net.defer_accept",
            "net.listen_backlog",
            "net.tcp_congestion_control_*",
            "net.poll_timeout",
        ],
        Any,
        "a node sets the options of its sockets itself",
    ),
    (
        &[
            "config_dir",
            "proxy_name",
            "proxy_binary_opts",
            "env_prep",
            "snapshot_dir",
            "alarm*",
            "syslog_facility",
            "output.logfile",
            "bin_path",
            "local_state_dir",
            "process_manager.*",
            "admin.*",
            "cop.*",
            "plugin.*",
            "lm.*",
        ],
        Any,
        "the service manager, the command line or [admin] decides this",
    ),
    (
        &[
            "diags.*",
            "log.*",
            "http.enable_http_stats",
            "http.slow.log.threshold",
            "http_ui_enabled",
        ],
        Any,
        "[log], --log-level and the metrics at the admin address stand for this",
    ),
    (
        &["cluster.*", "local.cluster.*", "local.log.collation_mode"],
        Any,
        "nodes of a cluster are [[peer]] tables",
    ),
    (
        &[
            "icp.*",
            "update.*",
            "spdy.*",
            "http.congestion_control.enabled",
            "prefetch.*",
            "socks.*",
        ],
        Only(&["0"]),
        "it is off, and a node has nothing of it",
    ),
    (
        &["icp.*", "update.*", "spdy.*", "socks.*"],
        Any,
        "settings of what newer versions of Traffic Server do not have, or what is off",
    ),
    (&["dns.*", "hostdb.*"], Any, "names are resolved by the system"),
    (&["body_factory.*"], Any, "error pages are keys of a site"),
    (
        &[
            "cache.min_average_object_size",
            "cache.mutex_retry_delay",
            "cache.target_fragment_size",
            "cache.read_while_writer_*",
            "cache.enable_read_while_writer",
            "cache.ram_cache.algorithm",
            "cache.ram_cache.compress",
            "cache.ram_cache.use_seen_filter",
            "cache.ram_cache_cutoff",
            "cache.limits.http.max_alts",
            "cache.select_alternate",
            "cache.enable_checksum",
            "cache.interim.*",
            "cache.max_disk_errors",
            "cache.dir.*",
            "cache.hit_evacuate_*",
            "cache.agg_*",
            "http.cache.max_open_*",
            "http.cache.open_*",
            "http.cache.fuzz.*",
            "http.background_fill_*",
        ],
        Any,
        "the cache is another one: blocks, one fetch per object that its readers share, checked when it is read",
    ),
    (
        &["http.cache.range.lookup", "http.cache.range.write", "http.cache.ignore_accept_*"],
        Any,
        "ranges and variants follow RFC 9110 and 9111",
    ),
    (
        &[
            "http.insert_age_in_response",
            "http.keep_alive_enabled_in",
            "http.keep_alive_enabled_out",
            "http.keep_alive_post_out",
            "http.chunking_enabled",
            "http.send_http11_requests",
            "http.share_server_sessions",
            "http.server_session_sharing.*",
            "http.origin_server_pipeline",
            "http.user_agent_pipeline",
            "http.post.check.content_length.enabled",
            "http.send_100_continue_response",
            "http.normalize_ae*",
            "http2.*",
            "http.insert_request_via_str",
            "http.insert_response_via_str",
            "http.response_via_str",
            "http.request_via_str",
        ],
        Any,
        "a node does this as RFC 9110 to 9113 say",
    ),
    (
        &[
            "http.anonymize_*",
            "http.global_user_agent_header",
            "http.forward.*",
            "http.push_method_enabled",
            "http.redirection_enabled",
            "http.redirect_host_no_port",
            "http.enable_url_expandomatic",
            "http.no_dns_just_forward_to_parent",
            "http.parent_proxy_routing_enable",
            "http.negative_caching_enabled",
            "http.negative_revalidating_enabled",
            "http.cache.vary_default_*",
            "http.cache.enable_default_vary_headers",
            "http.cache.ignore_server_no_cache",
            "http.cache.ignore_client_cc_max_age",
            "http.cache.when_to_add_no_cache_to_msie_requests",
            "http.cache.when_to_revalidate",
            "http.cache.allow_empty_doc",
            "http.origin_max_connections",
            "http.server_max_connections",
            "http.origin_min_keep_alive_connections",
            "http.send_408_post_timeout_response",
            "http.parse.allow_non_http",
            "http.transaction_active_timeout_out",
            "http.response_server_enabled",
            "cache.max_doc_size",
            "cache.permit.pinning",
            "header.parse.no_host_url_redirect",
            "url_remap.default_to_server_pac*",
        ],
        OFF,
        "it is off, as with a node",
    ),
    (
        &["http.anonymize_insert_client_ip", "http.insert_squid_x_forwarded_for"],
        ON,
        "a node always sends X-Forwarded-For",
    ),
    (&["url_remap.remap_required"], ON, "only hosts of sites are served"),
    (&["reverse_proxy.enabled"], ON, "a node is a reverse proxy"),
    (
        &["http.cache.ims_on_client_no_cache", "http.cache.ignore_authentication"],
        Any,
        "requests with Cache-Control and Authorization are answered as RFC 9111 says",
    ),
    (
        &["http.cache.cache_urls_that_look_dynamic", "http.uncacheable_requests_bypass_parent"],
        ON,
        "it is what a node does",
    ),
    (
        &[
            "http.parent_proxy.*",
            "http.down_server.*",
            "http.connect_attempts_max_retries_dead_server",
            "http.connect_attempts_rr_retries",
            "http.post_connect_attempts_timeout",
        ],
        Any,
        "servers that fail are left and tried again by `health_check` and [limits]",
    ),
    (&["http.connect_ports"], Any, "a node is no forward proxy: CONNECT is refused"),
    (&["http.number_of_redirections"], Any, "redirects of the origin go to the client"),
];

/// The fate of a key that has no counterpart.
pub(super) fn fate(name: &str, value: &str) -> Option<Outcome> {
    let is_named = |key: &&str| match key.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => *key == name,
    };
    let found = NEEDLESS.iter().find(|(keys, values, _)| {
        let has_value = match values {
            Any => true,
            Only(values) => values.contains(&value),
        };
        has_value && keys.iter().any(is_named)
    });
    found.map(|(_, _, reason)| needless(*reason))
}
