"""The usual shape of a chat's or a completion's answer, read without building what nobody asks for.

Anything else fits no ``Answer`` and is read in full: other APIs, usage objects of other engines, numbers that are none.
Of what is passed over the grammar is checked, but not the texts: bytes in them that are no UTF-8 go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A plausible number of tokens: see ``spent.count_of``."""


class Details(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class Spent(msgspec.Struct, gc=False):
    """A usage object in OpenAI's words. The others are here so that one that uses them, too, does not fit."""

    prompt_tokens: Count
    completion_tokens: Count = 0
    prompt_tokens_details: Details | None = None
    input_tokens_details: None = None
    cached_tokens: None = None
    cache_read_input_tokens: None = None
    cache_creation_input_tokens: None = None


class Message(msgspec.Struct, gc=False):
    tool_calls: list[msgspec.Raw] | None = None


class Choice(msgspec.Struct, gc=False):
    finish_reason: str | None = None
    message: Message | None = None


class Answer(msgspec.Struct, gc=False):
    usage: Spent
    choices: list[Choice]


read_answer: Final[Callable[[bytes], Answer]] = msgspec.json.Decoder(Answer).decode
"""Raises one of ``UNUSUAL`` for what does not fit."""
UNUSUAL: Final[tuple[type[Exception], ...]] = (msgspec.MsgspecError, RecursionError)
