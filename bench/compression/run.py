"""CPU per megabyte of compression at a node, beside nginx's gzip: both pass the same files on from one origin, each
confined to core 0 with one thread, and compress them for every request, since nothing is stored.

    python3 bench/compression/run.py target/release/levada [--corpus DIRECTORY] [--rounds N] [--seconds S]

Needs nginx and wrk. A corpus is a directory with a directory for each kind of file: html, js, json. Without one, files of this
machine are taken: Rust's documentation, /usr/share and /usr/lib.
"""

import argparse
import gzip
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

KINDS = {"html": "text/html", "js": "application/javascript", "json": "application/json"}
FILES = 60
NGINX_LEVELS = [1, 6]
LEVELS = {"gzip": [1, 2, 3, 4, 5, 6, 9], "zstd": [1, 3, 6], "br": [1, 4, 5]}
# A level of ours is as small as one of nginx's up to this factor.
EQUAL = 1.005
TARGET = 1.05
CONNECTIONS = 4


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("levada", type=Path)
    arguments.add_argument("--corpus", type=Path)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=1)
    options = arguments.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="levada-bench-compression-"))
    running = []
    try:
        corpus = lay_out(directory / "www", options.corpus)
        origin = nginx(directory / "origin", origin_sites(directory / "www"), running, core="1")[0]
        levels = {"identity": 0} | {f"gzip {level}": level for level in NGINX_LEVELS}
        ports = nginx(directory / "nginx", [proxy(origin, level) for level in levels.values()], running)
        cases = [Case("nginx", name, port, running[-1]) for name, port in zip(levels, ports)]
        names = ["identity"] + [f"{coding} {level}" for coding in LEVELS for level in LEVELS[coding]]
        port = levada(options.levada, directory, origin, names, running)
        cases += [Case("Levada", name, port, running[-1]) for name in names]
        print(f"{options.rounds} rounds of {options.seconds} s; CPU in ms per MB before compression\n")
        for kind, files in corpus.items():
            measure(kind, files, cases, options)
            report(kind, files, cases)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait()
        shutil.rmtree(directory)


class Case:
    """One server at one level."""

    def __init__(self, server, name, port, process):
        self.server, self.name, self.port, self.process = server, name, port, process
        self.coding = name.split()[0]
        self.host = name.replace(" ", "-") + ".test"
        self.size, self.costs = 0, []

    def cpu(self):
        return sum(process_seconds(pid) for pid in [self.process.pid, *children(self.process.pid)])


def measure(kind, files, cases, options):
    script = files[0].parent.parent.parent / f"{kind}.lua"
    paths = ", ".join(f'"/{kind}/{file.name}"' for file in files)
    script.write_text(
        f"local paths = {{{paths}}}\nlocal n = 0\n"
        "request = function()\n  n = n % #paths + 1\n  return wrk.format('GET', paths[n])\nend\n"
    )
    per_file = sum(file.stat().st_size for file in files) / len(files) / 1e6
    for case in cases:
        case.costs, case.size = [], sum(fetched(case, kind, file) for file in files)
    for turn in range(options.rounds):
        for case in cases[turn % len(cases) :] + cases[: turn % len(cases)]:
            before = case.cpu()
            requests = load(case, script, options.seconds)
            case.costs.append((case.cpu() - before) * 1e3 / (requests * per_file))


def fetched(case, kind, file):
    """The bytes of one response, which is held against the file as far as Python can decode it."""
    connection = http.client.HTTPConnection("127.0.0.1", case.port)
    fields = {"Host": case.host, "Accept-Encoding": case.coding}
    connection.request("GET", f"/{kind}/{file.name}", headers=fields)
    response = connection.getresponse()
    body, coding = response.read(), response.getheader("Content-Encoding", "identity")
    assert response.status == 200 and coding == case.coding, (case.server, case.name, response.status, coding)
    if coding in ("gzip", "identity"):
        decoded = gzip.decompress(body) if coding == "gzip" else body
        assert decoded == file.read_bytes(), f"{case.server} {case.name}: {file} differs"
    return len(body)


