//! TLS: what a server agrees on with clients, their certificates, and TLS with the servers that are asked.

use super::{
    converter::{Converter, Scope},
    parse::Directive,
    setting::Reader,
};
use crate::{
    gate::{self, Concern},
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    rows::{Row, find},
    table::{Table, Value},
};

/// Directives of servers that speak TLS are read with the addresses of a server, others with the server that is asked.
pub(super) const TABLE: &[Row<Reader>] = &[
    of_server("ssl_protocols", "handshake.min_version, handshake.max_version"),
    of_server("ssl_ciphers", "handshake.ciphers"),
    of_server("ssl_ecdh_curve", "handshake.curves"),
    of_server("ssl_client_certificate ssl_trusted_certificate", "client_certificates.authorities"),
    of_server("ssl_verify_client", "client_certificates.mode").about(Concern::Access),
    of_server("ssl_verify_depth", "chains are verified whatever their length"),
    of_server("ssl_crl", "client_certificates.revocation_lists").about(Concern::Access),
    of_server("ssl_stapling ssl_stapling_file", "listen.tls.ocsp"),
    of_server("ssl_session_ticket_key", "session_tickets.key_file"),
    Row::writes(
        "proxy_ssl_* grpc_ssl_*",
        "origin_tls",
        Reader::Elsewhere("no server is asked over TLS here"),
    ),
];

const fn of_server(names: &'static str, keys: &'static str) -> Row<Reader> {
    Row::writes(names, keys, Reader::Elsewhere("no server speaks TLS here"))
}

type ReadTls = fn(&mut OriginTls, &Directive) -> Outcome;

/// Directives about the server that is asked, after `proxy_ssl_` and `grpc_ssl_`.
pub(crate) const ORIGIN: &[Row<ReadTls>] = &[
    Row::writes(
        "certificate certificate_key",
        "origin_tls.certificate, origin_tls.key",
        |tls, _| match tls.has_identity {
            true => TAKEN,
            false => left("a certificate needs its key"),
        },
    ),
    Row::needless("server_name", "the server's name is always sent"),
    Row::needless("session_reuse", "sessions are resumed"),
    Row::needless("ciphers", "the TLS library chooses this"),
    Row::needless("verify_depth", "chains are verified whatever their length"),
    Row::left("crl", "revocation lists of servers are not looked at"),
    Row::left("password_file", "the file of a key has no password"),
    Row::left("conf_command", "Levada has nothing for this directive"),
    Row::writes("trusted_certificate", "origin_tls.authorities", |tls, directive| {
        tls.keys.set("authorities", directive.arg(0));
        TAKEN
    }),
    Row::needless("name = $proxy_host $grpc_host", "it is the default"),
    Row::writes("name", "origin_tls.server_name", |tls, directive| {
        if directive.arg(0).contains('$') {
            return left("the name cannot come from a variable");
        }
        tls.server_name = Some(directive.arg(0).to_owned());
        TAKEN
    }),
    Row::writes("protocols", "origin_tls.min_version", OriginTls::protocols),
    Row::needless("verify = on", "servers' certificates are checked"),
    Row::writes("verify", "origin_tls.insecure_skip_verification", |tls, _| {
        tls.keys.set("insecure_skip_verification", true);
        TAKEN
    }),
];

/// TLS with a server that is asked.
pub(crate) struct OriginTls {
    keys: Table,
    has_identity: bool,
    server_name: Option<String>,
}

impl OriginTls {
    fn protocols(&mut self, directive: &Directive) -> Outcome {
        let mut versions = Table::default();
        let outcome = protocols(directive, &mut versions)?;
        match versions.get("min_version") {
            Some(version) => self.keys.set("min_version", version.clone()),
            None if versions.is_empty() => {}
            None => return differs("servers may choose TLS 1.3"),
        }
        Ok(outcome)
    }

    /// The keys in their usual order.
    fn table(mut self) -> Table {
        if let Some(name) = self.server_name.filter(|name| is_host(name)) {
            self.keys.set("server_name", name);
        }
        let mut table = Table::default();
        for key in ["authorities", "server_name", "certificate", "key"] {
            if let Some(value) = self.keys.remove(key) {
                table.set(key, value);
            }
        }
        table.lay_over(self.keys);
        table
    }
}

