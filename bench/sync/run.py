#!/usr/bin/env python3
"""`levada sync` beside rsync over an emulated path, in namespaces: seconds and bytes of a pull.

    bench/sync/run.py LEVADA [--old ANOTHER-LEVADA] [--wire LEVADA] [--rounds 5] [--ms 50] [--mbit 50] [--loss 0]
        [--only TEXT]

Needs root, ip, nginx and rsync. The publisher (nginx and an rsync daemon) and a node are on one side of the path, which
is an emulated wire (`levada lab wire`, of a release build if there is one), and the destinations on the other. The rate
is that of each direction. Programs come in turn, round by round; figures are medians. Bytes are those of the
destination's device, both directions. A pull is compared with the published tree after each run.
"""

import argparse
import filecmp
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from local_servers import LocalServers  # noqa: E402

NETWORK, ADDRESS = "10.77.0.0", "10.77.0.1"


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def device_bytes():
    """Received and sent bytes of the device to the path."""
    with open("/proc/net/dev") as file:
        rows = [line.replace(":", " ").split() for line in file.readlines()[2:]]
    return sum(int(row[1]) + int(row[9]) for row in rows if row[0] != "lo")


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def first_copy(tree, chance):
    """1,502 files, 45 MB: most are small, two are long."""
    for number in range(1500):
        write(f"{tree}/d{number % 40}/f{number}", chance.randbytes(chance.randrange(1000, 41000)))
    for number in range(2):
        write(f"{tree}/long{number}", chance.randbytes(7_000_000))


def tiny_files(tree, chance):
    for number in range(10_000):
        write(f"{tree}/d{number % 100}/f{number}", chance.randbytes(120))


def one_change(tree, chance):
    write(f"{tree}/long", chance.randbytes(15_000_000))
    for number in range(20):
        write(f"{tree}/d/f{number}", chance.randbytes(1000))


def change(tree, chance):
    with open(f"{tree}/long", "r+b") as file:
        file.seek(7_000_000)
        file.write(chance.randbytes(1000))


CASES = [
    ("first copy, 1502 files, 45 MB", first_copy, None),
    ("10,000 files of 120 B", tiny_files, None),
    ("1 KB changed in 15 MB", one_change, change),
]


def differences(a, b):
    found = filecmp.dircmp(a, b, ignore=[".levada-sync"])
    names = found.left_only + found.right_only + found.diff_files + found.funny_files
    return names + [n for sub in found.subdirs for n in differences(f"{a}/{sub}", f"{b}/{sub}")]


