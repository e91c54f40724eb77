//! Rules of access, and trusted proxies.

use std::collections::BTreeSet;

use super::{
    converter::{Converter, Scope},
    fields::location_of,
    parse::Directive,
    setting::{Reader, Setting, key, nothing, rule},
};
use crate::{
    gate::{self, Concern},
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    rows::Row,
    table::Table,
};

/// Of a location that is for internal redirects.
pub(super) const NO_ACCEL: &str = "the origin cannot answer from here by X-Accel-Redirect";

const STATED: &str = "[[trusted]] proxies state clients by X-Forwarded-For";

pub(super) const TABLE: &[Row<Reader>] = &[
    rule("allow deny", "access", access),
    rule("auth_basic auth_basic_user_file", "basic_auth", basic_auth),
    rule("auth_request", "forward_auth", auth_request),
    Row::left(
        "auth_request_set",
        "`copy_headers` of `forward_auth` names the fields of the answer",
    ),
    Row::left("auth_delay", "a wrong password is answered at once: `limit`"),
    rule("valid_referers", "referers", referers),
    Row::left("referer_hash_max_size referer_hash_bucket_size", "tables grow as they need to"),
    rule("secure_link", "signed_urls", signed_urls),
    rule("secure_link_md5", "signed_urls", secret),
    rule("auth_jwt* secure_link_secret", "access", nothing),
    rule("internal", "internal", |_| differs(NO_ACCEL)),
    rule("satisfy", "access, basic_auth, forward_auth", |_| TAKEN),
    key("set_real_ip_from", "trusted.addresses", trust),
    key("real_ip_header", "trusted.proxy_protocol", real_ip_header),
    Row::needless("real_ip_recursive", "all trusted addresses are passed over"),
];

/// The fate of a statement that nginx carries out before it looks at the rules of access of its level.
pub(super) fn comes_first(scope: &Scope<'_>, outcome: Outcome) -> Outcome {
    const RULES: [&str; 4] = ["deny", "auth_basic", "auth_request", "auth_jwt"];
    let is_asked = |name: &&str| scope.nearest_arg(name).is_some_and(|arg| arg != "off");
    match outcome {
        TAKEN if RULES.iter().any(is_asked) => {
            differs("nginx answers before it looks at the rules of access, a node after")
        }
        outcome => outcome,
    }
}

fn access(s: &mut Setting<'_>) -> Outcome {
    if s.arg(0) == "unix:" {
        return left("clients come over TCP");
    }
    s.converter.knows_clients(s.scope)?;
    s.table.push("access", format!("{} {}", s.directive.name, s.arg(0)));
    TAKEN
}

fn basic_auth(s: &mut Setting<'_>) -> Outcome {
    let realm = s.scope.nearest_arg("auth_basic").filter(|realm| *realm != "off");
    let Some(realm) = realm else {
        let is_inherited =
            s.scope.outer.is_some_and(|outer| outer.nearest_arg("auth_basic").is_some());
        return match s.directive.name.as_str() {
            "auth_basic_user_file" => needless("no password is asked for here"),
            _ if is_inherited => s.put("basic_auth", "off"),
            _ => needless("it is the default"),
        };
    };
    let file = s.scope.nearest_arg("auth_basic_user_file");
    let file = file.ok_or("there is no auth_basic_user_file")?;
    if realm.contains('$') || file.contains('$') {
        return left("neither realm nor file comes from a variable");
    }
    s.put("basic_auth", Table::from_iter([("realm", realm.into()), ("users_file", file.into())]))?;
    match s.directive.name.as_str() {
        "auth_basic" => differs("the origin does not get the password: docs/operate/access.md"),
        _ => TAKEN,
    }
}

fn referers(s: &mut Setting<'_>) -> Outcome {
    let (patterns, kinds): (Vec<_>, Vec<_>) =
        s.directive.args.iter().cloned().partition(|kind| kind.starts_with('~'));
    s.table.set("referers", kinds);
    match patterns.is_empty() {
        true => TAKEN,
        false => left("patterns of referers are no expressions"),
    }
}

/// `auth_request /auth;` with the location that says which server is asked.
fn auth_request(s: &mut Setting<'_>) -> Outcome {
    let path = s.arg(0);
    if path == "off" {
        let is_on = |outer: &Scope<'_>| !outer.nearest("auth_request").is_empty();
        return match s.scope.outer.is_some_and(is_on) {
            true => s.put("forward_auth", "off"),
            false => needless("it is the default"),
        };
    }
    let location = location_of(s.scope, path).ok_or("there is no such location")?;
    let inner = Scope { directives: location.inner(), outer: None };
    let url = inner.nearest_arg("proxy_pass").unwrap_or_default();
    let is_plain = url.starts_with("http://") || url.starts_with("https://");
    if !is_plain || url.contains(['$', '{']) {
        return left("the server that is asked has a URL without variables");
    }
    let has_path = url.splitn(4, '/').nth(3).is_some();
    let url = format!("{url}{}", if has_path { "" } else { path });
    s.table.set("forward_auth", Table::from_iter([("url", url.into())]));
    differs(
        "the server gets X-Forwarded-Uri and the like, and its refusals go to the client as they are",
    )
}

