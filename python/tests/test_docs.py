"""The code on the page about this package runs, and says what it says there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT


def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/simulate/python.md").read_text()
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(compile(block, "docs/simulate/python.md", "exec"), names)
    printed = capsys.readouterr().out
    for block in blocks(page, "text"):
        assert block in printed
    assert names["sweep"].ran == 6


def test_the_code_of_the_readme_runs():
    for block in blocks((ROOT / "python/README.md").read_text(), "python"):
        exec(compile(block, "README.md", "exec"), {})


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert found
    return found
