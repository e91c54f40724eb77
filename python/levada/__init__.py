"""The simulator and the request distribution policies of Levada."""

from __future__ import annotations

import json as _json
from typing import Any as _Any

from ._levada import Pick, PlanError, Policy, ScenarioError
from ._levada import policies as _policies
from ._levada import scenarios as _scenarios
from ._plan import Plan, plan
from ._result import RemarkWarning, Result
from ._simulate import simulate
from ._sweep import Sweep, sweep

__all__ = [
    "Pick",
    "Plan",
    "PlanError",
    "Policy",
    "RemarkWarning",
    "Result",
    "ScenarioError",
    "Sweep",
    "plan",
    "policies",
    "scenarios",
    "simulate",
    "sweep",
]


def policies() -> list[dict[str, _Any]]:
    """All policies: name, paper, summary, needs and parameters."""
    listed: list[dict[str, _Any]] = _json.loads(_policies())
    return listed


def scenarios() -> dict[str, str]:
    """The scenario files that come with Levada, by name."""
    return dict(_scenarios())
