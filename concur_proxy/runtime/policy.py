"""From settings to what the core takes: policies, laws, bounds."""

from __future__ import annotations

import dataclasses
import functools
import math

from concur_proxy.config import ControlSettings, GateSettings, ServerSettings, Settings
from concur_proxy.core.gate import GatePolicy
from concur_proxy.core.policy import TenantLimits
from concur_proxy.core.regulator import Bounds, MakeLaw
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.limits import ClientLimits
from concur_proxy.windows import build_law
from concur_proxy.windows.base import Unit


def gate_policy(settings: GateSettings) -> GatePolicy:
    """The gate's policy has the settings' own names."""
    limits = {tenant: TenantLimits(**each.model_dump()) for tenant, each in settings.limits.items()}
    return GatePolicy(**settings.model_dump(exclude={"limits"}), limits=limits)


def law_maker(settings: ControlSettings) -> MakeLaw:
    """Return what builds the law that the settings name, with its parameters."""
    section = getattr(settings, settings.law.value, None)
    return functools.partial(
        build_law,
        settings.law.value,
        section.model_dump() if section is not None else {},
        stale_after_s=settings.stale_after_s,
        decay_after_s=settings.decay_after_s,
    )


def unit(settings: ControlSettings) -> Unit:
    """Return what the window counts under the law that the settings name."""
    bounds = window_bounds(settings)
    return law_maker(settings)(minimum=bounds.minimum, maximum=bounds.maximum).unit


def window_bounds(settings: ControlSettings) -> Bounds:
    return Bounds(settings.window_min, math.inf if settings.window_max is None else settings.window_max)


def client_limits(settings: ServerSettings) -> ClientLimits:
    """The limits have the settings' own names."""
    names = (limit.name for limit in dataclasses.fields(ClientLimits))
    return ClientLimits(**{name: getattr(settings, name) for name in names})


def handler_settings(settings: Settings) -> HandlerSettings:
    return HandlerSettings(
        max_body_bytes=settings.server.max_body_bytes,
        request_usage=settings.upstream.request_usage,
        retry_budget=settings.upstream.retry_budget,
        resume_streams=settings.upstream.resume_streams,
        retry_generation=settings.upstream.retry_generation,
        retry_after_s=settings.gate.retry_after_s,
        session_headers=settings.sessions.headers,
        tenant_header=settings.sessions.tenant_header.lower() if settings.sessions.tenant_header else None,
        lineage_bytes=settings.sessions.lineage_memory_bytes if settings.sessions.lineage else 0,
        extra_paths=settings.server.extra_paths,
        aliases=settings.fleet.aliases,
        heartbeat_s=settings.server.heartbeat_s,
        background_lease_s=settings.server.background_lease_s,
    )
