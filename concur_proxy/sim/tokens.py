"""A tokeniser without a vocabulary: four characters are one token, and a conversation is one aligned text.

Each message is a header of whole tokens and its content filled up to whole tokens, so a conversation that grows keeps
every token it had. Generated words are one token each, a space and three letters: an answer of n tokens counts n tokens
when the client sends it back, and finds its own blocks again. Space around a message's content counts as one leading
space, so that a client may strip it.

All loops here are per message or per block; a prompt of a megabyte takes a few milliseconds.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, product
from random import Random
from typing import Any

import orjson

CHARS = 4
"""Characters per token: about what English and code have with today's tokenisers."""
MEDIA_TOKENS = 256
"""What an image, sound or file in a message counts."""
_HEADER_CHARS = 4 * CHARS
WORDS = tuple(f" {a}{b}{c}" for a, b, c in product("bdfgklmnprstvz", "aeiou", "klmnrst"))


def count(text: str) -> int:
    return -(-len(text) // CHARS)


def digest(text: str) -> int:
    """A number that depends on nothing but the text: the same in every process."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def words(random: Random, tokens: int) -> str:
    """Generated text of so many tokens."""
    return "".join(random.choices(WORDS, k=tokens))


def block_hashes(text: str, block_size: int, parent: int = 0) -> list[int]:
    """Chained hashes of the full blocks of ``text``, which follows blocks whose last hash is ``parent``."""
    width = block_size * CHARS
    starts = range(0, len(text) - width + 1, width)
    parts = (text[start : start + width] for start in starts)
    return list(accumulate(parts, lambda before, part: hash((before, part)), initial=parent))[1:]


def ids(text: str) -> list[int]:
    """Numbers for the tokens of ``text``; characters beyond Latin-1 are not told apart."""
    raw = _filled(text).encode("latin-1", "replace")
    return array("I", raw).tolist()


def from_ids(numbers: Sequence[int]) -> str:
    """The text with these token numbers. ValueError or TypeError where they are none."""
    try:
        return array("I", numbers).tobytes().decode("latin-1")
    except OverflowError as error:
        raise ValueError("token ids must be from 0 to 2**32 - 1") from error


def chat(messages: Sequence[dict[str, Any]], tools: Sequence[Any] = ()) -> str:
    """The prompt that a conversation makes, up to where the answer begins. TypeError where it is none."""
    parts = [_section("tools", orjson.dumps(tools).decode())] if tools else []
    parts.extend(_message(message) for message in messages)
    parts.append(_header("assistant"))
    return "".join(parts)


def call_text(name: str, arguments: str) -> str:
    """What the model wrote to call a tool: part of the conversation from then on."""
    return f" {name} {arguments}"


def _message(message: dict[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    functions = (call["function"] for call in calls)
    written = "".join(_filled(call_text(function["name"], function["arguments"])) for function in functions)
    return _section(str(message["role"]), _content(message.get("content"))) + written


def _content(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_parts(content))


def _parts(content: Iterable[dict[str, Any]]) -> Iterable[str]:
    for part in content:
        text = part.get("text")
        if isinstance(text, str):
            yield text
        else:
            mark = f"<{zlib.crc32(orjson.dumps(part)):08x}>"
            yield mark.ljust(MEDIA_TOKENS * CHARS, ".")


def _section(role: str, content: str) -> str:
    content = content.strip()
    return _header(role) + (_filled(f" {content}") if content else "")


def _header(role: str) -> str:
    return f"<|{role}|>"[:_HEADER_CHARS].ljust(_HEADER_CHARS)


def _filled(text: str) -> str:
    return text + "\0" * (-len(text) % CHARS)
