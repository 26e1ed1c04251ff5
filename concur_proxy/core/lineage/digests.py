"""One number for what a message says, however its client writes it down.

What counts is the role, the content, the tools called and the ids of their results. What clients add, move or leave
out between turns does not: reasoning, cache marks, names of fields for the same text. Work is bounded per message:
long texts count with both ends and their length, long lists with their first entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_TEXT: Final = 1 << 16
"""Characters of one text that count, half of them from each end."""
MAX_PARTS: Final = 32
"""Entries of one list that count."""

THINKING: Final[tuple[str, ...]] = ("<think>", "</think>")
"""Marks around the reasoning that some engines leave in the text, and clients take out of it later."""
UNSAID: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Types of parts and items that come and go with the client's mood."""
MEDIA: Final = frozenset({"image_url", "source", "input_audio", "video_url", "audio_url", "file_data", "file"})
MEDIA_TEXT: Final[tuple[str, ...]] = ("url", "data", "file_data", "file_id")

_HALF: Final = MAX_TEXT // 2


def message_digest(message: object) -> int:
    """Return the number of a chat message, of any API."""
    if not isinstance(message, dict):
        return 0
    role = message.get("role")
    content = message.get("content")
    said = text_digest(content) if type(content) is str else content_digest(content)
    if role == "assistant" and type(content) is str and content.startswith(THINKING[0]):
        said = text_digest(without_thinking(content))
    named = role if type(role) is str else ""
    if len(message) == 2 and content is not None:
        return hash((named, said))
    calls, answers_to = message.get("tool_calls"), message.get("tool_call_id")
    if not calls and not answers_to:
        return hash((named, said))
    return hash((named, said, _calls(calls), _id(answers_to)))


def item_digest(item: object) -> int | None:
    """Return the number of an input item of the Responses API; None for one that does not count."""
    if not isinstance(item, dict):
        return 0
    kind = item.get("type")
    if kind is None or kind == "message":
        return message_digest(item)
    if type(kind) is not str:
        return 0
    if kind in UNSAID:
        return None
    said = content_digest(item.get("output")) or text_digest(item.get("arguments"))
    return hash((kind, _id(item.get("call_id")), _id(item.get("name")), said))


def content_digest(content: object, *, nested: bool = False) -> int:
    """Return the number of a text or of a list of parts; a text alone in a list is the same as that text."""
    if type(content) is str:
        return text_digest(content)
    if not isinstance(content, list):
        return 0
    said = [number for part in content[:MAX_PARTS] if (number := _part(part, nested=nested)) is not None]
    if len(said) == 1:
        return said[0]
    return hash(tuple(said)) if said else 0


def text_digest(text: object) -> int:
    """Return the number of a text; 0 for an empty one and for anything else."""
    if type(text) is not str:
        return 0
    return hash(text) if len(text) <= MAX_TEXT else hash((text[:_HALF], text[-_HALF:], len(text)))


def without_thinking(text: str) -> str:
    """Return what comes after the reasoning that a text begins with."""
    if not text.startswith(THINKING[0]):
        return text
    _, end, rest = text.partition(THINKING[1])
    return rest.lstrip() if end else text


def _part(part: object, *, nested: bool) -> int | None:
    if not isinstance(part, dict):
        return text_digest(part)
    text = part.get("text")
    if type(text) is str:
        return text_digest(text)
    kind = part.get("type")
    if type(kind) is str and kind in UNSAID:
        return None
    if kind == "tool_use":
        return hash((_id(part.get("id")), _id(part.get("name")), _written(part.get("input"))))
    if kind == "tool_result":
        return hash((_id(part.get("tool_use_id")), 0 if nested else content_digest(part.get("content"), nested=True)))
    return hash(tuple(_media(part)))


def _media(part: dict[object, object]) -> Iterable[int]:
    for name, value in part.items():
        if name not in MEDIA:
            continue
        if isinstance(value, dict):
            yield from (text_digest(value[key]) for key in MEDIA_TEXT if key in value)
        else:
            yield text_digest(value)


def _calls(calls: object) -> int:
    """Return the number of the tools that a message calls: their ids, names and arguments as they stand."""
    if not isinstance(calls, list):
        return 0
    return hash(tuple(_call(call) for call in calls[:MAX_PARTS] if isinstance(call, dict)))


def _call(call: dict[str, object]) -> int:
    function = call.get("function")
    if not isinstance(function, dict):
        return hash(_id(call.get("id")))
    return hash((_id(call.get("id")), _id(function.get("name")), _written(function.get("arguments"))))


def _id(value: object) -> str:
    return value if type(value) is str else ""


def _written(value: object) -> int:
    """Return the number of a JSON value, in the order that it was written in."""
    if type(value) is str:
        return text_digest(value)
    try:
        return text_digest(repr(value))
    except RecursionError:
        return 0