/// The suites of TLS 1.3, and those of TLS 1.2 by their names of IANA and of OpenSSL. A test compares them with those
/// that the node speaks.
const TLS13: [&str; 3] =
    ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
const TLS12: [&str; 12] = [
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305",
];
/// The groups of the key exchange, by all of their names.
const CURVES: [&str; 6] = ["X25519", "P-256", "secp256r1", "prime256v1", "P-384", "secp384r1"];

/// Fields that `x_ssl_client` has under the names that configurations of nginx usually give them.
const CLIENT_FIELDS: [(&str, &str); 5] = [
    ("x-ssl-client-verify", "$ssl_client_verify"),
    ("x-ssl-client-s-dn", "$ssl_client_s_dn"),
    ("x-ssl-client-i-dn", "$ssl_client_i_dn"),
    ("x-ssl-client-serial", "$ssl_client_serial"),
    ("x-ssl-client-fingerprint", "$ssl_client_fingerprint"),
];

impl Converter {
    /// The keys of a site whose server speaks TLS.
    pub(super) fn site_tls(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let mut shaken = Table::default();
        for (name, read) in [
            ("ssl_protocols", protocols as fn(&Directive, &mut Table) -> Outcome),
            ("ssl_ciphers", ciphers),
            ("ssl_ecdh_curve", curves),
        ] {
            for directive in scope.nearest(name) {
                let outcome = read(directive, &mut shaken);
                self.enter(directive, outcome);
            }
        }
        if !shaken.is_empty() {
            table.set("handshake", shaken);
        }
        for directive in scope.nearest("ssl_session_ticket_key") {
            let file = Value::from(directive.arg(0));
            let is_known = matches!(
                self.plan.tickets.get("key_file"),
                Some(Value::List(known)) if known.contains(&file)
            );
            if !is_known {
                self.plan.tickets.push("key_file", file);
            }
            self.enter(directive, TAKEN);
        }
        self.client_certificates(scope, table);
    }

    fn client_certificates(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let authorities = authorities(scope);
        let (outcome, of_files) = match mode(scope, &authorities) {
            Ok(Some(mode)) => {
                let mut clients = Table::from_iter([("mode", mode.into())]);
                clients.set("authorities", Value::List(authorities));
                if let Some(list) = scope.nearest_arg("ssl_crl") {
                    clients.set("revocation_lists", list);
                }
                let fields =
                    if tells_certificates(scope) { vec!["x_ssl_client".into()] } else { vec![] };
                clients.set("fields", Value::List(fields));
                table.set("client_certificates", clients);
                let outcome = match mode {
                    "required" => {
                        "without a good certificate the handshake fails, or the request has 403 in plain text"
                    }
                    _ => "a bad certificate has 403 with the reason",
                };
                (differs(outcome), TAKEN)
            }
            Ok(None) => {
                let unused = needless("certificates of clients are not asked for");
                (needless("it is the default"), unused)
            }
            Err(reason) => match scope.nearest("ssl_verify_client").first() {
                Some(directive) => {
                    let outcome = gate::pass(Concern::Access, *directive, left(reason), table);
                    (outcome.clone(), outcome)
                }
                None => (TAKEN, left(reason)),
            },
        };
        self.enter_nearest(scope, "ssl_verify_client", &outcome);
        for name in ["ssl_client_certificate", "ssl_trusted_certificate", "ssl_crl"] {
            self.enter_nearest(scope, name, &of_files);
        }
        let depth = differs("chains are verified whatever their length");
        self.enter_nearest(scope, "ssl_verify_depth", &depth);
    }

    /// Closes a place that looks at the client's certificate in a way that no key can say.
    pub(super) fn close_by_certificate(&mut self, scope: &Scope<'_>, table: &mut Table) {
        for directive in scope.own("if").filter(|one| one.args.join("").contains("$ssl_client_")) {
            if fate_of_demand(scope, directive).is_none() {
                let outcome = left("no route looks at the certificate of a client");
                let outcome = gate::pass(Concern::Access, directive, outcome, table);
                self.enter_whole(directive, &outcome);
            }
        }
    }

