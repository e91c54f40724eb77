//! The answer to the question which node would serve a URL, and why.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::explain::explained::{EvaluatedExpression, TakenRoute};

/// The node that would be chosen, with everything that the decision depends on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The effective request URI, which is hashed.
    pub url: String,
    /// The hash, in hexadecimal.
    pub key: String,
    /// The site's policy.
    pub policy: String,
    /// The node that decides.
    pub redirector: String,
    /// The routes of the site, where it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<TakenRoute>,
    /// The expressions that the request meets, with their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<EvaluatedExpression>,
    /// The part of the request that the key was taken from.
    pub key_from: String,
    /// The file that answers, or why none does, where the node serves a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The origins, or the servers of the switch, with the protocol by which each is reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The service class, where the site tells classes apart.
    pub class: Option<Cow<'static, str>>,
    /// The node, or the server of the site's switch, that would serve; `None` when none is up.
    pub node: Option<String>,
    /// The reason: hash, replica, spill, least, class, chance.
    pub reason: Option<Cow<'static, str>>,
    /// The number of nodes that are responsible for the object after this decision.
    pub set_size: u32,
    /// The nodes that are responsible now.
    pub set: Vec<String>,
    /// The object's share of the requests that this node has seen lately, if the policy counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The outstanding requests at which a node of weight 1 takes no more requests for the object,
    /// if the policy has such a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// All candidates in the policy's order, with the state of each.
    pub candidates: Vec<Candidate>,
    /// The size of the object, if a response has stated it.
    pub size: Option<u64>,
    /// The choice of the node that asks the origin for all others, where the site has a shield.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shield: Option<ShieldChoice>,
    /// The rules of access and the limits of the site.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<String>,
    /// The places of a large file's pieces, if the node has served it in pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces: Option<Pieces>,
}

/// The choice among the nodes of a shield.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShieldChoice {
    /// The region.
    pub region: String,
    /// Its policy.
    pub policy: String,
    /// The node that asks the origin; `None`: no node of the shield can be asked now.
    pub node: Option<String>,
    /// The reason: hash, replica, spill, least, class, chance.
    pub reason: Option<Cow<'static, str>>,
    /// The nodes that can be asked, in the policy's order.
    pub candidates: Vec<String>,
}

/// The places of a large file's pieces.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pieces {
    /// Bytes in a piece.
    pub size: u64,
    /// The number of pieces.
    pub count: u64,
    /// The first pieces, in file order.
    pub first: Vec<PiecePlacement>,
}

/// The place of a piece.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PiecePlacement {
    /// Its range and version, as in its URL.
    pub piece: String,
    /// The node that the piece would be requested from.
    pub node: Option<String>,
    /// The nodes that are responsible for it.
    pub set: Vec<String>,
}

/// One node as the decision saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name.
    pub node: String,
    /// Its address, if a running node explains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Requests that this redirector has sent to it and that are not finished.
    pub outstanding: u32,
    /// Its weight.
    pub weight: f64,
    /// Its distance relative to the nearest node.
    pub distance: f64,
    /// Whether it is up.
    pub up: bool,
    /// The share that its slow start has reached; 1 when it is warm.
    pub ramp: f64,
}

/// Why a URL cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// It is not an absolute URL.
    #[error("`{0}` is no absolute URL: write it as in http://www.example.com/path")]
    NotAbsolute(String),
    /// No site has this host.
    #[error("no site answers to the host `{0}`; look at `hosts` of each [[site]]")]
    UnknownHost(String),
    /// A node refuses the request.
    #[error("the node refuses such a request: {0}")]
    Refused(String),
    /// The site's policy cannot be built.
    #[error(transparent)]
    Policy(#[from] levada_policy::BuildError),
}
