#!/usr/bin/env python3
"""What telemetry costs a node: CPU per hit with traces of 1 % and of all requests, beside the same without.

    cargo build --release -p levada
    bench/telemetry/run.py target/release/levada

Four nodes of one program run at once on core 0: two without [telemetry], whose difference is the error of measurement,
one with sample = 0.01, and one with sample = 1. Each has load in turn, round by round, from wrk on core 1; a collector
on core 2 reads and throws away. CPU is user and system time of the node, as the kernel accounts it.
"""

import argparse
import http.server
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

VARIANTS = {"off": None, "off again": None, "1 %": 0.01, "100 %": 1}


class Sink(http.server.BaseHTTPRequestHandler):
    """A collector, and an origin for GET."""

    protocol_version = "HTTP/1.1"
    received = 0

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        Sink.received += len(self.rfile.read(length))
        self.answer(b"")

    def do_GET(self):
        self.answer(b"x" * 1024)

    def answer(self, body):
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=3600")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(program, directory, name, sample, sink):
    port, admin = free(), free()
    telemetry = ""
    if sample is not None:
        telemetry = f"[telemetry]\nendpoint = 'http://127.0.0.1:{sink}'\nsample = {sample}\n"
    path = os.path.join(directory, name.replace(" ", "") + ".toml")
    with open(path, "w") as file:
        file.write(
            f"name = 'n'\nruntime = {{ threads = 1 }}\n[[listen]]\naddress = '127.0.0.1:{port}'\n"
            f"[admin]\nlisten = '127.0.0.1:{admin}'\n[log]\naccess = 'off'\n{telemetry}"
            f"[[site]]\nhosts = '*'\norigin = 'http://127.0.0.1:{sink}'\n"
        )
    node = subprocess.Popen(
        ["taskset", "-c", "0", program, "run", "-c", path], stderr=subprocess.DEVNULL
    )
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz").read()
            break
        except OSError:
            time.sleep(0.1)
    return node, port, admin


def cpu(node):
    with open(f"/proc/{node.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spans(admin):
    page = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics").read().decode()
    return [
        int(re.search(rf"^levada_spans_{kind}_total (\d+)", page, re.M)[1])
        for kind in ("exported", "dropped")
    ]


def load(port, seconds):
    """Requests that were answered."""
    words = ["taskset", "-c", "1", "wrk", "-t1", "-c32", f"-d{seconds}s"]
    shown = subprocess.run(
        [*words, f"http://127.0.0.1:{port}/one"], capture_output=True, text=True, check=True
    ).stdout
    if "Non-2xx" in shown or "Socket errors" in shown:
        sys.exit(shown)
    return int(re.search(r"(\d+) requests in", shown)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.sched_setaffinity(0, {2 % os.cpu_count()})
    with tempfile.TemporaryDirectory() as directory:
        nodes = {
            name: start(options.program, directory, name, sample, server.server_port)
            for name, sample in VARIANTS.items()
        }
        costs = {name: [] for name in nodes}
        for turn in range(options.rounds + 1):
            for name, (node, port, _) in nodes.items():
                before = cpu(node)
                requests = load(port, options.seconds)
                # What is exported of them belongs to them.
                time.sleep(1.5)
                if turn > 0:
                    costs[name].append((cpu(node) - before) / requests * 1e6)
        print(f"{'':10}{'CPU us per hit':>16}{'median of ratios':>18}{'best to best':>14}  spans")
        for name, (node, _, admin) in nodes.items():
            ratios = [one / base for one, base in zip(costs[name], costs["off"])]
            best = min(costs[name]) / min(costs["off"])
            exported, dropped = spans(admin)
            print(
                f"{name:10}{statistics.median(costs[name]):16.2f}{statistics.median(ratios):18.3f}"
                f"{best:14.3f}  {exported} exported, {dropped} dropped"
            )
            node.terminate()
        for node, _, _ in nodes.values():
            node.wait()


if __name__ == "__main__":
    main()
