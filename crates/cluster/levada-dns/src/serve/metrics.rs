//! The metrics of the server.

use levada_observe::metrics::{Counter, Family, Gauge, Registry};

use super::Transport;
use crate::{answer::Answered, rate::Share, redirect::HttpAnswer, route::Reason, wire::Code};

/// Queries and answers.
#[derive(Clone)]
pub struct DnsMetrics {
    queries: [Counter; 2],
    responses: [Counter; CODES.len()],
    routed: [Counter; Reason::ALL.len()],
    pub(super) truncated: Counter,
    limited: [Counter; 2],
    redirected: [Counter; REDIRECTED.len()],
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

/// Answers over HTTP, by their status.
const REDIRECTED: [(u16, &str); 4] =
    [(0, "redirect"), (200, "list"), (404, "unknown_name"), (503, "no_node")];

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
        let redirected = registry.family(
            "dns_redirects",
            "Answers to HTTP requests for names that are routed over HTTP",
            ["answer"],
        );
        Self {
            redirected: REDIRECTED.map(|(_, answer)| by(redirected.clone(), answer)),
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

    pub(super) fn redirected(&self, answer: &HttpAnswer) {
        if let Some(at) = REDIRECTED.iter().position(|(status, _)| *status == answer.status) {
            self.redirected[at].inc();
        }
        if let Some(reason) = answer.reason {
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
