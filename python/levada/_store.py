"""Finished cells of sweeps: a directory with a file for each, named by the key of its run."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path


class Store:
    """The files of a directory, or nothing."""

    def __init__(self, directory: os.PathLike[str] | str | None) -> None:
        self.directory = None if directory is None else Path(directory)
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> str | None:
        """The outcome that is stored under the key."""
        if self.directory is None:
            return None
        try:
            text = self._path(key).read_text(encoding="utf-8")
            stored = json.loads(text)
        except (OSError, ValueError):
            # A file that cannot be read is a cell that is missing.
            return None
        if not isinstance(stored, dict) or stored.get("key") != key:
            return None
        return text.partition('"outcome":')[2].rstrip()[:-1]

    def keep(self, key: str, scenario: str, outcome: str) -> None:
        """Writes the file under another name first, so that a crash leaves no half of it."""
        if self.directory is None:
            return
        # The bytes of the outcome stay as they are.
        text = f'{{"key":"{key}","scenario":{scenario},"outcome":{outcome}}}\n'
        handle, unfinished = tempfile.mkstemp(dir=self.directory, prefix=f".{key}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(unfinished, self._path(key))
        except BaseException:
            os.unlink(unfinished)
            raise

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / f"{key}.json"
