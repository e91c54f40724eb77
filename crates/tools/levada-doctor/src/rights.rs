//! The user that the node runs as, and the capabilities that it needs.

use levada_config::RunAs;
use levada_net::privileges::{self, Account, Privileges};

use crate::{Finding, Needs, sysctl};

pub(crate) fn check(needs: &Needs) -> Vec<Finding> {
    let user = user(needs.run_as.as_ref(), needs.is_configured);
    let mut findings = vec![user];
    findings.extend(privileged_ports(needs));
    findings
}

fn user(run_as: Option<&RunAs>, is_configured: bool) -> Finding {
    const CHECK: &str = "user";
    let now = match Privileges::now() {
        Ok(now) => now.to_string(),
        Err(error) => return Finding::skip(CHECK, format!("the system does not tell: {error}")),
    };
    let Some(run_as) = run_as else {
        return match privileges::is_root() && is_configured {
            false => Finding::ok(CHECK, now),
            true => Finding::warn(CHECK, now)
                .meaning(
                    "a node that root starts stays root unless the configuration says otherwise",
                )
                .remedy("user = \"levada\" in [runtime], or a unit with User=levada"),
        };
    };
    let name = &run_as.user;
    match Account::find(name, run_as.group.as_deref()) {
        Err(error) => Finding::fail(CHECK, format!("{now}; {error}"))
            .meaning("`user` in [runtime]: the node does not start")
            .remedy(format!("useradd --system --no-create-home --shell /usr/sbin/nologin {name}")),
        Ok(_) => Finding::ok(CHECK, format!("{now}; the node becomes {name} if root starts it")),
    }
}

/// Ports that need a capability; `None` if there are none.
fn privileged_ports(needs: &Needs) -> Option<Finding> {
    const CHECK: &str = "capabilities";
    let first_free = sysctl::number("net.ipv4.ip_unprivileged_port_start").unwrap_or(1024);
    let ports: Vec<_> = needs
        .addresses
        .iter()
        .map(|one| one.address.port())
        .filter(|port| u64::from(*port) < first_free)
        .map(|port| port.to_string())
        .collect();
    if ports.is_empty() {
        return None;
    }
    let ports = ports.join(", ");
    let has = Privileges::now().is_ok_and(|now| now.capabilities.contains(&"NET_BIND_SERVICE"));
    Some(match has {
        true => Finding::ok(CHECK, format!("NET_BIND_SERVICE, for the ports {ports}")),
        false => Finding::fail(CHECK, format!("no NET_BIND_SERVICE, and the ports {ports} are below {first_free}"))
            .meaning("the node cannot listen there")
            .remedy("AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or setcap cap_net_bind_service=+ep \"$(command -v levada)\""),
    })
}
