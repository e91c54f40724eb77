//! The metrics of the server.

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

use super::Transport;
use crate::{answer::Answered, rate::Share, route::Reason, wire::Code};

/// Queries and answers.
#[derive(Clone)]
pub struct DnsMetrics {
    queries: [Counter; 2],
    responses: [Counter; CODES.len()],
    routed: [Counter; Reason::ALL.len()],
    pub(super) truncated: Counter,
    limited: [Counter; 2],
    pub(super) connections: Gauge,
    pub(super) zones: Gauge,
    pub(super) nodes: Family<[String; 2], Gauge>,
}

const CODES: [Code; 7] = [
    Code::NoError,
    Code::FormErr,
    Code::ServFail,
    Code::NxDomain,
    Code::NotImp,
    Code::Refused,
    Code::BadVers,
];

impl DnsMetrics {
    /// The metrics, which `registry` shows.
    pub fn registered(registry: &mut Registry) -> Self {
        let by = |family: Family<[&'static str; 1], Counter>, label| {
            family.get_or_create(&[label]).clone()
        };
        let queries = registry.family("dns_queries", "Queries by transport", ["transport"]);
        let responses = registry.family("dns_responses", "Responses by code", ["code"]);
        let routed = registry.family(
            "dns_routed",
            "Answers with nodes, by the table that had the region of the client",
            ["by"],
        );
        let limited = registry.family(
            "dns_limited",
            "Queries beyond the share of their network, by whether they got a truncated response",
            ["response"],
        );
        Self {
            queries: Transport::ALL.map(|of| by(queries.clone(), of.as_str())),
            responses: CODES.map(|code| by(responses.clone(), code.as_str())),
            routed: Reason::ALL.map(|reason| by(routed.clone(), reason.as_str())),
            truncated: registry.metric("dns_truncated", "Responses that did not fit"),
            limited: ["truncated", "none"].map(|response| by(limited.clone(), response)),
            connections: registry.metric("dns_connections", "Open TCP connections of DNS"),
            zones: registry.metric("dns_zones", "Zones"),
            nodes: registry.family(
                "dns_nodes",
                "Nodes by region, and whether they are in answers",
                ["region", "answered"],
            ),
        }
    }

    pub(super) fn queried(&self, transport: Transport) {
        self.queries[transport as usize].inc();
    }

    pub(super) fn responded(&self, code: Code) {
        if let Some(at) = CODES.iter().position(|other| *other == code) {
            self.responses[at].inc();
        }
    }

    pub(super) fn answered(&self, answered: &Answered) {
        self.responded(answered.code);
        if let Some(reason) = answered.reason {
            self.routed[reason as usize].inc();
        }
    }

    pub(super) fn limited(&self, share: Share) {
        match share {
            Share::Answer => {}
            Share::Truncated => self.limited[0].inc(),
            Share::Nothing => self.limited[1].inc(),
        }
    }
}
