#!/usr/bin/env python3
"""CPU per query with client subnet: Levada's name server next to knot with its geoip module and gdnsd.

Each server has one thread on core 0, the load is on core 1. They have the same table of networks and answer with one
address. Rounds of all servers alternate; the CPU time is that of the process, user and system, by /proc.

    cargo build --release -p levada-dns --examples
    bench/dns/run.py target/release/examples [--rounds 5] [--seconds 3] [--networks 4000]
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PORTS = {"levada": 15301, "knot": 15302, "gdnsd": 15303}
NAME = "www.cdn.test"
ZONE = "$TTL 60\n@ SOA ns hostmaster 1 7200 3600 1209600 60\n@ NS ns\nns A 192.0.2.53\n"
TICKS = os.sysconf("SC_CLK_TCK")


def networks(count):
    """Networks of 24 bits within 10.0.0.0/8, each with its region; neighbours differ."""
    return [(f"10.{at >> 8 & 255}.{at & 255}.0/24", at % 4) for at in range(count)]


def levada(directory, programs, table):
    zones = directory / "zones"
    zones.mkdir()
    (zones / "cdn.test.zone").write_text(ZONE)
    by_region = {f"r{at}": {"network": []} for at in range(4)}
    for network, region in table:
        by_region[f"r{region}"]["network"].append(network)
    (directory / "coverage.json").write_text(json.dumps({"coverageZones": by_region}))
    address = f"127.0.0.1:{PORTS['levada']}"
    return [programs / "dns_serve", address, directory / "coverage.json", zones]


def knot(directory, _programs, table):
    (directory / "cdn.test.zone").write_text(ZONE + "www A 192.0.2.1\n")
    lines = [f"{NAME}:"]
    for network, region in table:
        lines += [f"  - net: {network}", f"    A: 192.0.2.{region * 4 + 1}"]
    (directory / "geo.conf").write_text("\n".join(lines) + "\n")
    (directory / "knot.conf").write_text(f"""
server:
    listen: 127.0.0.1@{PORTS['knot']}
    rundir: {directory}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    edns-client-subnet: on
database:
    storage: {directory}
mod-geoip:
  - id: geo
    config-file: {directory}/geo.conf
    ttl: 20
    mode: subnet
zone:
  - domain: cdn.test
    file: {directory}/cdn.test.zone
    module: mod-geoip/geo
""")
    return ["knotd", "-c", directory / "knot.conf"]


def gdnsd(directory, _programs, table):
    (directory / "zones").mkdir()
    (directory / "zones" / "cdn.test").write_text(ZONE + "www 20 DYNA geoip!www\n")
    nets = "".join(f"{network} => r{region}\n" for network, region in table)
    (directory / "nets").write_text(nets)
    centres = " ".join(f"r{at} => 192.0.2.{at * 4 + 1}," for at in range(4))
    (directory / "config").write_text(f"""
options => {{ listen => [127.0.0.1:{PORTS['gdnsd']}], udp_threads => 1, tcp_threads => 1,
  run_dir => {directory}/run, state_dir => {directory}/state }}
plugins => {{ geoip => {{
  maps => {{ m => {{ datacenters => [r0, r1, r2, r3], nets => {directory}/nets }} }},
  resources => {{ www => {{ map => m, service_types => up, dcmap => {{ {centres} }} }} }} }} }}
""")
    for name in ("run", "state"):
        (directory / name).mkdir()
    return ["gdnsd", "-c", directory, "start"]


def cpu(process):
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def load(programs, port, seconds, outstanding):
    command = ["taskset", "-c", "1", programs / "dns_load", f"127.0.0.1:{port}"]
    command += [str(seconds), str(outstanding), "4000", NAME]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--networks", type=int, default=4000)
    parser.add_argument("--outstanding", type=int, default=64)
    options = parser.parse_args()
    programs, table = options.programs.resolve(), networks(options.networks)
    with tempfile.TemporaryDirectory() as temporary:
        running = {}
        try:
            for name, prepare in (("levada", levada), ("knot", knot), ("gdnsd", gdnsd)):
                directory = pathlib.Path(temporary) / name
                directory.mkdir()
                command = ["taskset", "-c", "0", *prepare(directory, programs, table)]
                if shutil.which(str(command[3])) is None:
                    print(f"{command[3]} is not installed: left out", file=sys.stderr)
                    continue
                log = open(directory / "log", "w")
                running[name] = subprocess.Popen(
                    [str(part) for part in command], stdin=subprocess.PIPE, stdout=log, stderr=log
                )
            time.sleep(3)
            results = {name: [] for name in running}
            for _ in range(options.rounds):
                for name, process in running.items():
                    before = cpu(process.pid)
                    answers = load(programs, PORTS[name], options.seconds, options.outstanding)
                    spent = cpu(process.pid) - before
                    results[name].append((spent / answers["answered"] * 1e6, answers))
            for name, rounds in results.items():
                costs = [cost for cost, _ in rounds]
                lost, wrong = (sum(answers[key] for _, answers in rounds) for key in ("lost", "wrong"))
                rate = statistics.median(answers["rate"] for _, answers in rounds)
                print(
                    f"{name:8} {statistics.median(costs):5.2f} us CPU a query"
                    f" ({min(costs):.2f} to {max(costs):.2f}), {rate:.0f} answers a second,"
                    f" {lost} lost, {wrong} wrong, {memory(running[name].pid):.0f} MB"
                )
        finally:
            for process in running.values():
                process.terminate()
                process.wait()


main()
