"""``footprint``: the footprints of active sessions fill a share of the KV cache, and no more.

    W = target * capacity

W: tokens, shared prefixes counted once per backend. The rule of ThunderAgent (arXiv 2602.13692), llm-d and Dynamo.
Capacity is what the engine tells (``vllm:cache_config_info``, ``sglang:max_total_num_tokens``), else ``kv_tokens`` of
the backend's settings. Contexts grow after their session was admitted, so that what is active comes to exceed the
window: the gate then pauses, at once and the longest idle first (``gate.pause: eager``), or as turns come back cold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView
from concur_proxy.windows.warm import FIRST_WINDOW

FIRST_FOOTPRINT = 8192.0
"""Tokens of a session, where neither capacity nor a typical footprint is known."""


class Footprint:
    """``target``: share of the capacity, above 0, at most 1 (more would plan for eviction)."""

    name: ClassVar[str] = "footprint"
    unit: ClassVar[Unit] = Unit.TOKENS

    def __init__(self, *, target: float = 0.95) -> None:
        self.target = target
        self._capacity: float | None = None

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        """Return its share of the capacity; where that is unknown, what the first sessions of other laws occupy."""
        if capacity_tokens:
            return max(1.0, self.target * capacity_tokens)
        return FIRST_WINDOW * max(1.0, typical_footprint_tokens or FIRST_FOOTPRINT)

    def observe(self, record: TurnRecord, *, now: float) -> None:
        pass

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        if not signals.capacity_tokens:
            return Verdict(view.window, "the KV capacity is unknown: the window stays; set kv_tokens of the backend")
        self._capacity = signals.capacity_tokens
        return Verdict(
            max(1.0, self.target * self._capacity), f"{self.target:g} of {self._capacity:.0f} tokens of KV cache"
        )

    def snapshot(self) -> Mapping[str, object]:
        return {"capacity_tokens": self._capacity}
