//! The collector of traces, metrics and logs: a URL, and fields that may be sent there.

use http::{HeaderName, HeaderValue};

use super::Check;
use crate::text::{Root, Upstream};
use levada_observe::otel::ExportSettings;
use levada_upstream::{CollectorSettings, CollectorTargets};

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a node without a collector.
    pub(super) fn telemetry(&mut self) -> Option<Option<CollectorSettings>> {
        let Some(telemetry) = &self.file.telemetry else { return Some(None) };
        let path = self.root.key("telemetry");
        let url = telemetry.endpoint.as_deref()?;
        let (root, prefix) = Root::of_url(url, &['/']);
        let server = root.map(|root| super::site::origin(&Upstream::Root(root)));
        let targets = CollectorTargets::below(prefix);
        if server.is_none() || targets.is_none() {
            let message = format!("{url:?} is no URL with http or https and a host");
            self.error(&path.key("endpoint"), message)
                .help("for example \"http://127.0.0.1:4318\"");
        }
        let mut headers = Some(Vec::new());
        for (name, value) in &telemetry.headers {
            let field = name.parse::<HeaderName>().ok().zip(HeaderValue::from_str(value).ok());
            if field.is_none() {
                let message = "not a field that can be sent".to_owned();
                self.error(&path.key("headers").key(name.clone()), message)
                    .help("for example Authorization = \"Bearer ${TOKEN}\"");
            }
            // Its value may be a secret, which no log shows.
            let secret = |(name, mut value): (_, HeaderValue)| {
                value.set_sensitive(true);
                (name, value)
            };
            headers = headers.zip(field).map(|(mut all, field)| {
                all.push(secret(field));
                all
            });
        }
        Some(Some(CollectorSettings {
            server: server?,
            targets: targets?,
            headers: headers?,
            export: ExportSettings {
                sample: telemetry.sample,
                metrics_interval: telemetry.metrics_interval.map(|time| time.0),
                event_log: telemetry.event_log,
                service: telemetry.service.clone(),
                node: self.file.name.as_ref().map_or_else(String::new, ToString::to_string),
            },
        }))
    }
}
