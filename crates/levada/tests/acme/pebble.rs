//! A real server of ACME: pebble, with the name server that belongs to it. Debian packages both as `pebble`.

use std::{
    env,
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::client::{answers, post};

/// The ports at which pebble looks for proofs.
pub(crate) const HTTP: u16 = 5002;
pub(crate) const TLS: u16 = 5001;

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The settings of a server.
#[derive(Clone, Copy)]
pub(crate) struct PebbleSettings {
    /// The seconds of a certificate's life.
    pub(crate) life: u64,
    /// Whether an account needs one outside of ACME.
    pub(crate) external: bool,
}

/// The key `kid-1` of the external account, in base64url.
pub(crate) const EXTERNAL_KEY: &str =
    "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// See the module.
pub(crate) struct Pebble {
    pub(crate) directory: TempDir,
    pub(crate) at: IpAddr,
    settings: PebbleSettings,
    server: Option<Process>,
    _names: Process,
}

impl Pebble {
    /// A server at this address; `None` where pebble is not installed. Names that nobody has set are `node`.
    pub(crate) fn start(at: IpAddr, node: IpAddr, settings: PebbleSettings) -> Option<Self> {
        let challenge_server = program("pebble-challtestsrv")?;
        let directory = tempfile::tempdir().unwrap();
        authority(directory.path(), at);
        let [dns, management] = [8053, 8055].map(|port| SocketAddr::from((at, port)));
        // Its versions differ in their options.
        let help = Command::new(&challenge_server).arg("-h").output().unwrap().stderr;
        let is_new = String::from_utf8_lossy(&help).contains("-doh");
        let mut command = Command::new(challenge_server);
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", ""]);
        command.args(if is_new { &["-doh", ""][..] } else { &[] });
        command.args(["-defaultIPv6", "", "-defaultIPv4", &node.to_string()]);
        command.args([if is_new { "-dnsserver" } else { "-dns01" }]);
        command.args([&dns.to_string(), "-management", &management.to_string()]);
        let log = File::create(directory.path().join("names.log")).unwrap();
        let names = Process(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let mut pebble = Self { directory, at, settings, server: None, _names: names };
        crate::wait("the name server answers", || answers(management));
        pebble.restart();
        Some(pebble)
    }

    /// Starts the server again: it knows no accounts and no certificates.
    pub(crate) fn restart(&mut self) {
        let directory = self.directory.path();
        let [listen, management] = [14_000, 15_000].map(|port| SocketAddr::from((self.at, port)));
        let PebbleSettings { life, external } = self.settings;
        let config = serde_json::json!({ "pebble": {
            "listenAddress": listen, "managementListenAddress": management,
            "certificate": directory.join("server.pem"), "privateKey": directory.join("server.key"),
            "httpPort": HTTP, "tlsPort": TLS, "ocspResponderURL": "",
            "externalAccountBindingRequired": external,
            "externalAccountMACKeys": { "kid-1": EXTERNAL_KEY },
            "retryAfter": { "authz": 1, "order": 1 },
            "certificateValidityPeriod": life,
            "profiles": { "default": { "description": "", "validityPeriod": life } },
        }});
        let file = directory.join("pebble.json");
        fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(program("pebble").unwrap());
        command.arg("-config").arg(file).args(["-dnsserver", &format!("{}:8053", self.at)]);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "10");
        let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
        command.stderr(log.try_clone().unwrap()).stdout(log);
        self.server = None;
        self.server = Some(Process(command.spawn().unwrap()));
        crate::wait("pebble listens", || answers(listen) && answers(management));
    }

    pub(crate) fn stop(&mut self) {
        self.server = None;
    }

    /// Lets a name have this address.
    pub(crate) fn set_address(&self, name: &str, address: IpAddr) {
        let order = serde_json::json!({ "host": name, "addresses": [address] }).to_string();
        for path in ["/clear-a", "/add-a"] {
            let (status, _) = post(SocketAddr::from((self.at, 8055)), path, &order);
            assert_eq!(status, 200);
        }
    }

    /// The log of the server.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// The table of a node.
    pub(crate) fn table(&self, more: &str) -> String {
        let authority = self.directory.path().join("ca.pem");
        format!(
            "[acme]\nagree = true\nemail = \"ops@levada.test\"\nstorage = \"acme\"\n\
             directory = \"https://{}:14000/dir\"\nauthority = \"{}\"\n{more}\n",
            self.at,
            authority.display()
        )
    }
}

/// An authority, and the certificate of the server.
pub(crate) fn authority(directory: &Path, at: IpAddr) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(directory.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![at.to_string()]).unwrap().signed_by(&key, &issuer);
    fs::write(directory.join("server.pem"), leaf.unwrap().pem()).unwrap();
    fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
}

/// A program of the PATH, or next to the one that `LEVADA_PEBBLE` names.
fn program(name: &str) -> Option<PathBuf> {
    let beside = env::var_os("LEVADA_PEBBLE").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = beside.iter().filter_map(|file| Some(file.parent()?.to_owned()));
    let found = directories.chain(env::split_paths(&path)).map(|at| at.join(name));
    let found = found.into_iter().find(|file| file.is_file());
    if found.is_none() {
        levada_skip::skipped(format_args!(
            "{name} is missing (Debian: pebble; or LEVADA_PEBBLE names it)"
        ));
    }
    found
}
