//! The cluster: names, and how its nodes trust each other.

use levada_cluster::nodes::{Peer, PeerTrust, Peering};
use levada_tls::secret::Secrets;
use levada_types::document::{Path, did_you_mean};

use super::Check;
use crate::{file, file::Protocol, text::NodeName};

/// Shorter secrets can be guessed by trying.
const SHORTEST_SECRET: usize = 16;

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a node without peers.
    pub(super) fn peering(&mut self) -> Option<Option<Peering>> {
        let peers = self.peers();
        let path = self.root.key("peering");
        let Some(peering) = &self.file.peering else {
            if !self.file.peer.is_empty() && !self.findings.has(&path) {
                let help = "add a `[peering]` table: where peers come in, and their secret";
                self.error(&self.root.key("peer"), "there are peers, but no `[peering]`")
                    .help(help);
                return None;
            }
            return Some(None);
        };
        if let Some(source) = &peering.discovery {
            self.names_a_source(&source.0, &path.key("discovery"));
        } else {
            self.own_name_is_a_peer();
        }
        self.own_region(peering, &path);
        let trust = self.trust(peering, &path);
        Some(Some(Peering {
            listen: peering.listen?.0,
            trust: trust?,
            h2: peering.protocol == Protocol::H2,
            peers: self.with_this_node(peers?, peering)?,
            discovery: peering.discovery.as_ref().map(|source| source.0.as_str().into()),
            health: peering.health_check.clone(),
            slow_start: peering.slow_start.0,
            catch_up: peering.catch_up.0,
        }))
    }

    fn peers(&mut self) -> Option<Vec<Peer>> {
        let list = self.root.key("peer");
        for (position, peer) in self.file.peer.iter().enumerate() {
            let before = &self.file.peer[..position];
            let path = list.index(position);
            if let Some(name) = &peer.name
                && let Some(other) = before.iter().position(|p| p.name.as_ref() == Some(name))
            {
                let message = format!("{:?} is the name of peer[{other}] already", name.0);
                self.error(&path.key("name"), message);
            }
            if let Some(address) = &peer.address
                && let Some(other) = before.iter().position(|p| p.address.as_ref() == Some(address))
            {
                let message = format!("{address} is the address of peer[{other}] already");
                self.error(&path.key("address"), message);
            }
        }
        self.regions(&list);
        self.file.peer.iter().map(peer).collect()
    }

    /// Nodes with and without a region would be apart, which is hardly meant.
    fn regions(&mut self, list: &Path) {
        let known = |peer: &file::Peer| peer.region.is_some();
        let Some(without) = self.file.peer.iter().position(|peer| !known(peer)) else { return };
        if let Some(with) = self.file.peer.iter().find(|peer| known(peer)) {
            let name = with.name.as_ref().map_or("another one", |name| &name.0);
            let message = format!("has no `region`, and {name:?} has one");
            self.error(&list.index(without), message).help("give each `[[peer]]` its region");
        }
    }

    /// The nodes, with this one, which a source may not name yet.
    fn with_this_node(&self, mut peers: Vec<Peer>, peering: &file::Peering) -> Option<Vec<Peer>> {
        let NodeName(own) = self.file.name.as_ref()?;
        if peering.discovery.is_some() && !peers.iter().any(|peer| peer.name == *own) {
            let address = peering.listen?.0.to_string();
            let (name, weight) = (own.clone(), file::Peer::default().weight);
            let region = match &peering.region {
                Some(NodeName(own)) => own.as_str().into(),
                None => peers.first().map(|peer| peer.region.clone()).unwrap_or_default(),
            };
            let (at, rtt, client_url, public) = (None, None, None, Vec::new());
            peers.push(Peer { name, address, at, weight, rtt, client_url, region, public });
        }
        Some(peers)
    }

    /// The region of this node has one place.
    fn own_region(&mut self, peering: &file::Peering, path: &Path) {
        if peering.region.is_none() {
            return;
        }
        let listed = self.file.peer.iter().any(|peer| peer.name == self.file.name);
        if peering.discovery.is_none() || listed {
            self.error(&path.key("region"), "belongs to the `[[peer]]` table of this node")
                .help("write it there; this key is for nodes that only a source names");
        } else if let Some(at) = self.file.peer.iter().position(|peer| peer.region.is_none()) {
            let message = "has no `region`, and this node has one";
            self.error(&self.root.key("peer").index(at), message).help("give it its region");
        }
    }

    fn own_name_is_a_peer(&mut self) {
        let names =
            || self.file.peer.iter().filter_map(|peer| Some(peer.name.as_ref()?.0.as_str()));
        // A peer whose name could not be read may be this node.
        let all_known = self.file.peer.iter().all(|peer| peer.name.is_some());
        let Some(NodeName(own)) = self.file.name.as_ref().filter(|_| all_known) else { return };
        if !names().any(|name| name == own.as_str()) {
            self.error(&self.root.key("name"), format!("no `[[peer]]` has the name {own:?}")).help(
                did_you_mean(own, names()).unwrap_or_else(|| {
                    "list this node too: the peers are the same list on every node".to_owned()
                }),
            );
        }
    }

    fn trust(&mut self, peering: &file::Peering, path: &Path) -> Option<PeerTrust> {
        let secrets = self.secrets(peering, path);
        let Some(tls) = &peering.tls else {
            if matches!(secrets, Some(None)) && !self.findings.has(&path.key("tls")) {
                let help = "add `secret_file`, `secret = \"${LEVADA_SECRET}\"`, or `tls`";
                self.error(path, "has neither a secret nor certificates, so that anyone is a peer")
                    .help(help);
            }
            return secrets?.map(PeerTrust::Secret);
        };
        let path = path.key("tls");
        let identity = self.certificate(&tls.certificate, &tls.key, &path);
        let authority = self.pem(&tls.authority, "CERTIFICATE", &path.key("authority"));
        let (identity, authority) = (identity?, authority?);
        if let Err(error) = levada_tls::peer::server(&identity, &authority) {
            return self.error(&path, error.to_string()).none();
        }
        Some(PeerTrust::Mtls { identity, authority, secrets: secrets? })
    }

    /// The secrets of the cluster: one, a list, or the lines of a file. The outer `None` marks an error, the inner
    /// absent secrets.
    fn secrets(&mut self, peering: &file::Peering, path: &Path) -> Option<Option<Secrets>> {
        let file::Peering { secret, secrets, secret_file, .. } = peering;
        if secret.is_some() && secrets.is_some() {
            self.error(&path.key("secrets"), "there is `secret` as well")
                .help("keep one of the two");
            return None;
        }
        let (key, given) = match secrets {
            Some(list) => ("secrets", Some(list.join("\n"))),
            None => ("secret", secret.clone()),
        };
        let keys = [key, "secret_file"];
        let Some(text) = self.text_or_file(keys, &given, secret_file, path)? else {
            return Some(None);
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let all: Vec<String> = lines.map(str::to_owned).collect();
        let shortest = all.iter().map(String::len).min().unwrap_or(0);
        self.is_long_enough(shortest, &path.key(keys[usize::from(given.is_none())]))?;
        Some(Secrets::new(all))
    }

    /// Reads a secret from one of two keys: the secret itself, or a file. The outer `None` marks an
    /// error, the inner an absent secret.
    pub(super) fn secret(
        &mut self,
        keys: [&'static str; 2],
        given: &Option<String>,
        in_file: &Option<String>,
        path: &Path,
    ) -> Option<Option<String>> {
        let Some(secret) = self.text_or_file(keys, given, in_file, path)? else {
            return Some(None);
        };
        self.is_long_enough(secret.len(), &path.key(keys[usize::from(given.is_none())]))?;
        Some(Some(secret))
    }

    fn is_long_enough(&mut self, bytes: usize, key: &Path) -> Option<()> {
        if bytes < SHORTEST_SECRET {
            let message = format!("is a secret of {bytes} bytes; it needs {SHORTEST_SECRET}");
            return self.error(key, message).help("make one: openssl rand -base64 24").none();
        }
        Some(())
    }

    /// The text of one key, or of the file that the other one names, without white space around it.
    pub(super) fn text_or_file(
        &mut self,
        keys: [&'static str; 2],
        given: &Option<String>,
        in_file: &Option<String>,
        path: &Path,
    ) -> Option<Option<String>> {
        let [own, file] = keys.map(|key| path.key(key));
        match (given, in_file) {
            (None, None) => {
                let wrong = [own, file].map(|key| self.findings.has(&key));
                if wrong.contains(&true) { None } else { Some(None) }
            }
            (Some(_), Some(_)) => {
                self.error(&file, format!("there is `{}` as well", keys[0]))
                    .help("keep one of the two");
                None
            }
            (Some(text), None) => Some(Some(text.clone())),
            (None, Some(name)) => {
                self.content(name, &file).map(|(_, content)| Some(content.trim().to_owned()))
            }
        }
    }
}

fn peer(file: &file::Peer) -> Option<Peer> {
    Some(Peer {
        name: file.name.as_ref()?.0.clone(),
        address: file.address.as_ref()?.0.clone(),
        at: None,
        weight: file.weight,
        rtt: file.rtt.map(|rtt| rtt.0),
        client_url: file.client_url.as_ref().map(ToString::to_string),
        region: file.region.as_ref().map(|region| region.0.as_str().into()).unwrap_or_default(),
        public: file.public.iter().map(|address| address.0).collect(),
    })
}
