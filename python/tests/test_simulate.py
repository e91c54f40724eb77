"""Single runs: the same as those of `levada sim run`, in the forms that notebooks use."""

from __future__ import annotations

import _thread
import threading
import warnings
from pathlib import Path

import numpy
import pytest
from conftest import levada as program
from conftest import stored_by_the_program

import levada


@pytest.mark.parametrize("policy", ["fdr", "adaptive", "bounded_hash", "p2c", "lard/r"])
@pytest.mark.parametrize("seed", [1, 7])
def test_results_are_those_of_the_program_byte_for_byte(world: Path, policy: str, seed: int):
    [(key, outcome)] = stored_by_the_program(
        "small.toml", "--policy", policy, "--seed", str(seed), "--servers", "3"
    )
    result = levada.simulate("small.toml", policy=policy, seed=seed, servers=3)
    assert result.to_json() == outcome
    assert result.key == key


@pytest.mark.parametrize("name", ["osdi02-flash", "osdi02-slow-links", "lard", "cap-commerce"])
def test_listed_scenarios_give_the_results_of_the_program(world: Path, name: str):
    sets = {"measure.requests": 2000, "workload.clients": 40}
    if name == "cap-commerce":
        sets = {"cap.window.warm_up": "5s", "cap.window.measure": "20s", "cap.window.drain": "5s"}
    else:
        sets["workload.trace"] = "small.tr"
        sets["workload.repeat"] = True
    written = [f"{k}={str(v).lower()}" for k, v in sets.items()]
    options = [word for set in written for word in ("--set", set)]
    [(key, outcome)] = stored_by_the_program(name, *options)
    with warnings.catch_warnings(action="ignore"):
        result = levada.simulate(name, **sets)
    assert (result.key, result.to_json()) == (key, outcome)


def test_a_dictionary_is_the_file_with_the_same_keys(world: Path):
    tree = {
        "title": "A small world",
        "topology": {"name": "star"},
        "servers": {"count": numpy.int64(2)},
        "workload": {
            "trace": world / "small.tr",
            "clients": 5,
            "arrivals": "constant",
            "rate": numpy.float32(50.0),
            "flash": None,
        },
        "measure": {"requests": 500},
    }
    assert levada.simulate(tree).to_json() == levada.simulate("small.toml").to_json()


def test_mistakes_of_a_file_are_told_as_by_the_program(world: Path):
    Path("wrong.toml").write_text(
        "seed = 1\n[servers]\ncount = 0\nactiv = 5\n[policy]\nname = 'fdr'\nbussy = 3\n"
    )
    told = program("sim", "run", "wrong.toml")
    assert told.returncode == 2
    with pytest.raises(levada.ScenarioError) as raised:
        levada.simulate("wrong.toml")
    assert f"levada: {raised.value}" == told.stderr.rstrip()
    assert "wrong.toml:3:9: error: servers.count" in str(raised.value)


def test_mistakes_of_a_dictionary_and_of_keywords_are_told_all(world: Path):
    tree = {"servers": {"count": 0}, "workload": {"trace": "small.tr", "clinets": 3}}
    with pytest.raises(levada.ScenarioError) as raised:
        levada.simulate(tree, policy="fdrr", cache__memory="5 furlongs")
    told = str(raised.value)
    for part in [
        "scenario cannot be run\n",
        "scenario: error: servers.count: ",
        "scenario: error: workload.clinets: there is no such key; did you mean `clients`?",
        "policy: error: policy.name: there is no policy `fdrr`",
        "override: error: cache.memory: `5 furlongs` is not a size",
    ]:
        assert part in told, told


def test_values_that_no_scenario_has_are_told(world: Path):
    with pytest.raises(levada.ScenarioError, match="is no value of a scenario"):
        levada.simulate("small.toml", workload__rate=object())
    with pytest.raises(ValueError):
        levada.simulate("small.toml", workload__rate=float("nan"))
    with pytest.raises(OSError, match="`levada sim list scenarios` has names"):
        levada.simulate("no-such.toml")


def test_a_result_has_frames_and_plots(world: Path):
    import matplotlib

    matplotlib.use("Agg")
    result = levada.simulate("small.toml", policy="fdr")
    readings = result.frame()
    throughput = readings[readings.metric == "throughput"].iloc[0]
    assert throughput.value == result.summary["throughput"] > 20
    assert throughput.unit == "req/s"
    assert result.frame("servers").requests.sum() == result.summary["requests"]
    drawn = {name for name, points in result.series.items() if points}
    assert set(result.frame("series").series) == drawn
    axes = result.plot("latency_cdf")
    assert len(axes.lines) == 1 and axes.get_xlabel()
    with pytest.raises(ValueError, match="there is no series 'speed'; there are "):
        result.plot("speed")
    with pytest.raises(ValueError):
        result.frame("speed")
    assert "fdr" in repr(result)


def test_a_result_that_does_not_mean_what_it_says_warns(world: Path):
    with pytest.warns(levada.RemarkWarning, match="the trace ended after"):
        result = levada.simulate("small.toml", measure__requests=100_000)
    assert len(result.remarks) == 1


LONG = {"measure__requests": 10**9, "workload__repeat": True, "workload__rate": 40.0}


def test_ctrl_c_ends_a_run(world: Path):
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait()
        _thread.interrupt_main()

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        begun.set()
        levada.simulate("small.toml", **LONG)
    interrupter.join()


def test_python_goes_on_during_a_run(world: Path):
    ended = threading.Event()
    counted = 0

    def run() -> None:
        levada.simulate("small.toml", measure__requests=200_000, workload__repeat=True)
        ended.set()

    runner = threading.Thread(target=run)
    runner.start()
    while not ended.wait(0.001):
        counted += 1
    runner.join()
    assert counted > 3


def test_listed_scenarios_can_be_read():
    listed = levada.scenarios()
    assert "osdi02" in listed and "[workload]" in listed["osdi02"]
