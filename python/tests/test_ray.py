"""Sweeps on a local Ray cluster of two workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import stored_by_the_program
from test_plan import log  # noqa: F401
from test_sweep import GRID

import levada

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    # A cluster of this machine alone needs no token in the user's home.
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_a_sweep_on_ray_gives_the_results_of_the_program_and_goes_on(world: Path):
    sweep = levada.sweep("small.toml", GRID, results="kept", on="ray")
    runs = stored_by_the_program("small.toml", "--policy", "fdr,random", "--seed", "1,2,3")
    assert {result.key: result.to_json() for result in sweep} == dict(runs)
    files = sorted(Path("kept").iterdir())
    assert [file.stem for file in files] == sorted(key for key, _ in runs)
    for file in files[:2]:
        file.unlink()
    untouched = {file: file.stat().st_mtime_ns for file in files[2:]}
    again = levada.sweep("small.toml", GRID, results="kept", on="ray", jobs=1)
    assert again.ran == 2
    assert [r.to_json() for r in again] == [r.to_json() for r in sweep]
    assert {file: file.stat().st_mtime_ns for file in files[2:]} == untouched
    assert levada.sweep("small.toml", GRID, results="kept").ran == 0, "the same directory here"


def test_a_cell_whose_worker_is_killed_runs_again(world: Path):
    # Long enough to be met while it runs.
    cells = [{"seed": 1}, {"seed": 2, "measure.requests": 600_000, "workload.repeat": True}]
    alone = levada.sweep("small.toml", cells)
    killed: list[int] = []

    def kill_once(done: int, _: int) -> None:
        if done == 1:
            killed.append(worker_of(alone[1].key))
            os.kill(killed[0], signal.SIGKILL)

    sweep = levada.sweep("small.toml", cells, results="kept", on="ray", progress=kill_once)
    assert len(killed) == 1
    assert [r.to_json() for r in sweep] == [r.to_json() for r in alone]


def test_candidates_of_a_plan_are_divided_among_tasks(log: Path):
    options: dict[str, Any] = {"memory": "4MiB", "slo": "p99=9s", "quick": True}

    def part(nodes: int) -> list[dict[str, Any]]:
        return levada.plan(log, nodes=nodes, resume=f"{log}.{nodes}", **options).rows

    task = ray.remote(num_cpus=1)(part)
    parts = ray.get([task.remote(nodes) for nodes in (1, 2, 3)])
    whole = levada.plan(log, nodes=[1, 2, 3], **options)
    assert [row for rows in parts for row in rows] == whole.rows


def worker_of(key: str) -> int:
    """The process of the task: a worker shows the name of its task as its title."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in Path("/proc").iterdir():
            try:
                title = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::levada " + key.encode()):
                return int(process.name)
    raise TimeoutError("no worker has begun the cell")


def test_files_reach_workers_that_do_not_have_them(world: Path):
    from levada._ray import run_cell

    whole = levada.simulate("small.toml")
    content = Path("small.tr").read_bytes()
    elsewhere = whole._scenario.replace("small.tr", "/elsewhere/small.tr")
    task = ray.remote(run_cell)
    outcome = task.remote(elsewhere, levada._levada.simulator(), ["/elsewhere/small.tr"], content)
    assert ray.get(outcome) == whole.to_json()


def test_a_worker_of_another_version_is_refused(world: Path):
    from levada._ray import run_cell

    whole = levada.simulate("small.toml")
    with pytest.raises(ray.exceptions.RayTaskError, match="another version of levada"):
        ray.get(ray.remote(run_cell).remote(whole._scenario, "0", []))
