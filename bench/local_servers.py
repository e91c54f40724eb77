"""Servers on this machine, for the programs in the folders beside this file."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cpu(pid):
    """CPU seconds of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class LocalServers:
    """A folder and the processes that run with it. Both are gone at the end."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="levada-bench-")
        # The workers of nginx are another user's.
        os.chmod(self.folder, 0o755)
        self.running = []
        return self

    def write(self, name, text):
        path = f"{self.folder}/{name}"
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o644)
        return path

    def start(self, command, at, **more):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
        self.running.append(process)
        for _ in range(400):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", at)) == 0:
                    return process
            time.sleep(0.05)
        raise SystemExit(f"{command} does not listen")

    def __exit__(self, *_):
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