fn secret(s: &mut Setting<'_>) -> Outcome {
    signed_urls(s)?;
    left("all but the secret is there: write what follows the variables into the file link.secret")
}

/// `secure_link $arg_md5,$arg_expires;` with `secure_link_md5 "$secure_link_expires$uri secret";`
fn signed_urls(s: &mut Setting<'_>) -> Outcome {
    let stated = s.scope.nearest_arg("secure_link").zip(s.scope.nearest_arg("secure_link_md5"));
    let (link, message) = stated.ok_or("a link has a signature, and a text that it is over")?;
    let arguments = link.split_once(',').and_then(|(signature, expires)| {
        Some((signature.trim().strip_prefix("$arg_")?, expires.trim().strip_prefix("$arg_")?))
    });
    let (signature, expires) =
        arguments.ok_or("a link has two arguments: its signature and its end")?;
    let message = message
        .replace("$secure_link_expires", "{expires}")
        .replace("$uri", "{path}")
        .replace("$remote_addr", "{client}");
    let (variables, secret) = message.split_at(message.rfind('}').map_or(0, |end| end + 1));
    let space = &secret[..secret.len() - secret.trim_start().len()];
    if variables.contains('$') || !variables.contains("{expires}") || space == secret {
        return left("the digest is over other things than the end, the path and the client");
    }
    let keys = [
        ("form", "secure_link".into()),
        ("secret_file", "link.secret".into()),
        ("message", format!("{variables}{space}{{secret}}").into()),
        ("signature", signature.into()),
        ("expires", expires.into()),
    ];
    s.put("signed_urls", Table::from_iter(keys))
}

fn trust(s: &mut Setting<'_>) -> Outcome {
    let address = s.arg(0);
    if address.parse::<std::net::IpAddr>().is_err() && !address.contains('/') {
        return left("a trusted proxy is an address or a prefix");
    }
    // A proxy that states clients in another field may pass on any list of theirs.
    let header = s.scope.nearest_arg("real_ip_header").unwrap_or("X-Real-IP");
    if !["x-forwarded-for", "proxy_protocol"].contains(&&*header.to_ascii_lowercase()) {
        return left(STATED);
    }
    s.converter.trusted().push("addresses", address);
    TAKEN
}

fn real_ip_header(s: &mut Setting<'_>) -> Outcome {
    match s.arg(0).to_ascii_lowercase().as_str() {
        "x-forwarded-for" => needless(STATED),
        "proxy_protocol" => {
            s.converter.trusted().set("proxy_protocol", true);
            TAKEN
        }
        _ => left(STATED),
    }
}

/// Collects the proxies that are trusted anywhere.
pub(super) fn proxies(directives: &[Directive], found: &mut BTreeSet<String>) {
    for directive in directives {
        if directive.name == "set_real_ip_from" {
            found.insert(directive.arg(0).to_owned());
        }
        proxies(directive.inner(), found);
    }
}

impl Converter {
    /// Whether the clients' addresses are here what they were: proxies are trusted for the whole node, and state
    /// clients in one way.
    pub(super) fn knows_clients(&self, scope: &Scope<'_>) -> Result<(), String> {
        let here = scope.nearest("set_real_ip_from").into_iter();
        let here: BTreeSet<_> = here.map(|one| one.arg(0).to_owned()).collect();
        if here.is_empty() && self.proxies.is_empty() {
            return Ok(());
        }
        let is_known =
            |address: &String| address.parse::<std::net::IpAddr>().is_ok() || address.contains('/');
        let header = scope.nearest_arg("real_ip_header").unwrap_or("X-Real-IP");
        match header.to_ascii_lowercase().as_str() {
            _ if here != self.proxies => {
                Err("proxies are trusted for the whole node, not for a part of it".to_owned())
            }
            "x-forwarded-for" | "proxy_protocol" if here.iter().all(is_known) => Ok(()),
            _ => Err(format!("the addresses of clients do not come from `{header}`")),
        }
    }

    /// `satisfy any` with rules of several kinds: all of them would have to hold.
    pub(super) fn satisfy(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let nearest = scope.nearest("satisfy");
        let Some(directive) = nearest.first().filter(|directive| directive.arg(0) == "any") else {
            return;
        };
        let is_on = |name: &&&str| !matches!(scope.nearest_arg(name), None | Some("off"));
        let has_addresses = ["allow", "deny"].iter().any(|name| !scope.nearest(name).is_empty());
        let others = ["auth_basic", "auth_request", "auth_jwt"].iter().filter(is_on).count();
        if usize::from(has_addresses) + others > 1 {
            let outcome = left("all rules of access must hold, not any of them");
            let outcome = gate::pass(Concern::Access, *directive, outcome, table);
            self.enter(directive, outcome);
        }
    }

    /// The one table of trusted proxies.
    pub(super) fn trusted(&mut self) -> &mut Table {
        let trusted = &mut self.plan.trusted;
        if trusted.is_empty() {
            trusted.push(Table::default());
        }
        &mut trusted[0]
    }
}