    /// TLS with the servers of a `proxy_pass` or a `grpc_pass`; `name` is that of their `upstream`.
    pub(super) fn origin_tls(
        &mut self,
        scope: &Scope<'_>,
        module: &str,
        name: Option<&str>,
        table: &mut Table,
    ) -> Outcome {
        let nearest = |what: &str| scope.nearest_arg(&format!("{module}_ssl_{what}"));
        let verify = nearest("verify");
        let identity = nearest("certificate").zip(nearest("certificate_key"));
        let server_name = name.filter(|_| verify == Some("on")).map(str::to_owned);
        let keys = Table::default();
        let mut tls = OriginTls { keys, has_identity: identity.is_some(), server_name };
        if let Some((certificate, key)) = identity {
            tls.keys.set("certificate", certificate);
            tls.keys.set("key", key);
        }
        for what in ORIGIN.iter().flat_map(Row::names) {
            for directive in scope.nearest(&format!("{module}_ssl_{what}")) {
                let row = find(ORIGIN, what, directive.arg(0));
                if let Some(row) = row {
                    let outcome = row.outcome(|read| read(&mut tls, directive));
                    self.enter(directive, outcome);
                }
            }
        }
        let keys = tls.table();
        if !keys.is_empty() {
            table.set("origin_tls", keys);
        }
        match verify {
            Some(_) => TAKEN,
            None => differs(format!(
                "the server's certificate is checked, which nginx does only with {module}_ssl_verify: \
                 docs/operate/tls.md, `origin_tls`"
            )),
        }
    }
}

/// The authorities of clients' certificates. `ssl_trusted_certificate` may have others that are for stapled answers
/// only.
fn authorities(scope: &Scope<'_>) -> Vec<Value> {
    let own = scope.nearest_arg("ssl_client_certificate");
    let is_stapled = scope.nearest_arg("ssl_stapling") == Some("on");
    let trusted = scope.nearest_arg("ssl_trusted_certificate");
    let trusted = trusted.filter(|_| own.is_none() || !is_stapled);
    own.into_iter().chain(trusted).map(Value::from).collect()
}

/// How certificates of clients are asked for.
fn mode(scope: &Scope<'_>, authorities: &[Value]) -> Result<Option<&'static str>, &'static str> {
    let mode = match scope.nearest_arg("ssl_verify_client").unwrap_or("off") {
        _ if demand(scope).is_some() => "required",
        "on" => "required",
        "optional" => "optional",
        "off" => return Ok(None),
        _ => return Err("certificates are verified, or not asked for"),
    };
    match authorities {
        [] => Err("there is no ssl_client_certificate"),
        _ => Ok(Some(mode)),
    }
}

/// The field of a request that tells the origin about the certificate of the client.
pub(super) fn client_field(name: &str, value: &str) -> Option<Outcome> {
    if !value.contains("$ssl_client_") {
        return None;
    }
    let known = CLIENT_FIELDS.contains(&(name.to_ascii_lowercase().as_str(), value));
    Some(match (known, value) {
        (true, "$ssl_client_fingerprint") => differs("the digest is SHA-256 in place of SHA-1"),
        (true, _) => TAKEN,
        (false, _) => left(
            "`fields` of `client_certificates` names what the origin gets to know: docs/operate/tls.md",
        ),
    })
}

/// The fate of `if ($ssl_client_verify != SUCCESS) { return 403; }`, where it refuses what the site refuses.
pub(super) fn fate_of_demand(scope: &Scope<'_>, directive: &Directive) -> Option<Outcome> {
    let is_known = demands(directive) && !scope.nearest("ssl_client_certificate").is_empty();
    match scope.nearest_arg("ssl_verify_client") {
        Some("on") if is_known => Some(needless("no client comes without a good certificate")),
        Some("optional") if is_known && is_server(scope) => {
            Some(differs("without a good certificate there is no connection"))
        }
        _ => None,
    }
}

/// A condition of the server by which a certificate that is optional is required.
fn demand<'a>(scope: &Scope<'a>) -> Option<&'a Directive> {
    let is_optional = scope.nearest_arg("ssl_verify_client") == Some("optional");
    scope.own("if").find(|directive| is_optional && demands(directive))
}

fn demands(directive: &Directive) -> bool {
    let [refusal] = directive.inner() else { return false };
    directive.args.join("") == "($ssl_client_verify!=SUCCESS)"
        && refusal.name == "return"
        && refusal.arg(0).starts_with('4')
}

