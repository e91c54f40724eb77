//! nginx: one worker. Its cache is files, which the kernel keeps in memory; "memory" is their limit. It
//! keeps the files open, or each hit would open, read and close one.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use super::{Peer, Site, installed};
use crate::Result;

pub(super) const PEER: Peer = Peer { name: "nginx", find: || installed("nginx"), configure };

fn configure(program: &Path, site: &Site) -> Result<Command> {
    let Site { dir, port, origin, setting, certificate, key } = site;
    let dir = dir.display();
    // As root, nginx would drop to a user that cannot write here.
    let user = if fs::metadata("/proc/self")?.uid() == 0 { "user root;" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};\n    "))
        .concat();
    let cache = if setting.cached {
        "proxy_cache cache;
            proxy_cache_lock on;
            proxy_cache_lock_timeout 60s;
            proxy_cache_lock_age 60s;"
    } else {
        ""
    };
    let tls = if setting.tls {
        format!(
            "ssl_protocols TLSv1.3;
        ssl_certificate {};
        ssl_certificate_key {};",
            certificate.display(),
            key.display()
        )
    } else {
        String::new()
    };
    // The origin is sent the same fields as by Levada, so that it has the same work.
    let location = if setting.files {
        String::new()
    } else {
        format!(
            r#"location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;
            proxy_set_header Via "1.1 bench";
            proxy_set_header CDN-Loop levada;
            {cache}
        }}"#
        )
    };
    let text = format!(
        r#"{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {dir}/pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    {temporary}
    proxy_cache_path {dir}/cache levels=1:2 keys_zone=cache:10m max_size={size}m use_temp_path=off;
    upstream origin {{
        server 127.0.0.1:{origin};
        keepalive 128;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} {ssl} {http2} backlog=4096;
        keepalive_requests 100000000;
        {tls}
        root {dir}/files;
        http2_max_requests 100000000;
        open_file_cache max=4096 inactive=10m;
        open_file_cache_valid 10m;
        {location}
    }}
}}
"#,
        size = setting.disk_mib.unwrap_or(setting.memory_mib),
        ssl = if setting.tls { "ssl" } else { "" },
        http2 = if setting.http2 { "http2" } else { "" },
    );
    let file = site.dir.join("nginx.conf");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(site.dir).arg("-c").arg(file);
    Ok(command)
}
