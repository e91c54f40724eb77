"""Scenarios on their way to the simulator: Python's values become JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Union

from . import _levada

# A dictionary of keys, the path of a file, or the name of a listed scenario.
ScenarioLike = Union[Mapping[str, Any], str, "os.PathLike[str]"]


class Overrides:
    """Changes by keywords, as the compiled part takes them."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        given = {key.replace("__", "."): value for key, value in given.items()}
        # The options of the command line. Other keys are those of the file.
        self.policy = given.pop("policy", None)
        self.servers = given.pop("servers", None)
        self.seed = given.pop("seed", None)
        if hasattr(self.servers, "item"):
            self.servers = self.servers.item()
        if hasattr(self.seed, "item"):
            self.seed = self.seed.item()
        # A key that is None is a key that is not given.
        self.sets = [(key, to_json(value)) for key, value in given.items() if value is not None]


def checked(scenario: ScenarioLike, overrides: Mapping[str, Any], traces: _levada.Traces) -> str:
    """The whole scenario as JSON. Raises ScenarioError with all mistakes."""
    changes = Overrides(overrides)
    if isinstance(scenario, Mapping):
        return _levada.check_tree(to_json(scenario), changes, traces)
    return _levada.check(os.fspath(scenario), changes, traces)


def to_json(value: Any) -> str:
    return json.dumps(value, default=_plain, allow_nan=False)


def _plain(value: Any) -> Any:
    """Numbers of numpy, ranges and paths as what they stand for."""
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    try:
        return list(value)
    except TypeError:
        raise _levada.ScenarioError(f"{value!r} is no value of a scenario") from None
