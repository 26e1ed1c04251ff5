"""Runs that are done, one JSON line each: an experiment that was cut off goes on where it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    key: str
    load: int
    way: str
    round: int
    report: dict[str, Any]
    when: str
    """Date, and versions of what played."""


class Kept:
    """The file with all runs of one experiment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.runs = [Run(**json.loads(line)) for line in lines]

    def has(self, key: str, number: int) -> bool:
        return any(run.key == key and run.round == number for run in self.runs)

    def add(self, run: Run) -> None:
        self.runs.append(run)
        fields = {name: getattr(run, name) for name in Run.__slots__}
        with self._path.open("a") as file:
            file.write(json.dumps(fields) + "\n")

    def of(self, key: str) -> list[Run]:
        """Return the runs of a key by their rounds, those that only taught a proxy apart."""
        return sorted((run for run in self.runs if run.key == key and run.round >= 0), key=lambda run: run.round)
