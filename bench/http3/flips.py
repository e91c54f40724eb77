#!/usr/bin/env python3
"""Downloads over HTTP/3 while the route to their node moves, or while the node is killed: when clients know, and go on.

    bench/http3/flips.py LEVADA [--clients aioquic,chromium,PROGRAM] [--rtt 10,50,100] [--every 1,30] [--runs 5]
        [--kill] [--secret] [--megabytes 10]

As root: two nodes of one address, each in a network namespace, and a path of UDP between them and the clients, which has
a rate of 10 Mbit/s, the round trip, and an end that moves from one node to the other. With `--kill` the node that serves
is killed, and started again, in the place of a flip. The nodes share a certificate and
nothing else, or with `--secret` a file with the keys of sessions. Clients ask for the
rest of the file as soon as their connection has ended:

    aioquic   this file itself, with aioquic in Python
    chromium  a page with a script, headless
    PROGRAM   any program: PROGRAM PORT AUTHORITY.pem BYTES asks https://a.test:PORT/file at 127.0.0.1, and writes lines
              of a word and the Unix time in seconds: `first` for the first byte on a connection, `ended` for the end of one,
              `whole` when the file is there

Printed are the medians of the times from each flip within a download until the client knew (`knows`), and until the first
byte of the rest (`goes on`), with the extremes; and the time of whole downloads.
"""

import argparse
import asyncio
import base64
import os
import statistics
import subprocess
import sys
import tempfile
import time

RATE = 10e6
QUEUE = 0.1
LONGEST = 90

PAGE = """<script>(async () => {
    const note = (word) => console.log(`mark ${word} ${(performance.timeOrigin + performance.now()) / 1000}`);
    let got = 0;
    while (got < BYTES) {
        try {
            const answer = await fetch('/file', { cache: 'no-store', headers: { range: `bytes=${got}-` } });
            const body = answer.body.getReader();
            for (let first = true; ; first = false) {
                const { done, value } = await body.read();
                if (done) break;
                if (first) note('first');
                got += value.length;
            }
        } catch { note('ended'); }
    }
    note('whole');
})()</script>"""


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


class Nodes:
    """Two nodes of one address, as the path sees them."""

    def __init__(self, levada, folder, size, secret):
        self.levada, self.folder, self.running = levada, folder, [None, None]
        openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = ["-subj", "/CN=a.test", "-addext", "subjectAltName=DNS:a.test", "-days", "9"]
        run(*openssl, *names, "-keyout", "key.pem", "-out", "cert.pem", cwd=folder)
        files = os.path.join(folder, "files")
        os.mkdir(files)
        with open(os.path.join(files, "file"), "wb") as file:
            file.write(os.urandom(1 << 20) * (size >> 20) + os.urandom(size % (1 << 20)))
        with open(os.path.join(files, "page.html"), "w") as file:
            file.write(PAGE.replace("BYTES", str(size)))
        with open(os.path.join(folder, "levada.toml"), "w") as file:
            file.write(f"""name = "a"\n[runtime]\nthreads = 1\n[log]\naccess = "off"\n[[listen]]\naddress = "0.0.0.0:443"\n
                tls = [{{ certificate = "cert.pem", key = "key.pem" }}]\nhttp3 = true\n
                [admin]\nlisten = "127.0.0.1:9180"\n[[site]]\nhosts = "*"\nfiles = "{files}"\n""")
            if secret:
                run("openssl", "rand", "-out", "secret", "48", cwd=folder)
                file.write('[session_tickets]\nkey_file = "secret"\n')

    def begin(self):
        for node in (0, 1):
            name, net = self.name(node), f"10.201.{node}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "addr", "add", f"{net}.1/24", "dev", name)
            run("ip", "link", "set", name, "up")
            for words in (f"addr add {net}.2/24 dev eth0", "link set eth0 up", "link set lo up"):
                run("ip", "-n", name, *words.split())
            self.start(node)

    @staticmethod
    def name(node):
        return f"flip{os.getpid() % 10000}-{node}"

    def address(self, node):
        return (f"10.201.{node}.2", 443)

    def start(self, node):
        command = ["ip", "netns", "exec", self.name(node), self.levada, "--log-level", "error", "run", "-c", "levada.toml"]
        out = open(os.path.join(self.folder, f"node{node}.log"), "a")
        self.running[node] = subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=out)
        for _ in range(600):
            sockets = run("ip", "netns", "exec", self.name(node), "cat", "/proc/net/udp")
            if ":01BB" in sockets:
                return
            time.sleep(0.02)
        raise SystemExit(f"node {node} does not start: {open(out.name).read()}")

    def kill(self, node):
        # `ip netns exec` has become the node itself.
        self.running[node].kill()
        self.running[node].wait()

    def metric(self, node, name):
        url = "http://127.0.0.1:9180/metrics"
        page = run("ip", "netns", "exec", self.name(node), "curl", "-s", url)
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))

    def end(self):
        for node, process in enumerate(self.running):
            if process:
                process.kill()
                process.wait()
            for words in (["link", "del"], ["netns", "del"]):
                subprocess.run(["ip", *words, self.name(node)], capture_output=True)


