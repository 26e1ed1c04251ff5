"""Gathers what a scrape of ``/metrics`` reads of a running proxy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from concur_proxy import build
from concur_proxy.model import BackendId, Signals
from concur_proxy.observe.facts import EngineFacts, ProxyFacts

if TYPE_CHECKING:
    from concur_proxy.runtime.node import Node

COMPILED = build() == "compiled"


def gather(node: Node) -> ProxyFacts:
    return ProxyFacts(
        law=node.settings.control.law.value,
        mode=node.settings.gate.mode,
        stale_after_s=node.settings.control.stale_after_s,
        gate=node.gate.snapshot(now=node.clock()),
        engines={backend: _engine(node, backend) for backend in node.targets},
        law_parameters=_numbers(_parameters(node)),
        requests_open=len(node.handler.turns),
        background_leases=len(node.handler.background),
        lineage_sessions=None if node.handler.lineage is None else len(node.handler.lineage),
        lineage_bytes=None if node.handler.lineage is None else node.handler.lineage.bytes,
        compiled=COMPILED,
        repeats=node.handler.retries.counts(),
        shared=None if node.replicas is None else node.replicas.facts(),
    )


def _parameters(node: Node) -> Mapping[str, object]:
    section = getattr(node.settings.control, node.settings.control.law.value, None)
    return section.model_dump() if section is not None else {}


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}


def _engine(node: Node, backend: BackendId) -> EngineFacts:
    pool, regulator, health = node.pools[backend], node.loop.regulator(backend), node.health.report(backend)
    return EngineFacts(
        signals=regulator.signals if regulator else Signals(age_s=math.inf),
        state=health.state if health else "unknown",
        models=node.fleet.models_of(backend),
        law_values=_numbers(regulator.law.snapshot()) if regulator else {},
        set_by_operator=regulator is not None and regulator.operator_window is not None,
        connections_open=pool.open_connections,
        connections_idle=pool.idle_connections,
        connection_retries=pool.retries,
        sent_bytes=pool.sent_bytes,
        received_bytes=pool.received_bytes,
    )