def serve(here, given):
    """The command that runs the publisher's servers, and a node that is started again whenever it ends."""
    own = here.folder
    os.makedirs(f"{own}/www/tree")
    paths = "".join(f"{kind}_temp_path {own}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    here.write("nginx.conf", f"""daemon off; user root; worker_processes 1; pid {own}/pid; error_log {own}/error.log;
        events {{ worker_connections 1024; }}
        http {{ access_log {own}/access.log; {paths} default_type application/octet-stream; sendfile on; tcp_nopush on;
          server {{ listen {ADDRESS}:80; root {own}/www; }} }}""")
    here.write("rsyncd.conf", f"""use chroot = no\nuid = root\ngid = root\npid file = {own}/rsyncd.pid
lock file = {own}/rsyncd.lock\n[tree]\npath = {own}/www/tree\nread only = yes\n""")
    here.write("node.toml", f"""name = "n"\n[[listen]]\naddress = "{ADDRESS}:8080"\n[[site]]\nhosts = "*"
origin = "http://{ADDRESS}"\ndefault_ttl = "60s"\n""")
    return (f"nginx -c {own}/nginx.conf & rsync --daemon --no-detach --config {own}/rsyncd.conf --address {ADDRESS} & "
            f"while sleep 0.2; do {given.levada} run -c {own}/node.toml 2>> {own}/node.log & echo $! > {own}/node; wait $!; done")


class Bench:
    def __init__(self, given, folder):
        self.given, self.folder = given, folder
        self.tree = f"{folder}/www/tree"

    def publish(self, program):
        more = ["--pack", "64KiB"] if program != self.given.old else []
        run(program, "sync", *more, self.tree)

    def pull(self, name, program, target, url=f"http://{ADDRESS}/tree.manifest"):
        if name == "rsync":
            command = ["rsync", "-a", "--delete", f"rsync://{ADDRESS}/tree/", f"{target}/"]
        else:
            command = [program, "sync", "-q", "--delete", url, target]
        return command

    def measure(self, name, program, target):
        command = self.pull(name, program, target)
        before, began = device_bytes(), time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        took = time.monotonic() - began
        if done.returncode != 0:
            raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
        sent = device_bytes() - before
        wrong = differences(self.tree, target)
        if wrong:
            raise SystemExit(f"{name}: {len(wrong)} differences, as {wrong[:3]}")
        return took, sent

    def case(self, name, make, alter):
        chance = random.Random(1)
        programs = {"levada": self.given.levada, "rsync": "rsync"}
        if self.given.old:
            programs["old"] = self.given.old
        shutil.rmtree(f"{self.folder}/www", ignore_errors=True)
        make(self.tree, chance)
        results = {sub: [] for sub in programs}
        for turn in range(self.given.rounds):
            # A file system that has just removed a tree makes the next one slowly: each pull has a directory of its own.
            targets = {sub: f"{self.folder}/{name[:2]}-{sub}-{0 if alter else turn}" for sub in programs}
            for target in targets.values():
                # The destination has the tree before the change, with its times.
                if alter and not os.path.exists(target):
                    run("cp", "-a", self.tree, target)
            if alter:
                time.sleep(1.1)  # rsync compares whole seconds
                alter(self.tree, chance)
            # Each one is first in its turn.
            for sub in sorted(programs, reverse=turn % 2 == 1):
                if sub != "rsync":
                    self.publish(programs[sub])
                results[sub].append(self.measure(sub, programs[sub], targets[sub]))
        for sub, runs in results.items():
            seconds, sent = [r[0] for r in runs], statistics.median(r[1] for r in runs)
            ratio = statistics.median(a[0] / b[0] for a, b in zip(runs, results["rsync"]))
            print(f"{name:32} {sub:7} {statistics.median(seconds):7.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
                  f" {sent / 1e6:8.3f} MB  {ratio:5.2f} x rsync", flush=True)

    def followers(self, count):
        """Destinations that pull at once through a node next to the publisher, beside as many rsyncs."""
        shutil.rmtree(f"{self.folder}/www", ignore_errors=True)
        first_copy(self.tree, random.Random(2))
        own = self.folder
        levada = self.given.levada
        self.publish(levada)
        for name in ("levada", "rsync"):
            runs = []
            for number in range(self.given.rounds):
                if name == "levada":
                    # A node that has stored nothing.
                    with open(f"{own}/node") as file:
                        os.kill(int(file.read()), signal.SIGTERM)
                    time.sleep(4)
                open(f"{own}/access.log", "w").close()
                began = time.monotonic()
                pulls = []
                for follower in range(count):
                    target = f"{own}/follower{follower}-{name}-{number}"
                    command = self.pull(name, levada, target, f"http://{ADDRESS}:8080/tree.manifest")
                    pulls.append((subprocess.Popen(command, stdout=subprocess.DEVNULL), target))
                for pull, target in pulls:
                    if pull.wait() != 0 or differences(self.tree, target):
                        raise SystemExit(f"{name}: a follower failed")
                took = time.monotonic() - began
                with open(f"{own}/access.log") as log:
                    sent = sum(int(line.split('"')[2].split()[1]) for line in log)
                runs.append((took, sent))
            size = sum(os.path.getsize(f"{own}/www/{f}") for f in os.listdir(f"{own}/www") if f != "tree")
            tree = int(run("du", "-sb", self.tree).split()[0])
            copies = statistics.median(r[1] for r in runs) / tree
            said = f"origin sends {copies:.2f} copies of the tree" if name == "levada" else f"{count} copies"
            print(f"{count} followers, 45 MB              {name:7} {statistics.median(r[0] for r in runs):7.2f} s  {said}"
                  f" (pack, chunks, manifest: {size / 1e6:.1f} MB)", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("levada")
    arguments.add_argument("--old")
    arguments.add_argument("--wire")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--ms", type=float, default=50)
    arguments.add_argument("--mbit", type=float, default=50)
    arguments.add_argument("--loss", type=float, default=0)
    arguments.add_argument("--followers", type=int, default=20)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    given.levada = os.path.abspath(given.levada)
    if "LEVADA_WIRE_FAR" not in os.environ:
        with LocalServers() as here:
            path = ["--rate", f"{given.mbit}Mbit/s", "--delay", f"{given.ms / 2}ms", "--loss", f"{given.loss}%", "--queue", "200"]
            command = [given.wire or given.levada, "lab", "wire", *path, "--network", NETWORK,
                       "--server", serve(here, given), "--", sys.executable, *sys.argv]
            sys.exit(subprocess.run(command, env={**os.environ, "LEVADA_BENCH": here.folder}).returncode)
    time.sleep(2)
    bench = Bench(given, os.environ["LEVADA_BENCH"])
    for name, make, alter in CASES:
        if given.only in name:
            bench.case(name, make, alter)
    if given.only in "followers":
        bench.followers(given.followers)


main()
