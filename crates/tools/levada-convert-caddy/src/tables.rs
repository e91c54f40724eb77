//! The tables of directives: what becomes of each.

use levada_conversion::{
    gate::Concern,
    rows::{Row, find},
};

use crate::{parse::Node, site::ReadDirective};

/// How a directive is read.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    /// In its turn.
    Read(ReadDirective),
    /// As a block of directives.
    Block,
    /// With others.
    Elsewhere,
}

const fn read(names: &'static str, keys: &'static str, read: ReadDirective) -> Row<Effect> {
    Row::writes(names, keys, Effect::Read(read))
}

pub(crate) const VARIABLE: &str = "a variable of the environment: write its value";
pub(crate) const NOTHING: &str = "Levada has nothing for this directive";

/// The directives of a site.
pub(crate) const DIRECTIVES: &[Row<Effect>] = &[
    Row::writes("handle handle_path route", "[[site.route]]", Effect::Block).about(Concern::Access),
    Row::writes("tls", "listen.tls, client_certificates, handshake", Effect::Elsewhere)
        .about(Concern::Access),
    Row::writes("bind", "listen.address", Effect::Elsewhere).about(Concern::Access),
    Row::writes("log", "log.access", Effect::Elsewhere),
    read("root", "files.root", |walk, node| walk.root(node)),
    read("header", "response_headers", |walk, node| walk.fields(node)),
    read("request_header", "request_headers", |walk, node| walk.fields(node)),
    read("request_body", "max_body", |walk, node| walk.request_body(node)).about(Concern::Access),
    read("redir", "redirect", |walk, node| walk.redirect(node)).about(Concern::Access),
    read("rewrite uri", "rewrite, strip_prefix", |walk, node| walk.rewrite(node)),
    read("try_files", "files.fallback", |walk, node| walk.try_files(node)),
    read("basicauth basic_auth", "basic_auth", |walk, node| walk.basic_auth(node))
        .about(Concern::Access),
    read("forward_auth", "forward_auth", |walk, node| walk.forward_auth(node))
        .about(Concern::Access),
    read("encode", "compress", |walk, node| walk.encode(node)),
    read("respond error abort", "respond, access", |walk, node| walk.respond(node))
        .about(Concern::Access),
    read("reverse_proxy", "origin, servers, policy, health_check", |walk, node| {
        walk.reverse_proxy(node)
    })
    .about(Concern::Access),
    read("file_server", "files", |walk, node| walk.file_server(node)).about(Concern::Access),
    Row::left("php_fastcgi", "servers speak HTTP: FastCGI is not there").about(Concern::Access),
    Row::left("acme_server", "a node is no authority").about(Concern::Access),
    Row::left("templates", "bodies are not changed"),
    Row::left("push", "browsers do not take pushed responses any more"),
    Row::left(
        "handle_errors",
        "an error has a page of its own: `error_pages`, docs/operate/rewrites.md",
    ),
    Row::left("metrics", "metrics are at `/metrics` of `[admin]`"),
    Row::left("map vars method copy_response copy_response_headers tracing fs", NOTHING),
    Row::left("invoke", "named routes are not there").about(Concern::Access),
    Row::left("import", "the import could not be read").about(Concern::Access),
    Row::left("intercept", "a response is not refused here").about(Concern::Access),
    Row::left("skip_log log_skip log_append log_name", "every request has a line: `log`"),
    Row::left("cache", "a cache has its own rules: `cache = true`, docs/operate/caching.md")
        .about(Concern::Storing),
    Row::left("rate_limit", "limits have their own form: `limit`, docs/operate/limits.md")
        .about(Concern::Access),
];

/// The options of the whole file.
pub(crate) const OPTIONS: &[Row<()>] = &[
    Row::writes("email", "acme.email", ()),
    Row::writes("http_port https_port", "listen.address", ()),
    Row::writes("auto_https", "a route that redirects", ()),
    Row::writes("servers", "trusted, limits", ()),
    Row::needless("admin", "orders come over `[admin]`: docs/operate/page.md"),
    Row::needless(
        "debug grace_period shutdown_delay persist_config skip_install_trust storage_clean_interval ocsp_interval renew_interval default_bind_name",
        "a node has its own way for it",
    ),
    Row::left("log", "the event log is chosen with `--log-level`"),
    Row::left("storage storage_check", "certificates are in `acme.storage`"),
    Row::left(
        "acme_ca acme_ca_root acme_eab acme_dns cert_issuer key_type preferred_chains cert_lifetime ocsp_stapling local_certs",
        "docs/operate/certificates.md has the keys of `[acme]`",
    ),
    Row::left("on_demand_tls", "certificates are ordered for the hosts of sites"),
    Row::left("order", "directives of plugins are not there"),
    Row::left("default_bind default_sni fallback_sni", "each site names its own")
        .about(Concern::Access),
    Row::left("pki", "a node is no authority"),
    Row::left("metrics", "metrics are at `/metrics` of `[admin]`"),
];

/// The row of a directive.
pub(crate) fn row(node: &Node) -> Option<&'static Row<Effect>> {
    find(DIRECTIVES, node.word(0), "")
}

/// Caddy's order of directives.
const ORDER: &[&str] = &[
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "skip_log",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
];

/// The place of a directive in the order. One that is not known restricts before all others.
pub(crate) fn order(name: &str) -> usize {
    // `handle` and `handle_path` are one group.
    let name = if name == "handle_path" { "handle" } else { name };
    ORDER.iter().position(|own| *own == name).map_or(0, |at| at + 1)
}
