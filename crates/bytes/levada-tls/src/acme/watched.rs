//! Alarms before certificates end: those of files too, which nobody but the operator renews.

use std::collections::HashMap;

use crate::acme::{
    CertificateEvent, CertificateState,
    schedule::{alarm, alarms},
};

const DAY: f64 = 86_400.0;

/// The alarms that were raised, by the certificate's source, first name and end.
#[derive(Debug, Default)]
pub(crate) struct Alarms(HashMap<(String, String, i64), usize>);

impl Alarms {
    /// The alarms that are new. Each certificate has some of them, until its end.
    pub(crate) fn look(&mut self, states: &[CertificateState], now: i64) -> Vec<CertificateEvent> {
        let mut before = std::mem::take(&mut self.0);
        let mut new = Vec::new();
        for state in states.iter().filter(|state| state.ends > 0) {
            let due = alarms(state.ends - now, alarm(state.begins, state.ends));
            let name = state.names.first().cloned().unwrap_or_default();
            let place = (state.source.clone(), name.clone(), state.ends);
            let raised = before.remove(&place).unwrap_or_default();
            self.0.insert(place, raised.max(due));
            if due > raised {
                let source = state.source.clone();
                let days = (state.ends - now) as f64 / DAY;
                let problem = state.problem.clone();
                new.push(CertificateEvent::Expiring { name, source, days, problem });
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_is_raised_once_at_each_of_its_times() {
        let days = |days: i64| days * 86_400;
        let state = CertificateState {
            source: "a.pem".to_owned(),
            names: vec!["a.example".to_owned()],
            begins: 1,
            ends: days(90),
            renews: None,
            problem: None,
        };
        let mut raised = Alarms::default();
        let states = [state];
        let seen: Vec<_> =
            (70..95).filter(|day| !raised.look(&states, days(*day)).is_empty()).collect();
        assert_eq!(seen, [76, 83, 87, 89, 90]);
        assert!(raised.look(&[], 0).is_empty() && raised.0.is_empty());
    }
}
