"""What is read off a request before anything is decided about it. Pure, but for the ids that it makes."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Final

from concur_proxy.core.identity import Identity
from concur_proxy.core.retries import digest
from concur_proxy.gateway import hints
from concur_proxy.gateway.body import NOTHING, BodyFacts, facts, multipart_facts
from concur_proxy.gateway.conversations import Conversations
from concur_proxy.gateway.headers import Origin
from concur_proxy.model import PoolId, SessionKey, TurnFacts

MAX_REQUEST_ID: Final = 128


class _Ids:
    """Ids of requests: what this process is called, and a number of sixteen digits from the first on."""

    __slots__ = ("_number", "_process")

    def __init__(self) -> None:
        self._process = secrets.token_hex(8).encode()
        self._number = 10**15 + secrets.randbits(32)

    def next(self) -> bytes:
        self._number += 1
        return b"%b%d" % (self._process, self._number)


_IDS: Final = _Ids()


def body_facts(
    body: bytes,
    headers: Mapping[str, str],
    conversations: Conversations | None = None,
    session: SessionKey | None = None,
) -> BodyFacts:
    """Read the body once; compressed and other bodies tell nothing. What else is given: see ``body.facts``."""
    if not body or "content-encoding" in headers:
        return NOTHING
    if headers.get("content-type", "").lower().startswith("multipart/"):
        return multipart_facts(body)
    return facts(body, conversations=conversations, session=session)


def origin(headers: Mapping[str, str], peer: bytes, scheme: bytes) -> Origin:
    """Return where a request comes from, with an id made where it brings none."""
    told = headers.get("x-request-id")
    if told and len(told) <= MAX_REQUEST_ID and told.isascii() and told.isprintable():
        return Origin(peer, scheme, told.encode())
    return Origin(peer, scheme, _IDS.next())


def turn_facts(
    pool: PoolId,
    identity: Identity,
    body: bytes,
    told: BodyFacts,
    headers: Mapping[str, str],
    tenant: str = "",
    *,
    beat_s: float | None = None,
) -> TurnFacts:
    """Return what the gate needs to know of a turn. ``beat_s``: how often its client will hear of us while it waits."""
    urgency, deadline_s = told.hints
    return TurnFacts(
        pool=pool,
        session=identity.session,
        parent=identity.parent,
        rule=identity.rule,
        final=identity.final,
        body_bytes=len(body),
        media_bytes=told.media_bytes,
        max_output_tokens=told.max_output_tokens,
        choices=told.choices,
        read_timeout_s=_read_timeout(headers, beat_s) if "x-stainless-read-timeout" in headers else None,
        is_retry=is_retry(headers),
        body=b"" if told.background else body,
        body_digest=digest(body) if told.background else 0,  # its lease outlives the request by far
        prefix_key=told.prefix_key,
        tenant=tenant,
        urgency=hints.urgency(urgency, headers),
        deadline_s=deadline_s,
    )


def is_retry(headers: Mapping[str, str]) -> bool:
    """Tell whether the client says that it has sent this before."""
    return headers.get("x-stainless-retry-count", "0") not in ("", "0")


def _read_timeout(headers: Mapping[str, str], beat_s: float | None) -> float | None:
    """Return how long a client waits for the next byte; None where it does not say, or gets one in time anyway."""
    limit = _positive(headers.get("x-stainless-read-timeout"))
    return None if limit is not None and beat_s is not None and beat_s < limit else limit


def _positive(text: str | None) -> float | None:
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
