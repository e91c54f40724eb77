use super::convert;
use crate::{
    conversion::Conversion, conversion::Unreadable, files::Includes, files::InputFile,
    files::NoIncludes,
};

fn file(name: &str, text: &str) -> InputFile {
    InputFile { name: name.to_owned(), text: text.to_owned() }
}

fn read(text: &str) -> Result<Conversion, Unreadable> {
    convert(&file("nginx.conf", text), &NoIncludes)
}

fn error(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn a_file_that_is_not_nginx_grammar_is_refused_with_its_line() {
    assert_eq!(error("http {\n"), "nginx.conf:1: the block that begins here has no `}`");
    assert_eq!(error("events { }\n}\n"), "nginx.conf:2: `}` closes nothing");
    assert_eq!(error("\nuser www-data\n"), "nginx.conf:2: `user www-data` does not end with `;`");
    assert_eq!(error("a;\nb 'c;\n"), "nginx.conf:2: the quote that begins here does not end");
    assert_eq!(error("a\0b;"), "nginx.conf:1: a NUL: this is no text");
    assert_eq!(error(&"a {".repeat(1_000)), "nginx.conf:1: blocks are nested too deeply");
}

/// Answers every pattern with files of these texts.
struct Files(Vec<InputFile>);

impl Includes for Files {
    fn matching(&self, pattern: &str) -> Result<Vec<InputFile>, String> {
        let matches = |name: &str| name == pattern || pattern == "all/*";
        Ok(self.0.iter().filter(|file| matches(&file.name)).cloned().collect())
    }
}

#[test]
fn included_files_stand_in_the_place_of_include_with_lines_of_their_own() {
    let site = file(
        "site",
        "\nserver { server_name a.example; location / { proxy_pass http://h; } unknown_word; }",
    );
    let main = file("nginx.conf", "http { include all/*; include none; include none/*; }");
    let converted = convert(&main, &Files(vec![site])).unwrap();
    assert!(converted.toml.contains("\"a.example\""), "{}", converted.toml);
    let left: Vec<_> = converted.ledger.left.iter().map(ToString::to_string).collect();
    assert_eq!(
        left,
        [
            "nginx.conf:1: `include none`: there is no such file",
            "site:2: `unknown_word`: Levada has nothing for this directive",
        ]
    );
}

#[test]
fn a_file_that_includes_itself_ends() {
    let itself = file("self", "include self;");
    let converted = convert(&file("nginx.conf", "include self;"), &Files(vec![itself])).unwrap();
    assert!(
        converted.ledger.left[0].reason.contains("more than 16 times"),
        "{:?}",
        converted.ledger.left
    );
    let two = ["all/1", "all/2"].map(|name| file(name, "include all/*;")).to_vec();
    let converted = convert(&file("nginx.conf", "include all/*;"), &Files(two)).unwrap();
    assert!(converted.ledger.left.iter().any(|left| left.reason.contains("more than")));
}

#[test]
fn every_directive_is_accounted_for() {
    let text = "http { one; two { three; } server { listen 80; server_name a; four; \
        location / { proxy_pass http://h; five; if ($six) { seven; } } location /b { eight; } } }";
    let converted = read(text).unwrap();
    for word in ["one", "two", "three", "four", "five", "$six", "seven", "eight"] {
        let told = converted.ledger.left.iter().any(|left| left.statement.contains(word));
        assert!(told, "{word} is not in {:#?}", converted.ledger.left);
    }
}

#[test]
fn locations_are_tried_in_the_order_of_nginx() {
    let text = "server { server_name a; location / { proxy_pass http://root; } \
        location /a/ { proxy_pass http://short; } location /a/long/ { proxy_pass http://long; } \
        location ~ \\.png$ { proxy_pass http://regex; } location ^~ /first/ { proxy_pass http://first; } \
        location = /exact { proxy_pass http://exact; } }";
    let toml = read(text).unwrap().toml;
    let places: Vec<_> = ["exact", "first", "regex", "long", "short"]
        .iter()
        .map(|name| {
            toml.find(&format!("origin = \"http://{name}\""))
                .unwrap_or_else(|| panic!("{name}: {toml}"))
        })
        .collect();
    assert!(places.is_sorted(), "{toml}");
}

#[test]
fn a_rule_of_access_that_is_left_over_is_told_with_its_consequence() {
    let text = "server { server_name a; location / { auth_request /check; proxy_pass http://h; } }";
    let converted = read(text).unwrap();
    let reason = &converted.ledger.left[0].reason;
    let refuses = converted.toml.contains("deny all") && reason.contains("everybody is refused");
    assert!(refuses, "{reason}\n{}", converted.toml);
}

#[test]
fn a_place_that_is_closed_stays_closed_within_what_is_served_around_it() {
    let text = "server { server_name a; location / { proxy_pass http://h; } \
        location ~ /\\.ht { deny all; } }";
    let converted = read(text).unwrap();
    let route = "path_regex = '/\\.ht'\naccess = [\"deny all\"]";
    assert!(
        converted.toml.replace("\"/\\\\.ht\"", "'/\\.ht'").contains(route),
        "{}",
        converted.toml
    );
}

#[test]
fn programs_that_are_not_run_are_never_served_as_files() {
    let text = "server { server_name a; root /srv; index index.php index.html; \
        location / { try_files $uri $uri/ /index.php?$args; } \
        location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; } }";
    let converted = read(text).unwrap();
    let route = "path_regex = '\\.php$'\nrespond = { status = 501 }";
    assert!(converted.toml.contains(route), "{}", converted.toml);
    let files = "{ root = \"/srv\", index = \"index.html\", else = \"/index.php?{query}\" }";
    assert!(converted.toml.contains(files), "{}", converted.toml);
    let text = "server { server_name a; root /srv; location ~ (?<!x)\\.php$ { fastcgi_pass h; } }";
    let left = read(text).unwrap().ledger.left;
    assert!(left.iter().all(|left| left.reason.contains("everybody is refused")), "{left:#?}");
}

#[test]
fn directories_have_the_files_that_nginx_looks_for() {
    let files = |level: &str| {
        let text = format!("server {{ server_name a; root /srv/www; {level} }}");
        let conversion = read(&text).unwrap();
        let line = conversion.toml.lines().rfind(|line| line.starts_with("files"));
        (line.unwrap_or_default().to_owned(), conversion.ledger.left)
    };
    for (level, expected) in [
        ("", "files = { root = \"/srv/www\" }"),
        (
            "location / { try_files $uri $uri/ /index.html; }",
            "files = { root = \"/srv/www\", fallback = \"/index.html\" }",
        ),
        (
            "gzip_static on; location /a/ { index a.htm; }",
            "files = { root = \"/srv/www\", index = \"a.htm\", precompressed = [\"gzip\"] }",
        ),
        ("location /img/ { alias /data/img/; }", "files = { root = \"/data\" }"),
        ("location = /robots.txt { alias /data/robots.txt; }", "files = { root = \"/data\" }"),
        ("location /img/ { alias /data/; }", "files = { root = \"/data\" }"),
        (
            "location ~ ^/u/([a-z]+)/(.*)$ { alias /home/$1/www/$2; }",
            "files = { root = \"/home\" }",
        ),
        (
            "location / { try_files $uri $uri/ @app; } location @app { proxy_pass http://h; }",
            "files = { root = \"/srv/www\", else = \"@app\" }",
        ),
        (
            "location / { try_files $uri $uri/ /a/; }",
            "files = { root = \"/srv/www\", else = \"/a/?\" }",
        ),
    ] {
        let (line, left) = files(level);
        assert_eq!((line.as_str(), left.as_slice()), (expected, &[][..]), "{level}");
    }
    for (level, reason) in [
        ("location / { try_files $uri $uri/ =403; }", "stands for it"),
        ("location / { try_files $uri $uri.html =404; }", "only the path itself"),
        ("location / { root /srv/$host; }", "from a variable"),
        ("location /img { alias /data/; }", "such a path"),
        ("index index.$geo.html;", "no name of a file"),
    ] {
        let (_, left) = files(level);
        assert!(left.iter().any(|left| left.reason.contains(reason)), "{level}: {left:#?}");
    }
}

#[test]
fn flags_of_conditions_select_what_passes_the_cache() {
    let text = "server { server_name a; proxy_cache p; set $skip 0; \
        if ($args ~ preview) { set $skip 1; } if ($http_cookie ~* \"login|admin\") { set $skip 1; } \
        location / { proxy_cache_bypass $skip; proxy_pass http://h; } }";
    let converted = read(text).unwrap();
    assert!(converted.toml.contains("bypass_when"), "{}", converted.toml);
}

#[test]
fn no_row_is_in_the_shadow_of_another() {
    use crate::rows::shadowed;
    let everywhere: Vec<_> =
        super::directives::TABLES.iter().flat_map(|table| table.iter()).collect();
    assert_eq!(shadowed(&everywhere), [""; 0]);
    assert_eq!(shadowed(&super::upstream::WITHIN.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&super::tls::ORIGIN.iter().collect::<Vec<_>>()), [""; 0]);
}

proptest::proptest! {
    #[test]
    fn no_text_leads_to_a_panic(text in "([a-z$~=(){};\"'#*/. \n]|server|location|if|map|http|proxy_pass|include){0,200}") {
        let _ = read(&text);
    }
}

#[test]
fn formats_of_logs_say_what_is_missing() {
    let text = "http { log_format a '$status $connection'; log_format b 'x'; access_log /l/$host a; \
        server { server_name s; access_log /dev/stdout a; access_log off; \
        location / { access_log /l/route; proxy_pass http://h; } } }";
    let converted = read(text).unwrap();
    assert!(converted.toml.contains(r#"format = "$status -""#), "{}", converted.toml);
    let told = |remarks: &[crate::ledger::Remark]| {
        remarks.iter().map(|remark| remark.reason.clone()).collect::<Vec<_>>().join("; ")
    };
    assert!(told(&converted.ledger.differs).contains("$connection stay empty"));
    let left = told(&converted.ledger.left);
    for reason in ["no variable that Levada knows", "is a file", "the first one", "routes have no"]
    {
        assert!(left.contains(reason), "{reason}: {left}");
    }
}

#[test]
fn tls_of_clients_keeps_its_meaning() {
    let server = |level: &str| {
        let text = format!(
            "server {{ listen 443 ssl; server_name a; ssl_certificate c.pem; ssl_certificate_key k; \
             {level} location / {{ proxy_pass http://h; }} }}"
        );
        read(&text).unwrap()
    };
    for (level, expected) in [
        ("ssl_protocols TLSv1.2;", "handshake = { max_version = \"1.2\" }"),
        ("ssl_protocols TLSv1 TLSv1.1 TLSv1.3;", "handshake = { min_version = \"1.3\" }"),
        ("ssl_ecdh_curve secp384r1;", "handshake = { curves = [\"secp384r1\"] }"),
        ("ssl_stapling on; ssl_stapling_file o;", "ocsp = \"o\""),
        ("ssl_session_ticket_key a; ssl_session_ticket_key b;", "key_file = [\"a\", \"b\"]"),
        (
            "ssl_client_certificate ca; ssl_verify_client on;",
            "client_certificates = { mode = \"required\", authorities = [\"ca\"], fields = [] }",
        ),
        (
            "ssl_client_certificate ca; ssl_crl list; ssl_verify_client optional;",
            "authorities = [\"ca\"], revocation_lists = \"list\"",
        ),
    ] {
        let converted = server(level);
        assert!(converted.toml.contains(expected), "{level}: {}", converted.toml);
        assert!(converted.is_complete(), "{level}: {:#?}", converted.ledger.left);
    }
    for level in
        ["ssl_protocols TLSv1.2 TLSv1.3;", "ssl_ciphers HIGH:!aNULL;", "ssl_client_certificate ca;"]
    {
        let converted = server(level);
        let has_none = !["handshake", "client_certificates"]
            .iter()
            .any(|key| converted.toml.lines().any(|line| line.starts_with(key)));
        assert!(has_none && converted.is_complete(), "{level}: {}", converted.toml);
    }
    for (level, reason) in [
        ("ssl_protocols TLSv1;", "speaks TLS 1.2 and 1.3"),
        ("ssl_ciphers RC4-MD5;", "none of these"),
        ("ssl_stapling on;", "are not fetched"),
        ("ssl_verify_client on;", "there is no ssl_client_certificate; until you write a rule"),
        ("ssl_client_certificate ca; ssl_verify_client optional_no_ca;", "everybody is refused"),
        (
            "location /x { if ($ssl_client_verify != SUCCESS) { return 403; } proxy_pass http://h; }",
            "everybody is refused",
        ),
    ] {
        let converted = server(level);
        let left = &converted.ledger.left;
        assert!(left.iter().any(|left| left.reason.contains(reason)), "{level}: {left:#?}");
    }
}

#[test]
fn grpc_and_websocket_pass() {
    let location = |level: &str| {
        let text = format!("server {{ server_name a; location / {{ {level} }} }}");
        read(&text).unwrap()
    };
    for (level, origin) in [
        ("grpc_pass h:50051;", "http://h:50051"),
        ("grpc_pass grpc://h:50051;", "http://h:50051"),
        ("grpc_pass grpcs://h:50051; grpc_ssl_verify on;", "https://h:50051"),
        ("proxy_pass http://h:50051; proxy_http_version 2;", "http://h:50051"),
    ] {
        let converted = location(level);
        let has = |line: &str| converted.toml.lines().any(|own| own == line);
        assert!(has(&format!("origin = \"{origin}\"")), "{level}: {}", converted.toml);
        assert!(has("protocol = \"h2\""), "{level}: {}", converted.toml);
        assert!(converted.is_complete(), "{level}: {:#?}", converted.ledger.left);
    }
    let upgrade = "proxy_pass http://h; proxy_set_header Host $host; proxy_http_version 1.1; \
        proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \"upgrade\";";
    let converted = location(upgrade);
    assert!(converted.is_complete() && converted.ledger.differs.is_empty(), "{}", converted.toml);
    assert!(!converted.toml.contains("request_headers"), "{}", converted.toml);
}
