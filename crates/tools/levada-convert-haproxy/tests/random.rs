//! Configurations put together at random: every statement has one entry in the account, and the result is a file that
//! Levada accepts if nothing is left.

#[allow(dead_code)]
mod node;

use node::{Files, file, is_accepted};
use proptest::{prelude::*, sample::subsequence};

const RULES: &[&str] = &[
    "acl api path_beg /api",
    "acl api path_beg /v1/",
    "acl own src 10.0.0.0/8",
    "http-request deny if own",
    "http-request deny if { path_beg /admin } !own",
    "http-request deny unless { method GET POST }",
    "http-request deny deny_status 410 if { path /gone }",
    "http-request set-header X-A %[src]",
    "http-request set-header X-B b if api",
    "http-request add-header X-C %[path]",
    "http-request del-header X-D",
    "http-request set-header Host a.internal",
    "http-request set-header X-Forwarded-Proto https if { ssl_fc }",
    "http-request redirect location /new code 301 if { path /old }",
    "http-request redirect scheme https if { hdr(host) -i b.example }",
    "http-request return status 200 string ok if { path /ping }",
    "http-request replace-path ^/a/(.*) /\\1",
    "http-request auth if { path_beg /staff } !{ http_auth(users) }",
    "http-request set-var(txn.a) path",
    "http-request track-sc0 src",
    "http-request deny if { sc_http_req_rate(0) gt 20 }",
    "http-request cache-use small",
    "http-response set-header X-E e",
    "http-response del-header Server",
    "http-response set-header X-F f if { status 200 }",
    "http-response cache-store small",
    "use_backend two if api",
    "use_backend two if { hdr(host) -i a.example }",
    "use_backend two if { req.hdr(X-G) -m found }",
    "use_backend nowhere if { path_beg /n }",
    "compression algo gzip",
    "option forwardfor",
    "timeout client 20s",
    "stats enable",
    "cookie S insert",
    "unknown words",
    "unknown-auth words",
];

const SERVERS: &[&str] = &[
    "balance leastconn",
    "option httpchk GET /h",
    "server a 10.0.1.1:80 check",
    "server b 10.0.1.2:80 weight 2",
    "server c 10.0.1.3:443 ssl verify none backup",
    "server d unix@/run/d.sock",
    "server e host",
    "http-request set-header X-H h",
    "http-request deny if { path_beg /two }",
    "retries 2",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_statement_has_one_fate(
        rules in subsequence(RULES, 0..=9),
        one in subsequence(SERVERS, 0..=5),
        two in subsequence(SERVERS, 0..=5),
    ) {
        let mut lines = vec!["defaults", "mode http", "timeout connect 5s", "userlist users",
            "user ann password x", "cache small", "total-max-size 4", "frontend f", "bind :80",
            "stick-table type ip size 1m store http_req_rate(10s)"];
        lines.extend(&rules);
        lines.extend(["default_backend one", "backend one"]);
        lines.extend(&one);
        lines.push("backend two");
        lines.extend(&two);
        let text = lines.join("\n");
        let converted =
            levada_convert_haproxy::convert(&file("haproxy.cfg", &text), &Files(&[])).unwrap();
        let ledger = &converted.ledger;
        let entered = ledger.taken + ledger.needless.len() + ledger.left.len();
        prop_assert_eq!(entered, lines.len(), "{}\n{:#?}", text, ledger);
        if ledger.left.iter().all(|left| left.statement.starts_with("user ann")) {
            is_accepted(&converted.toml, &text);
        }
    }
}
