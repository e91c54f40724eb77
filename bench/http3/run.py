#!/usr/bin/env python3
"""CPU per hit over HTTP/3 beside HTTP/2 and HTTP/1.1 with TLS, and per handshake, beside nginx, h2o and Caddy.

    bench/http3/run.py LEVADA HTTP3 [--nginx NGINX] [--h2o H2O] [--caddy CADDY] [--old ANOTHER-LEVADA] [--rounds 5]
        [--seconds 3] [--only TEXT]

LEVADA and HTTP3 are programs of a release build: `target/release/levada` and `target/release/http3`. NGINX has HTTP/3
from 1.25 on (Debian 13). Needs nginx as the origin, openssl, wrk, taskset, and two cores. Each server has one thread
on core 0; load and origin are on the others, of which three are used at most. The loads come in turn, round by round, and the ratios are those of rounds.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from local_servers import LocalServers, cpu, port  # noqa: E402

LAST = min(os.cpu_count(), 4) - 1
CORES = "1,2" if LAST > 1 else "1"


def worker(process):
    """The process that serves: nginx's worker, or the process itself."""
    time.sleep(0.5)
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        children = file.read().split()
    return int(children[0]) if children else process.pid


def certificates(here):
    def run(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=here.folder)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "3",
        "-addext", "keyUsage=critical,keyCertSign")
    run("req", *new, "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=a.test")
    here.write("names", "subjectAltName=DNS:a.test\n")
    run("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3",
        "-extfile", "names", "-out", "node.pem")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("levada")
    arguments.add_argument("http3")
    arguments.add_argument("--old")
    arguments.add_argument("--nginx")
    arguments.add_argument("--h2o")
    arguments.add_argument("--caddy")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=3)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    with LocalServers() as here:
        own = here.folder
        certificates(here)
        os.mkdir(f"{own}/www")
        here.write("www/1k", "x" * 1024)
        here.write("www/1m", "x" * (1 << 20))
        os.chmod(f"{own}/node.key", 0o644)
        servers = {}

        def serves(name, command, at, **more):
            process = here.start(["taskset", "-c", "0", *command], at, **more)
            servers[name] = (at, worker(process))

        def nginx(name, server):
            paths = "".join(f"{kind}_temp_path {own}/{name}-{kind};" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            return here.write(f"{name}.conf", f"""daemon off; worker_processes 1; pid {own}/{name}.pid;
                error_log {own}/{name}.log crit;
                events {{ worker_connections 4096; }}
                http {{ access_log off; {paths} keepalive_requests 1000000000; open_file_cache max=10; sendfile on;
                  default_type text/plain; etag on; add_header Cache-Control max-age=3600;
                  server {{ {server} root {own}/www; }} }}""")

        at = port()
        here.start(["taskset", "-c", str(LAST), "nginx", "-c",
                    nginx("origin", f"listen 127.0.0.1:{at};")], at)

        def levada(name, program, more="http3 = true"):
            own_port = port()
            file = here.write(f"{name}.toml", f"""name = "n"
runtime = {{ threads = 1 }}
log = {{ access = "off" }}
[[listen]]
address = "127.0.0.1:{own_port}"
tls = [{{ certificate = "node.pem", key = "node.key" }}]
{more}
[[site]]
hosts = "a.test"
origin = "http://127.0.0.1:{at}"
health_check = {{ interval = "0s" }}
""")
            serves(name, [program, "run", "-c", file], own_port)

        levada("levada", given.levada)
        levada("levada-without", given.levada, "")
        if given.old:
            levada("old", given.old)
        if given.nginx:
            own_port = port()
            serves("nginx", [given.nginx, "-c", nginx("peer", f"""listen 127.0.0.1:{own_port} quic reuseport;
                listen 127.0.0.1:{own_port} ssl; http2 on; quic_gso on; ssl_protocols TLSv1.3; ssl_session_tickets off;
                ssl_certificate {own}/node.pem; ssl_certificate_key {own}/node.key; ssl_buffer_size 16k;
                http3_max_concurrent_streams 128;""")], own_port)
        if given.h2o:
            own_port = port()
            tls = (f"{{certificate-file: {own}/node.pem, key-file: {own}/node.key, minimum-version: TLSv1.3, "
                   "neverbleed: OFF, ocsp-update-interval: 0}")
            file = here.write("h2o.conf", f"""num-threads: 1
user: root
listen:
  - &tls {{host: 127.0.0.1, port: {own_port}, ssl: {tls}}}
  - {{<<: *tls, type: quic}}
hosts: {{default: {{paths: {{/: {{file.dir: {own}/www, header.set: "cache-control: max-age=3600"}}}}}}}}
""")
            serves("h2o", [given.h2o, "-c", file], own_port)
        if given.caddy:
            own_port = port()
            file = here.write("Caddyfile", f"""{{
    admin off
    auto_https off
    https_port {own_port}
}}
https://a.test:{own_port} {{
    bind 127.0.0.1
    tls {own}/node.pem {own}/node.key
    root * {own}/www
    header Cache-Control max-age=3600
    file_server
}}
""")
            home = {**os.environ, "GOMAXPROCS": "1", "HOME": own, "XDG_DATA_HOME": own, "XDG_CONFIG_HOME": own}
            serves("caddy", [given.caddy, "run", "--config", file], own_port, env=home)

        def quic(name, path, protocol, connections, streams, *more):
            own_port, pid = servers[name]
            run = ["taskset", "-c", CORES, given.http3, str(pid), f"127.0.0.1:{own_port}", f"{own}/ca.pem", "a.test",
                   path, protocol, str(given.seconds), str(connections), str(streams), *more]
            out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
            if "failed" in out:
                raise SystemExit(f"{name}: {out}")
            return float(re.search(r": ([\d.]+) us", out)[1]), out.split(";")[1].strip()

        def http1(name, path, connections):
            own_port, pid = servers[name]
            before = cpu(pid)
            run = ["taskset", "-c", CORES, "wrk", "-t1", f"-c{connections}", f"-d{given.seconds}s", "-H", "Host: a.test",
                   f"https://127.0.0.1:{own_port}{path}"]
            out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
            if "Non-2xx" in out or " 0 requests in" in out:
                raise SystemExit(out)
            count = int(re.search(r"(\d+) requests in", out)[1])
            return (cpu(pid) - before) * 1e6 / count, f"{count / given.seconds:.0f} requests/s"

        loads = {
            "1k h1": lambda name: http1(name, "/1k", 32),
            "1k h2": lambda name: quic(name, "/1k", "h2", 8, 8),
            "1k h3": lambda name: quic(name, "/1k", "h3", 8, 8),
            "1m h1": lambda name: http1(name, "/1m", 8),
            "1m h2": lambda name: quic(name, "/1m", "h2", 8, 1),
            "1m h3": lambda name: quic(name, "/1m", "h3", 8, 1),
            "handshake h2": lambda name: quic(name, "/1k", "h2", 8, 1, "handshakes"),
            "handshake h3": lambda name: quic(name, "/1k", "h3", 8, 1, "handshakes"),
        }
        loads = {load: run for load, run in loads.items() if given.only in load}
        costs = {(name, load): [] for name in servers for load in loads
                 if (name != "levada-without" or load == "1k h1") and (name != "caddy" or "h1" not in load)}
        for round in range(given.rounds):
            for load, run in loads.items():
                names = [name for name in servers if (name, load) in costs]
                for name in names if round % 2 == 0 else reversed(names):
                    cost, rate = run(name)
                    costs[name, load].append(cost)
                    if round == 0:
                        print(f"{name:15} {load:13} {cost:8.1f} us, {rate}", flush=True)
        for (name, load), all_rounds in costs.items():
            print(f"{name:15} {load:13} {statistics.median(all_rounds):8.1f} us of CPU ({min(all_rounds):.1f} to {max(all_rounds):.1f})")

        def ratio(one, other, target=""):
            if one in costs and other in costs:
                ratios = [a / b for a, b in zip(costs[one], costs[other])]
                print(f"{' '.join(one)} / {' '.join(other)}: {statistics.median(ratios):.3f} (median of rounds, "
                      f"{min(ratios):.3f} to {max(ratios):.3f}) {target}")

        for name in servers:
            ratio((name, "1k h3"), (name, "1k h2"), "at most 2.5")
            ratio((name, "1m h3"), (name, "1m h1"), "at most 3")
            ratio((name, "1m h3"), (name, "1m h2"), "at most 3")
            ratio((name, "handshake h3"), (name, "handshake h2"), "at most 1.3")
        ratio(("levada", "1k h1"), ("levada-without", "1k h1"), "at most 1.01")
        for load in loads:
            for peer in ("nginx", "h2o", "caddy", "old"):
                ratio(("levada", load), (peer, load))


main()
