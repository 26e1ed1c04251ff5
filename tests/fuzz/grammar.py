"""Requests and answers that are almost right: built of tokens, then mutated as tokens and as bytes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CRLF = b"\r\n"
Tokens = list[bytes]

NASTY = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b"\x0b",
        b"\x7f",
        b"\xa0",
        b"\xff",
        b":",
        b";",
        b",",
        b'"',
        b"/",
        b"#",
        b"?",
    ),
    *(
        b"chunked",
        b"identity",
        b"gzip, chunked",
        b"close",
        b"keep-alive",
        b"0",
        b"-1",
        b"+1",
        b"0x1",
        b"1_0",
        b"ffffffff",
    ),
    *(
        b"18446744073709551615",
        b"18446744073709551616",
        b"99999999999999999999999",
        b"ffffffffffffffff",
        b"fffffffffffffffff",
    ),
    *(
        b"HTTP/1.0",
        b"HTTP/1.1",
        b"HTTP/2.0",
        b"HTTP/0.9",
        b"HTTP/1.1 200 OK",
        b"http://p/v1/chat/completions",
        b"*",
        b"%00",
    ),
    *(
        b"0\r\n\r\n",
        b"\r\n\r\n",
        b"\r\n \r\n",
        b"5\r\nabcde\r\n",
        b"GET / HTTP/1.1\r\nHost: p\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
]
LINES = [
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\tchunked\r\n"),
    *(b"Content-Length: 0\r\n", b"Content-Length: 3\r\n", b"Content-Length: 5\r\n", b"content-length:3\r\n"),
    *(
        b"Connection: close\r\n",
        b"Connection: keep-alive\r\n",
        b"Connection: content-length\r\n",
        b"Connection: host\r\n",
    ),
    *(
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        b"Upgrade: h2c\r\n",
    ),
    *(
        b"Host: q\r\n",
        b"Host:\r\n",
        b"X: 1\r\n folded\r\n",
        b"X : 1\r\n",
        b": 1\r\n",
        b"X\r\n",
        b"X:\r\n",
        b"X: caf\xe9\r\n",
    ),
    *(
        b"Expect: 100-continue\r\n",
        b"Expect: nothing\r\n",
        b"Trailer: X\r\n",
        b"TE: trailers\r\n",
        b"X-Concur-Session: a\r\n",
    ),
    *(
        b"X-Session-ID: s\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Content-Type: text/event-stream\r\n",
        b"Set-Cookie: a=b\r\n",
    ),
    *(b"Content-Type: multipart/form-data; boundary=B\r\n", b"X-Request-Id: \x0b\r\n", b"X-Forwarded-For: a\r\n"),
]
LARGE = [b"A" * 70_000, b"X: " + b"a" * 66_000 + CRLF, b"X: 1\r\n" * 300, b"1\r\na\r\n" * 500, b"\r\n" * 300]
METHODS = [b"POST", b"POST", b"POST", b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT"]
TARGETS = [
    *(b"/v1/chat/completions", b"/v1/chat/completions", b"/v1/chat/completions", b"/v1/embeddings", b"/v1/responses/r"),
    *(b"/v1/messages", b"/livez", b"/nowhere", b"/v1/audio/speech?a=b%20c", b"/v1/chat%2fcompletions", b"/"),
]
BODIES = [
    *(b"", b"{}", b'{"model":"m"}', b'{"stream":true,"model":"m"}', b'{"session_id":"a"}', b"abc", b"\0\xff\r\n\r\n"),
    *(
        b"GET /livez HTTP/1.1\r\nHost: p\r\n\r\n",
        b"0\r\n\r\n",
        b"[" * 300,
        b'{"model":' + b'"x"' * 3 + b"}",
        b"y" * 70_000,
    ),
]
EVENTS = [
    *(
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        b": ping\n\n",
        b"data: [DONE]\n\n",
        b"data: \xe6\x97\r\n\r\n",
    ),
    *(b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n', b"event: x\n", b"\n\n", b"data:"),
]
STATUSES = [
    b"200 OK",
    b"200 OK",
    b"200 OK",
    b"204 No Content",
    b"304 Not Modified",
    b"400 Bad",
    b"429 Full",
    b"500 ",
    b"201",
]
INTERIM = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", b"HTTP/1.1 102 P\r\n\r\n"]


@dataclass(frozen=True)
class Case:
    """What one client sends and, unless it is None, what the engine answers, each cut in pieces."""

    request: tuple[bytes, ...]
    answer: tuple[bytes, ...] | None = None
    end: str = "keep"
    """What the engine does behind its answer: keep, close or reset."""
    leaves: bool = False
    """The client goes once it has sent what it has."""
    is_held: bool = False
    """Another turn has the only place for a while."""
    before: bytes = b""
    """What the client sends first, where that is a good request, until its head is known."""

    def to_json(self) -> dict[str, object]:
        answer = None if self.answer is None else [piece.hex() for piece in self.answer]
        told = {"end": self.end, "leaves": self.leaves, "is_held": self.is_held}
        return {
            "request": [piece.hex() for piece in self.request],
            "answer": answer,
            "before": self.before.hex(),
            **told,
        }

    @classmethod
    def from_json(cls, told: dict[str, list[str]]) -> Case:
        answer = None if told["answer"] is None else tuple(map(bytes.fromhex, told["answer"]))
        request = tuple(map(bytes.fromhex, told["request"]))
        before = bytes.fromhex(str(told.get("before", "")))
        return cls(request, answer, str(told["end"]), bool(told["leaves"]), bool(told.get("is_held")), before)


def draw_case(rng: random.Random) -> Case:
    """Draw a case: half of them mutate the request, most others the answer, some both."""
    which = rng.random()
    count = rng.choice((1, 1, 1, 2, 3))
    requests = [_request(rng) if which < 0.6 else _good_request(rng) for _ in range(count)]
    tokens = list(itertools.chain.from_iterable(requests))
    raw = b"".join(_mutated(tokens, rng) if which < 0.6 else tokens)
    if which < 0.6:
        raw = _damaged(raw, rng)
    answer = None
    if which >= 0.5:
        answer = _cut(_damaged(b"".join(_mutated(_answer(rng), rng)), rng), rng)
    return Case(
        _cut(raw, rng),
        answer,
        rng.choice(("keep", "close", "close", "reset")),
        rng.random() < 0.05,
        rng.random() < 0.15,
        b"".join(requests[0]) if rng.random() < 0.5 else b"",
    )


def _good_request(rng: random.Random) -> Tokens:
    body = rng.choice(BODIES[2:5])
    return [
        b"POST",
        b" ",
        b"/v1/chat/completions",
        b" HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n" % len(body),
        body,
    ]


def _request(rng: random.Random) -> Tokens:
    method, target, body = rng.choice(METHODS), rng.choice(TARGETS), rng.choice(BODIES)
    version = rng.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"))
    head = [method, b" ", target, b" ", version, CRLF, b"Host", b": ", b"p", CRLF]
    return head + _headers(rng) + _framed(body, rng)


def _headers(rng: random.Random) -> Tokens:
    return rng.sample(LINES, 1) if rng.random() < 0.4 else []


def _framed(body: bytes, rng: random.Random) -> Tokens:
    if rng.random() < 0.5:
        return [b"Content-Length", b": ", b"%d" % len(body), CRLF, CRLF, body]
    tokens = [b"Transfer-Encoding", b": ", b"chunked", CRLF, CRLF]
    for piece in _cut(body, rng, most=3):
        if piece:
            tokens += [b"%x" % len(piece), rng.choice((b"", b"", b";a=b", b';a="b"')), CRLF, piece, CRLF]
    trailer = rng.choice((b"", b"", b"X-Sum: 1\r\n", b"Content-Length: 3\r\n"))
    return [*tokens, b"0", CRLF, trailer, CRLF]


def _answer(rng: random.Random) -> Tokens:
    status = rng.choice(STATUSES)
    stream = rng.random() < 0.4
    body = b"".join(rng.choices(EVENTS, k=rng.randint(0, 5))) if stream else rng.choice(BODIES)
    if rng.random() < 0.3:  # almost what all good requests are answered with
        first = [b"HTTP/1.1", b" ", b"200 OK", CRLF, b"content-type", b": ", b"text/plain", CRLF]
        return [*first, b"content-length", b": ", b"%d" % len(body), CRLF, CRLF, body]
    tokens = [rng.choice(INTERIM)] if rng.random() < 0.15 else []
    tokens += [
        b"HTTP/1.1",
        b" ",
        status,
        CRLF,
        b"Content-Type",
        b": ",
        b"text/event-stream" if stream else b"text/plain",
        CRLF,
    ]
    tokens += _headers(rng)
    if status[:3] in (b"204", b"304"):
        return [*tokens, CRLF]
    if rng.random() < 0.2:
        return [*tokens, CRLF, body]
    return tokens + _framed(body, rng)


def _mutated(tokens: Tokens, rng: random.Random) -> Tokens:
    out = list(tokens)
    while out and rng.random() < 0.6:
        rng.choice(MUTATIONS)(out, rng.randrange(len(out)), rng)
    return out


def _replace(out: Tokens, at: int, rng: random.Random) -> None:
    out[at] = rng.choice(NASTY)


def _insert(out: Tokens, at: int, rng: random.Random) -> None:
    out.insert(at, rng.choice(NASTY))


def _insert_line(out: Tokens, at: int, rng: random.Random) -> None:
    ends = [index + 1 for index, token in enumerate(out) if token.endswith(CRLF)]
    out.insert(rng.choice(ends) if ends else at, rng.choice(LINES if rng.random() < 0.95 else LARGE))


def _drop(out: Tokens, at: int, _: random.Random) -> None:
    del out[at]


def _double(out: Tokens, at: int, _: random.Random) -> None:
    out.insert(at, out[at])


def _swap(out: Tokens, at: int, rng: random.Random) -> None:
    other = rng.randrange(len(out))
    out[at], out[other] = out[other], out[at]


def _shift_number(out: Tokens, at: int, rng: random.Random) -> None:
    """Change a length or a chunk size a little."""
    numbers = [index for index, token in enumerate(out) if token.isdigit()] or [at]
    at = rng.choice(numbers)
    out[at] = b"%d" % max(0, int(out[at]) + rng.choice((-1, 1, 2, 10))) if out[at].isdigit() else out[at]


def _other_case(out: Tokens, at: int, _: random.Random) -> None:
    out[at] = out[at].swapcase()


def _truncate(out: Tokens, at: int, _: random.Random) -> None:
    del out[at:]


MUTATIONS: Sequence[Callable[[Tokens, int, random.Random], None]] = (
    *(_replace, _insert, _insert_line, _insert_line, _insert_line),
    *(_drop, _double, _swap, _shift_number, _shift_number, _other_case, _truncate),
)


def _damaged(raw: bytes, rng: random.Random) -> bytes:
    """Change single bytes, now and then."""
    if not raw or rng.random() > 0.15:
        return raw
    out = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out))
        out[at] = rng.choice((out[at] ^ 1 << rng.randrange(8), rng.randrange(256), *b"\r\n \0:"))
    return bytes(out)


def _cut(raw: bytes, rng: random.Random, most: int = 6) -> tuple[bytes, ...]:
    places = sorted({0, len(raw), *(rng.randint(0, len(raw)) for _ in range(rng.choice((0, 0, 1, 2, most))))})
    return tuple(raw[start:end] for start, end in itertools.pairwise(places))
