//! The routes: what serves them, and what describes them, is made of this list.

use http::Method;
use levada_fleet::{
    History, Overview, Rotated,
    difference::{ChangedFile, ChangedSettings},
    model::{Role, TokenRecord},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{
    answer::{Problem, Problems},
    progress::Line,
};

/// A route.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// The path; `{name}` stands for one part of it.
    pub(crate) path: &'static str,
    pub(crate) order: Order,
    /// The least role; `None` for everybody.
    pub(crate) role: Option<Role>,
    /// Whether a token that is bound to sites may give the order.
    pub(crate) for_bound: bool,
    pub(crate) summary: &'static str,
    pub(crate) parameters: &'static [&'static Parameter],
    pub(crate) body: Content,
    pub(crate) answers: &'static [Answer],
}

/// The order that a route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Description,
    Status,
    History,
    Check,
    Diff,
    Apply,
    Rollback,
    Rotate,
    Drain,
    Undrain,
    Remove,
    Tokens,
    MakeToken,
    RevokeToken,
}

/// A parameter of a query, or a header field.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) is_header: bool,
    pub(crate) form: Form,
    pub(crate) words: &'static str,
}

/// The form of a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Text,
    /// Present without a value, or `true` or `false`.
    Switch,
    Count,
    Percent,
    /// `10s`, `5m`.
    Time,
}

/// An answer of a route.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) words: &'static str,
    pub(crate) content: Content,
}

/// The content of a body.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    None,
    /// A tar, plain or with gzip.
    Archive,
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Lines of JSON.
    Lines(fn(&mut SchemaGenerator) -> Schema),
    /// Any JSON.
    Any,
}

/// The outcome of a check.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Checked {
    /// The nodes that were checked.
    pub(crate) nodes: usize,
    /// Warnings.
    pub(crate) problems: Vec<Problem>,
    /// The parts that are left out on purpose, in words.
    pub(crate) notes: Vec<String>,
}

/// The changes that a directory would make.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changes {
    /// The files that differ from those of the head.
    pub(crate) files: Vec<ChangedFile>,
    /// The settings that differ, by node.
    pub(crate) settings: Vec<ChangedSettings>,
    #[serde(flatten)]
    pub(crate) checked: Checked,
}

/// A node after an order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NodeOrder {
    /// Its name.
    pub(crate) node: String,
    /// Whether it is drained.
    pub(crate) drained: bool,
    /// Whether it is a member of the fleet.
    pub(crate) member: bool,
}

/// A token to be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenOrder {
    /// Its rights.
    pub(crate) role: Role,
    /// The sites that it is bound to, with the roles `apply` and `purge`.
    #[serde(default)]
    pub(crate) sites: Vec<String>,
    /// When it ends, from now on, such as `1h`; without it, never.
    #[serde(default)]
    pub(crate) expires: Option<String>,
    /// Its purpose.
    #[serde(default)]
    pub(crate) note: String,
}

/// A new token.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenMade {
    /// Its identifier, by which it is revoked.
    pub(crate) id: String,
    /// The token. It is not shown again.
    pub(crate) token: String,
}

const fn query(name: &'static str, form: Form, words: &'static str) -> Parameter {
    Parameter { name, is_header: false, form, words }
}

pub(crate) const IF_MATCH: Parameter = Parameter {
    name: "if-match",
    is_header: true,
    form: Form::Text,
    words: "The `ETag` of an earlier answer: the order is carried out only if the head is still that one.",
};
pub(crate) const CHECK: Parameter =
    query("check", Form::Switch, "Changes nothing, and answers as `/v1/diff`.");
pub(crate) const NOTE: Parameter = query("note", Form::Text, "Why, for the history.");
pub(crate) const AT_ONCE: Parameter =
    query("at_once", Form::Switch, "Brings it to all nodes at once, without a canary.");
pub(crate) const CANARY: Parameter = query(
    "canary",
    Form::Percent,
    "The share of the nodes of each region that try it after the first node, in percent; 25 without it.",
);
pub(crate) const HOLD: Parameter =
    query("hold", Form::Time, "How long each step of the canary is watched; `10s` without it.");
