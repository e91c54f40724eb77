"""Cells of sweeps as tasks of a Ray cluster.

The cells carry the files that they read, and this process stores the results, so that workers need
neither a common file system nor anything but this package in the same version.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _levada

# How often a cell begins anew after its worker has died.
RETRIES = 3


def run_on_ray(missing: dict[str, str], keep: Callable[[str, str], None], jobs: int | None) -> None:
    """Runs each scenario of `missing` as a task, and hands over its outcome."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("sweeps on Ray need ray: pip install 'levada[ray]'") from error
    if not ray.is_initialized():
        ray.init()
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(run_cell)
    files: dict[str, Any] = {}

    def begin(key: str, whole: str) -> Any:
        for path in _levada.files(whole):
            if path not in files:
                files[path] = ray.put(Path(path).read_bytes())
        paths = _levada.files(whole)
        contents = [files[path] for path in paths]
        named = task.options(name=f"levada {key}")
        return named.remote(whole, _levada.simulator(), paths, *contents)

    waiting = iter(missing.items())
    running: dict[Any, str] = {}
    try:
        while True:
            # Without a limit Ray queues all of them.
            free = None if jobs is None else jobs - len(running)
            for key, whole in itertools.islice(waiting, free):
                running[begin(key, whole)] = key
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                keep(running.pop(reference), ray.get(reference))
    finally:
        for reference in running:
            ray.cancel(reference)


def run_cell(whole: str, simulator: str, paths: list[str], *contents: bytes) -> str:
    """Runs one cell in a worker."""
    if simulator != _levada.simulator():
        raise RuntimeError(
            "the worker has another version of levada: install the same one on all machines, or "
            "name it in the runtime_env of ray.init"
        )
    moved = {path: _placed(path, content) for path, content in zip(paths, contents)}
    outcome = _levada.run(whole, _levada.Traces(moved), _levada.StopFlag())
    assert outcome is not None, "nobody stops it"
    return outcome


def _placed(path: str, content: bytes) -> str:
    """The path of a file with this content on this machine; cells of one worker share it."""
    name = hashlib.sha256(content).hexdigest()
    directory = Path(tempfile.gettempdir()) / f"levada-{os.getuid()}" / name
    # The name stays, because its ending tells the format.
    placed = directory / os.path.basename(path)
    if not placed.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=directory)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(unfinished, placed)
    return str(placed)
