//! Hosts and the wires between them.

use std::{
    fs,
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{Child, LabError, Namespace, Tun, leftovers};
use crate::wire::{End, Shape, Wire};

/// One machine of an emulated network.
pub struct Host {
    name: String,
    namespace: Namespace,
    is_own: bool,
    network: String,
}

/// How a host is connected to a wire.
#[derive(Clone, Debug)]
pub struct Access {
    /// The host's address there.
    pub address: IpAddr,
    /// Bits of the network that is reached without a router.
    pub prefix: u8,
    /// Addresses behind this host that packets are to reach, besides its own.
    pub behind: Vec<IpAddr>,
    /// Whether it takes what is for nobody else, as a router does.
    pub router: bool,
    /// What the host sends passes this.
    pub up: Shape,
    /// What the host receives passes this.
    pub down: Shape,
}

/// What makes hosts and wires. Dropped, it kills what was started on any of its hosts.
pub struct Network {
    name: String,
    seed: u64,
    wires: u64,
}

impl Network {
    /// Begins a network, after the leftovers of those that could not end in order are gone.
    pub fn new(seed: u64) -> Self {
        static NETWORKS: AtomicU64 = AtomicU64::new(0);
        leftovers::clear();
        Self { name: leftovers::name_of(NETWORKS.fetch_add(1, Relaxed)), seed, wires: 0 }
    }

    /// A host in a namespace of its own: loopback up, no IPv6 that nobody asked for, TCP as in the
    /// papers (reno, and nothing remembered from one connection to the next).
    ///
    /// # Errors
    /// Without root.
    pub fn host(&self, name: &str) -> Result<Host, LabError> {
        let host = self.host_in(name, Namespace::new()?, true);
        host.ip(&["link set lo up"])?;
        for (name, value) in SETTINGS {
            host.set(name, value)?;
        }
        Ok(host)
    }

    /// The machine itself as a host: its servers can be reached over a wire. Its settings stay.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn outside(&self) -> Result<Host, LabError> {
        Ok(self.host_in("outside", Namespace::present()?, false))
    }

    fn host_in(&self, name: &str, namespace: Namespace, is_own: bool) -> Host {
        Host { name: name.to_owned(), namespace, is_own, network: self.name.clone() }
    }

    /// Joins hosts: two by a cable, more by a switch.
    ///
    /// # Errors
    /// When devices or addresses cannot be had.
    pub fn join(&mut self, ends: &[(&Host, Access)]) -> Result<Wire, LabError> {
        let number = self.wires;
        self.wires += 1;
        let ends = ends.iter().map(|(host, access)| host.end(access)).collect::<Result<_, _>>()?;
        Ok(Wire::join(ends, self.seed.wrapping_add(number << 32))?)
    }
}

/// A switch with real Ethernet between hosts: what a wire does not have, frames that are sent to a
/// neighbour whatever address is in their packets.
pub struct Ethernet {
    _switch: Host,
}

impl Network {
    /// Plugs hosts into a switch of their own, each by a device of this name with this address in a
    /// network of 24 bits. Its speed is the machine's.
    ///
    /// # Errors
    /// When devices or addresses cannot be had.
    pub fn ethernet(&self, ends: &[(&Host, &str, Ipv4Addr)]) -> Result<Ethernet, LabError> {
        let switch = self.host("switch")?;
        switch.ip(&["link add switch type bridge", "link set switch up"])?;
        for (port, (host, device, address)) in ends.iter().enumerate() {
            let at = host.namespace.path();
            switch.ip(&[
                &format!("link add port{port} type veth peer name {device} netns {at}"),
                &format!("link set port{port} master switch up"),
            ])?;
            host.ip(&[
                &format!("link set {device} up"),
                &format!("addr add {address}/24 dev {device}"),
            ])?;
        }
        Ok(Ethernet { _switch: switch })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        leftovers::clear_own(&self.name);
    }
}

impl Access {
    /// An address in a network of 24 bits, and nothing in the way.
    pub fn at(address: impl Into<IpAddr>) -> Self {
        Self {
            address: address.into(),
            prefix: 24,
            behind: Vec::new(),
            router: false,
            up: Shape::default(),
            down: Shape::default(),
        }
    }

    /// With this shape for what the host sends.
    #[must_use]
    pub fn sending(self, up: Shape) -> Self {
        Self { up, ..self }
    }

    /// With this shape for what the host receives.
    #[must_use]
    pub fn receiving(self, down: Shape) -> Self {
        Self { down, ..self }
    }
}

impl Host {
    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Carries out orders to `ip`, such as `route add default via 10.0.0.1`.
    ///
    /// # Errors
    /// With what `ip` says.
    pub fn ip(&self, orders: &[&str]) -> Result<(), LabError> {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let orders = orders.join("\n") + "\n";
        let output = self.namespace.on_resident(move || {
            let mut ip = command.spawn()?;
            if let Some(mut stdin) = ip.stdin.take() {
                stdin.write_all(orders.as_bytes())?;
            }
            ip.wait_with_output()
        });
        let output = output.map_err(LabError::Ip)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            return Err(LabError::Refused { host: self.name.clone(), said });
        }
        Ok(())
    }

    /// Sets what sysctl sets.
    ///
    /// # Errors
    /// When there is no such setting, or not this value.
    pub fn set(&self, name: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let written = self.namespace.run(|| fs::write(path, value)).and_then(|done| done);
        written.map_err(|why| LabError::Setting { name: format!("{name} to {value}"), why })
    }

    /// Makes it pass on what is for others.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn forward(&self) -> Result<(), LabError> {
        self.set("net.ipv4.ip_forward", "1")?;
        // A router that moves a route must not tell the clients of a better way.
        self.set("net.ipv4.conf.all.send_redirects", "0")
    }

    /// Starts a program, in a process group of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, command: Command) -> Result<Child, LabError> {
        self.spawn(command, true)
    }

    /// Starts a program that has the terminal, and its interrupts.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_in_front(&self, command: Command) -> Result<Child, LabError> {
        self.spawn(command, false)
    }

    fn spawn(&self, command: Command, group: bool) -> Result<Child, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = Child::spawn(&self.namespace, &self.network, command, group);
        child.map_err(|why| LabError::Program { program, why })
    }

    fn end(&self, access: &Access) -> Result<End, LabError> {
        let name = if self.is_own { "wire%d" } else { "levada%d" };
        let tun = Tun::new(&self.namespace, name)?;
        let (device, Access { address, prefix, .. }) = (tun.name(), access);
        self.ip(&[
            // Nothing may be dropped but by the wire.
            &format!("link set {device} txqueuelen 20000 up"),
            &format!("addr add {address}/{prefix} dev {device}"),
        ])?;
        let mut addresses = access.behind.clone();
        addresses.push(*address);
        if access.router {
            addresses.clear();
        }
        Ok(End { tun, addresses, up: access.up, down: access.down })
    }
}

/// What differs from the kernel's defaults on a host of its own.
const SETTINGS: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
    // Where somebody does ask for it, addresses are of use at once: nobody else has them.
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    // A moved route makes packets come in where they would not be answered to.
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    // BBR, where it is the default, hides losses; the papers' senders did not.
    ("net.ipv4.tcp_congestion_control", "reno"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
];

/// Whether this process may make networks: what tests ask before they begin.
///
/// # Errors
/// With the reason why not.
pub fn possible() -> Result<(), LabError> {
    let namespace = Namespace::new()?;
    Tun::new(&namespace, "probe").map(drop)?;
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).status();
    ip.map_err(LabError::Ip).map(drop)
}
