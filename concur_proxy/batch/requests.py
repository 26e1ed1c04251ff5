"""What clients ask for, checked, with errors that name the parameter. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from concur_proxy.batch.files import Page
from concur_proxy.batch.records import NewBatch
from concur_proxy.errors import RequestError

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings")
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_WINDOW_S = 30 * 86_400
SHORTEST_KEEP_S, LONGEST_KEEP_S = 3600, 30 * 86_400
PURPOSE = "batch"
MOST_DIGITS = 18


def new_batch(body: bytes, *, owner: str, identity: Mapping[str, object]) -> NewBatch:
    """Read the body of POST /v1/batches. ``identity``: by whom its lines are sent."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The body is not JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise RequestError("The body must be a JSON object.")
    window = _text(fields, "completion_window")
    endpoint = _text(fields, "endpoint")
    if endpoint not in ENDPOINTS:
        raise RequestError(f"endpoint must be one of {', '.join(ENDPOINTS)}, not {endpoint!r}.", param="endpoint")
    metadata = fields.get("metadata")
    expires = fields.get("output_expires_after")
    return NewBatch(
        owner=owner,
        endpoint=endpoint,
        input_file=_text(fields, "input_file_id"),
        completion_window=window,
        window_s=window_seconds(window),
        metadata=_metadata(metadata) if metadata is not None else None,
        output_expires_s=keep_seconds(expires, "output_expires_after") if expires is not None else None,
        identity=orjson.dumps(dict(identity)).decode(),
    )


def window_seconds(window: str) -> int:
    """Return how long a batch may take: 24h as at OpenAI, or any other time up to 30 days (90m, 7d)."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", window)
    seconds = int(match[1]) * UNITS_S[match[2]] if match else 0
    if not 0 < seconds <= LONGEST_WINDOW_S:
        raise RequestError(
            f"completion_window must be a time such as 24h, at most 30d, not {window!r}.", param="completion_window"
        )
    return seconds


def keep_seconds(value: object, param: str) -> int:
    """Read ``{"anchor": "created_at", "seconds": ...}``; numbers may be texts, as forms have them."""
    fields = value if isinstance(value, dict) else {}
    told = fields.get("seconds")
    seconds = str(told) if isinstance(told, int | str) else ""
    if fields.get("anchor") != "created_at":
        raise RequestError(f"{param}.anchor must be 'created_at'.", param=f"{param}.anchor")
    if not _is_number(seconds) or not SHORTEST_KEEP_S <= int(seconds) <= LONGEST_KEEP_S:
        allowed = f"{SHORTEST_KEEP_S} to {LONGEST_KEEP_S}"
        raise RequestError(f"{param}.seconds must be a whole number, {allowed}.", param=f"{param}.seconds")
    return int(seconds)


def upload_terms(fields: Mapping[str, str]) -> tuple[str, int | None]:
    """Return purpose and time to keep of an upload, from the plain fields of its form."""
    purpose = fields.get("purpose")
    if purpose != PURPOSE:
        raise RequestError(
            f"purpose must be '{PURPOSE}': other files have no use here, not {purpose!r}.", param="purpose"
        )
    names = {"anchor": "expires_after[anchor]", "seconds": "expires_after[seconds]"}
    told = {name: fields[field] for name, field in names.items() if field in fields}
    return purpose, keep_seconds(told, "expires_after") if told else None


def page(query: Mapping[str, str], *, default: int, most: int) -> Page:
    """Read ``limit``, ``after`` and ``order``."""
    limit, order = query.get("limit", str(default)), query.get("order", "desc")
    if not _is_number(limit) or not 1 <= int(limit) <= most:
        raise RequestError(f"limit must be a whole number, 1 to {most}, not {limit!r}.", param="limit")
    if order not in {"asc", "desc"}:
        raise RequestError(f"order must be asc or desc, not {order!r}.", param="order")
    return Page(int(limit), query.get("after"), ascending=order == "asc")


def _is_number(text: str) -> bool:
    """Tell whether a text is a whole number that is short enough to be read."""
    return len(text) <= MOST_DIGITS and text.isascii() and text.isdigit()


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise RequestError(f"Missing required parameter: '{name}', a text.", param=name)
    return value


def _metadata(value: object) -> str:
    fields = value if isinstance(value, dict) else {"": None}
    if len(fields) > 16 or not all(len(k) <= 64 and isinstance(v, str) and len(v) <= 512 for k, v in fields.items()):
        raise RequestError(
            "metadata must be an object of at most 16 texts: names up to 64 characters, values up to 512.",
            param="metadata",
        )
    return orjson.dumps(fields).decode()
