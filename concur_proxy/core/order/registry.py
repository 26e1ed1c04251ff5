"""The orders by name."""

from __future__ import annotations

from collections.abc import Callable

from concur_proxy.core.order.base import HEAD_START, Order, Size
from concur_proxy.core.order.cache import CacheAware, Smallest
from concur_proxy.core.order.deadline import Deadline
from concur_proxy.core.order.fair import Fair
from concur_proxy.core.order.fifo import Fifo
from concur_proxy.core.order.furthest import Furthest
from concur_proxy.core.order.lanes import Lanes
from concur_proxy.core.policy import GatePolicy

ORDERS: dict[str, Callable[[GatePolicy, float, Size], Order]] = {
    "fifo": lambda policy, head_start_s, size: Fifo(head_start_s),  # noqa: ARG005
    "furthest": lambda policy, head_start_s, size: Furthest(head_start_s),  # noqa: ARG005
    "cache_aware": lambda policy, head_start_s, size: CacheAware(head_start_s, size),  # noqa: ARG005
    "smallest": lambda policy, head_start_s, size: Smallest(head_start_s, size),  # noqa: ARG005
    "fair": lambda policy, head_start_s, size: Fair(head_start_s, policy.weights),  # noqa: ARG005
    "lanes": lambda policy, head_start_s, size: Lanes(head_start_s),  # noqa: ARG005
    "deadline": lambda policy, head_start_s, size: Deadline(head_start_s),  # noqa: ARG005
}


def make_order(policy: GatePolicy, size: Size) -> Order:
    """Return a new order by the name in ``policy``; raise ``KeyError`` for one that is not here."""
    return ORDERS[policy.order](policy, HEAD_START * policy.max_wait_s, size)
