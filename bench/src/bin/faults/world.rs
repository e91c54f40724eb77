//! The cluster, and what may happen to it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use levada_net::lab::{Child, LabCluster};

use crate::{
    Result,
    clients::{Client, SIZE, Seen, page},
};

const BACKS: u8 = 2;
/// The timeout for each step: processes start within a second, on a busy machine some.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct World {
    servers: Vec<Option<Child>>,
    takers: Vec<Option<Child>>,
    front: Option<Child>,
    directory: PathBuf,
    hosts: Arc<LabCluster>,
}

impl World {
    /// With everything at work.
    pub(crate) fn new(directory: &Path) -> Result<Self> {
        let root = directory.join("root");
        fs::create_dir_all(&root)?;
        fs::write(root.join(SIZE.to_string()), vec![b'x'; SIZE])?;
        fs::write(root.join("page.html"), page())?;
        fs::write(directory.join("secret"), "0123456789abcdef")?;
        let mut world = Self {
            servers: (0..BACKS).map(|_| None).collect(),
            takers: (0..BACKS).map(|_| None).collect(),
            front: None,
            directory: directory.to_owned(),
            hosts: Arc::new(LabCluster::new(BACKS)?),
        };
        for at in 0..BACKS {
            world.server(at)?;
            world.taker(at)?;
        }
        world.start_front()?;
        world.wait()?;
        Ok(world)
    }

    /// Until both back-ends get connections.
    fn wait(&self) -> Result<()> {
        let begun = Instant::now();
        while self.handed() < 10 {
            if begun.elapsed() > STEP_TIMEOUT {
                return Err("nothing is handed over".into());
            }
            self.on_client(|| {
                let mut curl = Command::new("curl");
                curl.args(["-s", "-o", "/dev/null"])
                    .arg(format!("http://{}/1000", LabCluster::SERVICE));
                curl.status()
            })??;
        }
        Ok(())
    }

