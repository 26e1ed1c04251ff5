"""How long the idle places of a starved engine are left alone, while others wait for them.

Who loses a place loses the context with it: another session comes in, and the cache is full. Its next turn computes
that context again. To wait costs the engine time as well, until the first of those who are away comes back. So places
are taken at once where that is expected to take longer than the context would, and else when the engine has been
starved for as long as that: then no more than twice the time is lost that one who knew the future would lose
(ski rental; Karlin, Manasse, Rudolph, Sleator, 1988).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

from concur_proxy.core.backend import Backend
from concur_proxy.core.sessions import Session

LOOKED_AT: Final = 64
"""Those who have gone away last are the first to come back: a part of many is enough."""


def victims(backend: Backend, charge: int) -> Sequence[Session]:
    """Return the sessions that must lose their places for ``charge`` to fit, the longest idle first."""
    found: list[Session] = []
    freed = 0
    for session in backend.idle:
        if backend.fits(charge - freed):
            break
        found.append(session)
        freed += backend.charged(session)
    return found


def due_at(backend: Backend, losers: Iterable[Session], arriving: int, now: float) -> float:
    """Return when ``losers`` may lose their places for ``arriving`` more tokens in the cache; at once: ``now``."""
    cost_s = backend.prefill.token_s * _lost_tokens(backend, losers, arriving, now)
    if _returns_per_s(backend, now) * cost_s < 1.0:
        return now
    return backend.starved_from(now) + cost_s


def _lost_tokens(backend: Backend, losers: Iterable[Session], arriving: int, now: float) -> float:
    """Return the tokens that are expected to be computed again: no more than do not fit the cache.

    Where other replicas have a share of the engine the cache counts as full: contexts that sessions leave there when
    they move are in nobody's shadow.
    """
    shadow, chance = backend.shadow, backend.returns.chance
    if shadow.limit is None:
        return sum(chance(session, now) * session.footprint for session in losers)
    excess = max(0.0, shadow.tokens + arriving - shadow.limit) if backend.is_all_ours else float(arriving)
    return min(excess, sum(chance(session, now) * shadow.resident(session) for session in losers))


def _returns_per_s(backend: Backend, now: float) -> float:
    """Return how many idle sessions come back in a second; of a share of the engine, others have as many."""
    newest: Collection[Session] = list(islice(reversed(backend.idle), LOOKED_AT))
    return backend.parts * sum(backend.returns.per_s(session, now) for session in newest)
