"""What the data path tells of one answered request; access log and metrics are made of nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from concur_proxy.model import BackendId, SessionKey, Usage

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?"
)


@dataclass(init=False, slots=True, unsafe_hash=True)
class TurnLog:
    """One request, from its first byte to the end of its answer. No prompt text, no keys.

    ``kind`` and ``outcome`` become labels of metrics: both come from fixed sets in the code, never from a client.
    Durations are seconds; None means that it did not come to this.
    """

    request_id: Final[str]
    """Printable ASCII: others are not taken over from clients."""
    method: Final[str]
    path: Final[str]
    """As the client sent it, without the query string. Goes to the log only."""
    kind: Final[str]
    """Which family of paths it belongs to, such as ``chat`` or ``embeddings``; ``other`` for unknown ones."""
    status: Final[int]
    """What the client was told, in an event where its stream had begun; 499 where it left before an answer began."""
    outcome: Final[str]
    """A ``model.Outcome`` value, the ``code`` of a refusal, or ``abandoned`` where the client left while held."""
    total_s: Final[float]
    session: Final[SessionKey | None]
    rule: Final[str]
    """Which identification rule named the session (docs/sessions.md)."""
    session_rejected: Final[bool]
    """An id was there that is too long or not printable, and was passed over."""
    backend: Final[BackendId | None]
    """Where it ran; None where it never left the proxy."""
    queued_s: Final[float | None]
    """Time in the gate; None for calls that do not pass it."""
    first_token_s: Final[float | None]
    """From arrival to the first byte of generated text."""
    usage: Final[Usage | None]
    model: Final[str | None]
    """What the client asked for, known or not."""
    tenant: Final[str]
    """Whose share it took: a digest of the API key, or who a header names."""
    cold: Final[bool]
    """Batch work, by the urgency that its client asked for."""
    traceparent: Final[str]
    """W3C trace context that the engine was told, as far as one is known; may be anything that a client sent."""

    def __init__(
        self,
        request_id: str,
        method: str,
        path: str,
        kind: str,
        status: int,
        outcome: str,
        total_s: float,
        *,
        session: SessionKey | None = None,
        rule: str = "anonymous",
        session_rejected: bool = False,
        backend: BackendId | None = None,
        queued_s: float | None = None,
        first_token_s: float | None = None,
        usage: Usage | None = None,
        model: str | None = None,
        tenant: str = "",
        cold: bool = False,
        traceparent: str = "",
    ) -> None:
        self.request_id = request_id
        self.method = method
        self.path = path
        self.kind = kind
        self.status = status
        self.outcome = outcome
        self.total_s = total_s
        self.session = session
        self.rule = rule
        self.session_rejected = session_rejected
        self.backend = backend
        self.queued_s = queued_s
        self.first_token_s = first_token_s
        self.usage = usage
        self.model = model
        self.tenant = tenant
        self.cold = cold
        self.traceparent = traceparent


def trace_id(traceparent: str) -> str:
    """Return the trace's id, 32 hexadecimal digits; empty where this is no trace context of the W3C."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found else ""


def sampled_trace(traceparent: str) -> str:
    """Return the trace's id where its context says that it is recorded, else an empty text."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found and int(found[2], 16) & 1 else ""