    fn handed(&self) -> u64 {
        let metrics = self.hosts.front.namespace().run(|| {
            Command::new("curl").args(["-sS", "http://127.0.0.1:9180/metrics"]).output().ok()
        });
        let metrics = metrics.ok().flatten().map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&metrics);
        let name = "levada_handoffs_total{result=\"ended\"}";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    fn on_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.hosts.client.namespace().run(work)?)
    }

    /// Runs a client while something happens.
    pub(crate) fn under(
        &mut self,
        client: &Client,
        happens: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Seen> {
        let (hosts, directory) = (self.hosts.clone(), self.directory.clone());
        let load = client.load;
        let client = thread::spawn(move || {
            hosts.client.namespace().run(|| load(&directory).map_err(|error| error.to_string()))
        });
        happens(self)?;
        let seen = client.join().map_err(|_| "the client's thread panicked")?;
        Ok(seen??)
    }

    fn server(&mut self, at: u8) -> Result<()> {
        let directory = self.directory.join(format!("server{at}"));
        fs::create_dir_all(&directory)?;
        let text = format!(
            "user root;\nmaster_process off;\ndaemon off;\nerror_log /dev/null;\npid {dir}/pid;\n\
             events {{ }}\nhttp {{ access_log off; types {{ text/html html; }}\n\
             server {{ listen {}:8080; root {root}; }} }}\n",
            LabCluster::back(at),
            dir = directory.display(),
            root = self.directory.join("root").display()
        );
        let config = directory.join("nginx.conf");
        fs::write(&config, text)?;
        let mut nginx = Command::new("nginx");
        nginx.arg("-c").arg(config);
        self.servers[usize::from(at)] =
            Some(self.hosts.backs[usize::from(at)].start(quiet(nginx))?);
        Ok(())
    }

    fn taker(&mut self, at: u8) -> Result<()> {
        let back = LabCluster::back(at);
        let mut taker = levada()?;
        taker.args(["handoff-backend", "--log-level", "off", "--interface", LabCluster::DEVICE]);
        taker.args(["--listen", &format!("{back}:7072")]);
        taker.args(["--service", &format!("{}:80", LabCluster::SERVICE)]);
        taker.args(["--to", &format!("http://{back}:8080")]);
        taker.arg("--secret-file").arg(self.directory.join("secret"));
        self.takers[usize::from(at)] = Some(self.hosts.backs[usize::from(at)].start(quiet(taker))?);
        Ok(())
    }

    fn start_front(&mut self) -> Result<()> {
        let mut text = format!(
            "name = 'front'\n[[listen]]\naddress = '{}:80'\n[log]\naccess = 'off'\n\
             [admin]\nlisten = '127.0.0.1:9180'\n\
             [handoff]\ninterfaces = '{}'\nsecret_file = 'secret'\n\
             [[site]]\nhosts = '*'\ncache = false\npolicy = {{ name = 'round_robin' }}\n\
             health_check = {{ interval = '500ms' }}\n",
            LabCluster::SERVICE,
            LabCluster::DEVICE
        );
        for back in (0..BACKS).map(LabCluster::back) {
            text +=
                &format!("[[site.server]]\nurl = 'http://{back}:8080'\nhandoff = '{back}:7072'\n");
        }
        let config = self.directory.join("front.toml");
        fs::write(&config, text)?;
        let mut front = levada()?;
        front.args(["run", "--log-level", "off", "-c"]).arg(config);
        self.front = Some(self.hosts.front.start(quiet(front))?);
        Ok(())
    }

    pub(crate) fn kill_taker(&mut self) -> Result<()> {
        self.takers[0] = None;
        Ok(())
    }

    /// As an operator would.
    pub(crate) fn stop_taker(&mut self) -> Result<()> {
        let taker = self.takers[0].as_ref().ok_or("there is none")?;
        signal(taker, "TERM")
    }

    pub(crate) fn start_taker(&mut self) -> Result<()> {
        self.takers[0] = None;
        self.taker(0)
    }

    pub(crate) fn kill_server(&mut self) -> Result<()> {
        self.servers[0] = None;
        Ok(())
    }

    pub(crate) fn start_server(&mut self) -> Result<()> {
        self.server(0)
    }

    pub(crate) fn cut_off(&mut self) -> Result<()> {
        Ok(self.hosts.backs[0].ip(&[&format!("link set {} down", LabCluster::DEVICE)])?)
    }

    pub(crate) fn connect(&mut self) -> Result<()> {
        let up = format!("link set {} up", LabCluster::DEVICE);
        Ok(self.hosts.backs[0]
            .ip(&[&up, &format!("route add default via {}", LabCluster::ROUTER)])?)
    }

    /// Drops packets from the back-end to the front-end, but none from the back-end to clients.
    pub(crate) fn cut_channel(&mut self) -> Result<()> {
        Ok(self.hosts.backs[0].ip(&[&format!("route add blackhole {}/32", LabCluster::FRONT)])?)
    }

    pub(crate) fn mend_channel(&mut self) -> Result<()> {
        Ok(self.hosts.backs[0].ip(&[&format!("route del blackhole {}/32", LabCluster::FRONT)])?)
    }

    pub(crate) fn restart_front(&mut self) -> Result<()> {
        self.front = None;
        self.start_front()
    }

    pub(crate) fn reload_front(&mut self) -> Result<()> {
        signal(self.front.as_ref().ok_or("there is none")?, "HUP")
    }
}

fn signal(child: &Child, name: &str) -> Result<()> {
    let pid = child.process.id().to_string();
    match Command::new("kill").args(["-s", name, &pid]).status()?.success() {
        true => Ok(()),
        false => Err("kill refused".into()),
    }
}

fn levada() -> Result<Command> {
    let beside = || Ok::<_, std::io::Error>(env::current_exe()?.with_file_name("levada"));
    Ok(Command::new(env::var_os("LEVADA").map_or_else(beside, |binary| Ok(binary.into()))?))
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
