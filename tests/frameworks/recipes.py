"""The programs of docs/integrations.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
RECIPE = re.compile(r"<!-- recipe: (\S+) -->\n```python\n(.*?)```\n<!-- end -->", re.DOTALL)
RECIPES: dict[str, str] = dict(RECIPE.findall(PAGE.read_text()))
MODELS = "OpenAIChatCompletionsModel", "OpenAIResponsesModel"
RECIPES["openai-agents-responses"] = RECIPES["openai-agents"].replace(*MODELS)  # as the page says that it may be
FRAMEWORKS = sorted(set(RECIPES) - {"end"})
SESSION = "X-Session-ID"


def unnamed(program: str) -> str:
    """Without the line that names the session, as the page says that it works too."""
    lines = program.splitlines(keepends=True)
    return "".join(line for line in lines if SESSION not in line)


def with_header(program: str, name: str, value: str) -> str:
    """With one more header beside the session's."""
    return program.replace(f'{{"{SESSION}":', f'{{"{name}": "{value}", "{SESSION}":')
