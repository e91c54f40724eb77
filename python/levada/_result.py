"""The result of one run."""

from __future__ import annotations

import json
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

from . import _levada

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


class RemarkWarning(UserWarning):
    """A run whose results do not mean what they say."""


class Result:
    """The outcome of a scenario."""

    def __init__(self, scenario: str, outcome: str, cell: dict[str, Any] | None = None) -> None:
        self._scenario = scenario
        self._outcome = outcome
        #: The values of the grid, for a cell of a sweep.
        self.cell: dict[str, Any] = cell or {}

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The whole scenario, with defaults."""
        scenario: dict[str, Any] = json.loads(self._scenario)
        return scenario

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """Everything that the run measured."""
        outcome: dict[str, Any] = json.loads(self._outcome)
        return outcome

    @property
    def summary(self) -> dict[str, float]:
        """The readings by name: times in seconds, shares as parts of one."""
        readings: dict[str, float] = self.outcome["readings"]
        return readings

    @cached_property
    def remarks(self) -> list[str]:
        """Limits to the meaning of the results, as sentences."""
        return _levada.remarks(self._outcome)

    @property
    def series(self) -> dict[str, list[tuple[float, float]]]:
        """Curves over time and the distribution of latencies, by name."""
        curves = self.outcome["series"]
        return {curve["name"]: [(x, y) for x, y in curve["points"]] for curve in curves}

    @property
    def servers(self) -> list[dict[str, Any]]:
        """Use of each server."""
        servers: list[dict[str, Any]] = self.outcome["servers"]
        return servers

    @property
    def links(self) -> list[dict[str, Any]]:
        """Use of each link between routers."""
        links: list[dict[str, Any]] = self.outcome["links"]
        return links

    @property
    def key(self) -> str:
        """The identity of the run, as `levada sim run` stores it."""
        return _levada.run_key(self._scenario)

    def to_json(self) -> str:
        """The outcome as `levada sim run` stores it, byte for byte."""
        return self._outcome

    def frame(self, of: str = "readings") -> pandas.DataFrame:
        """A frame of the `readings`, `series`, `servers` or `links`."""
        pandas = _pandas()
        if of == "readings":
            return pandas.DataFrame(_rows_of_readings(self.summary))
        if of == "series":
            rows = [
                {"series": curve["name"], "x": x, "y": y}
                for curve in self.outcome["series"]
                for x, y in curve["points"]
            ]
            return pandas.DataFrame(rows, columns=["series", "x", "y"])
        if of in ("servers", "links"):
            return pandas.DataFrame(self.outcome[of])
        raise ValueError(f"{of!r} is none of readings, series, servers, links")

    def plot(self, series: str, ax: Axes | None = None, **line: Any) -> Axes:
        """Draws a curve of `series`; further keywords are those of matplotlib's lines."""
        found = [curve for curve in self.outcome["series"] if curve["name"] == series]
        if not found:
            known = ", ".join(self.series)
            raise ValueError(f"there is no series {series!r}; there are {known}")
        axes = _axes(ax)
        curve = found[0]
        line.setdefault("label", self.scenario["policy"]["name"])
        axes.plot([x for x, _ in curve["points"]], [y for _, y in curve["points"]], **line)
        axes.set_xlabel(curve["x"])
        axes.set_ylabel(curve["y"])
        return axes

    def warn(self) -> None:
        """Warns of each remark."""
        for remark in self.remarks:
            warnings.warn(remark, RemarkWarning, stacklevel=3)

    def __repr__(self) -> str:
        policy = self.scenario["policy"]["name"]
        return f"<levada.Result {self.scenario['title']!r} {policy} {self.outcome['end']}>"


def _rows_of_readings(summary: dict[str, float]) -> list[dict[str, Any]]:
    known = {metric["name"]: metric for metric in json.loads(_levada.metrics())}
    rows = []
    for name, value in summary.items():
        metric, _, rate = name.partition("@")
        row = {
            "metric": metric,
            "rate": int(rate) if rate else None,
            "value": value,
            # A part of one is printed in percent elsewhere.
            "unit": known[metric]["unit"].replace("%", "part"),
            "title": known[metric]["title"],
        }
        rows.append(row)
    return rows


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("frames need pandas: pip install 'levada[notebook]'") from error
    return pandas


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'levada[notebook]'") from error
    return pyplot.subplots()[1]
