"""Requests as agents send them: a chat of some size, in the order of keys that the OpenAI client writes."""

from __future__ import annotations

import functools
import json
import random
from dataclasses import dataclass

MODEL = "bench-model"
MESSAGE_BYTES = 2000
TEXT = (
    "the file of a test that fails when it is run again after some change in this function which reads every line from "
    'input and returns "nothing" if there is no value so please look at where they call it with None\n- then'
)
TURN_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Request:
    """The bytes of one agent's requests; each turn has a number in its last message, so that no two are alike."""

    start: bytes
    end: bytes

    def turn(self, number: int) -> bytes:
        """Return what comes after ``start``: as long for every number."""
        return b"%0*d" % (TURN_DIGITS, number) + self.end


def request(authority: str, session: str, size: int, *, stream: bool = False, user: str | None = None) -> Request:
    """Return a request whose body has ``size`` bytes. ``user`` is OpenAI's field, which engines ignore."""
    start, end = chat(size, stream=stream, user=user)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {authority}\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.1\r\nAuthorization: Bearer sk-bench\r\n"
        f"X-Session-ID: {session}\r\nAccept-Encoding: identity\r\n"
        f"Content-Length: {len(start) + TURN_DIGITS + len(end)}\r\n\r\n"
    )
    return Request(head.encode() + start, end)


@functools.cache
def chat(size: int, *, stream: bool = False, user: str | None = None) -> tuple[bytes, bytes]:
    """Return a chat body of ``size`` bytes without its turn number: what comes before and after it.

    ValueError where the size is too small for one.
    """
    options = {"model": MODEL, "max_tokens": 256, **({"user": user} if user else {}), "stream": stream}
    end = b'"}],' + _dump(options)[1:]
    start = b'{"messages":[' + b",".join(_messages(size - len(end) - TURN_DIGITS - 200))
    start += b',{"role":"user","content":"'
    filler = size - len(start) - len(end) - TURN_DIGITS
    if filler < 0:
        raise ValueError(f"{size} bytes are too few for a chat")
    return start + (b"and so on " * (filler // 10 + 1))[:filler], end


def _messages(size: int) -> list[bytes]:
    """Return a system prompt and as many messages as fit into ``size`` bytes."""
    rng, words = random.Random(size), TEXT.split(" ")
    found = [_dump({"role": "system", "content": "You are a coding agent. Be brief."})]
    room = size - len(found[0])
    while room > MESSAGE_BYTES * 1.5:
        text = " ".join(rng.choices(words, k=MESSAGE_BYTES // 5))
        found.append(_dump({"role": ("user", "assistant")[len(found) % 2 == 0], "content": text}))
        room -= len(found[-1]) + 1
    return found


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
