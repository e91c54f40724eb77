//! The certificates of Secrets, as files for a listener.

use std::path::{Path, PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use levada_config::{Source, Surroundings};
use toml::Table;

use crate::{
    document::Options,
    files, from_gateway, from_ingress,
    problem::Problems,
    resources::{Cluster, Owner},
};

/// A certificate with its key.
pub(crate) struct CertificateFile {
    /// The beginning of the names of its files.
    pub(crate) name: String,
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl CertificateFile {
    /// The files: of the chain, and of the key.
    pub(crate) fn paths(&self, output: &Path) -> [PathBuf; 2] {
        ["pem", "key"].map(|end| output.join("tls").join(format!("{}.{end}", self.name)))
    }

    /// The pair of a listener.
    pub(crate) fn pair(&self, output: &Path) -> Table {
        let [chain, key] = self.paths(output).map(|path| path.display().to_string().into());
        Table::from_iter([("certificate".to_owned(), chain), ("key".to_owned(), key)])
    }
}

/// The certificates that resources name and that a listener can show, each once.
pub(crate) fn of(
    cluster: &Cluster,
    options: &Options<'_>,
    problems: &mut Problems,
) -> Vec<CertificateFile> {
    let mut wanted = Vec::new();
    for ingress in from_ingress::of_class(cluster, options.class) {
        let owner = Owner::new("Ingress", &ingress.metadata);
        wanted.extend(from_ingress::secrets(ingress).map(|secret| (owner.clone(), Ok(secret))));
    }
    for gateway in from_gateway::of_class(cluster, options.class) {
        let owner = Owner::new("Gateway", &gateway.metadata);
        for listener in &gateway.spec.listeners {
            let usable = from_gateway::unusable(listener).is_none();
            let secrets = from_gateway::secrets(gateway, listener).filter(|_| usable);
            wanted.extend(secrets.map(|secret| (owner.clone(), secret)));
        }
    }
    let mut all: Vec<CertificateFile> = Vec::new();
    for (owner, secret) in wanted {
        match secret.and_then(|secret| certificate(cluster, &secret, options)) {
            Ok(one) if all.iter().any(|known| known.name == one.name) => {}
            Ok(one) => all.push(one),
            Err(reason) => problems.add(&owner, reason),
        }
    }
    all
}

fn certificate(
    cluster: &Cluster,
    key: &(String, String),
    options: &Options<'_>,
) -> Result<CertificateFile, String> {
    let (namespace, name) = key;
    let secret = cluster.secrets.get(key).filter(|secret| secret.r#type == "kubernetes.io/tls");
    let secret = secret.ok_or_else(|| {
        format!("there is no Secret {namespace}/{name} of type kubernetes.io/tls")
    })?;
    let part = |part: &str| {
        let text = secret
            .data
            .get(part)
            .ok_or_else(|| format!("Secret {namespace}/{name} has no {part}"))?;
        BASE64_STANDARD
            .decode(text)
            .map_err(|_| format!("Secret {namespace}/{name}: {part} is no base64"))
    };
    let name = format!("{namespace}.{name}");
    let one = CertificateFile { name, chain: part("tls.crt")?, key: part("tls.key")? };
    usable(&one, options).map_err(|why| format!("Secret {namespace}/{}: {why}", key.1))?;
    Ok(one)
}

/// Whether a listener could show a certificate: one that cannot be read must not keep the others out.
fn usable(one: &CertificateFile, options: &Options<'_>) -> Result<(), String> {
    let directory = tempfile::tempdir_in(options.output).map_err(|error| error.to_string())?;
    files::write_certificate(one, directory.path()).map_err(|error| error.to_string())?;
    let listener = Table::from_iter([
        ("address".to_owned(), "127.0.0.1:0".into()),
        ("tls".to_owned(), vec![toml::Value::from(one.pair(directory.path()))].into()),
    ]);
    let text = "name = 'check'\n[[site]]\nhosts = '*'\n[[site.route]]\nrespond = {}\n";
    let mut document: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    document.insert("listen".into(), vec![toml::Value::from(listener)].into());
    let source = Source { name: "check".to_owned(), text: document.to_string() };
    let surroundings = Surroundings {
        directory: directory.path(),
        variable: &|_| None,
        start_error: options.start_error,
    };
    let checked = levada_config::check(&source, &surroundings);
    if checked.settings.is_some() {
        return Ok(());
    }
    let first = checked.report.problems.into_iter().next();
    let message = first.map(|problem| problem.message).unwrap_or_default();
    // The person who reads this does not know the directory.
    Err(message.replace(&format!("{}/", directory.path().display()), ""))
}
