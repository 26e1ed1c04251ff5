"""What many sessions share at the start of their prompts, as one number: model or adapter, salt, system text and tools.

Work is bounded whatever a body holds: long texts count with their beginning and their length, long lists with their
first entries. Two prefixes that only differ beyond these bounds are taken for one, which costs accuracy, not safety.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

MAX_TEXT: Final = 1 << 16
"""Characters of one text that count."""
MAX_PARTS: Final = 128
"""Entries of one list that count."""
PROMPT_HEAD: Final = 1024
"""A text completion has no system text: so many characters or tokens of its prompt stand for it."""
SYSTEM_ROLES: Final[tuple[str, ...]] = ("system", "developer")


def prefix_key(body: dict[str, object]) -> int | None:
    """Return the same number, within one process, for bodies that start alike; None where nothing can be shared."""
    system: list[int] = []
    _add_system(body, system)
    tools = [_tool(tool) for tool in _list(body.get("tools")) if isinstance(tool, dict)]
    if not tools and not system:
        return None
    named = _text(body.get("model")), _text(body.get("lora_path")), _text(body.get("cache_salt"))
    return hash((named, tuple(system), tuple(tools)))


def _text(value: object) -> int:
    """Hash a text; anything else counts as none."""
    if not isinstance(value, str):
        return 0
    return hash(value if len(value) <= MAX_TEXT else (value[:MAX_TEXT], len(value)))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        return []
    return value if len(value) <= MAX_PARTS else value[:MAX_PARTS]


def _add_system(body: dict[str, object], out: list[int]) -> None:
    """Hash the system text of each API: fields, then leading messages of these roles, or the head of a prompt."""
    _add_content(body.get("system"), out)
    _add_content(body.get("instructions"), out)
    for message in _list(body.get("messages")) or _list(body.get("input")):
        if not isinstance(message, dict) or message.get("role") not in SYSTEM_ROLES:
            break
        _add_content(message.get("content"), out)
    prompt = body.get("prompt")
    if isinstance(prompt, str) and prompt:
        out.append(hash(prompt[:PROMPT_HEAD]))
    elif isinstance(prompt, list):
        out += [hash(token) for token in prompt[:PROMPT_HEAD] if isinstance(token, int | str)]


def _add_content(value: object, out: list[int]) -> None:
    """Hash a text, or the texts of a list of parts."""
    if isinstance(value, str):
        if value:
            out.append(_text(value))
    elif isinstance(value, list):
        out += [_text(part.get("text")) for part in value[:MAX_PARTS] if isinstance(part, dict)]


def _tool(tool: dict[str, object]) -> tuple[int, int, int, tuple[object, ...]]:
    """Hash a tool by its name, description and parameters' names: its schema in full would cost more than it tells."""
    function = tool.get("function")
    told = function if isinstance(function, dict) else tool
    schema = told.get("parameters") or told.get("input_schema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = tuple(islice(properties, MAX_PARTS)) if isinstance(properties, dict) else ()
    return _text(told.get("name")), _text(told.get("type")), _text(told.get("description")), names