class Path(asyncio.DatagramProtocol):
    """The path of UDP: a client's packets go to the node that the route leads to, those of both nodes to the client."""

    def __init__(self, nodes, delay):
        self.nodes, self.delay, self.node, self.backs = nodes, delay, 0, {}
        self.free = {}

    def connection_made(self, transport):
        self.front = transport

    def datagram_received(self, data, client):
        if client not in self.backs:
            self.backs[client] = None
            asyncio.ensure_future(self.open(client, data))
        elif self.backs[client]:
            self.later("up", data, lambda: self.backs[client].sendto(data, self.nodes.address(self.node)))

    async def open(self, client, data):
        path = self

        class Back(asyncio.DatagramProtocol):
            def datagram_received(self, data, _node):
                path.later("down", data, lambda: path.front.sendto(data, client))

        loop = asyncio.get_running_loop()
        self.backs[client], _ = await loop.create_datagram_endpoint(Back, local_addr=("0.0.0.0", 0))
        self.datagram_received(data, client)

    def later(self, way, data, send):
        now = time.monotonic()
        leaves = max(now, self.free.get(way, 0)) + len(data) * 8 / RATE
        if leaves - now < QUEUE:
            self.free[way] = leaves
            asyncio.get_running_loop().call_later(leaves - now + self.delay, self.leave, send)

    def leave(self, send):
        if not self.front.is_closing():
            send()


async def flips(options, nodes, path, times, over):
    """Moves the route, or kills the node and starts it again."""
    while not over.is_set():
        try:
            return await asyncio.wait_for(over.wait(), options.now)
        except asyncio.TimeoutError:
            pass
        if options.kill:
            nodes.kill(path.node)
            await asyncio.to_thread(nodes.start, path.node)
        else:
            path.node = 1 - path.node
        times.append(time.time())


def command(client, folder, port, size):
    authority = os.path.join(folder, "cert.pem")
    if client == "aioquic":
        return [sys.executable, os.path.abspath(__file__), "--aioquic", str(port), authority, str(size)]
    if client != "chromium":
        return [client, str(port), authority, str(size)]
    key = run("openssl", "x509", "-in", authority, "-pubkey", "-noout")
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"], input=key.encode(), capture_output=True).stdout
    digest = subprocess.run(["openssl", "dgst", "-sha256", "-binary"], input=der, capture_output=True).stdout
    pin = base64.b64encode(digest).decode()
    return ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tempfile.mkdtemp(dir=folder)}", f"--origin-to-force-quic-on=a.test:{port}",
            "--host-resolver-rules=MAP a.test 127.0.0.1", f"--ignore-certificate-errors-spki-list={pin}",
            "--remote-debugging-port=0", f"https://a.test:{port}/page.html"]


async def download(options, nodes, client, rtt):
    """The marks of a download, and the times of the flips."""
    loop, times, over = asyncio.get_running_loop(), [], asyncio.Event()
    front, path = await loop.create_datagram_endpoint(lambda: Path(nodes, rtt / 2000), local_addr=("127.0.0.1", 0))
    port, size = front.get_extra_info("sockname")[1], options.megabytes * 1_000_000
    pipe = asyncio.subprocess.PIPE
    words = command(client, nodes.folder, port, size)
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    marks, flipping = [], None
    try:
        async with asyncio.timeout(LONGEST):
            while line := (await process.stdout.readline()).decode(errors="replace"):
                # Chromium writes them among other words.
                words = line.split('"mark ')[-1].split('"')[0].split()
                if len(words) == 2 and words[0] in ("first", "ended", "whole"):
                    marks.append((words[0], float(words[1])))
                    if flipping is None:
                        flipping = asyncio.ensure_future(flips(options, nodes, path, times, over))
                    if words[0] == "whole":
                        break
                elif options.verbose:
                    print("   ", line.strip())
    except TimeoutError:
        pass
    over.set()
    if process.returncode is None:
        process.kill()
    await process.wait()
    if flipping:
        await flipping
    front.close()
    return marks, times


