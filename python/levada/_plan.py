"""Plans from access logs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

from . import _levada
from ._result import _pandas

if TYPE_CHECKING:
    import pandas

# One file, or several.
Logs = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]


class Plan:
    """A plan: what `levada plan --json` prints."""

    def __init__(self, plan: str, text: str) -> None:
        self._plan = plan
        self._text = text

    @cached_property
    def report(self) -> dict[str, Any]:
        """All that the plan says."""
        report: dict[str, Any] = json.loads(self._plan)
        return report

    @property
    def met(self) -> bool:
        """Whether a candidate meets the aims."""
        met: bool = self.report["answer"]["met"]
        return met

    @property
    def answer(self) -> dict[str, Any]:
        """The smallest candidate that meets the aims, or the one that comes nearest."""
        row: dict[str, Any] = self.report["answer"]["row"]
        return row

    @property
    def reasons(self) -> list[str]:
        """Why no smaller candidate does, or what to set, as sentences."""
        reasons: list[str] = self.report["answer"]["reasons"]
        return reasons

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The simulated candidates, the cheapest first."""
        rows: list[dict[str, Any]] = self.report["rows"]
        return rows

    def frame(self) -> pandas.DataFrame:
        """A row for each candidate, with the means of its figures."""
        return _pandas().DataFrame([_means(row) for row in self.rows])

    def to_json(self) -> str:
        """All that the plan says, as JSON."""
        return self._plan

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        row = self.answer
        met = "met" if self.met else "missed"
        return f"<levada.Plan {row['nodes']} nodes of {row['memory']} bytes, aims {met}>"


def plan(logs: Logs, **options: Any) -> Plan:
    """Plans a cluster from access logs, as `levada plan` does.

    Keywords are the options of the command line: `survive=1`, `nodes=[2, 4]`, `memory="4GiB"`,
    `slo={"p99": "200ms", "hit": 0.9}`, `origin_latency="40ms"`, `quick=True`.
    """
    paths = [logs] if isinstance(logs, (str, os.PathLike)) else list(logs)
    words = [word for name, value in options.items() for word in _option(name, value)]
    # A path that begins with a dash is no option.
    words += ["--", *(os.fspath(path) for path in paths)]
    planned = _levada.plan(words, _levada.StopFlag())
    assert planned is not None, "nobody stops it"
    return Plan(*planned)


def _option(name: str, value: Any) -> list[str]:
    """An option as words; none if it is None or False."""
    name = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    return [name] if value is True else [f"{name}={_text(value)}"]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(one)}" for key, one in value.items())
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return ",".join(_text(one) for one in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _means(row: dict[str, Any]) -> dict[str, Any]:
    ranges = {key: v["mean"] if _is_range(v) else v for key, v in row.items()}
    return {key: value for key, value in ranges.items() if key != "survived"}


def _is_range(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"mean", "least", "most"}
