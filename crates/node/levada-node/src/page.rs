//! The page at the admin address shows this node, and its cluster as the node sees it.

use std::{collections::BTreeMap, future::Future, net::IpAddr, pin::Pin, sync::Arc};

use http::{HeaderMap, Request, Response};
use levada_cluster::admin_access::{self, OrderRefusal};
use levada_cluster::events::Events;
use levada_control::page::{Hello, LastSeen, Orders, Page, PageBody, Shown, Snapshot};
use levada_control::status::{ClusterNode, Sample, SetSize, ask_cluster};
use levada_edge::node::Node;

use levada_config::Settings;

use crate::reload::Reloader;

/// The answer of the page to a request on the admin listener, if it is for the page.
pub(crate) fn answer<B>(
    page: &Page,
    node: &Node,
    client: Option<IpAddr>,
    request: &Request<B>,
) -> Option<Response<PageBody>> {
    let settings = node.settings();
    if !names_this_listener(&settings, client, request.headers()) {
        return None;
    }
    let token = settings.admin.as_ref().and_then(|admin| admin.token.as_deref());
    let orders = match admin_access::may_order(token, client, &HeaderMap::new()) {
        Ok(()) => Orders::Here,
        Err(OrderRefusal::OtherMachine) => Orders::Refused,
        Err(_) => Orders::Token,
    };
    page.answer(request, orders)
}

/// Whether `Host` can belong to the admin listener.
pub(crate) fn names_this_listener(
    settings: &Settings,
    client: Option<IpAddr>,
    headers: &HeaderMap,
) -> bool {
    let hosts = settings.admin.iter().flat_map(|admin| &admin.hosts);
    client.is_none() || admin_access::names_this_listener(headers, hosts)
}

/// A node that shows itself and its cluster.
pub(crate) struct NodePage {
    reloader: Arc<Reloader>,
    seen: LastSeen,
}

/// The states of all nodes of the cluster.
pub(crate) async fn cluster(node: &Node) -> Vec<ClusterNode> {
    let own = node.status();
    match &node.peers {
        Some(peers) => ask_cluster(own, &peers.membership()).await,
        None => {
            let (name, status) = (own.name.clone(), Some(own));
            vec![ClusterNode { name, up: true, status, ..ClusterNode::default() }]
        }
    }
}

impl NodePage {
    pub(crate) fn new(reloader: Arc<Reloader>) -> Self {
        Self { reloader, seen: LastSeen::default() }
    }

    fn node(&self) -> &Node {
        &self.reloader.node
    }

    /// The fleet, if the node is of one.
    async fn fleet(&self) -> Option<serde_json::Value> {
        let (_, look) = self.reloader.fleet.get()?;
        serde_json::to_value(look.take().await).ok()
    }
}

impl Shown for NodePage {
    fn hello(&self, orders: Orders) -> Hello {
        let name = self.node().settings().name.clone();
        Hello { kind: "node", name, version: env!("CARGO_PKG_VERSION"), orders }
    }

    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(async {
            let (nodes, fleet) = tokio::join!(cluster(self.node()), self.fleet());
            let own = Some(self.node().settings().name.clone());
            Snapshot { fleet, ..Snapshot::now(own, self.seen.take(nodes)) }
        })
    }

    fn history(&self) -> BTreeMap<String, Vec<Sample>> {
        BTreeMap::from([(self.node().settings().name.clone(), self.node().history.since(0.0))])
    }

    fn set_sizes(&self) -> BTreeMap<String, Vec<SetSize>> {
        self.node().set_sizes.told()
    }

    fn events(&self) -> &Events {
        &self.node().events
    }
}
