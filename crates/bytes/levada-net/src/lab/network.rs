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

/// A host of an emulated network.
pub struct Host {
    name: String,
    namespace: Namespace,
    is_own: bool,
    network: String,
}

/// The connection of a host to a wire.
#[derive(Clone, Debug)]
pub struct Access {
    /// The address of the host on this wire.
    pub address: IpAddr,
    /// The prefix length of the network that is reached without a router.
    pub prefix: u8,
    /// Addresses behind this host to which packets are delivered, in addition to its own.
    pub behind: Vec<IpAddr>,
    /// Whether it receives packets for addresses that no host has, like a router.
    pub router: bool,
    /// The shape for packets that the host sends.
    pub up: Shape,
    /// The shape for packets that the host receives.
    pub down: Shape,
}

/// Creates hosts and wires. Dropping it kills the programs on all of its hosts.
pub struct Network {
    name: String,
    seed: u64,
    wires: u64,
}

impl Network {
    /// Creates a network, after killing programs that earlier networks left behind.
    pub fn new(seed: u64) -> Self {
        static NETWORKS: AtomicU64 = AtomicU64::new(0);
        leftovers::clear();
        Self { name: leftovers::name_of(NETWORKS.fetch_add(1, Relaxed)), seed, wires: 0 }
    }

    /// A host in a namespace of its own: loopback is up, IPv6 is off until requested, and TCP is as
    /// in the papers (reno, no metrics saved between connections).
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

    /// The machine itself as a host: its servers can be reached over a wire. Its settings do not
    /// change.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn outside(&self) -> Result<Host, LabError> {
        Ok(self.host_in("outside", Namespace::present()?, false))
    }

    fn host_in(&self, name: &str, namespace: Namespace, is_own: bool) -> Host {
        Host { name: name.to_owned(), namespace, is_own, network: self.name.clone() }
    }

    /// Connects hosts: two by a cable, more by a switch.
    ///
    /// # Errors
    /// When devices or addresses cannot be created.
    pub fn join(&mut self, ends: &[(&Host, Access)]) -> Result<Wire, LabError> {
        let number = self.wires;
        self.wires += 1;
        let ends = ends.iter().map(|(host, access)| host.end(access)).collect::<Result<_, _>>()?;
        Ok(Wire::join(ends, self.seed.wrapping_add(number << 32))?)
    }
}

/// A switch with real Ethernet between hosts. Unlike a wire it has frames, so that a packet can be
/// sent to a neighbour regardless of the packet's addresses.
pub struct Ethernet {
    _switch: Host,
}

impl Network {
    /// Connects hosts to a new switch, each by a device of this name with this address in a /24
    /// network. The speed is that of the machine.
    ///
    /// # Errors
    /// When devices or addresses cannot be created.
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
    /// An address in a /24 network, with no limits.
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

    /// The access with this shape for packets that the host sends.
    #[must_use]
    pub fn sending(self, up: Shape) -> Self {
        Self { up, ..self }
    }

    /// The access with this shape for packets that the host receives.
    #[must_use]
    pub fn receiving(self, down: Shape) -> Self {
        Self { down, ..self }
    }
}

impl Host {
    /// The name of the host.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace of the host.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs commands of `ip`, such as `route add default via 10.0.0.1`.
    ///
    /// # Errors
    /// With the error text of `ip`.
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

    /// Sets a sysctl value.
    ///
    /// # Errors
    /// When there is no such setting, or the value is invalid.
    pub fn set(&self, name: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let written = self.namespace.run(|| fs::write(path, value)).and_then(|done| done);
        written.map_err(|why| LabError::Setting { name: format!("{name} to {value}"), why })
    }

    /// Enables forwarding.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn forward(&self) -> Result<(), LabError> {
        self.set("net.ipv4.ip_forward", "1")?;
        // A router that moves a route must not redirect clients to a better way.
        self.set("net.ipv4.conf.all.send_redirects", "0")
    }

    /// Starts a program in its own process group.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, command: Command) -> Result<Child, LabError> {
        self.spawn(command, true)
    }

    /// Starts a program that has the terminal, and receives its interrupts.
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
            // Only the wire may drop packets.
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

/// The settings of a new host that differ from the kernel's defaults.
const SETTINGS: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
    // If IPv6 is requested, addresses are usable at once: no other host has them.
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    // After a route moved, packets arrive on devices to which there is no route back.
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    // BBR, where it is the default, hides losses, unlike the senders of the papers.
    ("net.ipv4.tcp_congestion_control", "reno"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
];

/// Checks whether this process may create networks; tests call this first.
///
/// # Errors
/// With the reason.
pub fn possible() -> Result<(), LabError> {
    let namespace = Namespace::new()?;
    Tun::new(&namespace, "probe").map(drop)?;
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).status();
    ip.map_err(LabError::Ip).map(drop)
}
