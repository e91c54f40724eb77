"""Plans are those of the program."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import levada as program

import levada


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(7)
    path = tmp_path / "access.log"
    with path.open("w") as file:
        for n in range(3000):
            page = int(500 * chance.random() ** 3)
            moment = f"{n * 3600 // 3000 // 60:02}:{n * 3600 // 3000 % 60:02}"
            file.write(
                f'10.0.0.{n % 20} - - [06/Feb/2009:12:{moment} +0000] "GET /{page} HTTP/1.1" '
                f'200 {1000 + page * 37 % 9000} "-" "-"\n'
            )
    return path


def test_a_plan_is_that_of_the_program(log: Path):
    plan = levada.plan(
        log, nodes=[1, 2], memory=["256KiB", "4MiB"], slo={"p99": "9s", "hit": 0.5}, quick=True
    )
    options = "--nodes 1,2 --memory 256KiB,4MiB --slo p99=9s,hit=0.5 --quick".split()
    done = program("plan", str(log), *options, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(plan.to_json()) == json.loads(done.stdout)
    assert str(plan) == program("plan", str(log), *options).stdout
    assert plan.met and plan.answer["nodes"] == 1
    frame = plan.frame()
    assert list(frame["hit"]) == [row["hit"]["mean"] for row in plan.rows]


def test_mistakes_have_the_sentences_of_the_program(log: Path):
    with pytest.raises(levada.PlanError, match="--nodse"):
        levada.plan(log, nodse=3)
    with pytest.raises(levada.PlanError, match="there is no aim `speed`"):
        levada.plan(log, slo={"speed": 3})
    with pytest.raises(levada.PlanError, match="nothing.log"):
        levada.plan("nothing.log")
    missed = levada.plan([log], quick=True, nodes=1, memory="1MiB", slo="hit=1,p99=1ms")
    assert not missed.met and missed.reasons


def test_an_interrupted_plan_goes_on(log: Path):
    code = f"""
import levada, threading, signal
threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
levada.plan({str(log)!r}, nodes=range(1, 60), slo="p99=9s", resume="kept")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "KeyboardInterrupt" in ended.stderr, ended.stderr
    options = {"nodes": [1, 2], "memory": "4MiB", "slo": "p99=9s", "resume": "half", "quick": True}
    first = levada.plan(log, **{**options, "nodes": 1})
    both = levada.plan(log, **options)
    assert both.rows[0] == first.rows[0]
    assert len(Path("half").read_text().splitlines()) == 1 + len(both.rows)