def waits(marks, times):
    """For each flip, the time until the next `ended`, and until the next `first` after it; infinite without."""
    end = next((at for word, at in marks if word == "whole"), float("inf"))
    for flip in times:
        if flip >= end:
            continue
        ended = next((at for word, at in marks if word == "ended" and at > flip), None)
        first = next((at for word, at in marks if word == "first" and at > (ended or float("inf"))), None)
        # The rest of the file may have been on its way already.
        if ended is not None or end == float("inf"):
            yield (ended or float("inf")) - flip, (first or float("inf")) - flip


def shown(values, unit=1000):
    values = sorted(values)
    if not values:
        return "-"
    return f"{statistics.median(values) * unit:.0f} ({values[0] * unit:.0f} to {values[-1] * unit:.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("levada")
    parser.add_argument("--clients", default="aioquic,chromium")
    parser.add_argument("--rtt", default="10,50,100")
    parser.add_argument("--every", default="1")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--secret", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        nodes = Nodes(os.path.abspath(options.levada), folder, options.megabytes * 1_000_000, options.secret)
        try:
            nodes.begin()
            print(f"{'client':<12}{'rtt ms':>7}{'every s':>8}{'flips':>7}{'knows, ms':>24}{'goes on, ms':>24}"
                  f"{'whole':>8}{'seconds':>20}")
            for client in options.clients.split(","):
                for rtt in map(float, options.rtt.split(",")):
                    for options.now in map(float, options.every.split(",")):
                        measured, taken = [], []
                        for _ in range(options.runs):
                            marks, times = asyncio.run(download(options, nodes, client, rtt))
                            measured += waits(marks, times)
                            taken += [marks[-1][1] - marks[0][1]] if marks and marks[-1][0] == "whole" else []
                        knows, goes_on = zip(*measured) if measured else ((), ())
                        print(f"{os.path.basename(client):<12}{rtt:>7.0f}{options.now:>8g}{len(measured):>7}"
                              f"{shown(knows):>24}{shown(goes_on):>24}{len(taken):>5}/{options.runs}"
                              f"{shown(taken, 1):>20}", flush=True)
            for node in (0, 1):
                for name in ("levada_quic_connections ", 'levada_connections_ended_total{reason="dormant"}'):
                    print(f"node {node}: {name} {nodes.metric(node, name):.0f}")
        finally:
            nodes.end()


async def aioquic_client(port, authority, size):
    from aioquic.asyncio.client import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import DataReceived
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ConnectionTerminated

    got, tickets = 0, []

    def note(word):
        print(word, time.time(), flush=True)

    class Client(QuicConnectionProtocol):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.http, self.first, self.over = H3Connection(self._quic), True, asyncio.Event()

        def quic_event_received(self, event):
            nonlocal got
            if isinstance(event, ConnectionTerminated):
                if got < size:
                    note("ended")
                self.over.set()
            for come in self.http.handle_event(event):
                if isinstance(come, DataReceived) and come.data:
                    if self.first:
                        note("first")
                    self.first, got = False, got + len(come.data)
                    if got == size:
                        note("whole")
                        self.over.set()

        def ask(self):
            head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a.test"), (b":path", b"/file")]
            stream = self._quic.get_next_available_stream_id()
            self.http.send_headers(stream, [*head, (b"range", b"bytes=%d-" % got)], end_stream=True)
            self.transmit()

    while got < size:
        config = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="a.test")
        config.load_verify_locations(authority)
        config.session_ticket = tickets[-1] if tickets else None
        try:
            more = {"create_protocol": Client, "session_ticket_handler": tickets.append}
            async with connect("127.0.0.1", port, configuration=config, **more) as client:
                client.ask()
                await client.over.wait()
        except ConnectionError:
            note("ended")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--aioquic"]:
        asyncio.run(aioquic_client(int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    else:
        main()
