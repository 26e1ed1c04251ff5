"""Plays recipes in the framework's environment: a line of JSON says what to do, a line of JSON says what came of it.

    {"url": "http://...", "program": "...", "call": "run", "with": [["How is the weather?", "session"], ...]}

All calls of a line are made at the same time. The proxy and the model that the program names are replaced.
"""

from __future__ import annotations

import asyncio
import json
import sys
import types
import warnings
from typing import Any

PLACES = {"url": '"http://localhost:8080"', "model": '"Qwen/Qwen3-32B"'}


def load(step: dict[str, Any]) -> types.ModuleType:
    program = step["program"]
    for key, place in PLACES.items():
        program = program.replace(place, repr(step[key]))
    recipe = types.ModuleType("recipe")
    sys.modules["recipe"] = recipe  # frameworks look types of tools up in it
    exec(compile(program, "docs/integrations.md", "exec"), recipe.__dict__)
    return recipe


async def play(step: dict[str, Any]) -> list[Any]:
    call = getattr(load(step), step["call"])
    return list(await asyncio.gather(*(call(*arguments) for arguments in step["with"])))


async def main() -> None:
    for line in sys.stdin:
        told = json.dumps(await play(json.loads(line)))
        sys.__stdout__.write(f"{told}\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr  # frameworks print what they like
    asyncio.run(main())