pub(crate) const TIMEOUT: Parameter =
    query("timeout", Form::Time, "How long nodes may take to use it; `30s` without it.");
pub(crate) const KEEP: Parameter =
    query("keep", Form::Count, "The number of revisions that stay in the state; 100 without it.");
pub(crate) const REVISION: Parameter = query(
    "revision",
    Form::Count,
    "The number of the revision. Without it, the last one whose files differ from those in use.",
);

const fn json(status: u16, words: &'static str, of: fn(&mut SchemaGenerator) -> Schema) -> Answer {
    Answer { status, words, content: Content::Json(of) }
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const UNUSABLE: Answer =
    json(422, "The directory has errors; nothing has changed.", of::<Problems>);
const MOVED: Answer =
    json(412, "The head is another one than `If-Match` names; nothing has changed.", of::<Problem>);
const BUSY: Answer = json(409, "Another order applies at this moment.", of::<Problem>);
const ABSENT: Answer = json(404, "There is no such thing.", of::<Problem>);
const GOES: Answer = Answer {
    status: 200,
    words: "The steps as they happen, one JSON object in each line. The last one has `outcome` or `error`.",
    content: Content::Lines(of::<Line>),
};
const NODE: Answer = json(200, "The node.", of::<NodeOrder>);

/// All routes.
pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/openapi.json",
        order: Order::Description,
        role: None,
        for_bound: true,
        summary: "This description.",
        parameters: &[],
        body: Content::None,
        answers: &[Answer { status: 200, words: "OpenAPI 3.1.", content: Content::Any }],
    },
    Route {
        method: Method::GET,
        path: "/v1/status",
        order: Order::Status,
        role: Some(Role::Read),
        for_bound: true,
        summary: "The nodes: which revision each uses, who is behind or away, and why. `ETag` names the head.",
        parameters: &[],
        body: Content::None,
        answers: &[json(200, "The fleet.", of::<Overview>)],
    },
    Route {
        method: Method::GET,
        path: "/v1/history",
        order: Order::History,
        role: Some(Role::Read),
        for_bound: false,
        summary: "The revisions, and who did what, when, and from where.",
        parameters: &[],
        body: Content::None,
        answers: &[json(200, "Revisions and orders.", of::<History>)],
    },
    Route {
        method: Method::POST,
        path: "/v1/check",
        order: Order::Check,
        role: Some(Role::Read),
        for_bound: true,
        summary: "Checks a directory for all nodes of the fleet.",
        parameters: &[],
        body: Content::Archive,
        answers: &[json(200, "The directory can be used.", of::<Checked>), UNUSABLE],
    },
    Route {
        method: Method::POST,
        path: "/v1/diff",
        order: Order::Diff,
        role: Some(Role::Read),
        for_bound: true,
        summary: "The changes that `apply` would make: files, and the settings of the nodes.",
        parameters: &[],
        body: Content::Archive,
        answers: &[json(200, "The changes.", of::<Changes>), UNUSABLE],
    },
    Route {
        method: Method::POST,
        path: "/v1/apply",
        order: Order::Apply,
        role: Some(Role::Apply),
        for_bound: true,
        summary: "Brings a directory to all nodes. Who closes the connection ends the order, as who interrupts the command.",
        parameters: &[&IF_MATCH, &CHECK, &NOTE, &AT_ONCE, &CANARY, &HOLD, &TIMEOUT, &KEEP],
        body: Content::Archive,
        answers: &[GOES, BUSY, MOVED, UNUSABLE],
    },
    Route {
        method: Method::POST,
        path: "/v1/rollback",
        order: Order::Rollback,
        role: Some(Role::Apply),
        for_bound: false,
        summary: "Brings the files of an earlier revision to all nodes again, as a new revision.",
        parameters: &[&IF_MATCH, &REVISION, &NOTE, &TIMEOUT, &KEEP],
        body: Content::None,
        answers: &[GOES, ABSENT, BUSY, MOVED, UNUSABLE],
    },
    Route {
        method: Method::POST,
        path: "/v1/rotate",
        order: Order::Rotate,
        role: Some(Role::Apply),
        for_bound: false,
        summary: "Gives the nodes another secret for each other, in three rounds.",
        parameters: &[&TIMEOUT],
        body: Content::None,
        answers: &[
            json(
                200,
                "Done, or the nodes that have not taken the secrets of a round.",
                of::<Rotated>,
            ),
            BUSY,
        ],
    },
    Route {
        method: Method::PUT,
        path: "/v1/nodes/{node}/drain",
        order: Order::Drain,
        role: Some(Role::Apply),
        for_bound: false,
        summary: "Moves the clients of a node to other nodes, until that is undone.",
        parameters: &[],
        body: Content::None,
        answers: &[NODE, ABSENT],
    },
    Route {
        method: Method::DELETE,
        path: "/v1/nodes/{node}/drain",
        order: Order::Undrain,
        role: Some(Role::Apply),
        for_bound: false,
        summary: "Takes a node into service again.",
        parameters: &[],
        body: Content::None,
        answers: &[NODE, ABSENT],
    },
    Route {
        method: Method::DELETE,
        path: "/v1/nodes/{node}",
        order: Order::Remove,
        role: Some(Role::Apply),
        for_bound: false,
        summary: "Removes a node: it drains, the others ask it no more, and its token ends.",
        parameters: &[],
        body: Content::None,
        answers: &[NODE, ABSENT],
    },
    Route {
        method: Method::GET,
        path: "/v1/tokens",
        order: Order::Tokens,
        role: Some(Role::Admin),
        for_bound: false,
        summary: "The tokens, without their secrets.",
        parameters: &[],
        body: Content::None,
        answers: &[json(200, "The tokens.", of::<Vec<TokenRecord>>)],
    },
    Route {
        method: Method::POST,
        path: "/v1/tokens",
        order: Order::MakeToken,
        role: Some(Role::Admin),
        for_bound: false,
        summary: "Makes a token.",
        parameters: &[],
        body: Content::Json(of::<TokenOrder>),
        answers: &[json(201, "The token.", of::<TokenMade>)],
    },
    Route {
        method: Method::DELETE,
        path: "/v1/tokens/{id}",
        order: Order::RevokeToken,
        role: Some(Role::Admin),
        for_bound: false,
        summary: "Revokes a token.",
        parameters: &[],
        body: Content::None,
        answers: &[
            Answer { status: 204, words: "It opens nothing any more.", content: Content::None },
            ABSENT,
        ],
    },
];

