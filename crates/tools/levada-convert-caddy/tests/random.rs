//! Caddyfiles put together at random: every line has one entry in the account, and the result is a file that Levada
//! accepts if nothing is left.

#[allow(dead_code)]
mod node;

use node::{Files, file, is_accepted};
use proptest::{prelude::*, sample::subsequence};

const DIRECTIVES: &[&str] = &[
    "@api path /api/* /v1/*",
    "@lan remote_ip 10.0.0.0/8",
    "@post {\nmethod POST\npath /form\n}",
    "header X-A a",
    "header @api X-B b",
    "header -Server",
    "request_header X-C {remote_host}",
    "redir /old /new 301",
    "redir @nowhere /x",
    "respond /ping pong 200",
    "respond @lan 403",
    "error /gone 410",
    "rewrite /in /out",
    "uri strip_prefix /p",
    "encode gzip zstd",
    "request_body {\nmax_size 10MB\n}",
    "forward_auth /m/* 10.0.3.1:9091 {\nuri /verify\n}",
    "handle /h/* {\nrespond handled 200\n}",
    "handle {\nreverse_proxy 10.0.9.1:80\n}",
    "handle_path /hp/* {\nreverse_proxy 10.0.9.2:80\n}",
    "route /r/* {\nheader X-D d\nreverse_proxy 10.0.9.3:80\n}",
    "reverse_proxy @post 10.0.2.1:8000",
    "reverse_proxy 10.0.1.1:8000 10.0.1.2:8000 {\nlb_policy least_conn\nhealth_uri /h\nheader_up X-E e\n}",
    "root * /srv/www",
    "file_server /files/*",
    "templates",
    "tls internal",
    "log {\noutput file access.log\n}",
    "unknown words",
    "unknown_auth words",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_directive_has_one_fate(
        one in subsequence(DIRECTIVES, 0..=8),
        two in subsequence(DIRECTIVES, 0..=8),
    ) {
        let text = format!(
            "{{\nadmin off\nservers {{\ntimeouts {{\nidle 60s\n}}\n}}\n}}\nhttp://a.example {{\n{}\n}}\nhttp:// {{\n{}\n}}\n",
            one.join("\n"), two.join("\n")
        );
        let lines = text.lines().filter(|line| !["", "}"].contains(line)).count();
        let converted = levada_convert_caddy::convert(&file("Caddyfile", &text), &Files(&[])).unwrap();
        let ledger = &converted.ledger;
        let entered = ledger.taken + ledger.needless.len() + ledger.left.len();
        prop_assert_eq!(entered, lines, "{}\n{:#?}", text, ledger);
        if ledger.left.is_empty() {
            is_accepted(&converted.toml, &text);
        }
    }
}
