//! Access logs: their targets, formats and samples.

use crate::settings::SiteLog;
use levada_observe::log::access_log::{AccessLog, Sampling};
use levada_observe::log::{FACILITIES, FORMAT_NAMES, FormatError, LogFormat, LogTarget, Syslog};
use levada_observe::redact::RedactedArguments;
use levada_types::document::{Path, did_you_mean, nearest};

use super::Check;
use crate::file;

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a log that is off.
    pub(super) fn access_log(&mut self, log: &file::Log, path: &Path) -> Option<Option<AccessLog>> {
        let format = self.log_format(&log.format, path);
        let target = match log.access.as_str() {
            "off" => return format.map(|_| None),
            "stdout" => Some(LogTarget::Stdout),
            "otlp" => self.collector_of_log(path),
            syslog if syslog == "syslog" || syslog.starts_with("syslog:") => {
                self.syslog(log, path).map(LogTarget::Syslog)
            }
            given => {
                let at = self.stated(path, "access");
                self.in_existing_directory(given, &at).map(LogTarget::File)
            }
        };
        let (rate, slow) = (log.sample, log.slow.0);
        Some(Some(AccessLog {
            target: target?,
            format: format?,
            sampling: (rate < 1.0).then_some(Sampling { rate, slow }),
            redact: RedactedArguments::new(&log.redact),
            node: self.file.name.as_ref().map(ToString::to_string).unwrap_or_default(),
        }))
    }

    pub(super) fn site_log(&mut self, site: &file::Site, path: &Path) -> Option<SiteLog> {
        Some(match &site.log {
            None => SiteLog::OfNode,
            Some(log) => SiteLog::Own(self.access_log(log, &path.key("log"))?.map(Box::new)),
        })
    }

    /// Lines that a collector gets need one.
    fn collector_of_log(&mut self, path: &Path) -> Option<LogTarget> {
        if self.file.telemetry.is_none() {
            let at = self.stated(path, "access");
            self.error(&at, "there is no collector".to_owned())
                .help("add `[telemetry]` with `endpoint = \"http://127.0.0.1:4318\"`");
            return None;
        }
        Some(LogTarget::Collector)
    }

    /// The place where a key of the log is stated: a site's log inherits those of the node.
    fn stated(&self, path: &Path, key: &'static str) -> Path {
        let own = path.key(key);
        if self.findings.has(&own) { own } else { self.root.key("log").key(key) }
    }

    fn log_format(&mut self, text: &str, path: &Path) -> Option<LogFormat> {
        let error = match LogFormat::parse(text) {
            Ok(format) => return Some(format),
            Err(error) => error,
        };
        let help = match &error {
            FormatError::UnknownName(name) => did_you_mean(name, FORMAT_NAMES),
            FormatError::UnknownVariable(name) => Some(near_variables(name)),
            _ => None,
        };
        let at = self.stated(path, "format");
        self.error(&at, error.to_string()).maybe_help(help).none()
    }

    fn syslog(&mut self, log: &file::Log, path: &Path) -> Option<Syslog> {
        let facility = FACILITIES.iter().position(|known| *known == log.facility);
        if facility.is_none() {
            let message = format!("there is no facility {:?}", log.facility);
            let at = self.stated(path, "facility");
            self.error(&at, message).help(format!("one of {}", FACILITIES.join(", ")));
        }
        let transport = log.access.parse();
        if let Err(error) = &transport {
            let at = self.stated(path, "access");
            self.error(&at, format!("{error}"));
        }
        let node = self.file.name.as_ref().map(ToString::to_string).unwrap_or_default();
        Some(Syslog { transport: transport.ok()?, facility: facility?, node })
    }
}

/// The variables that `name` may be meant to be: those with a word in common, and the most similar one first.
fn near_variables(name: &str) -> String {
    let words: Vec<_> = name.split('_').filter(|word| word.len() > 2).collect();
    let shares = |known: &&str| known.split('_').any(|word| words.contains(&word));
    let nearest = nearest(name, levada_observe::log::variables());
    let others =
        levada_observe::log::variables().filter(shares).filter(|known| Some(*known) != nearest);
    let near: Vec<_> = nearest.into_iter().chain(others).map(shown).collect();
    match &near[..] {
        [] => {
            format!(
                "one of {}",
                levada_observe::log::variables().map(shown).collect::<Vec<_>>().join(", ")
            )
        }
        [one] => format!("did you mean `{one}`?"),
        near => format!("near ones are {}", near.join(", ")),
    }
}

fn shown(variable: &str) -> String {
    let is_prefix = variable.ends_with('_');
    format!("${variable}{}", if is_prefix { "NAME" } else { "" })
}