/// The route of a request, and the part of its path that the route has a name for; or the methods that its path takes.
pub(crate) fn find(method: &Method, path: &str) -> Result<(&'static Route, String), Vec<Method>> {
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(name) = fits(route.path, path) else { continue };
        if route.method == *method {
            return Ok((route, name.to_owned()));
        }
        others.push(route.method.clone());
    }
    Err(others)
}

/// The part of a path in the place of the name in the route, if the path fits.
fn fits<'a>(route: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, rest)) = route.split_once('{') else { return (route == path).then_some("") };
    let after = rest.split_once('}')?.1;
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_leads_to_one_route() {
        let order =
            |method, path| find(&method, path).map(|(route, name)| (route.order, name)).ok();
        assert_eq!(order(Method::GET, "/v1/status"), Some((Order::Status, String::new())));
        let drain = Some((Order::Drain, "eu-1".to_owned()));
        assert_eq!(order(Method::PUT, "/v1/nodes/eu-1/drain"), drain);
        let remove = Some((Order::Remove, "eu-1".to_owned()));
        assert_eq!(order(Method::DELETE, "/v1/nodes/eu-1"), remove);
        for path in ["/v1/nodes//drain", "/v1/nodes/a/b", "/v1/nodes/", "/v1/statuses", "/"] {
            assert_eq!(order(Method::PUT, path), None, "{path}");
        }
        let allowed = find(&Method::PATCH, "/v1/tokens").err().unwrap();
        assert_eq!(allowed, [Method::GET, Method::POST]);
    }
}
