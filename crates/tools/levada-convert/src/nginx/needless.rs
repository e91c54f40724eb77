//! Directives that a node has no use for, and directives that Levada has nothing for.

use super::setting::Reader;
use crate::{gate::Concern, rows::Row};

const NO_PROGRAMS: &str = "only HTTP servers can be asked";
const NO_SCRIPTS: &str = "there is no scripting";

/// Directives by which programs answer. Levada runs none, and must not serve their sources as files.
pub(super) const HANDLERS: &[Row<Reader>] = &[
    Row::left("fastcgi_pass uwsgi_pass scgi_pass memcached_pass", NO_PROGRAMS),
    Row::left("perl js_content content_by_lua_block content_by_lua_file", NO_SCRIPTS),
];

/// Directives about work that a node does anyway, or that only nginx has.
pub(super) const NEEDLESS: &[Row<Reader>] = &[
    Row::needless(
        "worker_processes worker_cpu_affinity worker_connections worker_rlimit_nofile \
         worker_priority multi_accept use accept_mutex worker_shutdown_timeout thread_pool \
         aio aio_write timer_resolution pcre_jit",
        "a node sizes its threads and files itself: [runtime], [limits]",
    ),
    Row::needless("user daemon master_process pid lock_file", "the service manager decides this"),
    Row::needless("load_module", "a node has no modules"),
    Row::needless(
        "error_log log_not_found log_subrequest rewrite_log",
        "the event log goes to standard error: --log-level",
    ),
    Row::needless(
        "sendfile sendfile_max_chunk tcp_nopush tcp_nodelay directio output_buffers \
         postpone_output reset_timedout_connection lingering_close lingering_time \
         lingering_timeout read_ahead send_lowat",
        "a node does this where it helps",
    ),
    Row::needless(
        "types_hash_max_size types_hash_bucket_size server_names_hash_bucket_size \
         server_names_hash_max_size variables_hash_max_size variables_hash_bucket_size \
         map_hash_bucket_size map_hash_max_size proxy_headers_hash_max_size \
         proxy_headers_hash_bucket_size request_pool_size connection_pool_size",
        "tables grow as they need to",
    ),
    Row::needless(
        "open_file_cache open_file_cache_valid open_file_cache_min_uses \
         open_file_cache_errors open_log_file_cache",
        "files are opened anew, so that a change counts at once",
    ),
    Row::needless(
        "proxy_buffering proxy_buffers proxy_buffer_size proxy_busy_buffers_size \
         proxy_max_temp_file_size proxy_temp_file_write_size proxy_temp_path \
         client_body_temp_path client_body_buffer_size client_header_buffer_size \
         proxy_request_buffering client_body_in_file_only client_body_in_single_buffer",
        "bodies pass while they arrive, within [limits] and [cache]",
    ),
    Row::needless(
        "proxy_http_version",
        "requests to servers use HTTP/1.1, or HTTP/2 where `protocol` says so",
    ),
    Row::needless("proxy_socket_keepalive", "the pool of connections checks them"),
    Row::needless(
        "ssl_session_cache ssl_session_timeout ssl_session_tickets ssl_buffer_size \
         ssl_dhparam ssl_prefer_server_ciphers ssl_early_data ssl_stapling_verify",
        "the TLS library chooses this",
    ),
    Row::needless(
        "http2 http2_push_preload http2_max_concurrent_streams http2_recv_timeout \
         http2_max_requests http2_max_field_size http2_max_header_size http2_push",
        "HTTP/2 is always offered over TLS",
    ),
    Row::needless(
        "http3 http3_hq http3_max_concurrent_streams http3_stream_buffer_size quic_retry \
         quic_gso quic_host_key quic_active_connection_id_limit",
        "`http3` of a listener is all that is needed",
    ),
    Row::needless("server_tokens", "a node sends no `Server` of its own"),
    Row::needless(
        "keepalive_requests keepalive_disable keepalive_time chunked_transfer_encoding \
         ignore_invalid_headers merge_slashes underscores_in_headers max_ranges \
         absolute_redirect port_in_redirect server_name_in_redirect recursive_error_pages \
         msie_padding msie_refresh uninitialized_variable_warn",
        "a node decides this itself",
    ),
    Row::needless("resolver resolver_timeout", "names are resolved by the system"),
    Row::needless("charset = utf-8 UTF-8 off", "texts are UTF-8"),
    Row::needless("charset_types", "texts are UTF-8"),
];

/// Directives that Levada has nothing for, with the reason.
pub(super) const LEFT: &[Row<Reader>] = &[
    Row::left(
        "access_by_lua* rewrite_by_lua* server_rewrite_by_lua* ssl_certificate_by_lua* js_access",
        NO_SCRIPTS,
    )
    .about(Concern::Access),
    Row::left(
        "*_by_lua* lua_* perl_set js_import js_set js_body_filter js_header_filter",
        NO_SCRIPTS,
    ),
    Row::left("fastcgi_* uwsgi_* scgi_* memcached_*", NO_PROGRAMS),
    Row::left("modsecurity*", "there is no web application firewall").about(Concern::Access),
    Row::left(
        "sub_filter sub_filter_once sub_filter_types sub_filter_last_modified addition_types \
         add_before_body add_after_body ssi ssi_types image_filter xslt_stylesheet",
        "bodies are not changed",
    ),
    Row::left(
        "ssl_stapling_responder",
        "answers are not fetched; most authorities have given them up: docs/operate/tls.md",
    ),
    Row::left(
        "ssl_conf_command",
        "`handshake` chooses versions, suites and curves: docs/operate/tls.md",
    ),
    Row::left("charset override_charset source_charset", "texts are UTF-8"),
    Row::left("ssl_password_file", "the file of a key has no password"),
    Row::left("mirror mirror_request_body", "requests are not copied"),
    Row::left("split_clients", "requests are not split at random"),
    Row::left("stub_status", "metrics are at the admin address: [admin]"),
    Row::left(
        "autoindex_exact_size autoindex_localtime autoindex_format",
        "a listing has one form",
    ),
    Row::left("dav_methods dav_ext_methods create_full_put_path dav_access", "files are read only"),
    Row::left("mp4 flv hls", "media files are served as they are"),
    Row::left(
        "geoip_country geoip2",
        "countries come from country_database, and only for access rules",
    ),
    Row::left("proxy_cookie_flags", "cookies pass as they are"),
];
