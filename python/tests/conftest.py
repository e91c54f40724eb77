"""The program that results are compared with, and a world that takes no time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SMALL = """\
title = "A small world"
[topology]
name = "star"
[servers]
count = 2
[workload]
trace = "small.tr"
clients = 5
arrivals = "constant"
rate = 50.0
[measure]
requests = 500
"""


@pytest.fixture(autouse=True)
def can_be_interrupted() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in the background of a shell."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a scenario and its trace, which is the current directory."""
    lines = (f"{n} {n * 7 % 50} {1000 + n * 7 % 50 * 100}\n" for n in range(600))
    (tmp_path / "small.tr").write_text("".join(lines))
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def levada(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the program that cargo built, or that LEVADA_PROGRAM names."""
    program = os.environ.get("LEVADA_PROGRAM", str(ROOT / "target/debug/levada"))
    return subprocess.run([program, *arguments], capture_output=True, text=True)


def stored_by_the_program(*arguments: str) -> list[tuple[str, str]]:
    """The keys of runs and the bytes of their outcomes, as `levada sim run` stores them."""
    done = levada("sim", "run", *arguments, "--results", "of-program", "--fresh")
    assert done.returncode in (0, 1), done.stderr
    lines = Path("of-program/run.jsonl").read_text().splitlines()
    Path("of-program/run.jsonl").unlink()
    runs = [(json.loads(line)["key"], line.partition('"outcome":')[2][:-1]) for line in lines]
    assert runs
    return runs
