"""How long the idle places of a starved engine are left alone, while others wait for them.

Who loses a place loses the context with it: another session comes in, and the cache is full. Its next turn computes
that context again. To wait costs the engine time as well, until the first of those who are away comes back. So places
are taken at once where that is expected to take longer than the context would, and else when the engine has been
starved for as long as that: then no more than twice the time is lost that one who knew the future would lose
(ski rental; Karlin, Manasse, Rudolph, Sleator, 1988).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

from concur_proxy.core.backend import Backend
from concur_proxy.core.sessions import Session
from concur_proxy.model import FinishReason

LOOKED_AT: Final = 64
"""Those who have gone away last are the first to come back: a part of many is enough."""


def comes_back(session: Session) -> bool:
    """Tell whether another turn is to be expected: not after a final answer, unless it has gone on after one."""
    return session.finish_reason is not FinishReason.STOP or session.goes_on_after_stop


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
    cost_s = backend.prefill.token_s * _lost_tokens(backend, losers, arriving)
    if _returns_per_s(backend, now) * cost_s < 1.0:
        return now
    return backend.starved_from(now) + cost_s


def _lost_tokens(backend: Backend, losers: Iterable[Session], arriving: int) -> int:
    """Return the tokens that are computed again: no more than do not fit the cache."""
    shadow = backend.shadow
    coming = [session for session in losers if comes_back(session)]
    if shadow.limit is None:
        return sum(session.footprint for session in coming)
    excess = max(0, int(shadow.tokens + arriving - shadow.limit))
    return min(excess, sum(shadow.resident(session) for session in coming))


def _returns_per_s(backend: Backend, now: float) -> float:
    """Return how many idle sessions come back in a second.

    Each is expected in its mean think time, and who has been away for longer in as long as that again: tool calls have
    heavy tails, and some agents are gone for good. Where this replica has a share of the engine, others have as many.
    """
    newest: Collection[Session] = list(islice(reversed(backend.idle), LOOKED_AT))
    here = sum(1.0 / _away_s(session, backend, now) for session in newest if comes_back(session))
    shared = 0.0 < backend.window < backend.whole < math.inf
    return here * backend.whole / backend.window if shared else here


def _away_s(session: Session, backend: Backend, now: float) -> float:
    think = session.think or backend.think
    since = now if session.finished_at is None else session.finished_at
    return max(think.mean, now - since, 1e-3)
