"""Reads of a long JSON body what is asked of every body, and passes over the rest without building it.

A long conversation is nearly all text that nobody here looks at, and building that takes longer than seeing where it
ends. Grammar is checked throughout. Only two things go unnoticed within what is passed over: bytes that are no UTF-8,
and numbers that no float can hold. A full reading refuses those; here facts are found, and the engine refuses.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

from concur_proxy.core.prefix import SYSTEM_ROLES
from concur_proxy.gateway.encoded import media_below

ABSENT: Final = msgspec.Raw(b"null")
QUOTE: Final = ord('"')
PLAIN: Final[dict[str, Any]] = {"content": ""}
"""Stands for all messages behind what opens a conversation that say nothing more."""


class Message(msgspec.Struct, gc=False):
    """What is asked of a message: who speaks, and whether it brings media."""

    role: msgspec.Raw = ABSENT
    content: msgspec.Raw = ABSENT
    image_url: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    source: msgspec.Raw = ABSENT
    video_url: msgspec.Raw = ABSENT
    audio_url: msgspec.Raw = ABSENT
    file_data: msgspec.Raw = ABSENT


class Body(msgspec.Struct, gc=False):
    """What is asked of a body. A conversation that is no list of objects fits no ``Body``: it is read in full."""

    messages: list[Message] | None = None
    input: list[Message] | None = None
    model: msgspec.Raw = ABSENT
    stream: msgspec.Raw = ABSENT
    stream_options: msgspec.Raw = ABSENT
    max_completion_tokens: msgspec.Raw = ABSENT
    max_tokens: msgspec.Raw = ABSENT
    max_output_tokens: msgspec.Raw = ABSENT
    n: msgspec.Raw = ABSENT
    system: msgspec.Raw = ABSENT
    instructions: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = ABSENT
    tools: msgspec.Raw = ABSENT
    lora_path: msgspec.Raw = ABSENT
    cache_salt: msgspec.Raw = ABSENT
    previous_response_id: msgspec.Raw = ABSENT
    background: msgspec.Raw = ABSENT
    priority: msgspec.Raw = ABSENT
    nvext: msgspec.Raw = ABSENT
    deadline_seconds: msgspec.Raw = ABSENT


TALKS: Final = ("messages", "input")
NAMES: Final = tuple(name for name in Body.__struct_fields__ if name not in TALKS)
ASKED: Final = Message.__struct_fields__
MEDIA: Final = ASKED[1:]
UNFIT: Final = (msgspec.MsgspecError, RecursionError, orjson.JSONDecodeError)
"""What a reading raises of a body that is no JSON, or of another shape."""
_read = msgspec.json.Decoder(Body).decode


def skim(body: bytes) -> dict[str, Any] | None:
    """Return the fields that are asked of every body, None where it has to be read in full to know them.

    They are what a full reading gives, but of a conversation there is only what opens it and what may bring media, of
    which there are no names but those of ``Message``; the rest is one message that is ``PLAIN``.
    """
    try:
        found = _read(body)
        fields = fields_in(found)
        for name in TALKS:
            talk = getattr(found, name)
            if talk is not None:
                fields[name] = talk_in(talk)
    except UNFIT:
        return None
    return fields


def fields_in(found: Body) -> dict[str, Any]:
    """Return what is there beside conversations."""
    return _parsed(found, NAMES)


def _parsed(found: msgspec.Struct, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: orjson.loads(memoryview(raw)) for name in names if (raw := getattr(found, name)) is not ABSENT}


def talk_in(messages: list[Message]) -> list[dict[str, Any]]:
    """Return of a conversation what opens the prompt, in full, and of the rest what may be media."""
    opening = _opening(messages)
    talk = [_parsed(message, ASKED) for message in messages[:opening]]
    if opening < len(messages):
        talk.append(PLAIN)
    talk += [_parsed(message, MEDIA) for message in _beyond_text(messages[opening:])]
    return talk


def telling(messages: list[Message]) -> list[Message]:
    """Return messages of which ``talk_in`` tells what it tells of all these."""
    next_one = _opening(messages) + 1
    return messages[:next_one] + [
        each for each in _beyond_text(messages[next_one:]) if media_below(_parsed(each, MEDIA))
    ]


def _opening(messages: list[Message]) -> int:
    """Return how many messages open the prompt."""
    count = 0
    while count < len(messages) and _opens(messages[count]):
        count += 1
    return count


def _beyond_text(messages: list[Message]) -> list[Message]:
    """Return those that are more than a text, which begins with a quote; there may be thousands that are not."""
    return [message for message in messages if memoryview(message.content)[0] != QUOTE]


def _opens(message: Message) -> bool:
    return message.role is not ABSENT and orjson.loads(memoryview(message.role)) in SYSTEM_ROLES
