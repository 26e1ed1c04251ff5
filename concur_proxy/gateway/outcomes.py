"""What answers and failures of engines mean for the accounts and for the client. Pure, but for the jitter."""

from __future__ import annotations

import random
from typing import Final
from urllib.parse import quote

from concur_proxy.errors import BackendError, BackendLostError, BackendTimeoutError
from concur_proxy.gateway.connection import Failure
from concur_proxy.gateway.headers import ResponseHead
from concur_proxy.model import Outcome

OVERLOADED: Final = frozenset({429, 503, 529})
"""Statuses by which an engine says that it is full."""
SHORTEST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 60.0
LONGEST_OWN_PAUSE_S: Final = 4.0
"""Where the engine does not say when to come back; it may have room at any moment."""
MAX_VALUES: Final = 4096
LONGEST_VALUE: Final = 255
ERRORS: Final[dict[Failure, type[BackendError]]] = {
    Failure.TIMEOUT: BackendTimeoutError,
    Failure.LOST: BackendLostError,
}
FAILURES: Final = {Failure.TIMEOUT: Outcome.TIMED_OUT, Failure.PROTOCOL: Outcome.ENGINE_ERROR}
_VALUES: Final[dict[str, bytes]] = {}
"""Texts that have been made header values: sessions and backends come again. Clients choose some, so only so many."""


def failure_error(failure: Failure, detail: str, retry_after_s: float) -> BackendError:
    return ERRORS.get(failure, BackendError)(f"The engine failed: {detail}.", retry_after_s=retry_after_s)


def outcome_of(status: int) -> Outcome:
    """Return what an engine's status means for the accounts."""
    if status < 400:
        return Outcome.COMPLETED
    if status in OVERLOADED:
        return Outcome.OVERLOADED
    return Outcome.CLIENT_ERROR if status < 500 else Outcome.ENGINE_ERROR


def pause_of(head: ResponseHead, tries: int) -> float:
    """Return the seconds to wait before a full engine is asked again: as it says, else longer with every try."""
    told = head.value(b"retry-after")
    if told.isdigit():
        return min(max(float(told), SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
    # Those that were refused together must not come back together.
    return min(0.25 * 2.0 ** min(tries, 10), LONGEST_OWN_PAUSE_S) * random.uniform(0.5, 1.0)


def header_value(text: str) -> bytes:
    """Return text that came from outside as a header's value."""
    known = _VALUES.get(text)
    if known is None:
        known = (text if text.isascii() and text.isprintable() else quote(text)).encode()
        if len(_VALUES) >= MAX_VALUES:
            _VALUES.clear()
        if len(text) <= LONGEST_VALUE:
            _VALUES[text] = known
    return known
