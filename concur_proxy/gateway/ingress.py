"""What is read off a request before anything is decided about it. Pure, but for the random ids."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from hashlib import blake2b

from concur_proxy.core.identity import Identity
from concur_proxy.gateway.body import NOTHING, BodyFacts, facts, multipart_facts
from concur_proxy.gateway.headers import Origin
from concur_proxy.model import PoolId, TurnFacts

MAX_REQUEST_ID = 128


def body_facts(body: bytes, headers: Mapping[str, str]) -> BodyFacts:
    """Read the body once; compressed and other bodies tell nothing."""
    if not body or "content-encoding" in headers:
        return NOTHING
    if headers.get("content-type", "").lower().startswith("multipart/"):
        return multipart_facts(body)
    return facts(body)


def namespace(headers: Mapping[str, str], key: bytes) -> str:
    """Return a keyed digest of the client's API key, so that one id under two keys is two sessions."""
    credential = headers.get("authorization") or headers.get("x-api-key")
    return blake2b(credential.encode(), digest_size=12, key=key).hexdigest() if credential else "-"


def origin(headers: Mapping[str, str], peer: bytes, scheme: bytes) -> Origin:
    """Return where a request comes from, with ids made where it brings none."""
    trace, span = f"{random.getrandbits(128):032x}", f"{random.getrandbits(64):016x}"
    told = headers.get("x-request-id", "")
    usable = 0 < len(told) <= MAX_REQUEST_ID and told.isascii() and told.isprintable()
    return Origin(peer, scheme, (told if usable else trace).encode(), f"00-{trace}-{span}-01".encode())


def turn_facts(pool: PoolId, identity: Identity, body: bytes, told: BodyFacts, headers: Mapping[str, str]) -> TurnFacts:
    """Return what the gate needs to know of a turn."""
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
        read_timeout_s=_positive(headers.get("x-stainless-read-timeout")),
        is_retry=headers.get("x-stainless-retry-count", "0") not in ("", "0"),
        body_digest=hash(body),
        prefix_key=told.prefix_key,
    )


def _positive(text: str | None) -> float | None:
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
