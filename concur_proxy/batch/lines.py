"""One line of an input file: what is wrong with it, and what is sent for it. One line of an output file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from concur_proxy.batch.records import Answer, Spent
from concur_proxy.core.identity import FINAL_HEADERS, HEADER_RULES, PARENT, VENDOR_HEADER, identify

MAX_CUSTOM_ID = 512
MAX_HEADER_BYTES = 1024
MOST_SHOWN = 80
"""Characters of a wrong value that its error repeats."""
ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""Ends of lines stand only between the values of JSON, never in them."""
HEADERS = frozenset(
    {
        *(rule.session for rule in HEADER_RULES),
        *(rule.agent for rule in HEADER_RULES if rule.agent),
        *(rule.parent for rule in HEADER_RULES if rule.parent),
        *FINAL_HEADERS,
        *(PARENT, "x-vllm-priority", "x-smg-priority", "x-smg-routing-key", "anthropic-version", "anthropic-beta"),
    }
)
"""Headers that a line may have, besides those by which the operator and other vendors name sessions: never a secret,
and nothing that says who the client is.
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a line cannot be played, as OpenAI words it: its codes where it has one for this."""

    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A request that may be sent. ``session``: its name, None where the line names none."""

    custom_id: str
    headers: Mapping[str, str]
    body: bytes
    model: str | None
    session: str | None


class Written(msgspec.Struct):
    """A line's body as its author wrote it: numbers of any length stay what they are."""

    body: msgspec.Raw


UNREADABLE = Problem("invalid_json_line", "This line is not parseable as valid JSON: it must be a JSON object.")
TOO_DEEP = Problem("invalid_json_line", "The values of this line are nested too deeply.")
_written = msgspec.json.Decoder(Written)


def read(text: bytes, endpoint: str, session_headers: tuple[str, ...]) -> Line | Problem:
    """Return what a line asks for, or what is wrong with it."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        return UNREADABLE
    for check in (_custom_id, _target, _body):
        if (problem := check(fields, endpoint)) is not None:
            return problem
    headers = fields.get("headers") or {}
    if (problem := _headers(headers, session_headers)) is not None:
        return problem
    headers = {name.lower(): value for name, value in headers.items()}
    body = fields["body"]
    try:
        written = bytes(_written.decode(text).body)
    except RecursionError:
        return TOO_DEEP
    identity = identify(headers, body, namespace="", operator_headers=session_headers)
    model = body.get("model")
    return Line(
        fields["custom_id"],
        headers,
        written,
        model if isinstance(model, str) else None,
        identity.session.id if identity.session is not None else None,
    )


def _custom_id(fields: Mapping[str, Any], _: str) -> Problem | None:
    value = fields.get("custom_id")
    if value is None:
        return _missing("custom_id")
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CUSTOM_ID:
        return Problem("invalid_value", f"custom_id must be a text of 1 to {MAX_CUSTOM_ID} characters.", "custom_id")
    if "\0" in value:
        return Problem(
            "invalid_value", "custom_id has a NUL character in it, which databases do not keep.", "custom_id"
        )
    return None


def _target(fields: Mapping[str, Any], endpoint: str) -> Problem | None:
    if "method" not in fields or "url" not in fields:
        return _missing("url" if "method" in fields else "method")
    if fields["method"] != "POST":
        return Problem("invalid_method", f"The method must be POST, not {_shown(fields['method'])}.", "method")
    if fields["url"] != endpoint:
        return Problem("url_mismatch", f"The url must be the batch's endpoint, {endpoint}.", "url")
    return None


def _body(fields: Mapping[str, Any], _: str) -> Problem | None:
    body = fields.get("body")
    if body is None:
        return _missing("body")
    if not isinstance(body, dict):
        return Problem("invalid_value", "The body must be a JSON object.", "body")
    for name in ("stream", "background"):
        if body.get(name):
            return Problem("invalid_value", f"{name} is not for batches: the answer goes into a file.", f"body.{name}")
    return None


def _headers(headers: object, session_headers: tuple[str, ...]) -> Problem | None:
    if not isinstance(headers, dict):
        return Problem("invalid_value", "headers must be a JSON object.", "headers")
    own = {name.lower() for name in session_headers}
    for name, value in headers.items():
        lower = name.lower()
        if lower not in HEADERS and lower not in own and not VENDOR_HEADER.fullmatch(lower):
            message = f"A line may only have headers that name its session, or its priority: not {_shown(name)}."
            return Problem("invalid_header", message, f"headers.{name[:MOST_SHOWN]}")
        if not isinstance(value, str) or not value.isprintable() or len(value.encode()) > MAX_HEADER_BYTES:
            message = f"The header {_shown(name)} must be a printable text of at most {MAX_HEADER_BYTES} bytes."
            return Problem("invalid_header", message, f"headers.{name[:MOST_SHOWN]}")
    return None


def _shown(value: object) -> str:
    """Return a value as an error tells it: what is no text may be of any size, and of any depth."""
    return repr(value[:MOST_SHOWN]) if isinstance(value, str) else f"a value of the type {type(value).__name__}"


def _missing(name: str) -> Problem:
    return Problem("missing_required_parameter", f"Missing required parameter: '{name}'.", name)


def request_id(batch: str, number: int) -> str:
    """Return the id by which a line is known in logs, at the engine, and in the output file."""
    return f"batch_req_{batch.removeprefix('batch_')}_{number}"


def answered(batch: str, number: int, custom_id: str, status: int, body: bytes) -> Answer:
    """Return what a response makes of a line: one for the output file where the status is good, else for the errors."""
    told, fields = _as_json(body)
    response = {"status_code": status, "request_id": request_id(batch, number), "body": told}
    good = 200 <= status < 300
    text = _output(batch, number, custom_id, response, None)
    return Answer(number, not good, text, spent(fields) if good else Spent())


def unanswered(batch: str, number: int, custom_id: str, code: str, message: str) -> Answer:
    """Return what tells that a line got no response."""
    error = {"code": code, "message": message}
    return Answer(number, failed=True, text=_output(batch, number, custom_id, None, error))


def _output(batch: str, number: int, custom_id: str, response: object, error: object) -> bytes:
    line = {"id": request_id(batch, number), "custom_id": custom_id, "response": response, "error": error}
    return orjson.dumps(line) + b"\n"


def _as_json(body: bytes) -> tuple[object, object]:
    """Return a body as it goes into a line, and what it says; what is no JSON goes as a text."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace"), None
    return orjson.Fragment(body.translate(ONE_LINE)), fields


def spent(fields: object) -> Spent:
    """Return the tokens that a response reports, in whichever of the APIs' words."""
    usage = fields.get("usage") if isinstance(fields, dict) else None
    if not isinstance(usage, dict):
        return Spent()
    inputs = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    outputs = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    return Spent(
        input=_count(usage.get("prompt_tokens")) or _count(usage.get("input_tokens")),
        cached=_count(inputs.get("cached_tokens")) if isinstance(inputs, dict) else 0,
        output=_count(usage.get("completion_tokens")) or _count(usage.get("output_tokens")),
        reasoning=_count(outputs.get("reasoning_tokens")) if isinstance(outputs, dict) else 0,
    )


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value < 1 << 40 else 0
