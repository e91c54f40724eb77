"""Many runs: every combination of a grid, on this machine or on Ray."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Union

from . import _levada
from ._result import Result, _axes, _pandas
from ._scenario import ScenarioLike, checked
from ._store import Store

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

# A list of values for each key, or the cells themselves.
Grid = Union[Mapping[str, Iterable[Any]], Iterable[Mapping[str, Any]]]

# The scenario of each key.
Missing = dict[str, str]

# Takes the key and the outcome of each cell as it ends.
Keep = Callable[[str, str], None]


class Sweep:
    """The results of a grid, in its order."""

    def __init__(self, results: list[Result], ran: int) -> None:
        self.results = results
        #: The number of runs of this call; all others were stored.
        self.ran = ran

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __getitem__(self, place: int) -> Result:
        return self.results[place]

    def frame(self) -> pandas.DataFrame:
        """A row for each cell: the values of the grid, then the readings."""
        rows = [{**result.cell, **result.summary} for result in self.results]
        return _pandas().DataFrame(rows)

    def plot(
        self,
        y: str,
        x: str,
        by: str | None = None,
        ax: Axes | None = None,
        **line: Any,
    ) -> Axes:
        """Draws a reading over a key of the grid, with a line for each value of `by`."""
        axes = _axes(ax)
        line.setdefault("marker", "o")
        groups: dict[Any, list[Result]] = {}
        for result in self.results:
            groups.setdefault(None if by is None else result.cell.get(by), []).append(result)
        for value, group in groups.items():
            group = sorted(group, key=lambda result: result.cell[x])
            # A run without the reading leaves a gap.
            points = [(r.cell[x], r.summary.get(y, math.nan)) for r in group]
            label = None if by is None else str(value)
            axes.plot([a for a, _ in points], [b for _, b in points], label=label, **line)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if by is not None:
            axes.legend(title=by)
        return axes

    def __repr__(self) -> str:
        return f"<levada.Sweep of {len(self)} cells, {self.ran} run now>"


def sweep(
    scenario: ScenarioLike,
    grid: Grid,
    *,
    results: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    on: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **overrides: Any,
) -> Sweep:
    """Runs every combination of the grid's values, several at a time.

    `results` is a directory of finished cells: the same call runs only those that are missing.
    `jobs` limits the cells that run at a time. `on="ray"` runs them on a Ray cluster. `progress` is
    called with the numbers of finished cells and of all after each one.
    """
    if on not in (None, "ray"):
        raise ValueError(f'on={on!r}: a sweep runs here by default, or on "ray"')
    if jobs is not None and jobs < 1:
        raise ValueError("jobs must be 1 at least")
    store, traces = Store(results), _levada.Traces()
    cells = [dict(cell) for cell in _cells(grid)]
    scenarios = [checked(scenario, {**overrides, **cell}, traces) for cell in cells]
    keys = [_levada.run_key(whole) for whole in scenarios]
    outcomes: dict[str, str] = {}
    missing: Missing = {}
    for key, whole in zip(keys, scenarios):
        if key in outcomes or key in missing:
            continue
        stored = store.get(key)
        if stored is None:
            missing[key] = whole
        else:
            outcomes[key] = stored
    ran, total = len(missing), len(outcomes) + len(missing)

    def keep(key: str, outcome: str) -> None:
        store.keep(key, missing[key], outcome)
        outcomes[key] = outcome
        if progress is not None:
            progress(len(outcomes), total)

    if missing and on == "ray":
        from ._ray import run_on_ray

        run_on_ray(missing, keep, jobs)
    elif missing:
        _run_here(missing, keep, traces, jobs or os.cpu_count() or 1)
    found = [Result(whole, outcomes[key], cell) for cell, key, whole in zip(cells, keys, scenarios)]
    for result in found:
        result.warn()
    return Sweep(found, ran)


def _cells(grid: Grid) -> Iterable[Mapping[str, Any]]:
    if not isinstance(grid, Mapping):
        return grid
    for key, values in grid.items():
        if isinstance(values, (str, bytes)):
            raise TypeError(f"{key}: a grid has a list of values for each key, not a text")
    combinations = itertools.product(*grid.values())
    return [dict(zip(grid.keys(), values)) for values in combinations]


def _run_here(missing: Missing, keep: Keep, traces: _levada.Traces, jobs: int) -> None:
    """Runs in threads, because a run leaves Python's lock free. Each takes a cell at a time, so that
    a failure or ctrl-C leaves the cells that have not begun."""
    stop = _levada.StopFlag()
    waiting = iter(missing.items())
    running: dict[Future[str | None], str] = {}
    with ThreadPoolExecutor(min(jobs, len(missing))) as threads:
        try:
            while True:
                for key, whole in itertools.islice(waiting, jobs - len(running)):
                    running[threads.submit(_levada.run, whole, traces, stop)] = key
                if not running:
                    return
                # A wait without an end hears no ctrl-C on some systems.
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    key, outcome = running.pop(future), future.result()
                    if outcome is not None:
                        keep(key, outcome)
        finally:
            stop.stop()
