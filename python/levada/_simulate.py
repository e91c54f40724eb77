"""One run."""

from __future__ import annotations

from typing import Any

from . import _levada
from ._result import Result
from ._scenario import ScenarioLike, checked

# Generated traces take seconds to make, and several runs share them. A file may change between two
# calls, so its trace is read anew.
_GENERATED = _levada.Traces()


def simulate(scenario: ScenarioLike, **overrides: Any) -> Result:
    """Runs a scenario: a dictionary, the path of a file, or the name of a listed one.

    Keywords change single keys: `policy`, `servers`, `seed`, and any other with two underscores for
    the dot, such as `workload__rate=500`.
    """
    traces = _levada.Traces()
    whole = checked(scenario, overrides, traces)
    outcome = _levada.run(whole, traces, _levada.StopFlag())
    assert outcome is not None, "nobody stops it"
    result = Result(whole, outcome)
    result.warn()
    return result
