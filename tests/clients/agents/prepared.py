"""Where the environments with agent frameworks are, and whether they are as this tree wants them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("CONCUR_AGENTS") or Path.home() / ".cache" / "concur-agents")
MADE_OF = ".concur-requirements"


def _ready(folder: Path, requirements: str) -> bool:
    made_of = folder / MADE_OF
    return made_of.exists() and made_of.read_text() == (HERE / requirements).read_text()


PYTHON = str(FOLDER / "bin" / "python")
LLAMAINDEX = str(FOLDER / "llamaindex" / "bin" / "python")

needs_frameworks = pytest.mark.skipif(
    not (_ready(FOLDER, "requirements.txt") and _ready(FOLDER / "llamaindex", "llamaindex.txt")),
    reason="the agent frameworks are not installed here; install them with: tests/clients/agents/prepare",
)
