//! nginx with its slice module compared with one node: the same file in pieces of the same size, each server on
//! one core, without a wire.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
};

use levada_config::LargeSettings;
use levada_net::lab::Network;

use crate::{
    Bench, Result,
    client::{self, Url, Way},
    origin::Origin,
    pattern::Pattern,
    server::{self, Server},
    table::{Table, Target},
};

/// CPU time is read in hundredths of a second: files are fetched so often that they do not count.
const TIMES: usize = 40;
const FILES: usize = 8;

pub(crate) fn slice(bench: &Bench) -> Result<Table> {
    server::leave_their_core()?;
    let size = if bench.quick { 10_000_000 } else { 50_000_000 };
    let origin = Origin::start()?;
    let piece = LargeSettings::default().plan.chunk;
    let title = format!("slices of {piece} bytes, a file of {} MB on loopback", size / 1_000_000);
    let columns = [
        "first Mbit/s",
        "first us/MB",
        "cached Mbit/s",
        "us/MB",
        "origin/size",
        "requests",
        "peak MB",
    ];
    let mut table = Table::new(title, &columns);
    let nginx = server::program("nginx").ok_or("nginx is not installed")?;
    let mut servers = Vec::new();
    for (name, configure) in
        [("Levada", levada as fn(&Path, u16, u16, u64) -> Result<Command>), ("nginx", self::nginx)]
    {
        let dir = bench.dir.join(name);
        fs::create_dir_all(&dir)?;
        let port = server::free_port()?;
        let mut command = configure(&dir, port, origin.port, piece)?;
        let program = if name == "nginx" { &nginx } else { &bench.levada };
        let mut whole = Command::new(program);
        whole.args(command.get_args());
        command = whole;
        servers.push((name, Server::start(&command, port, dir)?));
    }
    let host = Network::new(1).outside()?;
    let pattern = Pattern::default();
    let fetch = |port, name: String| -> Result<f64> {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let url = Url { server, host: "slice.test".to_owned(), size, name };
        let took = client::fetch(&host, &url, Way::Plain, &pattern)?;
        Ok(size as f64 * 8e-6 / took.as_secs_f64())
    };
    // In turn, so that a machine whose speed drifts treats both alike.
    let mut samples = vec![[Vec::new(), Vec::new()]; servers.len()];
    let mut cpu = vec![[0.0; 2]; servers.len()];
    let mut asked = vec![(0, 0); servers.len()];
    let times = if bench.quick { 4 } else { TIMES };
    for time in 0..times {
        for (at, (_, server)) in servers.iter().enumerate() {
            for kind in 0..2 {
                // Of some files the first fetch counts as such; all of them fit into every cache.
                let name = (time % FILES).to_string();
                if kind == 0 && time >= FILES {
                    continue;
                }
                let (used, before) = (server.cpu()?, (origin.bytes(), origin.requests()));
                samples[at][kind].push(fetch(server.port, name)?);
                cpu[at][kind] += server.cpu()? - used;
                asked[at].0 += origin.bytes() - before.0;
                asked[at].1 += origin.requests() - before.1;
            }
        }
    }
    let mut rows = Vec::new();
    for (at, (name, server)) in servers.iter().enumerate() {
        let mean = |kind: usize| {
            let all = &samples[at][kind];
            all.iter().sum::<f64>() / all.len() as f64
        };
        let per_mb = |kind: usize| {
            cpu[at][kind] * 1e6 / (samples[at][kind].len() as f64 * size as f64 / 1e6)
        };
        let files = samples[at][0].len() as f64;
        let values = [
            mean(0),
            per_mb(0),
            mean(1),
            per_mb(1),
            asked[at].0 as f64 / (files * size as f64),
            asked[at].1 as f64 / files,
            server.memory()?.peak * 1.048_576,
        ];
        table.row(*name, values.map(Some).to_vec());
        rows.push(values);
    }
    let ratio = |column: usize| rows[0][column] / rows[1][column];
    table.judge("first: throughput, Levada / nginx", ratio(0), Target::AtLeast(1.0));
    table.judge("first: CPU per MB, Levada / nginx", ratio(1), Target::AtMost(1.0));
    table.judge("cached: throughput, Levada / nginx", ratio(2), Target::AtLeast(1.0));
    table.judge("cached: CPU per MB, Levada / nginx", ratio(3), Target::AtMost(1.0));
    Ok(table)
}

fn levada(dir: &Path, port: u16, origin: u16, piece: u64) -> Result<Command> {
    let text = format!(
        "name = \"slice\"\n[runtime]\nthreads = 1\n[log]\naccess = \"off\"\n\
         [cache]\nmemory = \"1GiB\"\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n\
         [[site]]\nhosts = \"*\"\norigin = \"http://127.0.0.1:{origin}\"\n\
         [site.large]\nenabled = true\nchunk_size = \"{piece}\"\n"
    );
    let file = dir.join("levada.toml");
    fs::write(&file, text)?;
    let mut command = Command::new("levada");
    command.args(["run", "-c"]).arg(file);
    Ok(command)
}

fn nginx(dir: &Path, port: u16, origin: u16, piece: u64) -> Result<Command> {
    let file = dir.join("nginx.conf");
    let directory = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {directory}/{kind};\n    "))
        .concat();
    let text = format!(
        r#"user root;
daemon off;
worker_processes 1;
pid {directory}/pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    {temporary}
    proxy_cache_path {directory}/cache levels=1:2 keys_zone=cache:10m max_size=1g use_temp_path=off;
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 128; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            slice {piece};
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header Range $slice_range;
            proxy_cache cache;
            proxy_cache_key $host$uri$is_args$args$slice_range;
            proxy_cache_valid 200 206 1h;
        }}
    }}
}}
"#
    );
    fs::write(&file, text)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(dir).arg("-c").arg(file);
    Ok(command)
}
