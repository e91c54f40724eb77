#!/usr/bin/env python3
"""CPU per pass of 1 KB to an origin over HTTP/1.1 and over HTTP/2, Levada beside HAProxy.

    bench/http2/run.py PATH-OF-LEVADA [--rounds 5] [--seconds 3] [--old PATH-OF-ANOTHER-LEVADA]

Needs nginx (the origin, over both protocols), HAProxy, wrk and taskset, and three cores. Each proxy has one thread on
core 0; load and origin are on the others. The loads come in turn, round by round, and the ratios are those of rounds.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from local_servers import LocalServers, cpu, port  # noqa: E402


def load(at, seconds, connections):
    url = f"http://127.0.0.1:{at}/k"
    run = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-H", "Host: a.test", url]
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(out)
    return int(re.search(r"(\d+) requests in", out)[1])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("levada")
    arguments.add_argument("--old")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=3)
    arguments.add_argument("--connections", type=int, default=32)
    given = arguments.parse_args()
    with LocalServers() as here:
        own = here.folder
        here.write("k", "x" * 1024)
        http1, http2 = port(), port()
        paths = "".join(f"{kind}_temp_path {own}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        here.write("nginx.conf", f"""daemon off; worker_processes 1; pid {own}/pid; error_log {own}/error.log;
            events {{ worker_connections 1024; }}
            http {{ access_log off; {paths} keepalive_requests 1000000000; open_file_cache max=10; default_type text/plain;
              server {{ listen 127.0.0.1:{http1}; root {own}; }}
              server {{ listen 127.0.0.1:{http2} http2; root {own}; }} }}""")
        here.start(["taskset", "-c", "2", "nginx", "-c", f"{own}/nginx.conf"], http1)
        proxies = {}

        def levada(name, program, protocol, origin, knows=True):
            at = port()
            key = 'protocol = "h2"\n' if protocol == "h2" and knows else ""
            file = here.write(f"{name}.toml", f"""name = "n"
runtime = {{ threads = 1 }}
[[listen]]
address = "127.0.0.1:{at}"
[[site]]
hosts = "a.test"
origin = "http://127.0.0.1:{origin}"
cache = false
{key}health_check = {{ interval = "0s" }}
""")
            process = here.start(["taskset", "-c", "0", program, "run", "-c", file], at)
            proxies[name] = (at, process)

        def haproxy(name, extra, origin):
            at = port()
            file = here.write(f"{name}.cfg", f"""global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend clients
    bind 127.0.0.1:{at}
    option forwardfor
    default_backend origin
backend origin
    http-reuse always
    server origin 127.0.0.1:{origin} {extra}
""")
            process = here.start(["taskset", "-c", "0", "haproxy", "-db", "-f", file], at)
            proxies[name] = (at, process)

        levada("levada http1", given.levada, "http1", http1)
        levada("levada h2", given.levada, "h2", http2)
        haproxy("haproxy http1", "", http1)
        haproxy("haproxy h2", "proto h2", http2)
        if given.old:
            levada("old levada http1", given.old, "http1", http1)
        for at, _ in proxies.values():
            load(at, 1, given.connections)
        costs = {name: [] for name in proxies}
        for _ in range(given.rounds):
            for name, (at, process) in proxies.items():
                before = cpu(process.pid)
                requests = load(at, given.seconds, given.connections)
                costs[name].append((cpu(process.pid) - before) * 1e6 / requests)
        for name, all_rounds in costs.items():
            print(f"{name:18} {statistics.median(all_rounds):6.2f} us of CPU per request (best {min(all_rounds):.2f})")
        pairs = [("levada h2", "levada http1"), ("haproxy h2", "haproxy http1"), ("levada h2", "haproxy h2")]
        if given.old:
            pairs.append(("levada http1", "old levada http1"))
        for one, other in pairs:
            ratios = [a / b for a, b in zip(costs[one], costs[other])]
            best = min(costs[one]) / min(costs[other])
            print(f"{one} / {other}: {statistics.median(ratios):.3f} (median of rounds), {best:.3f} (best to best)")


main()
