"""Sweeps: every cell once, stored by its key, and continued by the same call."""

from __future__ import annotations

import _thread
import json
from pathlib import Path

import pytest
from conftest import stored_by_the_program
from test_simulate import LONG

import levada

GRID = {"policy": ["fdr", "random"], "seed": range(1, 4)}


def test_a_sweep_gives_the_results_of_the_program(world: Path):
    sweep = levada.sweep("small.toml", GRID, results="kept", jobs=2)
    runs = stored_by_the_program("small.toml", "--policy", "fdr,random", "--seed", "1,2,3")
    assert {result.key: result.to_json() for result in sweep} == dict(runs)
    assert sweep.ran == len(sweep) == 6
    stored = {path.stem: path.read_text() for path in Path("kept").iterdir()}
    assert stored.keys() == dict(runs).keys()
    for key, outcome in runs:
        assert json.loads(stored[key])["key"] == key
        assert stored[key].endswith(f'"outcome":{outcome}}}\n')


def test_a_sweep_goes_on_where_it_was(world: Path):
    first = levada.sweep("small.toml", GRID, results="kept")
    files = sorted(Path("kept").iterdir())
    files[0].unlink()
    files[1].write_text('{"key":"half')
    told: list[tuple[int, int]] = []
    again = levada.sweep(
        "small.toml",
        {**GRID, "policy": ["fdr", "random", "p2c"]},
        results="kept",
        progress=lambda done, total: told.append((done, total)),
    )
    assert again.ran == 2 + 3
    assert told == [(5, 9), (6, 9), (7, 9), (8, 9), (9, 9)]
    assert [r.to_json() for r in again][:6] == [r.to_json() for r in first]


def test_equal_cells_run_once(world: Path):
    sweep = levada.sweep("small.toml", [{"seed": 1}, {"seed": 1}, {}], seed=1)
    assert (sweep.ran, len(sweep)) == (1, 3)


def test_a_frame_has_a_row_for_each_cell_and_a_plot_a_line_for_each_policy(world: Path):
    import matplotlib

    matplotlib.use("Agg")
    sweep = levada.sweep("small.toml", {"policy": ["fdr", "p2c"], "workload.rate": [20, 40]})
    frame = sweep.frame()
    assert frame.shape[0] == 4
    assert list(frame["workload.rate"]) == [20, 40, 20, 40]
    assert frame["throughput"].notna().all()
    axes = sweep.plot("hit_ratio", x="workload.rate", by="policy")
    assert [line.get_label() for line in axes.lines] == ["fdr", "p2c"]


def test_all_cells_are_checked_before_one_runs(world: Path):
    with pytest.raises(levada.ScenarioError, match="there is no policy `fdrr`"):
        levada.sweep("small.toml", {"policy": ["fdr", "fdrr"]}, results="kept")
    assert list(Path("kept").iterdir()) == []
    with pytest.raises(TypeError, match="policy: a grid has a list of values"):
        levada.sweep("small.toml", {"policy": "fdr"})
    with pytest.raises(ValueError, match='or on "ray"'):
        levada.sweep("small.toml", GRID, on="rya")


def test_ctrl_c_keeps_what_is_finished(world: Path):
    cells = [{"seed": 1}, {"seed": 2}, {"seed": 3, **LONG}]
    with pytest.raises(KeyboardInterrupt):
        levada.sweep(
            "small.toml",
            cells,
            results="kept",
            jobs=1,
            progress=lambda done, _: _thread.interrupt_main() if done == 2 else None,
        )
    assert len(list(Path("kept").iterdir())) == 2
    assert levada.sweep("small.toml", cells[:2], results="kept").ran == 0
