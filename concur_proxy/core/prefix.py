"""What many sessions share at the start of their prompts, as one number: model or adapter, salt, system text and tools.

Work is bounded whatever a body holds: long texts count with their beginning and their length, long lists with their
first entries. Two prefixes that only differ beyond these bounds are taken for one, which costs accuracy, not safety.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

MAX_TEXT = 1 << 16
"""Characters of one text that count."""
MAX_PARTS = 128
"""Entries of one list that count."""
PROMPT_HEAD = 1024
"""A text completion has no system text: so many characters or tokens of its prompt stand for it."""
SYSTEM_ROLES = ("system", "developer")


def prefix_key(body: Mapping[str, object]) -> int | None:
    """Return the same number, within one process, for bodies that start alike; None where nothing can be shared."""
    tools, system = tuple(_tools(body.get("tools"))), tuple(_system(body))
    if not tools and not system:
        return None
    named = (_text(body.get("model")), _text(body.get("lora_path")), _text(body.get("cache_salt")))
    return hash((named, system, tools))


def _text(value: object) -> int:
    """Hash a text; anything else counts as none."""
    if not isinstance(value, str):
        return 0
    return hash(value if len(value) <= MAX_TEXT else (value[:MAX_TEXT], len(value)))


def _list(value: object) -> list[object]:
    return value[:MAX_PARTS] if isinstance(value, list) else []


def _system(body: Mapping[str, object]) -> Iterator[int]:
    """Hash the system text of each API: fields, then leading messages of these roles, or the head of a prompt."""
    for name in ("system", "instructions"):
        yield from _content(body.get(name))
    for message in _list(body.get("messages")) or _list(body.get("input")):
        if not isinstance(message, dict) or message.get("role") not in SYSTEM_ROLES:
            break
        yield from _content(message.get("content"))
    prompt = body.get("prompt")
    if isinstance(prompt, str) and prompt:
        yield hash(prompt[:PROMPT_HEAD])
    elif isinstance(prompt, list):
        yield from (hash(token) for token in islice(prompt, PROMPT_HEAD) if isinstance(token, int | str))


def _content(value: object) -> Iterator[int]:
    """Hash a text, or the texts of a list of parts."""
    if isinstance(value, str) and value:
        yield _text(value)
    for part in _list(value):
        if isinstance(part, dict):
            yield _text(part.get("text"))


def _tools(value: object) -> Iterator[object]:
    for tool in _list(value):
        if isinstance(tool, dict):
            function = tool.get("function")
            yield _tool(function if isinstance(function, dict) else tool)


def _tool(tool: dict[str, object]) -> object:
    """Hash a tool by its name, description and parameters' names: its schema in full would cost more than it tells."""
    schema = tool.get("parameters") or tool.get("input_schema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = tuple(islice(properties, MAX_PARTS)) if isinstance(properties, dict) else ()
    return _text(tool.get("name")), _text(tool.get("type")), _text(tool.get("description")), names
