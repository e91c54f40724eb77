//! `levada kubernetes sites`: writes the configuration of a node from the resources of a cluster, whenever they change.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use levada_client::command::{CommandStatus, block_on};
use levada_config::Settings;
use levada_discovery::{ClusterAccess, FileVersion, patch};
use serde_json::{Value, json};
use toml::Table;

use crate::{
    document::{Derived, Options, check, derive},
    files,
    follow::Followed,
    problem::{Problem, Problems},
    resources::Cluster,
    status,
};

/// Writes the configuration of a node with the sites of Ingresses and HTTPRoutes, and keeps it up to date.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SitesArgs {
    /// The configuration without these sites.
    #[arg(short, long, value_name = "FILE", default_value = "/etc/levada/levada.toml")]
    config: PathBuf,
    /// The directory for levada.toml and tls/.
    #[arg(long, value_name = "DIRECTORY")]
    output: PathBuf,
    /// The class of the resources that count.
    #[arg(long, value_name = "NAME", default_value = "levada")]
    class: String,
    /// Follows this namespace only.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// The address of the listener with the certificates.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:443")]
    https: SocketAddr,
    /// That listener serves HTTP/3 as well.
    #[arg(long)]
    http3: bool,
    /// Writes the status of the resources.
    #[arg(long)]
    status: bool,
    /// An address of the sites for the status, an IP address or a name. May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,
    /// The Service whose addresses are those of the sites.
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "address")]
    service: Option<String>,
    /// Writes the files once, and ends.
    #[arg(long)]
    once: bool,
    /// A kubeconfig file. Without it, the service account of the pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in that file.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
}

/// The reason why a node could not start by settings, if it could not.
pub type StartError<'a> = &'a dyn Fn(&Settings) -> Option<String>;

/// How long more news is waited for: those of one change of a person come together.
const GATHER_DELAY: Duration = Duration::from_millis(200);
/// The status of one resource is written once in so long.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which the base file is looked at.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// Follows the cluster until the process is ended, or writes once.
///
/// # Errors
/// With `--once`, if the files cannot be made.
pub(crate) fn run(args: &SitesArgs, start_error: StartError<'_>) -> anyhow::Result<CommandStatus> {
    std::fs::create_dir_all(&args.output)
        .with_context(|| format!("{} cannot be made", args.output.display()))?;
    // The configuration names its files by their whole paths.
    let output = std::fs::canonicalize(&args.output)?;
    block_on(follow(args, &output, start_error))??;
    Ok(CommandStatus::Success)
}

async fn follow(
    args: &SitesArgs,
    output: &Path,
    start_error: StartError<'_>,
) -> anyhow::Result<()> {
    let access = match &args.kubeconfig {
        Some(path) => {
            let context = args.context.as_deref().map(Into::into);
            ClusterAccess::Kubeconfig { path: path.clone(), context }
        }
        None => ClusterAccess::Pod,
    };
    let options = Options {
        class: &args.class,
        https: args.https,
        http3: args.http3,
        access: access_keys(args)?,
        output,
        start_error,
    };
    let followed = Followed::new(&access, args.namespace.as_deref());
    let mut said = Said::default();
    let mut writer = StatusWriter::default();
    loop {
        let version = FileVersion::of(&args.config).ok();
        let mut is_held = false;
        match followed.with(|cluster| make(args, cluster, &options)) {
            // Not all resources are known yet.
            None => {}
            Some(Ok(made)) => {
                said.made(made.problems, made.is_new);
                is_held = writer.write(&access, made.changes).await;
                if args.once {
                    return Ok(());
                }
            }
            Some(Err(error)) if args.once => return Err(error),
            Some(Err(error)) => said.failed(format!("{error:#}")),
        }
        tokio::select! {
            () = news(&followed, &args.config, version) => {}
            () = tokio::time::sleep(STATUS_INTERVAL), if is_held => {}
        }
    }
}

/// Returns when resources or the base file have changed.
async fn news(followed: &Followed, base: &Path, version: Option<FileVersion>) {
    let edited = async {
        while FileVersion::of(base).ok() == version {
            tokio::time::sleep(FILE_INTERVAL).await;
        }
    };
    tokio::select! {
        () = followed.changed() => {}
        () = edited => {}
    }
    tokio::time::sleep(GATHER_DELAY).await;
}

