"""What the data path tells of one answered request; access log and metrics are made of nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from concur_proxy.model import BackendId, SessionKey, Usage


@dataclass(frozen=True, slots=True)
class TurnLog:
    """One request, from its first byte to the end of its answer. No prompt text, no keys.

    ``kind`` and ``outcome`` become labels of metrics: both come from fixed sets in the code, never from a client.
    Durations are seconds; None means that it did not come to this.
    """

    request_id: str
    method: str
    path: str
    """As the client sent it, without the query string. Goes to the log only."""
    kind: str
    """Which family of paths it belongs to, such as ``chat`` or ``embeddings``; ``other`` for unknown ones."""
    status: int
    """What the client was told, in an event where its stream had begun; 499 where it left before an answer began."""
    outcome: str
    """A ``model.Outcome`` value, the ``code`` of a refusal, or ``abandoned`` where the client left while held."""
    total_s: float
    session: SessionKey | None = None
    rule: str = "anonymous"
    """Which identification rule named the session (docs/sessions.md)."""
    session_rejected: bool = False
    """An id was there that is too long or not printable, and was passed over."""
    backend: BackendId | None = None
    """Where it ran; None where it never left the proxy."""
    queued_s: float | None = None
    """Time in the gate; None for calls that do not pass it."""
    first_token_s: float | None = None
    """From arrival to the first byte of generated text."""
    usage: Usage | None = None
