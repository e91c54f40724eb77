//! nginx's configuration for a process next to the one that serves clients: the same answers, at other ports, and
//! no file of the other process is written.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr};

use super::{parse::Directive, parse::GRAMMAR, server};
use crate::{
    conversion::Unreadable,
    files::{Includes, InputFile},
    ledger::{Ledger, Stated as _},
    tree::Parser,
};

/// A configuration for a process that is compared.
#[derive(Clone, Debug)]
pub struct Aside {
    /// One file, with what it includes.
    pub text: String,
    /// The addresses of the former configuration, and those of this one.
    pub listeners: BTreeMap<String, SocketAddr>,
}

/// Makes the configuration of such a process. Its files go to `directory`, and `free` names a free address for each
/// one of the former configuration.
///
/// # Errors
/// When a file is not written in nginx's grammar.
pub fn aside(
    file: &InputFile,
    includes: &dyn Includes,
    directory: &str,
    free: &mut dyn FnMut() -> SocketAddr,
) -> Result<Aside, Unreadable> {
    let mut ledger = Ledger::default();
    let statements =
        Parser::new(&GRAMMAR, includes, &mut ledger).file(&file.name, &file.text, 0)?;
    let directives: Vec<_> = statements.into_iter().map(Directive::from).collect();
    let mut writer = Writer { directory, free, text: String::new(), listeners: BTreeMap::new() };
    let _ = writeln!(
        writer.text,
        "daemon off;\nmaster_process off;\npid \"{directory}/pid\";\nerror_log \"{directory}/error.log\";"
    );
    writer.block("", &directives);
    if !directives.iter().any(|one| one.name == "events") {
        writer.text += "events { }\n";
    }
    Ok(Aside { text: writer.text, listeners: writer.listeners })
}

/// Directives about the process, and about files that it writes.
const LEFT_OUT: &[&str] = &[
    "access_log",
    "client_body_temp_path",
    "daemon",
    "error_log",
    "fastcgi_temp_path",
    "lock_file",
    "mail",
    "master_process",
    "pid",
    "proxy_store",
    "proxy_temp_path",
    "scgi_temp_path",
    "stream",
    "user",
    "uwsgi_temp_path",
    "worker_processes",
];

/// Blocks whose statements are no directives.
const OF_ENTRIES: &[&str] = &["charset_map", "geo", "map", "split_clients", "types"];

/// Parameters of `listen` about the socket, which a socket of another address may not have.
const OF_SOCKETS: &[&str] = &["bind", "deferred", "proxy_protocol", "reuseport"];

struct Writer<'a> {
    directory: &'a str,
    free: &'a mut dyn FnMut() -> SocketAddr,
    text: String,
    listeners: BTreeMap<String, SocketAddr>,
}

impl Writer<'_> {
    fn block(&mut self, name: &str, directives: &[Directive]) {
        if name == "http" {
            self.own_directories();
        }
        if name == "server" && !directives.iter().any(|one| one.name == "listen") {
            let address = self.address(server::EVERYWHERE);
            let _ = writeln!(self.text, "listen {address};");
        }
        for directive in directives {
            // Entries of a map may have any name.
            if OF_ENTRIES.contains(&name) {
                self.directive(directive);
                continue;
            }
            if LEFT_OUT.contains(&directive.name.as_str()) {
                continue;
            }
            match directive.name.as_str() {
                "listen" => self.listen(directive),
                "proxy_cache_path" => self.cache(directive),
                _ => self.directive(directive),
            }
        }
    }

    fn own_directories(&mut self) {
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            let _ = writeln!(self.text, "{kind}_temp_path \"{}/{kind}\";", self.directory);
        }
        self.text += "access_log off;\n";
    }

    fn directive(&mut self, directive: &Directive) {
        self.words(&directive.name, &directive.args);
        if directive.block.is_none() {
            self.text += ";\n";
            return;
        }
        self.text += " {\n";
        self.block(&directive.name, directive.inner());
        self.text += "}\n";
    }

    /// The name as it stands, since `if` and the entries of maps are no texts, and the arguments in quotes.
    fn words(&mut self, name: &str, args: &[String]) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        match name.chars().all(plain) && !name.is_empty() {
            true => self.text += name,
            false => self.text += &quoted(name),
        }
        for arg in args {
            self.text.push(' ');
            self.text += &quoted(arg);
        }
    }

    fn listen(&mut self, directive: &Directive) {
        // One at a socket's file must not come to listen at the port of all servers without an address.
        let own = server::address(directive.arg(0)).unwrap_or_else(|_| directive.arg(0).to_owned());
        let address = self.address(&own);
        let stays = |arg: &&String| {
            !OF_SOCKETS.contains(&arg.as_str()) && (!arg.contains('=') || arg.starts_with("http"))
        };
        let others: Vec<_> = directive.args.iter().skip(1).filter(stays).cloned().collect();
        self.words("listen", &[vec![address.to_string()], others].concat());
        self.text += ";\n";
    }

    fn address(&mut self, own: &str) -> SocketAddr {
        *self.listeners.entry(own.to_owned()).or_insert_with(|| (self.free)())
    }

    fn cache(&mut self, directive: &Directive) {
        let zone = directive.parameter("keys_zone").unwrap_or_default();
        let name: String = zone.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        let path = format!("{}/cache-{name}", self.directory);
        let others = directive.args.iter().skip(1).filter(|arg| !arg.starts_with("use_temp_path"));
        let args: Vec<_> = std::iter::once(path).chain(others.cloned()).collect();
        self.words("proxy_cache_path", &args);
        self.text += " use_temp_path=off;\n";
    }
}

/// In quotes, so that nginx reads the same word.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}