/// The keys of sources by which the node reaches the API server as this command does.
fn access_keys(args: &SitesArgs) -> anyhow::Result<Table> {
    let mut keys = Table::new();
    if let Some(path) = &args.kubeconfig {
        keys.insert("kubeconfig".into(), std::path::absolute(path)?.display().to_string().into());
    }
    if let Some(context) = &args.context {
        keys.insert("context".into(), context.clone().into());
    }
    Ok(keys)
}

/// The sites that were made of the resources.
struct Made {
    changes: Vec<status::Change>,
    problems: Problems,
    /// Whether the configuration is another one.
    is_new: bool,
}

/// Writes the files for the cluster as it is.
fn make(args: &SitesArgs, cluster: &Cluster, options: &Options<'_>) -> anyhow::Result<Made> {
    let base = base(&args.config)?;
    let derived = derive(&base, cluster, options);
    for one in &derived.certificates {
        files::write_certificate(one, options.output)?;
    }
    if let Err(report) = check(&derived.document, options) {
        bail!("the configuration cannot be used:\n{report}");
    }
    let is_new = files::write(&derived, options.output)
        .with_context(|| format!("{} cannot be written", options.output.display()))?;
    let Derived { problems, .. } = derived;
    let changes = match args.status {
        true => status::changes(cluster, &args.class, &addresses(args, cluster), &problems),
        false => Vec::new(),
    };
    Ok(Made { changes, problems, is_new })
}

fn base(path: &Path) -> anyhow::Result<Table> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().map_err(|error: toml::de::Error| anyhow!("{}: {error}", path.display()))
}

/// The addresses of the sites, as a status has them.
fn addresses(args: &SitesArgs, cluster: &Cluster) -> Vec<Value> {
    let of_text = |text: &String| match text.parse::<std::net::IpAddr>() {
        Ok(_) => json!({ "ip": text }),
        Err(_) => json!({ "hostname": text }),
    };
    let Some((namespace, name)) = args.service.as_deref().and_then(|named| named.split_once('/'))
    else {
        return args.address.iter().map(of_text).collect();
    };
    let service = cluster.services.get(&(namespace.to_owned(), name.to_owned()));
    let known = service.into_iter().flat_map(|service| &service.status.load_balancer.ingress);
    known.filter_map(|one| one.ip.as_ref().or(one.hostname.as_ref())).map(of_text).collect()
}

/// The problems that the log has: each is said once.
#[derive(Default)]
struct Said {
    problems: Vec<Problem>,
    failure: String,
}

impl Said {
    fn made(&mut self, problems: Problems, is_new: bool) {
        self.failure.clear();
        for problem in problems.0.iter().filter(|problem| !self.problems.contains(problem)) {
            tracing::warn!("{problem}");
        }
        self.problems = problems.0;
        if is_new {
            tracing::info!("the sites have changed");
        }
    }

    fn failed(&mut self, failure: String) {
        if failure != self.failure {
            tracing::error!("the former sites stay in use: {failure}");
            self.failure = failure;
        }
    }
}

/// Writes the status of resources. What a server keeps otherwise than it was written is not written again at once.
#[derive(Default)]
struct StatusWriter {
    written: BTreeMap<String, Instant>,
}

impl StatusWriter {
    /// Returns whether some were written a moment ago, and have to wait.
    async fn write(&mut self, access: &ClusterAccess, changes: Vec<status::Change>) -> bool {
        let mut is_held = false;
        self.written.retain(|_, at| at.elapsed() < STATUS_INTERVAL);
        for (path, change) in changes {
            if self.written.contains_key(&path) {
                is_held = true;
                continue;
            }
            if let Err(error) = patch(access, &path, &change).await {
                tracing::warn!(path, %error, "a status cannot be written");
            }
            self.written.insert(path, Instant::now());
        }
        is_held
    }
}

const EXAMPLES: &str = "\
Examples:
  levada kubernetes sites -c levada.toml --output /run/levada/sites
  levada kubernetes sites --output /run/levada/sites --status --service cdn/cdn-levada
  levada kubernetes sites --output sites --kubeconfig ~/.kube/config --once

Exit codes:
  0  with --once: the files are written
  2  they cannot be written";