/// Whether this is the level of `server`.
fn is_server(scope: &Scope<'_>) -> bool {
    scope.outer.is_some_and(|http| http.outer.is_none())
}

/// Whether any level within, or around, tells the origin about certificates.
fn tells_certificates(scope: &Scope<'_>) -> bool {
    fn within(directives: &[Directive]) -> bool {
        directives.iter().any(|directive| {
            let is_field = directive.name.ends_with("_set_header");
            is_field && directive.arg(1).contains("$ssl_client_") || within(directive.inner())
        })
    }
    let of_http = scope.outer.iter().flat_map(|http| http.directives);
    within(scope.directives)
        || of_http.filter(|one| one.inner().is_empty()).any(|one| within(std::slice::from_ref(one)))
}

fn is_host(name: &str) -> bool {
    name.bytes().all(|c| c.is_ascii_alphanumeric() || b".-".contains(&c))
}

fn protocols(directive: &Directive, table: &mut Table) -> Outcome {
    let has = |version: &str| directive.args.iter().any(|arg| arg == version);
    match (has("TLSv1.2"), has("TLSv1.3")) {
        (false, false) => return left("Levada speaks TLS 1.2 and 1.3"),
        (true, true) => {}
        (false, true) => table.set("min_version", "1.3"),
        (true, false) => table.set("max_version", "1.2"),
    }
    let is_old = directive.args.iter().any(|arg| !["TLSv1.2", "TLSv1.3"].contains(&arg.as_str()));
    match is_old {
        true => differs("versions before TLS 1.2 are not spoken"),
        false if table.is_empty() => needless("it is the default"),
        false => TAKEN,
    }
}

/// A list in OpenSSL's grammar: names of suites, and words that stand for many.
fn ciphers(directive: &Directive, table: &mut Table) -> Outcome {
    let separators = [':', ',', ' '];
    let items = directive.arg(0).split(separators).filter(|item| !item.is_empty());
    let wanted: Vec<_> = items.filter(|item| !item.starts_with(['!', '-', '@'])).collect();
    let is_word = |item: &&&str| item.contains('+') || !item.contains(['-', '_']);
    if wanted.iter().any(|item| is_word(&item)) {
        return differs(
            "all suites of Levada are offered: they have forward secrecy and authenticated encryption",
        );
    }
    if table.get("min_version").is_some() && !wanted.iter().any(|name| is_one_of(&TLS13, name)) {
        return needless("these suites are of TLS 1.2, which is not spoken here");
    }
    by_name(&wanted, "ciphers", &[&TLS13[..], &TLS12].concat(), table)
}

fn curves(directive: &Directive, table: &mut Table) -> Outcome {
    let wanted: Vec<_> = directive.arg(0).split(':').filter(|name| !name.is_empty()).collect();
    match wanted[..] {
        ["auto"] => needless("it is the default"),
        _ => by_name(&wanted, "curves", &CURVES, table),
    }
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn by_name(wanted: &[&str], key: &str, known: &[&str], table: &mut Table) -> Outcome {
    let (known, others): (Vec<&str>, Vec<&str>) =
        wanted.iter().partition(|name| is_one_of(known, name));
    if known.is_empty() {
        return left("Levada speaks none of these");
    }
    table.set(key, Value::List(known.into_iter().map(Value::from).collect()));
    match others[..] {
        [] => TAKEN,
        _ => differs("Levada does not speak some of these"),
    }
}

#[cfg(test)]
mod tests {
    use levada_tls::handshake;

    use super::{CURVES, TLS12, TLS13};

    #[test]
    fn suites_and_groups_are_those_of_the_node() {
        let of_version = |is_tls13: bool| {
            let suites = handshake::CIPHERS.iter();
            let suites = suites.filter(move |(.., suite)| handshake::is_tls13(*suite) == is_tls13);
            let mut names: Vec<_> =
                suites.flat_map(|(iana, openssl, _)| [*iana, *openssl]).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let sorted = |names: &[&'static str]| {
            let mut names = names.to_vec();
            names.sort_unstable();
            names
        };
        assert_eq!((sorted(&TLS13), sorted(&TLS12)), (of_version(true), of_version(false)));
        let groups: Vec<_> =
            handshake::CURVES.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        assert_eq!(CURVES.to_vec(), groups);
    }
}
