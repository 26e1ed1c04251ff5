"""Gathers what a scrape of ``/metrics`` reads of a running proxy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from concur_proxy.model import BackendId, Signals
from concur_proxy.observe.facts import EngineFacts, ProxyFacts

if TYPE_CHECKING:
    from concur_proxy.runtime.node import Node


def gather(node: Node) -> ProxyFacts:
    return ProxyFacts(
        law=node.settings.control.law.value,
        mode=node.settings.gate.mode,
        stale_after_s=node.settings.control.stale_after_s,
        gate=node.gate.snapshot(now=node.clock()),
        engines={backend: _engine(node, backend) for backend in node.targets},
    )


def _engine(node: Node, backend: BackendId) -> EngineFacts:
    pool = node.pools[backend]
    return EngineFacts(
        signals=node.loop.signals(backend) or Signals(age_s=math.inf),
        connections_open=pool.open_connections,
        connections_idle=pool.idle_connections,
        connection_retries=pool.retries,
    )
