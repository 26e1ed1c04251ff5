"""A process that plays recipes, so that a framework is imported once for all of its tests."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

QUIET = {  # nothing is asked for or told outside of this machine
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "DO_NOT_TRACK": "1",
    "PATH": "/usr/bin:/bin",
}


class Player:
    def __init__(self, python: str, model: str) -> None:
        self._model = model
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the player
        self._child = subprocess.Popen(
            [python, str(Path(__file__).with_name("play.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=QUIET,
            cwd="/",
        )

    def begin(self, url: str, program: str, call: str, *arguments: tuple[str, ...]) -> None:
        """Let it make these calls at the same time."""
        step = {"url": url, "model": self._model, "program": program, "call": call, "with": arguments}
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(step) + "\n")
        self._child.stdin.flush()

    def result(self) -> list[Any]:
        """Wait for what the calls gave."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, self._told()
        return list(json.loads(line))

    def play(self, url: str, program: str, call: str, *arguments: tuple[str, ...]) -> list[Any]:
        self.begin(url, program, call, *arguments)
        return self.result()

    def _told(self) -> str:
        self._child.wait()
        self._errors.seek(0)
        return self._errors.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()
        self._errors.close()
