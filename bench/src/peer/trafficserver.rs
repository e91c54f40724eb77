//! Traffic Server: one thread for the network. Everything it stores is on disk; what was asked for
//! twice is in its memory cache, too.

use std::{fs, path::Path, process::Command};

use super::{Peer, Site, installed};
use crate::Result;

pub(super) const PEER: Peer =
    Peer { name: "Traffic Server", find: || installed("traffic_server"), configure };

/// When there is no disk tier to measure, the disk is not to be what limits.
const ROOMY_MIB: u64 = 1024;

fn configure(program: &Path, site: &Site) -> Result<Command> {
    let Site { dir, port, origin, setting, certificate, key } = site;
    for part in ["run", "log", "cache"] {
        fs::create_dir_all(dir.join(part))?;
    }
    let ssl = if setting.tls { ":ssl" } else { "" };
    let disk = setting.disk_mib.unwrap_or(ROOMY_MIB);
    let dir = dir.display();
    // As few fetches as it can: its manual's "Reducing Origin Server Requests".
    let records = format!(
        "CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1{ssl}
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.local_state_dir STRING {dir}/run
CONFIG proxy.config.log.logfile_dir STRING {dir}/log
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.crash_log_helper STRING NULL
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.exec_thread.affinity INT 0
CONFIG proxy.config.task_threads INT 1
CONFIG proxy.config.http.wait_for_cache INT 1
CONFIG proxy.config.http.cache.http INT {cached}
CONFIG proxy.config.cache.ram_cache.size INT {memory}
CONFIG proxy.config.cache.enable_read_while_writer INT 1
CONFIG proxy.config.http.background_fill_active_timeout INT 0
CONFIG proxy.config.http.background_fill_completed_threshold FLOAT 0.0
CONFIG proxy.config.http.cache.max_open_read_retries INT 100
CONFIG proxy.config.http.cache.open_read_retry_time INT 10
CONFIG proxy.config.ssl.TLSv1_2 INT 0
",
        cached = u8::from(setting.cached),
        memory = setting.memory_mib << 20,
    );
    let certificates = if setting.tls {
        format!(
            "dest_ip=* ssl_cert_name={} ssl_key_name={}\n",
            certificate.display(),
            key.display()
        )
    } else {
        String::new()
    };
    for (name, text) in [
        ("records.config", records),
        ("storage.config", format!("{dir}/cache {disk}M\n")),
        ("remap.config", format!("map / http://127.0.0.1:{origin}/\n")),
        ("ssl_multicert.config", certificates),
        ("ip_allow.yaml", ALLOW.to_owned()),
        ("plugin.config", String::new()),
        ("cache.config", String::new()),
    ] {
        fs::write(site.dir.join(name), text)?;
    }
    let mut command = Command::new(program);
    command.env("PROXY_CONFIG_CONFIG_DIR", site.dir);
    Ok(command)
}

const ALLOW: &str = "ip_allow:
  - apply: in
    ip_addrs: 127.0.0.1
    action: allow
    methods: ALL
";
