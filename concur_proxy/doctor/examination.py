"""One examination: a proxy and the engines behind it, or an engine alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from concur_proxy.admin.client import AnsweredError, ProxyClient
from concur_proxy.admin.reports import BackendReport, StatusReport
from concur_proxy.control.fetch import HttpFetch
from concur_proxy.control.target import EngineTarget
from concur_proxy.doctor import engines, proxies
from concur_proxy.doctor.facts import EngineFacts
from concur_proxy.doctor.findings import Finding, Weight
from concur_proxy.doctor.questions import APART_S, ask_engine
from concur_proxy.errors import ConcurError, ForbiddenError, NotAuthorizedError
from concur_proxy.model import BackendId

KEEPALIVE_S = 4.0
"""What the proxy keeps idle connections for by default."""


@dataclass(frozen=True, slots=True)
class Examination:
    """``looked_at``: what was asked, in words."""

    looked_at: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Nothing is wrong or missing; there may be notes."""
        return all(finding.weight is Weight.NOTE for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Permissions:
    """``token``: the proxy's admin token; ``api_key``: what engines ask for. ``sends``: tiny requests may be sent."""

    token: str | None = None
    api_key: str | None = None
    sends: bool = True
    apart_s: float = APART_S


def examine(url: str, permissions: Permissions) -> Examination:
    """Ask what is at ``url`` and what is behind it; ``ConcurError`` where nobody answers."""
    client = ProxyClient(url, permissions.token)
    status = _status(client)
    if status is None:
        return asyncio.run(_engine_alone(client.url, permissions))
    return asyncio.run(_proxy(client.url, status, permissions))


def _status(client: ProxyClient) -> StatusReport | None:
    """Return the proxy's status; None where it is none, ``ConcurError`` where it is one that tells nothing."""
    try:
        return client.status()
    except AnsweredError as error:
        if error.answer_code in (NotAuthorizedError.code, ForbiddenError.code):
            raise
        return None  # an engine, whatever it says


async def _engine_alone(url: str, permissions: Permissions) -> Examination:
    target = EngineTarget(BackendId(url), url, api_key=permissions.api_key)
    (facts,) = await _ask([target], [KEEPALIVE_S], permissions)
    if facts.unreachable is not None:
        raise ConcurError(f"no answer from {url}: {facts.unreachable}")
    findings = engines.judge(engines.Seen(facts))
    return Examination((f"{url}: {facts.kind or 'an engine of a kind that is not known'}",), tuple(findings))


async def _proxy(url: str, status: StatusReport, permissions: Permissions) -> Examination:
    askable = [backend for backend in status.backends if backend.state == "up" and backend.url.startswith("http")]
    targets = [EngineTarget(BackendId(one.name), one.url, api_key=permissions.api_key) for one in askable]
    answers = await _ask(targets, [one.keepalive_s or KEEPALIVE_S for one in askable], permissions)
    findings = proxies.judge(status)
    for backend, facts in zip(askable, answers, strict=True):
        findings += _away(facts) if facts.unreachable is not None else engines.judge(_seen(backend, facts))
    return Examination(_looked_at(url, status, answers), tuple(findings))


async def _ask(
    targets: Sequence[EngineTarget], keepalives_s: Sequence[float], permissions: Permissions
) -> list[EngineFacts]:
    fetch = HttpFetch()
    try:
        return await asyncio.gather(
            *(
                ask_engine(target, fetch, keepalive_s=keepalive, sends=permissions.sends, apart_s=permissions.apart_s)
                for target, keepalive in zip(targets, keepalives_s, strict=True)
            )
        )
    finally:
        await fetch.aclose()


def _seen(backend: BackendReport, facts: EngineFacts) -> engines.Seen:
    return engines.Seen(
        facts,
        window_sessions=backend.window if backend.unit == "sessions" else None,
        capacity_known=backend.capacity_tokens is not None,
        keepalive_s=backend.keepalive_s or KEEPALIVE_S,
    )


def _away(facts: EngineFacts) -> list[Finding]:
    what = f"the proxy reaches it at {facts.url}, the doctor does not ({facts.unreachable}): it was not asked"
    return [Finding("not-asked", Weight.NOTE, facts.name, what, "run the doctor beside the proxy")]


def _looked_at(url: str, status: StatusReport, answers: Sequence[EngineFacts]) -> tuple[str, ...]:
    lines = [f"{url}: concur-proxy {status.version}, law {status.law}, {_backends(len(status.backends))}"]
    return (*lines, *(f"{facts.name}: {facts.kind or 'of a kind that is not known'}" for facts in answers))


def _backends(count: int) -> str:
    return "1 backend" if count == 1 else f"{count} backends"
