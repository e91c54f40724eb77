//! `etcd` and `kubernetes` of a source.

use levada_discovery::{
    ClientTls, ClusterAccess, Endpoint, EtcdSource, EtcdUser, KubernetesSource, Member,
    Registration,
};
use levada_types::document::Path;

use super::Check;
use crate::{file, text::NodeName};

impl Check<'_, '_> {
    pub(super) fn etcd(&mut self, table: &file::Etcd, path: &Path) -> Option<EtcdSource> {
        let user = self.etcd_user(table, path);
        let tls = self.etcd_tls(table, path);
        let endpoints = table.endpoints.as_slice().iter().map(|root| Endpoint {
            tls: root.tls,
            host: root.host.as_str().into(),
            port: root.port,
        });
        let endpoints: Vec<_> = endpoints.collect();
        let prefix = table.prefix.as_ref()?.trim_end_matches('/');
        if endpoints.is_empty() && self.findings.has(&path.key("endpoints")) {
            return None;
        }
        Some(EtcdSource { endpoints, prefix: format!("{prefix}/").into(), user: user?, tls: tls? })
    }

    /// The outer `None` marks an error, the inner no user.
    fn etcd_user(&mut self, table: &file::Etcd, path: &Path) -> Option<Option<EtcdUser>> {
        let file::Etcd { password, password_file, .. } = table;
        let password =
            self.text_or_file(["password", "password_file"], password, password_file, path)?;
        match (&table.user, password) {
            (Some(name), Some(password)) => {
                Some(Some(EtcdUser { name: name.as_str().into(), password: password.into() }))
            }
            (None, None) => Some(None),
            (Some(_), None) => {
                self.error(&path.key("user"), "has no password")
                    .help("add `password_file`, or `password = \"${ETCD_PASSWORD}\"`");
                None
            }
            (None, Some(_)) => {
                self.error(path, "has a password, but no `user`").help("add `user`").none()
            }
        }
    }

    fn etcd_tls(&mut self, table: &file::Etcd, path: &Path) -> Option<ClientTls> {
        let authority = match &table.authority {
            Some(_) => Some(self.pem(&table.authority, "CERTIFICATE", &path.key("authority"))?),
            None => None,
        };
        let identity = self.certificate_pair(&table.certificate, &table.key, path)?;
        let identity = identity.map(|pair| (pair.certificate, pair.key));
        let plain = table.endpoints.as_slice().iter().all(|root| !root.tls);
        if plain && !table.endpoints.as_slice().is_empty() {
            for (key, given) in
                [("authority", authority.is_some()), ("certificate", identity.is_some())]
            {
                if given {
                    self.warning(&path.key(key), "has no effect: no endpoint has https")
                        .help("write `https://` in `endpoints`");
                }
            }
        }
        Some(ClientTls { authority, identity })
    }

    /// The registration of this node, if a source has `register`.
    pub(super) fn registration(
        &mut self,
        table: &file::Discovery,
        source: &EtcdSource,
        path: &Path,
    ) -> Option<Registration> {
        let etcd = table.etcd.as_ref()?;
        if !etcd.register {
            if etcd.advertise.is_some() {
                self.warning(&path.key("advertise"), "has no effect without `register`");
            }
            return None;
        }
        let peering = self.file.peering.as_ref();
        let followed = peering.and_then(|peering| peering.discovery.as_ref());
        let name = table.name.as_ref()?;
        if followed != Some(name) {
            let message = "only peers register, and `[peering]` does not use this source";
            self.error(&path.key("register"), message)
                .help(format!("write `discovery = \"{}\"` below `[peering]`", name.0));
            return None;
        }
        let listen = peering?.listen.as_ref()?.0;
        let address = etcd.advertise.as_ref().map_or(listen, |address| address.0);
        if address.ip().is_unspecified() {
            let message = format!("needs `advertise`: {} is no address for peers", address.ip());
            let help = "for example `advertise = \"10.0.0.1:7070\"`, this node's own address";
            return self.error(&path.key("register"), message).help(help).none();
        }
        let NodeName(me) = self.file.name.as_ref()?;
        let region = peering.and_then(|peering| Some(peering.region.as_ref()?.0.as_str().into()));
        let me = Member { region, ..Member::new(me.as_str(), address) };
        Some(Registration { source: source.clone(), me })
    }

    pub(super) fn kubernetes(
        &mut self,
        table: &file::Kubernetes,
        path: &Path,
    ) -> Option<KubernetesSource> {
        let names = [("service", &table.service), ("namespace", &table.namespace)];
        let are_names = names.map(|(key, name)| match name {
            Some(name) => self.label(name, &path.key(key)),
            None => Some(()),
        });
        let access = match &table.kubeconfig {
            Some(file) => ClusterAccess::Kubeconfig {
                path: self.content(file, &path.key("kubeconfig"))?.0,
                context: table.context.as_deref().map(Into::into),
            },
            None => {
                if table.context.is_some() {
                    self.warning(&path.key("context"), "has no effect without `kubeconfig`");
                }
                ClusterAccess::Pod
            }
        };
        are_names.into_iter().collect::<Option<()>>()?;
        Some(KubernetesSource {
            service: table.service.as_deref()?.into(),
            namespace: table.namespace.as_deref().map(Into::into),
            port: table.port.clone(),
            access,
        })
    }

    /// Checks a name of Kubernetes (RFC 1123's label), which stands in a URL.
    fn label(&mut self, name: &str, path: &Path) -> Option<()> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let inner = !name.starts_with('-') && !name.ends_with('-');
        if !name.is_empty() && name.bytes().all(plain) && inner {
            return Some(());
        }
        self.error(path, format!("{name:?} is no name that Kubernetes gives"))
            .help("lower case letters, digits and `-`");
        None
    }
}
