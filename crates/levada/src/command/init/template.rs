//! The configuration that is written, and the commands to use it.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

use levada_types::AdminAddress;

use super::answers::{Answers, Content};

/// The file for these answers.
pub(super) fn text(answers: &Answers, admin: &AdminAddress, file: &Path) -> String {
    let Answers { content, hosts, door } = answers;
    let hosts: Vec<_> = hosts.iter().map(|host| quoted(host)).collect();
    let tls = match &door.tls {
        None => "# For HTTPS: tls = [{ certificate = \"cdn.pem\", key = \"cdn.key\" }]".to_owned(),
        Some((certificate, key)) => format!(
            "tls = [{{ certificate = {}, key = {} }}]",
            quoted(&certificate.display().to_string()),
            quoted(&key.display().to_string())
        ),
    };
    format!(
        r#"# A Levada node, written by `levada init`. Every key: docs/operate/configuration.md
#
#   levada validate -c {name}
#   levada doctor -c {name}
#   levada run -c {name}
#   {curl}

# The name of this node in the Cache-Status and Via headers of its responses, and in a cluster.
name = "a"

# The address for clients. 0.0.0.0 is every IPv4 address of this machine, [::] every address.
[[listen]]
address = "{address}"
{tls}

# The address for operators: `levada explain`, metrics, health, orders. Never a public address.
[admin]
listen = {admin}

# The cache in memory. Objects on disk survive a restart: remove the signs before [cache.disk] for it.
[cache]
memory = "256MiB"
# [cache.disk]
# path = "/var/cache/levada"
# size = "10GiB"

# The log of requests goes to standard output.
# [log]
# access = "/var/log/levada/access.log"

# The site. There may be several; "*" is every host name that no other site has.
[[site]]
hosts = [{hosts}]
{content}"#,
        name = shown(file),
        curl = curl(answers),
        address = door.address,
        admin = quoted(&admin.to_string()),
        hosts = hosts.join(", "),
        content = site(content, &answers.hosts),
    )
}

fn site(content: &Content, hosts: &[String]) -> String {
    match content {
        Content::Files(directory) => format!(
            r#"# The directory that is served: docs/operate/static-files.md
files = {}
"#,
            quoted(&directory.display().to_string())
        ),
        Content::Origin(url) => format!(
            r#"# The web server that has the content.
origin = {}
{}
# The lifetime of responses that state none. Without it, they are stored only as far as HTTP allows.
# default_ttl = "1m"

# Part of the site may be handled differently: docs/operate/routes.md
# [[site.route]]
# path = "/api/**"
# cache = false
"#,
            quoted(url),
            origin_host(url, hosts)
        ),
    }
}

/// The line about the origin's host name. A server with a name, asked for every host, expects its own.
fn origin_host(url: &str, hosts: &[String]) -> String {
    const ABOUT: &str = "# The origin gets the client's Host, unless this key has another one.";
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let is_named = !host.is_empty() && host != "localhost" && !is_address(host);
    match is_named && hosts == ["*"] {
        true => format!("{ABOUT}\norigin_host = {}\n", quoted(host)),
        false => format!("{ABOUT}\n# origin_host = \"www.example.com\"\n"),
    }
}

fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<IpAddr>().is_ok()
}

/// A request to the node.
fn curl(answers: &Answers) -> String {
    let door = &answers.door;
    let (address, port) = (reachable(door.address), door.address.port());
    let host = answers.hosts[0].replacen('*', "www", 1);
    let is_any = answers.hosts[0] == "*";
    match (&door.tls, is_any) {
        (None, true) => format!("curl -i http://{address}/"),
        (None, false) => format!("curl -i -H 'Host: {host}' http://{address}/"),
        (Some(_), true) => format!("curl -i -k https://{address}/"),
        (Some(_), false) => {
            let ip = address.ip();
            format!("curl -i -k --resolve '{host}:{port}:{ip}' https://{host}:{port}/")
        }
    }
}

/// An address by which this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".parse().ok(),
        IpAddr::V6(ip) if ip.is_unspecified() => "::1".parse().ok(),
        _ => None,
    };
    SocketAddr::new(ip.unwrap_or(address.ip()), address.port())
}

/// A text in the file, in which `${` does not begin a variable.
fn quoted(text: &str) -> String {
    toml::Value::String(text.replace("${", "$${")).to_string()
}

/// The name of the file as a word of a command.
fn shown(file: &Path) -> String {
    let name = file.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if name.chars().all(is_plain) { name } else { format!("{name:?}") }
}

/// The commands to use the file.
pub(super) fn next_steps(answers: &Answers, file: &Path) -> String {
    let (name, curl, understood) = (shown(file), curl(answers), understood(answers));
    format!(
        "{name} is written: {understood}. Next:
  levada doctor -c {name}    checks this machine
  levada run -c {name}       runs the node until ctrl-c
  {curl}
"
    )
}

/// The answers in one sentence, so that a user sees how they were understood.
fn understood(answers: &Answers) -> String {
    let content = match &answers.content {
        Content::Origin(url) => format!("what {url} has"),
        Content::Files(directory) => format!("the files of {}", shown(directory)),
    };
    let hosts = match &answers.hosts[..] {
        [every] if every == "*" => "every host name".to_owned(),
        [one] => format!("the host name {one}"),
        several => format!("the host names {}", several.join(" and ")),
    };
    let tls = if answers.door.tls.is_some() { "HTTPS" } else { "HTTP" };
    format!("it serves {content} under {hosts}, by {tls} at {}", answers.door.address)
}
