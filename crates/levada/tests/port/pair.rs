//! `levada convert --compare` of one configuration.

use std::{fs, path::Path, process::Command};

/// A request to `www.example.com`: method, target, and a field.
pub(crate) type Asked = (&'static str, &'static str, Option<(&'static str, &'static str)>);

/// The words of the command.
pub(crate) struct Compared {
    pub(crate) code: Option<i32>,
    /// The account of the statements.
    pub(crate) report: String,
    /// The responses that differ; empty if none does.
    pub(crate) differences: String,
}

impl Compared {
    /// Whether the account says that everything went over and answers alike.
    pub(crate) fn is_said_to_be_alike(&self) -> bool {
        self.report.contains(" 0 with a difference") && self.report.contains(" 0 not converted")
    }
}

/// Converts the blocks of nginx's `http`, and compares the responses to these requests to `www.example.com`.
pub(crate) fn compared(directory: &Path, http: &str, requests: &[Asked]) -> Compared {
    let text = format!("events {{ }}\nhttp {{\n{http}\n}}\n");
    let line = |(method, target, with): &Asked| line(method, "www.example.com", target, *with);
    compared_with("nginx", directory, &text, &requests.iter().map(line).collect::<String>())
}

/// Converts the configuration of a server, and compares the responses to this list of requests, if it has any.
pub(crate) fn compared_with(former: &str, directory: &Path, text: &str, list: &str) -> Compared {
    fs::write(directory.join("former.conf"), text).unwrap();
    fs::write(directory.join("requests"), list).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.current_dir(directory).args(["convert", former, "former.conf", "-o", "levada.toml"]);
    if !list.is_empty() {
        command.args(["--compare", "requests"]);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (differences, report) = (text(output.stdout), text(output.stderr));
    let alike = differences.contains(", 0 different");
    let differences = if alike { String::new() } else { differences };
    Compared { code: output.status.code(), report, differences }
}

/// A request as lines of a list.
pub(crate) fn line(method: &str, host: &str, target: &str, with: Option<(&str, &str)>) -> String {
    let mut text = format!("{method} http://{host}{target}\n");
    if let Some((name, value)) = with {
        text += &format!("  {name}: {value}\n");
    }
    let body = match (method, target) {
        ("POST", "/too-large") => 2 << 20,
        ("POST", _) => 3,
        _ => return text,
    };
    text + &format!("  > {}\n", "x".repeat(body))
}