def load(case, script, seconds):
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-s", script]
    command += ["-H", f"Host: {case.host}", "-H", f"Accept-Encoding: {case.coding}"]
    done = subprocess.run([*command, f"http://127.0.0.1:{case.port}/"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert not any("Non-2xx" in line or "Socket errors" in line for line in lines), done.stdout
    return next(int(line.split()[0]) for line in lines if " requests in " in line)


def report(kind, files, cases):
    total = sum(file.stat().st_size for file in files)
    print(f"{kind}: {len(files)} files, {total / 1e6:.1f} MB")
    print(f"  {'':16}{'size':>8}{'CPU':>9}{'without proxying':>18}")
    plain = {case.server: case for case in cases if case.coding == "identity"}
    for case in cases:
        own = [cost - base for cost, base in zip(case.costs, plain[case.server].costs)]
        alone = "" if case.coding == "identity" else f"{median(own):18.2f}"
        print(f"  {case.server + ' ' + case.name:16}{case.size / total:8.4f}{median(case.costs):9.2f}{alone}")
    ours = [case for case in cases if case.server == "Levada" and case.coding == "gzip"]
    for peer in (case for case in cases if case.server == "nginx" and case.coding == "gzip"):
        small = [case for case in ours if case.size <= peer.size * EQUAL]
        best = min(small, key=lambda case: median(case.costs))
        same = next(case for case in ours if case.name == peer.name)
        ratio = median(a / b for a, b in zip(best.costs, peer.costs))
        by_name = median(a / b for a, b in zip(same.costs, peer.costs))
        print(
            f"  nginx {peer.name}: at equal size ({best.name}, {best.size / peer.size:.3f} of it) Levada / nginx {ratio:.2f}"
            f"{'' if ratio <= TARGET else '  MISSED'}; {same.name} {by_name:.2f} at {same.size / peer.size:.3f} of its size"
        )
    print()


def lay_out(www, corpus):
    """The files, below one directory per kind."""
    laid = {}
    for kind in KINDS:
        found = sorted((corpus / kind).iterdir()) if corpus else of_this_machine(kind)
        (www / kind).mkdir(parents=True)
        for number, file in enumerate(found):
            shutil.copyfile(file, www / kind / f"{number:03}.{kind}")
        laid[kind] = sorted((www / kind).iterdir())
        assert laid[kind], f"no {kind} files: name a corpus"
    return laid


def of_this_machine(kind):
    home = Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup"))
    roots = [*sorted(home.glob("toolchains/stable*/share/doc/rust/html")), Path("/usr/share"), Path("/usr/lib")]
    chance, chosen = random.Random(1), []
    for root in roots:
        found = sorted(
            path
            for path in root.rglob(f"*.{kind}")
            if path.is_file() and not path.is_symlink() and 4_000 <= path.stat().st_size <= 1_500_000
        )
        chosen += chance.sample(found, min(FILES, len(found)))
    return chance.sample(chosen, min(FILES, len(chosen)))


def origin_sites(www):
    types = " ".join(f"{media} {kind};" for kind, media in KINDS.items())
    return [f'root {www}; types {{ {types} }} add_header Cache-Control no-store; open_file_cache max=1000 inactive=1h;']


def proxy(origin, level):
    types = " ".join(media for media in KINDS.values() if media != "text/html")
    coded = f"gzip on; gzip_comp_level {level}; gzip_proxied any; gzip_min_length 512; gzip_types {types};"
    return f"""
        gzip_buffers 16 64k;
        {coded if level else ""}
        location / {{
            proxy_pass http://127.0.0.1:{origin};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Accept-Encoding identity;
            proxy_buffers 32 64k;
            proxy_buffer_size 64k;
            proxy_busy_buffers_size 128k;
        }}"""


def nginx(directory, sites, running, core="0"):
    directory.mkdir()
    ports = [free_port() for _ in sites]
    servers = "\n".join(
        f"server {{ listen 127.0.0.1:{port}; keepalive_requests 100000000; {site} }}" for port, site in zip(ports, sites)
    )
    temporary = "".join(f"{kind}_temp_path {directory}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.getuid() == 0 else ""
    config = directory / "nginx.conf"
    # An upstream block keeps connections to the origin open, as Levada does.
    upstream = "\n".join(f"upstream 127.0.0.1_{port} {{ server 127.0.0.1:{port}; keepalive 64; }}" for port in proxied(sites))
    for port in proxied(sites):
        servers = servers.replace(f"proxy_pass http://127.0.0.1:{port}", f"proxy_pass http://127.0.0.1_{port}")
    config.write_text(
        f"{user} daemon off; worker_processes 1; pid {directory}/pid; error_log stderr crit;\n"
        f"events {{ worker_connections 1024; }}\nhttp {{ access_log off; sendfile on; {temporary}\n{upstream}\n{servers}\n}}\n"
    )
    start([shutil.which("nginx") or "/usr/sbin/nginx", "-p", directory, "-c", config], core, ports[0], running)
    return ports


def proxied(sites):
    return {site.split("proxy_pass http://127.0.0.1:")[1].split(";")[0] for site in sites if "proxy_pass" in site}


def levada(program, directory, origin, names, running):
    port = free_port()
    text = f'name = "bench"\n[runtime]\nmode = "shared"\nthreads = 1\n[log]\naccess = "off"\n'
    text += f'[[listen]]\naddress = "127.0.0.1:{port}"\n'
    for name in names:
        text += f'[[site]]\nhosts = "{name.replace(" ", "-")}.test"\norigin = "http://127.0.0.1:{origin}"\n'
        if name != "identity":
            coding, level = name.split()
            text += f'[site.compress]\ncodings = ["{coding}"]\n{coding}_level = {level}\n'
    config = directory / "levada.toml"
    config.write_text(text)
    start([program.resolve(), "run", "-c", config], "0", port, running)
    return port


def start(command, core, port, running):
    pinned = ["setpriv", "--pdeathsig", "TERM", "taskset", "-c", core, *map(str, command)]
    process = subprocess.Popen(pinned, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running.append(process)
    deadline = time.monotonic() + 20
    while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"does not listen: {command}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def process_seconds(pid):
    # The clock of another process's CPU time, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


if __name__ == "__main__":
    main()
