//! The service classes of a site: given by its rules, or learned where the rules leave them open.

use std::time::Duration;

use http::{HeaderMap, Method, header::CONTENT_TYPE};
use levada_policy::classify::{ClassLearner, RequestAttributes};
use levada_types::ServiceClass;
use parking_lot::RwLock;

use crate::ClassSettings;

/// The classifier of a site.
pub struct Classes {
    settings: ClassSettings,
    learner: Option<RwLock<ClassLearner>>,
}

impl Classes {
    /// `None` if every request is of the normal class.
    pub fn new(settings: &ClassSettings) -> Option<Self> {
        let open = settings.rules.0.iter().any(|rule| rule.class.is_none());
        let learns = settings.learn || open;
        let learner =
            learns.then(|| RwLock::new(ClassLearner::new(settings.rules.0.len(), settings.learn)));
        let any = learns || !settings.rules.0.is_empty();
        any.then(|| Self { settings: settings.clone(), learner })
    }

    /// The class of a request for `target` with these fields, and the rule that matches it.
    pub fn of_request(
        &self,
        (scheme, method, target): (&str, &Method, &str),
        headers: &HeaderMap,
    ) -> (ServiceClass, Option<u32>) {
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        self.of(&RequestAttributes {
            path: target.split('?').next().unwrap_or_default(),
            method: method.as_str(),
            content_type: kind.and_then(|kind| kind.split(';').next()).map(str::trim),
            tls: scheme == "https",
        })
    }

    fn of(&self, seen: &RequestAttributes<'_>) -> (ServiceClass, Option<u32>) {
        let rule = self.settings.rules.first_match(seen);
        let given = rule.and_then(|rule| self.settings.rules.0[rule].class);
        let learned = || self.learner.as_ref().map(|learner| learner.read().class(rule, seen.path));
        let class = given.or_else(learned).unwrap_or_default();
        (class, rule.and_then(|rule| u32::try_from(rule).ok()))
    }

    /// Whether [`observe`](Self::observe) does anything.
    pub fn learns(&self) -> bool {
        self.learner.is_some()
    }

    /// Takes in the time to the first byte of a response.
    pub fn observe(&self, rule: Option<u32>, path: &str, latency: Duration) {
        let rule = rule.map(|rule| rule as usize);
        let given = rule.and_then(|rule| self.settings.rules.0.get(rule)?.class).is_some();
        if let Some(learner) = self.learner.as_ref().filter(|_| !given) {
            let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
            learner.write().observe(rule, path, micros);
        }
    }

    /// Classes that were learned, by prefix, and by the place of a rule.
    pub fn learned(&self) -> Vec<(String, ServiceClass)> {
        let Some(learner) = &self.learner else { return Vec::new() };
        let learner = learner.read();
        let open =
            self.settings.rules.0.iter().enumerate().filter(|(_, rule)| rule.class.is_none());
        let of_rule = |(at, _)| (format!("class[{at}]"), learner.class(Some(at), ""));
        let prefixes = learner.learned().map(|(prefix, class)| (prefix.to_owned(), class));
        open.map(of_rule).chain(prefixes).collect()
    }

    /// Whether these settings have the same rules. Learned classes still hold then.
    pub fn same_as(&self, settings: &ClassSettings) -> bool {
        self.settings == *settings
    }
}
